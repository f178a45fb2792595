"""Converts a trained model, or its parts, to networks of transformers.

An exporter for a family subclasses :class:`TransformersExporter` and builds networks of transformers with the model's
weights. The base writes them with tokenizer and image processor, loads them again by ``from_pretrained``, and compares
their outputs with the model's.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from vlcli import registry
from vlcli.errors import ComponentError, DataError
from vlcli.export.base import Exported, Exporter, Trained
from vlcli.export.processors import write_processor, write_tokenizer
from vlcli.files import new_folder
from vlcli.nn import Attention, CombinedPairwise, PairwisePosition, StandardAttention, quiet_transformers
from vlcli.progress import Progress
from vlcli.registry import as_spec

M = TypeVar("M")
FOLDER = "model"
# Largest accepted difference of an output: float32 sums in another order
CLOSE = 1e-4


@dataclass
class Converted:
    """A network of transformers that holds a trained model's weights.

    Attributes:
        network: in evaluation mode.
        difference: called with the network as ``from_pretrained`` loads it; returns the largest absolute difference
            of its outputs from the trained model's, on random inputs with padding.
        folder: subfolder, for a part of a model that has no class as a whole.
        processor: class of the image processor that is written too, as ``text`` is the tokenizer; empty: none.
        notes: lines for the user.
    """

    network: Any
    difference: Callable[[Any], float]
    folder: str = ""
    text: bool = False
    processor: str = ""
    notes: list[str] = field(default_factory=list)


class TransformersExporter(Exporter):
    """Base of exporters that write folders for ``from_pretrained``.

    ``format: transformers`` and ``format: hub`` choose the exporter whose ``models`` hold the registered name of the
    trained model; ``classes`` are transformers' classes, for messages.
    """

    writes: ClassVar[str] = "transformers"
    models: ClassVar[tuple[str, ...]] = ()
    classes: ClassVar[tuple[str, ...]] = ()

    def convert(self, trained: Trained) -> list[Converted]:
        """Return networks of transformers that compute what the model computes; called once per export stage.

        There is one, or one for each part of the model, with a subfolder. Subclasses define it; they raise
        ComponentError (:func:`refused`) for what transformers' class lacks.
        """
        raise NotImplementedError(f"{type(self).__name__} does not convert")

    def export(self, trained: Trained, folder: Path, progress: Progress) -> Exported:
        """Write ``model/`` complete or not at all; DataError if a network, loaded again, gives other outputs."""
        final, notes, differences = folder / FOLDER, [], [0.0]
        parts = self.convert(trained)
        with new_folder(final) as beside:
            for part in parts:
                lost, more = _write(part, trained, beside / part.folder)
                differences.append(lost)
                where, name = final / part.folder, type(part.network).__name__
                notes += [f"{where}: {name}; largest difference of an output {lost:.2g}", *part.notes, *more]
        return Exported({"model": FOLDER}, notes, {"max_difference": max(differences)})


class Transformers(Exporter):
    """A folder for ``from_pretrained`` with weights, tokenizer and image processor, compared with the original.

    The exporter of the model's family writes it; ``vlcli ls exporters`` lists them.

    Args:
        architecture: class of the family, if its exporter has the option; ``auto`` lets it choose.
    """

    def __init__(self, *, architecture: str = "auto") -> None:
        self.architecture = architecture

    def export(self, trained: Trained, folder: Path, progress: Progress) -> Exported:
        return exporter_of(trained, self.architecture).export(trained, folder, progress)


def exporter_of(trained: Trained, architecture: str = "auto") -> Exporter:
    """Return the exporter of a trained model's family; ComponentError names the models that can be converted."""
    wanted = str(as_spec(getattr(trained, "model_spec", None) or "")["name"]).rpartition(":")[2]
    convertible = []
    for name in registry.names("exporters"):
        with suppress(ComponentError):  # it cannot be imported
            kind = registry.load("exporters", name)
            if isinstance(kind, type) and issubclass(kind, TransformersExporter):
                if wanted in kind.models:
                    choice = {} if architecture == "auto" else {"architecture": architecture}
                    break
                convertible.append(f"{' or '.join(kind.models)} ({', '.join(kind.classes)})")
    else:
        what = f"vlcli knows no class of transformers that equals {type(trained.model).__name__}."
        where, hint = "exporter transformers", "format: safetensors or onnx"
        raise ComponentError(what, where=where, got=f"model: {wanted}", expected="; ".join(convertible), hint=hint)
    return registry.of(Exporter).build({"name": name, **choice})


