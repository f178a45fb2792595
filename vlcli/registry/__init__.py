"""Finds, checks and builds components by kind and name.

    from vlcli import registry

    registry.entries("models")                                    # metadata only, imports nothing
    registry.load("models", "lxmert")                             # the class
    registry.check("positions", {"name": "irpe", "ratio": "x"})   # every fault of a recipe's choice
    registry.build("objectives", {"name": "mlm", "probability": 0.2}, model, spec)
    registry.of(Model).build("lxmert", data_spec)                 # the same, typed: a Model
    registry.datasets.build("csv", root, file="rows.csv")         # the same, for a notebook: by the name of a kind

A component is a class or function. vlcli passes its positional parameters; a recipe sets its keyword-only parameters.
The first line of its docstring is its summary, ``paper`` its source. Installed packages declare components as entry
points in the group ``vlcli.<kind>``, files of ``--plugin`` with ``@registry.component(kind, name)``.
"""

from typing import Any

from vlcli.registry.bounds import Between
from vlcli.registry.entries import component, entries, find, is_loaded, load_file, names, register
from vlcli.registry.lookup import (
    Broken,
    Components,
    build,
    check,
    describe,
    lacking,
    lacking_early,
    load,
    of,
    private_imports_of,
    status,
)
from vlcli.registry.packages import FILES, KINDS, Entry
from vlcli.registry.public import PrivateImportWarning
from vlcli.registry.schema import (
    AttentionSpec,
    DatasetSpec,
    DrawingSpec,
    ExporterSpec,
    ExtractorSpec,
    Kind,
    ModelSpec,
    ObjectiveSpec,
    Parameter,
    PositionSpec,
    RewriteSpec,
    RoleSpec,
    Spec,
    TaskSpec,
    TrackerSpec,
    TransformSpec,
    as_spec,
    parameters,
)


def __getattr__(kind: str) -> Components[Any]:
    """Return the components of a kind, such as ``registry.models``."""
    if kind in KINDS:
        return Components(kind)
    raise AttributeError(f"module {__name__!r} has no attribute {kind!r}")
