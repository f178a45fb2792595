"""Exports a dual model, or two towers, to transformers (``transformers-two-tower``)."""

from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from vlcli import export
from vlcli.nn import Text
from vlcli_two_tower import source
from vlcli_two_tower.model import TwoTower
from vlcli_two_tower.towers import TowerModel


class TransformersTwoTower(export.TransformersExporter):
    """A folder that ``AutoModel`` loads as CLIP or SigLIP, adapters merged, compared with the original.

    Towers of two sources, or fused ones, are written apart, as ``text`` and ``image``; timm's in transformers' wrapper.
    """

    paper = "CLIP, Radford et al. 2021; SigLIP, Zhai et al. 2023"
    models: ClassVar[tuple[str, ...]] = ("two-tower", "two-tower-fused")
    classes: ClassVar[tuple[str, ...]] = ("CLIPModel", "SiglipModel", "AutoModel of each tower")

    def convert(self, trained: export.Trained) -> list[export.Converted]:
        model = export.of_kind(trained.model, TowerModel, "towers")
        if isinstance(model, TwoTower) and model.dual_config is not None:
            kind = "SiglipImageProcessor" if "siglip" in model.dual_config.model_type else "CLIPImageProcessor"
            network = filled(model.dual_config, "both", model.released_state(model.state_dict()))
            return [export.Converted(network, partial(difference, model), text=True, processor=kind)]
        note = "transformers has no class for the fusion layers: only the towers are written"
        if isinstance(model, TwoTower):
            note = "transformers has no class for these two towers together: projections and scale are left behind"
        network = filled(model.text.config, "text", tower_state(model, "text_model."), ("pooler.",))
        text = export.Converted(network, partial(text_difference, model), "text", text=True, notes=[note])
        compare = partial(image_difference, model)
        if model.image.library == "timm":
            note = f"image: {model.image.config['architecture']} of timm, which must be installed to load it"
            return [text, export.Converted(timm_tower(model), compare, "image", notes=[note])]
        config: Any = model.image.network.config
        state = tower_state(model, "vision_model.")
        network = filled(type(config).from_dict(model.image.config), "image", state, ("pooler.",))
        return [text, export.Converted(network, compare, "image", processor="ViTImageProcessor")]


def filled(config: Any, where: str, state: dict[str, Tensor], optional: tuple[str, ...] = ()) -> Any:
    """Returns a network of transformers with these weights."""
    network = source.build(config, where)
    return export.fill(network, state, type(network).__name__, optional)


def timm_tower(model: TowerModel) -> Any:
    """Returns a tower of timm in transformers' wrapper, configured to squash pictures."""
    from transformers import TimmWrapperConfig, TimmWrapperModel

    config, pixels = model.image.config, model.image.pixels
    read = {"input_size": [3, *pixels.size], "mean": list(pixels.mean), "std": list(pixels.std)}
    read |= {"interpolation": "bicubic", "crop_pct": 1.0, "crop_mode": "squash"}
    facts = {"architecture": config["architecture"], "model_args": config.get("model_args", {}), "num_classes": 0}
    network = TimmWrapperModel(TimmWrapperConfig.from_dict({**facts, "pretrained_cfg": read}))
    state = {f"timm_model.{name}": value for name, value in tower_state(model, "vision_model.").items()}
    return export.fill(network, state, "timm wrapper")


def tower_state(model: TowerModel, prefix: str) -> dict[str, Tensor]:
    """Returns one tower's weights, adapters merged, by the names of its own class."""
    state = model.released_state(model.state_dict())
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


def difference(model: TwoTower, network: Any) -> float:
    """Returns the largest difference of a hidden state, or of a logit where texts are pooled as by CLIP and SigLIP."""
    images, text = export.random_images(model.image.pixels.size), sentences(model)
    mask = text.mask
    with torch.no_grad():
        words, pictures = model.encode_text(text), model.encode_image(images)
        options = fed(model, text) | model.image.options()
        theirs = network(pixel_values=images.pixels_for("two-tower"), **options)
        scores = model.logits_per_image(words, pictures)
    hidden = theirs.text_model_output.last_hidden_state[:, : mask.shape[1]][mask]
    pairs = [(words.hidden[mask], hidden), (pictures.hidden, theirs.vision_model_output.last_hidden_state)]
    usual = model.text.pool == ("tower" if model.text.whole else "last")
    return export.largest_difference(*pairs, *([(scores, theirs.logits_per_image)] if usual else []))


def sentences(model: TowerModel) -> Text:
    """Draws sentences; CLIP's end at its end of text, which is nowhere else."""
    text, settings = export.random_text(model.data_spec), model.text.config
    if model.text.whole:
        return text
    end = getattr(settings, "eos_token_id", None)
    end = settings.vocab_size - 1 if end in (None, 2) else int(end)  # 2: a CLIP of old, which takes the highest id
    last = text.mask & ~torch.nn.functional.pad(text.mask[:, 1:], (0, 1))
    other = torch.where(text.ids == end, (end + 1) % settings.vocab_size, text.ids)
    text.ids = torch.where(last, end, other)
    return text


def fed(model: TowerModel, text: Text) -> dict[str, Tensor]:
    """Returns the inputs of transformers' text tower: ids and mask, or ids padded to the full length without a mask."""
    ids = text.ids.masked_fill(~text.mask, model.pad_id)
    if not model.text.whole:
        return {"input_ids": ids, "attention_mask": text.mask.long()}
    more = int(model.text.config.max_position_embeddings) - ids.shape[1]
    return {"input_ids": torch.nn.functional.pad(ids, (0, more), value=model.pad_id)}


def text_difference(model: TowerModel, network: Any) -> float:
    """Returns the largest difference of a hidden state of the text tower, padding left out."""
    text = export.random_text(model.data_spec)
    with torch.no_grad():
        ours, theirs = model.text(text, model.pad_id)[0], network(**fed(model, text)).last_hidden_state
    return export.largest_difference((ours[text.mask], theirs[:, : text.mask.shape[1]][text.mask]))


def image_difference(model: TowerModel, network: Any) -> float:
    """Returns the largest difference of a hidden state of the image tower."""
    pixels = export.random_images(model.image.pixels.size).pixels_for("two-tower")
    with torch.no_grad():
        ours, theirs = model.image(pixels)[0], network(pixel_values=pixels, **model.image.options()).last_hidden_state
    theirs = theirs.flatten(2).transpose(1, 2) if theirs.dim() == 4 else theirs
    return export.largest_difference((ours, theirs))