def _write(part: Converted, trained: Trained, folder: Path) -> tuple[float, list[str]]:
    folder.mkdir(parents=True, exist_ok=True)
    notes, kind = [], type(part.network)
    with quiet_transformers():
        part.network.save_pretrained(folder)
        if part.text and trained.tokenizer is not None:
            write_tokenizer(trained, folder)
        if part.processor:
            notes += write_processor(trained, folder, part.processor)
        loaded, report = kind.from_pretrained(folder, output_loading_info=True)
    lost = [name for name in report["missing_keys"] if "pooler." not in name]
    if lost := [*lost, *report["unexpected_keys"], *map(str, report["mismatched_keys"])]:
        what = "transformers does not read back the weights that it wrote."
        raise DataError(what, where=str(folder), got=", ".join(lost[:4]), expected=f"all weights of {kind.__name__}")
    if report["missing_keys"]:
        notes.append(f"{part.folder or 'model'}: its pooler has no weights: read last_hidden_state, not pooler_output")
    difference = part.difference(loaded.eval())
    if not difference < CLOSE:
        what, where = "What was written gives other outputs.", f"{folder} ({kind.__name__})"
        raise DataError(what, where=where, got=f"{difference:.3g}", expected=f"less than {CLOSE}")
    return difference, notes


def refused(family: str, got: str, expected: str) -> ComponentError:
    """Return the error for a model that has something (``got``) that transformers' class (``family``) lacks."""
    what = f"transformers' {family} cannot express this model."
    hint = "format: safetensors or onnx"
    return ComponentError(what, where="exporter transformers", got=got, expected=expected, hint=hint)


def of_kind(model: Any, kind: type[M], family: str) -> M:
    """Return the model; raise ComponentError for ``family`` if it is not of the class ``kind``."""
    if not isinstance(model, kind):
        raise refused(family, type(model).__name__, f"a model of the class {kind.__name__}")
    return model


def check_plain(module: nn.Module, family: str, position: str = "position") -> None:
    """Raise ComponentError for a stack whose attention is not the standard one, or has a pairwise position encoding.

    ``family`` is transformers' class, and ``position`` the option that sets the encoding, for the message.
    """
    if names := encodings(module):
        raise refused(family, f"the position encoding {' and '.join(names)}", f"{position}: none")
    kinds = {type(part) for part in module.modules() if isinstance(part, Attention)} - {StandardAttention}
    if kinds:
        other = " and ".join(sorted(kind.__name__ for kind in kinds))
        raise refused(family, f"the attention {other}", "attention: standard")


def encodings(module: nn.Module) -> list[str]:
    """Return the class names of the pairwise encodings inside a module."""
    parts = [part for part in module.modules() if isinstance(part, PairwisePosition)]
    return list(dict.fromkeys(type(part).__name__ for part in parts if not isinstance(part, CombinedPairwise)))


def fill(network: Any, state: dict[str, Tensor], family: str, optional: tuple[str, ...] = ()) -> Any:
    """Load weights into a network of transformers for ``family``, and set evaluation mode.

    ``optional`` are beginnings of names that may keep their values: tied weights, biases that are zero. Raises
    ComponentError if names or shapes are not those of this version of transformers.
    """
    wanted = network.state_dict()
    wrong = [name for name, value in state.items() if name not in wanted or wanted[name].shape != value.shape]
    wrong += [name for name in wanted if name not in state and not name.startswith(optional or ("\0",))]
    if wrong:
        raise refused(family, f"weights without a place: {', '.join(sorted(wrong)[:4])}", "transformers 5")
    network.load_state_dict(state, strict=False)
    return network.eval()


def largest_difference(*pairs: tuple[Tensor, Tensor]) -> float:
    """Return the largest absolute difference of pairs of tensors; NaN if one holds any."""
    return float(torch.stack([(ours - theirs).abs().max().double() for ours, theirs in pairs]).max())
