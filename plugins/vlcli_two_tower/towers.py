"""The two towers of a model: built from a recipe's options, and described so that a bundle builds them again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from vlcli.errors import ComponentError, DataError
from vlcli.nn import DataSpec
from vlcli_two_tower import lora, source
from vlcli_two_tower.image import NAMES, ImageTower, Numbers, Pixels, build_image, processor
from vlcli_two_tower.lora import Tuning
from vlcli_two_tower.source import Choice, Source
from vlcli_two_tower.text import Pool, TextTower, check_text, text_config

TOKENIZERS = ("tokenizer.json", "vocab.txt")
"""Files that hold a text tower's vocabulary."""


@dataclass(frozen=True)
class Options:
    """What a recipe says of both towers; see the parameters of ``two-tower``."""

    both: Choice | None
    image: Choice
    text: Choice
    image_tuning: Tuning
    text_tuning: Tuning
    lora_rank: int
    lora_alpha: float | None
    lora_targets: list[str] | None
    lora_dropout: float
    image_size: int | None
    mean: list[float] | None
    std: list[float] | None
    text_pool: Pool


@dataclass
class Towers:
    """Built towers.

    Attributes:
        image: of images.
        text: of texts.
        dual: the dual model (CLIP, SigLIP) whose parts they are; None where they come from two sources. Without memory
            it has drawn weights.
        dual_config: its configuration.
    """

    image: ImageTower
    text: TextTower
    dual: Any = None
    dual_config: Any = None


def build(options: Options, data_spec: DataSpec) -> Towers:
    """Both towers, with their weights unless models are built without memory; tuned as the options say.

    Raises:
        ComponentError: a configuration cannot be built, or LoRA matches no layer.
        DataError: a folder, its weights or the vocabulary do not fit.
    """
    made = _both(options, data_spec) if options.both is not None else _apart(options, data_spec)
    check_text(made.text, data_spec, "text" if options.both is None else "both")
    alpha = lora.default_alpha(options.lora_rank, options.lora_alpha)
    chosen = {"rank": options.lora_rank, "alpha": alpha, "dropout": options.lora_dropout}
    targets = _split_targets(options, made)
    for side, how in (("image", options.image_tuning), ("text", options.text_tuning)):
        lora.tune(getattr(made, side).network, how, {**chosen, "targets": targets[side]}, "lora_targets")
    return made


def _split_targets(options: Options, made: Towers) -> dict[str, list[str] | None]:
    tuned = [side for side in ("image", "text") if getattr(options, f"{side}_tuning") == "lora"]
    if options.lora_targets is None or len(tuned) < 2:
        return dict.fromkeys(("image", "text"), options.lora_targets)
    own: dict[str, list[str] | None] = {}
    for side in tuned:
        network = getattr(made, side).network
        own[side] = [target for target in options.lora_targets if lora.matches(network, target)]
    idle = [target for target in options.lora_targets if not any(target in (own[side] or ()) for side in tuned)]
    return dict.fromkeys(tuned, idle) if idle else own


def _numbers(options: Options) -> tuple[Numbers | None, Numbers | None]:
    for name, given in (("mean", options.mean), ("std", options.std)):
        if given is not None and len(given) != 3:
            where = f"model.{name}"
            raise ComponentError("Pixels have three channels.", where=where, got=str(given), expected="three numbers")
    mean, std = (None if one is None else (one[0], one[1], one[2]) for one in (options.mean, options.std))
    return mean, std


def _apart(options: Options, data_spec: DataSpec) -> Towers:
    image = build_image(source.find(options.image, "image"), options.image_size, _numbers(options))
    found = source.find(options.text, "text")
    if found.library == "timm":
        what, expected = "timm has no text towers.", "a text encoder of transformers"
        raise ComponentError(what, where="model.text", got=str(found.config["architecture"]), expected=expected)
    config, part = text_config(found, data_spec)
    if found.folder is None or source.on_meta():
        network = source.build(config, "text")
    elif part:
        whole = source.configuration(found)
        network = source.load(whole, found.folder, "text").get_submodule("text_model")
    else:
        network = source.load(config, found.folder, "text")
    return Towers(image, TextTower(network, options.text_pool))


