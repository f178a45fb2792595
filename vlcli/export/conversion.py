"""The seam to transformers: a trained model, or its parts, as networks of transformers, written and compared.

An exporter for a family subclasses :class:`TransformersExporter`, names the models it knows, and converts: it builds
networks of transformers with the model's weights and says how their outputs are compared with the model's. The base
writes them with tokenizer and image processor, loads them again by ``from_pretrained``, and compares.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar

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
CLOSE = 1e-4
"""Largest difference between the outputs of the two that passes: float32 sums in another order."""


@dataclass
class Converted:
    """A network of transformers that holds a trained model's weights.

    Attributes:
        network: in evaluation mode.
        difference: called with the network as ``from_pretrained`` loads it again; returns the largest absolute
            difference of its outputs from the trained model's, on random inputs with padding.
        folder: where it is written, for a part of a model that has no class as a whole; empty: the folder itself.
        text: the tokenizer is written beside it.
        processor: class of the image processor that is written beside it; empty: none.
        notes: lines for the user: what stays behind.
    """

    network: Any
    difference: Callable[[Any], float]
    folder: str = ""
    text: bool = False
    processor: str = ""
    notes: list[str] = field(default_factory=list)


class TransformersExporter(Exporter):
    """Base of exporters that write folders for ``from_pretrained``.

    ``format: transformers`` and ``format: hub`` choose the exporter whose ``models`` hold the trained model's name.

    Attributes:
        models: names of the models that it converts, as they are registered.
        classes: transformers' classes that it writes, for messages.
    """

    writes: ClassVar[str] = "transformers"
    models: ClassVar[tuple[str, ...]] = ()
    classes: ClassVar[tuple[str, ...]] = ()

    def convert(self, trained: Trained) -> list[Converted]:
        """The networks of transformers that compute what the model, or its parts, compute.

        Called once per export stage. Subclasses define it.

        Args:
            trained: the model, its objectives, tokenizer and sizes, in evaluation mode.

        Returns:
            One network for the whole model, or one for each part, each with a folder of its own.

        Raises:
            NotImplementedError: the subclass does not define it.
            ComponentError: the model has something that transformers' class lacks; :func:`refused` makes it.
        """
        raise NotImplementedError(f"{type(self).__name__} does not convert")

    def export(self, trained: Trained, folder: Path, progress: Progress) -> Exported:
        """Write ``model/`` whole: beside, then renamed; each network is loaded again and compared.

        Raises:
            ComponentError: transformers has no class that computes what the model does.
            DataError: what was written gives other outputs.
        """
        final, notes, differences = folder / FOLDER, [], [0.0]
        parts = self.convert(trained)
        with new_folder(final) as beside:
            for part in parts:
                lost, said = _write(part, trained, beside / part.folder)
                differences.append(lost)
                place, name = final / part.folder, type(part.network).__name__
                notes += [f"{place}: {name}; largest difference of an output {lost:.2g}", *part.notes, *said]
        return Exported({"model": FOLDER}, notes, {"max_difference": max(differences)})


class Transformers(Exporter):
    """A folder that transformers' class for the model loads by ``from_pretrained``, compared with the original.

    The exporter of the model's family writes it; ``vlcli ls exporters`` lists them. Tokenizer and image processor lie
    beside the weights.

    Args:
        architecture: which class of the family's, where its exporter has the option; ``auto`` lets it choose.
    """

    packages: ClassVar[tuple[str, ...]] = TransformersExporter.packages
    install: ClassVar[str] = TransformersExporter.install

    def __init__(self, *, architecture: str = "auto") -> None:
        self.architecture = architecture

    def export(self, trained: Trained, folder: Path, progress: Progress) -> Exported:
        return exporter_of(trained, self.architecture).export(trained, folder, progress)


def exporter_of(trained: Trained, architecture: str = "auto") -> Exporter:
    """The exporter that converts a trained model's family.

    Raises:
        ComponentError: no exporter knows it; the message names the models that can be converted.
    """
    known = converters()
    wanted = str(as_spec(getattr(trained, "model_spec", None) or "")["name"]).rpartition(":")[2]
    for name, kind in known.items():
        if wanted in kind.models:
            choice = {} if architecture == "auto" else {"architecture": architecture}
            made: Exporter = registry.of(Exporter).build({"name": name, **choice})
            return made
    raise ComponentError(
        f"vlcli knows no class of transformers that equals {type(trained.model).__name__}.",
        where="exporter transformers",
        got=f"model: {wanted}",
        expected="; ".join(f"{' or '.join(kind.models)} ({', '.join(kind.classes)})" for kind in known.values()),
        hint="format: safetensors or onnx",
    )


def converters() -> dict[str, type[TransformersExporter]]:
    """The registered exporters that convert models, by name; those of a plugin that cannot be imported are left out."""
    found = {}
    for name in registry.names("exporters"):
        with suppress(ComponentError):
            kind = registry.load("exporters", name)
            if isinstance(kind, type) and issubclass(kind, TransformersExporter):
                found[name] = kind
    return found


def _write(part: Converted, trained: Trained, folder: Path) -> tuple[float, list[str]]:
    folder.mkdir(parents=True, exist_ok=True)
    notes = []
    with quiet_transformers():
        part.network.save_pretrained(folder)
        if part.text and trained.tokenizer is not None:
            notes += write_tokenizer(trained, folder)
        if part.processor:
            notes += write_processor(trained, folder, part.processor)
        loaded, drawn = _loaded(type(part.network), folder)
    if drawn:
        notes.append(f"{part.folder or 'model'}: its pooler has no weights: read last_hidden_state, not pooler_output")
    lost = part.difference(loaded)
    if not lost < CLOSE:
        what, name = "What was written gives other outputs.", type(part.network).__name__
        raise DataError(what, where=f"{folder} ({name})", got=f"{lost:.3g}", expected=f"less than {CLOSE}")
    return lost, notes


def _loaded(kind: Any, folder: Path) -> tuple[Any, bool]:
    network, report = kind.from_pretrained(folder, output_loading_info=True)
    lost = [name for name in report["missing_keys"] if "pooler." not in name]
    lost += [*report["unexpected_keys"], *map(str, report["mismatched_keys"])]
    if lost:
        what = "transformers does not read back the weights that it wrote."
        raise DataError(what, where=str(folder), got=", ".join(lost[:4]), expected=f"all weights of {kind.__name__}")
    return network.eval(), bool(report["missing_keys"])


def refused(family: str, got: str, expected: str) -> ComponentError:
    """What to raise where transformers' class lacks something that the model has.

    Args:
        family: transformers' class as users call it: ``ViT``, ``LXMERT``.
        got: what the model has.
        expected: the options of a model that can be written.
    """
    what = f"transformers' {family} cannot express this model."
    hint = "format: safetensors or onnx"
    return ComponentError(what, where="exporter transformers", got=got, expected=expected, hint=hint)


def of_kind(model: Any, kind: type[M], family: str) -> M:
    """The model, which must be of a class that the exporter knows.

    Args:
        model: what was trained.
        kind: the class.
        family: transformers' class, for the message.

    Raises:
        ComponentError: it is of another class.
    """
    if not isinstance(model, kind):
        raise refused(family, type(model).__name__, f"a model of the class {kind.__name__}")
    return model


def check_plain(module: nn.Module, family: str, position: str = "position") -> None:
    """Refuse a stack whose attention is not the standard one, or has a pairwise position encoding.

    Args:
        module: the layers.
        family: transformers' class, for the message.
        position: the option that sets the encoding, for the message.

    Raises:
        ComponentError: it names the encoding or the attention.
    """
    found = encodings(module)
    if found:
        raise refused(family, f"the position encoding {' and '.join(found)}", f"{position}: none")
    kinds = {type(part) for part in module.modules() if isinstance(part, Attention)}
    other = sorted(kind.__name__ for kind in kinds if kind is not StandardAttention)
    if other:
        raise refused(family, f"the attention {' and '.join(other)}", "attention: standard")


def encodings(module: nn.Module) -> list[str]:
    """Class names of the pairwise encodings inside a module, each once."""
    found = [part for part in module.modules() if isinstance(part, PairwisePosition)]
    return list(dict.fromkeys(type(part).__name__ for part in found if not isinstance(part, CombinedPairwise)))


def fill(network: Any, state: dict[str, Tensor], family: str, optional: tuple[str, ...] = ()) -> Any:
    """A network of transformers with given weights, in evaluation mode.

    Args:
        network: as its configuration builds it.
        state: weights by its names.
        family: transformers' class, for the message.
        optional: beginnings of names that may keep what the network has: tied weights, biases that are zero.

    Raises:
        ComponentError: names or shapes are not those of this version of transformers.
    """
    wanted = network.state_dict()
    wrong = [name for name, value in state.items() if name not in wanted or wanted[name].shape != value.shape]
    wrong += [name for name in wanted if name not in state and not name.startswith(optional or ("\0",))]
    if wrong:
        raise refused(family, f"weights without a place: {', '.join(sorted(wrong)[:4])}", "transformers 5")
    network.load_state_dict(state, strict=False)
    return network.eval()


def largest_difference(*pairs: tuple[Tensor, Tensor]) -> float:
    """The largest absolute difference between ours and theirs, over pairs of tensors of one shape."""
    return max(float((ours - theirs).abs().max()) for ours, theirs in pairs)
