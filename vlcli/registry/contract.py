"""Lists the base class and methods that each kind of component requires, and checks components."""

import inspect
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from vlcli.errors import ComponentError, VlcliError
from vlcli.registry.public import public_name


@dataclass(frozen=True)
class Contract:
    """The requirements of one kind of component.

    Attributes:
        bases: ``module:name``; one of them is required.
        methods: to be defined by a component.
        unless: methods of which one, if defined, replaces all of ``methods`` (a task's ``evaluate`` or ``solve``).
        passes: positional arguments of ``__init__``.
    """

    bases: tuple[str, ...]
    methods: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    passes: tuple[str, ...] = ()


CONTRACTS = {
    "models": Contract(("vlcli.nn.model:Model",), ("dim", "input_spec"), passes=("data_spec",)),
    "objectives": Contract(("vlcli.objectives.base:Objective",), ("forward",), passes=("model", "data_spec")),
    "positions": Contract(("vlcli.nn.position:TokenPosition", "vlcli.nn.position:PairwisePosition"), passes=("shape",)),
    "attentions": Contract(("vlcli.nn.attention:Attention",), ("project",), passes=("shape",)),
    "equippers": Contract(("vlcli.foreign.equipment:AttentionEquipper",), ("takes", "heads", "install")),
    "extractors": Contract(("vlcli.detection.extractor:Extractor",)),
    "datasets": Contract(("vlcli.data.reader:Reader",), ("files", "read"), passes=("root",)),
    "tasks": Contract(("vlcli.tasks.base:Task",), ("decode", "score"), ("evaluate", "predictions", "solve")),
    "transforms": Contract(("vlcli.data.transforms.base:Transform",), passes=("needs",)),
    "roles": Contract(("vlcli.data.language.roles:Role",), ("spans",)),
    "rewrites": Contract(("vlcli.data.language.rewrites:Rewrite",), ("changes",)),
    "exporters": Contract(("vlcli.export.base:Exporter",), ("export",)),
    "drawings": Contract(("vlcli.drawings.base:Drawing",), ("draw",)),
    "trackers": Contract(("vlcli.engine.trackers:Tracker",), ("log",), passes=("folder",)),
    "formats": Contract(("vlcli.features.formats.base:Format",), ("entries",)),
    "worlds": Contract(("vlcli.data.world:World",), ("make",)),
}
# Methods that a model must define for each of its capabilities
CAPABLE = {
    "text": ("encode_text",),
    "image": ("encode_image",),
    "fuse": ("fuse",),
    "generate": ("start", "step"),
    "decode": ("decode", "next_words"),
    "detect": ("detect", "detection_losses"),
    "pyramid": ("pyramid", "pyramid_channels"),
}


def fault(kind: str, target: Any) -> str:
    """Returns what a component lacks of its kind; empty if it is complete, or a function."""
    contract = CONTRACTS.get(kind)
    if contract is None or inspect.isfunction(target):
        return ""
    if not inspect.isclass(target):
        return f"it is a {type(target).__name__}, not a class"
    if not {place(one) for one in target.__mro__} & set(contract.bases):
        expected = " or ".join(public_name(base.replace(":", ".")) for base in contract.bases)
        return f"its base class is not {expected}"
    replaced = any(overrides(target, name, contract.bases) for name in contract.unless)
    methods = set() if replaced else set(contract.methods)
    capabilities = getattr(target, "capabilities", ())
    if kind == "models" and isinstance(capabilities, frozenset | set | tuple):
        methods.update(*(CAPABLE.get(capability, ()) for capability in capabilities))
    missing = sorted(name for name in methods if not overrides(target, name, contract.bases))
    missing += sorted(set(getattr(target, "__abstractmethods__", ())) - set(missing))
    return f"it does not define {', '.join(missing)}" if missing else _misfit(target, contract.passes)


def incomplete(kind: str, name: str, got: str, where: str, author: str) -> ComponentError:
    """Returns the error for a component that lacks a part of its kind (``got``)."""
    one = kind[:-1]
    what = f"The {one} {name!r} is not what {'an' if one[0] in 'aeiou' else 'a'} {one} must be."
    hint = f"this is for its author ({author}); docs/seams.md lists what each kind must be"
    return ComponentError(what, where=where, got=got, hint=hint)


def overrides(target: type, name: str, bases: Iterable[str]) -> bool:
    """Whether a class or one of its parents below ``bases`` (``module:name``) defines ``name``."""
    for one in target.__mro__:
        if place(one) in bases:
            return False
        if name in vars(one):
            return True
    return False


def origin(target: Any) -> str:
    """Returns ``file:line`` of a component's definition, or ""."""
    try:
        return f"{inspect.getsourcefile(target)}:{inspect.getsourcelines(target)[1]}"
    except (OSError, TypeError):
        return ""


def blame(error: BaseException, *targets: Any) -> str:
    """Returns ``file:line`` of the innermost frame in a file of ``targets``, else outside site-packages."""
    files = {origin(target).rpartition(":")[0] for target in targets} - {""}
    frames = traceback.extract_tb(error.__traceback__)
    inside = [frame for frame in frames if frame.filename in files]
    outside = [frame for frame in frames if "site-packages" not in frame.filename and "<" not in frame.filename]
    return next((f"{one.filename}:{one.lineno}" for one in reversed(inside or outside or frames)), "")


def in_a_line(error: BaseException) -> str:
    """Returns type and first line of an exception."""
    return f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}"


@contextmanager
def blamed(kind: str, name: str, target: Any) -> Iterator[None]:
    """Turns what the code of a component raises, but for errors of vlcli and of files, into :func:`unforeseen`."""
    try:
        yield
    except (VlcliError, OSError):
        raise
    except (Exception, SystemExit) as error:
        raise unforeseen(error, kind, name, target) from error


def unforeseen(error: BaseException, kind: str, name: str, target: Any) -> ComponentError:
    """Returns the error for an exception raised by the code of a component, with file and line."""
    own, line = origin(target), blame(error, target)
    where = line if line.rpartition(":")[0] == own.rpartition(":")[0] else own or line
    got, hint = in_a_line(error), "this is for the author of the component; -vv shows the traceback"
    return ComponentError(f"The {kind[:-1]} {name!r} fails with an error of its own.", where=where, got=got, hint=hint)


def place(target: Any) -> str:
    """Returns ``module:name`` of a class."""
    return f"{target.__module__}:{target.__qualname__}"


def _misfit(target: type, passes: tuple[str, ...]) -> str:
    try:
        taken = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):  # a class whose signature Python does not know
        return ""
    if any(one.kind is one.VAR_POSITIONAL for one in taken):
        return ""
    names = [one for one in taken if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    if len([one.name for one in names if one.default is one.empty]) <= len(passes) <= len(names):
        return ""
    has = ", ".join(one.name for one in names) or "no positional parameter"
    return f"its __init__ takes {has}, and vlcli passes {', '.join(passes) or 'none'}"