def _both(options: Options, data_spec: DataSpec) -> Towers:
    assert options.both is not None
    found = source.find(options.both, "both")
    if found.folder is None:
        found = replace(found, config=filled(found, data_spec))
    config = source.configuration(found)
    image_config, part = source.part_of(config, NAMES)
    if not part or source.part_of(config, ("text_config",))[1] == "":
        raise ComponentError(
            "This is no model of two towers.",
            where="model.both",
            got=str(found.config.get("model_type", found.library)),
            expected="a configuration with text_config and vision_config (clip, siglip)",
            hint="name its towers one by one: image, text",
        )
    drawn = found.folder is None or source.on_meta()
    dual = source.build(config, "both") if drawn else source.load(config, found.folder, "both")  # type: ignore[arg-type]
    for name in ("text_model", "vision_model"):
        if not isinstance(getattr(dual, name, None), nn.Module):
            got, expected = f"{type(dual).__name__} without {name}", "CLIP, SigLIP and models built as they are"
            raise ComponentError("This model's towers are not known.", where="model.both", got=got, expected=expected)
    image = _image_of(dual, image_config, found, options)
    return Towers(image, TextTower(dual.text_model, options.text_pool), dual, config)


def _image_of(dual: Any, config: Any, found: Source, options: Options) -> ImageTower:
    size, mean, std = processor(found.folder)
    given, own = _numbers(options), int(config.image_size)
    side = (options.image_size or own,) * 2 if options.image_size or own else size
    assert side is not None
    pixels = Pixels(side, given[0] or mean or CLIP_MEAN, given[1] or std or CLIP_STD)
    tower = ImageTower(dual.vision_model, "transformers", source.plain(config), pixels)
    with torch.device("meta"):
        probe = source.build(config, "both")
    tower.measure(probe)
    return tower


CLIP_MEAN: Numbers = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD: Numbers = (0.26862954, 0.26130258, 0.27577711)
"""Of CLIP's pictures (Radford et al. 2021, released code), where no processor says otherwise."""


def filled(found: Source, data_spec: DataSpec) -> dict[str, Any]:
    """A drawn dual model's configuration, with the data's vocabulary where it names none."""
    text = dict(found.config.get("text_config") or {})
    ids = {"pad_token_id": data_spec.pad_id, "bos_token_id": data_spec.cls_id, "eos_token_id": data_spec.sep_id}
    return {**found.config, "text_config": {"vocab_size": data_spec.vocab_size, **ids, **text}}


def described(made: Towers) -> dict[str, Any]:
    """Options that build the same towers without any folder: configurations in place of names."""
    pixels = made.image.pixels
    plain = {"mean": list(pixels.mean), "std": list(pixels.std)}
    if made.dual_config is not None:
        config = source.plain(made.dual_config)
        config["text_config"] = {**config.get("text_config", {}), **_ids(made.text.config)}
        return {"both": config, **plain}
    text = {**source.plain(made.text.config), **_ids(made.text.config)}
    return {"image": made.image.config, "text": text, "image_size": pixels.size[0], **plain}


def _ids(config: Any) -> dict[str, Any]:
    names = ("vocab_size", "pad_token_id", "bos_token_id", "eos_token_id")
    return {name: getattr(config, name) for name in names if hasattr(config, name)}


def folders(options: Mapping[str, Any]) -> dict[str, str]:
    """Options of a recipe's entry that name a tower by a word; with ``both`` the towers' own are not looked at."""
    names = ("both",) if options.get("both") is not None else ("image", "text")
    return {name: options[name] for name in names if isinstance(options.get(name), str)}


def vocabulary(options: Mapping[str, Any]) -> str | None:
    """The folder of the text tower's tokenizer; None where the tower is a configuration.

    Raises:
        DataError: the text tower's folder holds no tokenizer.
    """
    name = "both" if options.get("both") is not None else "text"
    word = options.get(name)
    if not isinstance(word, str):
        return None
    found = source.find(word, name)
    assert found.folder is not None
    if any((found.folder / file).is_file() for file in TOKENIZERS):
        return str(found.folder)
    raise DataError(
        "The text tower has no tokenizer.",
        where=str(found.folder),
        got=", ".join(sorted(path.name for path in Path(found.folder).iterdir())[:10]),
        expected=" or ".join(TOKENIZERS),
        hint="fetch the whole repository (from a slow tokenizer, transformers' AutoTokenizer.save_pretrained writes "
        "tokenizer.json), or name another: text: {vocabulary: FOLDER}",
    )
