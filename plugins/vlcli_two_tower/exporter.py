"""The exporter ``transformers-two-tower``: a folder that transformers' CLIP and SigLIP classes load."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import torch

from vlcli.errors import ComponentError, DataError
from vlcli.export import Exported, Exporter, Trained
from vlcli.files import new_folder, write_json
from vlcli.nn import Text
from vlcli.progress import Progress
from vlcli_two_tower import source
from vlcli_two_tower.model import TwoTower

FOLDER, CLOSE = "model", 1e-4


class TransformersTwoTower(Exporter):
    """A folder that ``AutoModel`` loads as CLIP or SigLIP, adapters merged, compared with the original.

    The model must have been made of a dual model (``both``). Tokenizer and processor lie beside the weights.
    """

    paper = "CLIP, Radford et al. 2021; SigLIP, Zhai et al. 2023"
    packages: ClassVar[tuple[str, ...]] = ("transformers",)
    install = "pip install 'vlcli[hf]'"
    writes = "transformers"

    def export(self, trained: Trained, folder: Path, progress: Progress) -> Exported:
        """Write ``model/`` whole: beside, then renamed.

        Raises:
            ComponentError: the model is not made of a dual model of transformers.
            DataError: transformers gives other hidden states.
        """
        model = checked(trained.model)
        theirs = filled(model)
        lost = difference(model, theirs)
        if not lost < CLOSE:
            raise DataError("transformers gives other hidden states.", got=f"{lost:.3g}", expected=f"< {CLOSE}")
        final = folder / FOLDER
        with new_folder(final) as beside:
            if trained.tokenizer is not None:
                trained.tokenizer.save(beside)
                _name_class(beside, theirs.config)
            with source.quiet():
                theirs.save_pretrained(beside)
            write_json(beside / "preprocessor_config.json", processor(model))
        notes = [f"{final}: {type(theirs).__name__}; largest difference of a hidden state {lost:.2g}"]
        return Exported({"model": FOLDER}, notes, {"max_difference": lost})


def checked(model: Any) -> TwoTower:
    """A model that is a dual model of transformers.

    Raises:
        ComponentError: it is another, or was made of two sources.
    """
    got = type(model).__name__ if not isinstance(model, TwoTower) else "towers of two sources"
    if isinstance(model, TwoTower) and model.dual_config is not None:
        return model
    raise ComponentError(
        "transformers has no class for this model.",
        where="exporter transformers-two-tower",
        got=got,
        expected="model: {name: two-tower, both: ...}",
        hint="format: safetensors or onnx",
    )


def filled(model: TwoTower) -> Any:
    """Transformers' dual model with the weights of ours.

    Raises:
        ComponentError: names or shapes are not those of this version of transformers.
    """
    theirs = source.build(model.dual_config, "both")
    missing, unknown = theirs.load_state_dict(model.released_state(model.state_dict()), strict=False)
    if missing or unknown:
        got = f"weights without a place: {', '.join([*missing, *unknown][:4])}"
        where = "exporter transformers-two-tower"
        raise ComponentError("transformers has other weights.", where=where, got=got, expected="transformers 5")
    return theirs.eval()


def difference(model: TwoTower, theirs: Any) -> float:
    """The largest difference of a hidden state of either tower, on random pictures and sentences of full length."""
    rng = torch.Generator().manual_seed(0)
    length = int(model.text.config.max_position_embeddings)
    ids = torch.randint(0, int(model.text.config.vocab_size) - 1, (3, length), generator=rng)
    pixels = torch.randn(2, 3, *model.image.pixels.size, generator=rng)
    whole = torch.ones_like(ids, dtype=torch.bool)
    with torch.no_grad():
        text, image = model.text(Text(ids, whole, ~whole, ids * 0), model.pad_id), model.image(pixels)
        options = model.image.options()
        wanted = theirs.vision_model(pixel_values=pixels, **options).last_hidden_state
        words = theirs.text_model(input_ids=ids).last_hidden_state
        parts = [text[0] - words, image[0] - wanted]
        return max(float(part.abs().max()) for part in parts)


def processor(model: TwoTower) -> dict[str, Any]:
    """What transformers' image processor reads: a squashed picture of the model's size, normalised as in training."""
    kind = "SiglipImageProcessor" if "siglip" in model.dual_config.model_type else "CLIPImageProcessor"
    pixels = model.image.pixels
    size = {"height": pixels.size[0], "width": pixels.size[1]}
    return {
        "image_processor_type": kind,
        "do_resize": True,
        "do_center_crop": False,
        "do_rescale": True,
        "do_normalize": True,
        "rescale_factor": 1 / 255,
        "resample": 2,
        "size": size,
        "image_mean": list(pixels.mean),
        "image_std": list(pixels.std),
    }


def _name_class(folder: Path, config: Any) -> None:
    """Any tokenizer.json loads as a plain fast tokenizer, which adds the special tokens that the file names."""
    file = folder / "tokenizer_config.json"
    content = source.read_json(file, "tokenizer")
    content["tokenizer_class"] = "PreTrainedTokenizerFast"
    content["model_max_length"] = int(config.text_config.max_position_embeddings)
    write_json(file, content)
