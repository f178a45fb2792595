"""The components of one kind, typed by its base class: ``registry.models.build(spec, data_spec)`` is a ``Model``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from vlcli.errors import Problem
from vlcli.registry import lookup
from vlcli.registry.entries import Entry
from vlcli.registry.entries import entries as listed

if TYPE_CHECKING:
    from torch import nn

    from vlcli.data.language.rewrites import Rewrite
    from vlcli.data.language.roles import Role
    from vlcli.data.reader import Reader
    from vlcli.data.transforms.base import Transform
    from vlcli.data.world import World
    from vlcli.detection.extractor import Extractor
    from vlcli.drawings.base import Drawing
    from vlcli.engine.trackers import Tracker
    from vlcli.export.base import Exporter
    from vlcli.features.formats import Format
    from vlcli.foreign.equipper import AttentionEquipper
    from vlcli.nn.attention import Attention
    from vlcli.nn.model import Model
    from vlcli.nn.position import PairwisePosition, TokenPosition
    from vlcli.objectives.base import Objective
    from vlcli.tasks.base import Task

T = TypeVar("T")


class Registry(Generic[T]):
    """The components of one kind.

    Base class and required methods of a component are those that :mod:`vlcli.registry.contract` lists for its kind.

    Args:
        kind: one of :data:`vlcli.registry.KINDS`.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def entries(self) -> list[Entry]:
        """Every registered component, sorted; imports none."""
        return listed(self.kind)

    def names(self) -> list[str]:
        """Their names, each once; imports none."""
        return sorted({entry.name for entry in listed(self.kind)})

    def load(self, name: str) -> type[T]:
        """The class (or function) registered as ``name``.

        Raises:
            ComponentError: unknown or ambiguous, its import fails, or it lacks the base class or a method of the kind.
        """
        return cast("type[T]", lookup.load(self.kind, name))

    def check(self, value: Any, key: str = "") -> list[Problem]:
        """Every fault of a recipe's choice: name, import, unknown keys, types, nested components.

        Args:
            value: a name, or a mapping with ``name`` and parameters.
            key: where in the recipe it stands (dotted).
        """
        return lookup.check(self.kind, value, key)

    def build(self, value: Any, *context: Any, **extra: Any) -> T:
        """The component that a recipe chose.

        Args:
            value: a name, or a mapping with ``name`` and parameters.
            context: positional arguments, those that the kind's base class documents.
            extra: keyword arguments that vlcli adds.

        Raises:
            ComponentError: as :meth:`load`, or a parameter is unknown or of a wrong type.
        """
        return cast("T", lookup.build(self.kind, value, *context, **extra))


models: Registry[Model] = Registry("models")
"""The components of the kind ``models``."""
objectives: Registry[Objective] = Registry("objectives")
"""The components of the kind ``objectives``."""
positions: Registry[TokenPosition | PairwisePosition] = Registry("positions")
"""The components of the kind ``positions``."""
attentions: Registry[Attention] = Registry("attentions")
"""The components of the kind ``attentions``."""
equippers: Registry[AttentionEquipper] = Registry("equippers")
"""The components of the kind ``equippers``."""
extractors: Registry[Extractor] = Registry("extractors")
"""The components of the kind ``extractors``."""
datasets: Registry[Reader] = Registry("datasets")
"""The components of the kind ``datasets``."""
tasks: Registry[Task] = Registry("tasks")
"""The components of the kind ``tasks``."""
transforms: Registry[Transform] = Registry("transforms")
"""The components of the kind ``transforms``."""
roles: Registry[Role] = Registry("roles")
"""The components of the kind ``roles``."""
rewrites: Registry[Rewrite] = Registry("rewrites")
"""The components of the kind ``rewrites``."""
exporters: Registry[Exporter] = Registry("exporters")
"""The components of the kind ``exporters``."""
drawings: Registry[Drawing] = Registry("drawings")
"""The components of the kind ``drawings``."""
trackers: Registry[Tracker] = Registry("trackers")
"""The components of the kind ``trackers``."""
heads: Registry[nn.Module] = Registry("heads")
"""The components of the kind ``heads``."""
formats: Registry[Format] = Registry("formats")
"""The components of the kind ``formats``."""
worlds: Registry[World] = Registry("worlds")
"""The components of the kind ``worlds``."""
