"""Builds image and text towers from any encoder of timm or of transformers."""

import inspect
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vlcli.errors import ComponentError, DataError
from vlcli.nn import IMAGENET_MEAN, IMAGENET_STD, DataSpec, Layout, Text
from vlcli_two_tower import source
from vlcli_two_tower.source import Source

Pool = Literal["auto", "first", "last", "mean", "tower"]
# Towers whose sentence is the hidden state of its last real token (CLIP's end of text).
_LAST = ("clip_text_model", "metaclip_2_text_model")
# Towers that read every sentence padded to full length, padding included, as they were trained.
_WHOLE = ("siglip_text_model", "siglip2_text_model")


class TextTower(nn.Module):
    """A text encoder of transformers.

    Args:
        pool: the vector of a sentence: of its first or last real token, the mean over real tokens, or the tower's own;
            ``auto``: as the tower was trained.
    """

    def __init__(self, network: Any, pool: Pool = "auto") -> None:
        super().__init__()
        self.network: Any = network
        self.config: Any = network.config
        self.hidden = int(self.config.hidden_size)
        self.whole = self.config.model_type in _WHOLE
        usual: Pool = "last" if self.config.model_type in _LAST else "tower" if self.whole else "first"
        self.pool = usual if pool == "auto" else pool
        projected = getattr(self.config, "projection_size", None) if self.whole and self.pool == "tower" else None
        self.pooled = int(projected or self.hidden)

    def pad_id(self, data_spec: DataSpec) -> int:
        """Returns the id that the tower was trained to see at padding."""
        pad = getattr(self.config, "pad_token_id", None)
        return pad if isinstance(pad, int) and 0 <= pad < self.config.vocab_size else data_spec.pad_id

    def forward(self, text: Text, pad: int) -> tuple[Tensor, Tensor]:
        """Returns states (N, T, D) and one vector a sentence (N, D')."""
        ids, words = text.ids.masked_fill(~text.mask, pad), text.ids.shape[1]
        if self.whole:
            out = self.network(F.pad(ids, (0, int(self.config.max_position_embeddings) - words), value=pad))
        else:
            mask = None if ids.is_meta else text.mask.long()  # transformers reads a mask's values
            out = self.network(input_ids=ids, attention_mask=mask)
        hidden: Tensor = out.last_hidden_state  # (N, T, D)
        return hidden[:, :words], self._pooled(out, hidden, text.mask)

    def _pooled(self, out: Any, hidden: Tensor, mask: Tensor) -> Tensor:
        if self.pool == "tower":
            if getattr(out, "pooler_output", None) is None:
                what, where = "The text tower pools nothing itself.", "model.text_pool"
                raise DataError(what, where=where, got="tower", expected="first, mean")
            return torch.as_tensor(out.pooler_output)
        if self.pool == "first":
            return hidden[:, 0]
        if self.pool == "mean":
            real = mask[..., None].to(hidden.dtype)
            return (hidden[:, : mask.shape[1]] * real).sum(1) / real.sum(1).clamp(min=1)
        last = (mask.long().sum(1) - 1).clamp(min=0)  # (N,)
        return hidden.gather(1, last[:, None, None].expand(-1, 1, hidden.shape[-1]))[:, 0]

    def embeddings(self) -> nn.Embedding:
        return cast("nn.Embedding", self.network.get_input_embeddings())


# Keys of a text tower's configuration, and the fields of DataSpec that fill them where it leaves them out
IDS = {"pad_token_id": "pad_id", "bos_token_id": "cls_id", "eos_token_id": "sep_id", "vocab_size": "vocab_size"}


def completed(tower: Source, data_spec: DataSpec) -> Source:
    """Returns the source of a text tower or dual model; for drawn weights the data completes its configuration."""
    if tower.folder is not None:
        return tower
    config, ids = tower.config, {key: getattr(data_spec, field) for key, field in IDS.items()}
    dual = {"text_config", "vision_config"} & config.keys() or config.get("model_type") in ("clip", "siglip")
    if dual or tower.where == "both":
        return replace(tower, config={**config, "text_config": {**ids, **(config.get("text_config") or {})}})
    return replace(tower, config={**ids, **config})


def check_text(tower: TextTower, data_spec: DataSpec, where: str) -> None:
    """Raises DataError: the tokenizer has more pieces than the tower, or texts exceed its position table."""
    if data_spec == DataSpec():  # no data have been seen: a check before a run
        return
    rows = tower.embeddings().num_embeddings
    if data_spec.vocab_size > rows:
        raise DataError(
            "The tokenizer has more pieces than the text tower has embeddings.",
            where=f"model.{where}",
            got=f"{data_spec.vocab_size:,} pieces and {rows:,} embeddings",
            expected="the tower's own tokenizer",
            hint="leave out text.vocabulary, or name the tower's folder there",
        )
    most = getattr(tower.config, "max_position_embeddings", None)
    if isinstance(most, int) and "roberta" in tower.config.model_type:
        most -= int(tower.config.pad_token_id or 0) + 1  # RoBERTa's tables begin behind the id of padding
    if isinstance(most, int) and data_spec.text_length > most:
        what = "Sentences may be longer than the text tower's position table."
        got, hint = f"text.length {data_spec.text_length}", f"text: {{length: {most}}}"
        raise DataError(what, where=f"model.{where}", got=got, expected=f"at most {most}", hint=hint)


# What a dual model's configuration calls its image tower
NAMES = ("vision_config", "image_config")
Numbers = tuple[float, float, float]
Statistics = tuple[Numbers | None, Numbers | None]
"""Mean and deviation per channel; None: those of the tower's processor."""


@dataclass(frozen=True)
class Pixels:
    """Height and width of a tower's pictures, and mean and deviation per channel of values in [0, 1]."""

    size: tuple[int, int]
    mean: Numbers = IMAGENET_MEAN
    std: Numbers = IMAGENET_STD


class ImageTower(nn.Module):
    """An image encoder whose states are special tokens followed by the cells of one grid.

    Args:
        probe: an equal network that may lie on the meta device; one forward pass of it gives the sizes.
    """

    def __init__(
        self, network: nn.Module, library: str, config: dict[str, Any], pixels: Pixels, probe: nn.Module
    ) -> None:
        super().__init__()
        self.network, self.library, self.config, self.pixels = network, library, config, pixels
        device = next(probe.parameters()).device
        with torch.no_grad():
            hidden, pooled = self._run(probe, torch.zeros(1, 3, *self.pixels.size, device=device))
        self.hidden, self.pooled = int(hidden.shape[-1]), int(pooled.shape[-1])
        self.grid, self.special = _cells(hidden.shape[1], self.pixels.size, self._patch(), self._prefix())

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Returns states (M, special + cells, C) and one vector a picture (M, pooled) of pixels (M, 3, H, W)."""
        return self._run(self.network, pixels)

    def layout(self, device: torch.device) -> Layout:
        return Layout.for_grid(*self.grid, skip=self.special, device=device)

    def _run(self, network: Any, pixels: Tensor) -> tuple[Tensor, Tensor]:
        if self.library == "timm":
            hidden = network.forward_features(pixels)  # (M, R, C), (M, C, h, w) or (M, h, w, C)
            pooled: Tensor = network.forward_head(hidden, pre_logits=True)
            if hidden.dim() == 4:
                last = str(getattr(network, "output_fmt", "NCHW"))
                hidden = hidden.flatten(1, 2) if last.endswith("NHWC") else hidden.flatten(2).transpose(1, 2)
            return hidden, pooled.flatten(1)
        out = network(pixel_values=pixels, **self.options())
        hidden = out.last_hidden_state
        hidden = hidden.flatten(2).transpose(1, 2) if hidden.dim() == 4 else hidden  # (M, R, C)
        if getattr(out, "pooler_output", None) is not None:
            return hidden, out.pooler_output.flatten(1)
        return hidden, hidden[:, 0] if self._prefix() is not None and self.config.get("patch_size") else hidden.mean(1)

    def options(self) -> dict[str, Any]:
        """Returns keyword arguments that interpolate positions for pictures of another size than the tower's."""
        size = self.config.get("image_size")
        same = size is None or _pair(size) == self.pixels.size
        able = "interpolate_pos_encoding" in inspect.signature(self.network.forward).parameters
        return {} if same or not able else {"interpolate_pos_encoding": True}

    def _patch(self) -> tuple[int, int] | None:
        # Sides of a patch, where all tokens come from one cutting into patches.
        size = self.config.get("patch_size") if self.library == "transformers" else None
        if self.library == "timm" and self._prefix() is not None:
            size = getattr(getattr(self.network, "patch_embed", None), "patch_size", None)
        hierarchical = "depths" in self.config or "hidden_sizes" in self.config
        return None if size is None or hierarchical else _pair(size)

    def _prefix(self) -> int | None:
        return getattr(self.network, "num_prefix_tokens", None) if self.library == "timm" else 1


def _pair(value: Any) -> tuple[int, int]:
    if isinstance(value, int):
        return value, value
    if isinstance(value, dict):
        return int(value["height"]), int(value["width"])
    return int(value[0]), int(value[1])


def _cells(
    tokens: int, size: tuple[int, int], patch: tuple[int, int] | None, prefix: int | None
) -> tuple[tuple[int, int], int]:
    if patch is not None:
        grid = size[0] // patch[0], size[1] // patch[1]
        if tokens >= grid[0] * grid[1]:
            return grid, tokens - grid[0] * grid[1]
    for special in dict.fromkeys((0, prefix or 0, 1)):
        cells = tokens - special
        down = round((cells * size[0] / size[1]) ** 0.5)
        if down > 0 and cells % down == 0 and abs(down * size[1] - cells // down * size[0]) < max(size):
            return (down, cells // down), special
    got, expected = f"{tokens} tokens of pictures of {size[0]} x {size[1]}", "a grid, perhaps behind class tokens"
    raise ComponentError("The image tower's tokens are no grid.", where="model.image", got=got, expected=expected)


def build_image(tower: Source, image_size: int | None, statistics: Statistics) -> ImageTower:
    """Builds the image tower of a source; on the meta device no weights are read.

    Args:
        image_size: height and width of pictures; None: the tower's own.

    Raises ComponentError or DataError: it cannot be built, or its weights do not fit.
    """
    return (_of_timm if tower.library == "timm" else _of_transformers)(tower, image_size, statistics)


def _of_timm(origin: Source, image_size: int | None, statistics: Statistics) -> ImageTower:
    import timm
    from timm.data import resolve_model_data_config

    name = str(origin.config["architecture"]).removeprefix("timm/")
    options = dict(origin.config.get("model_args", {}))
    if not timm.is_model(name):
        got, hint = repr(name), "python -c 'import timm; print(timm.list_models(\"vit*\"))'"
        raise ComponentError("timm has no such model.", where=f"model.{origin.where}", got=got, hint=hint)
    if image_size is not None and "img_size" not in options and not name.startswith(("resnet", "convnext")):
        options["img_size"] = image_size

    def make() -> Any:
        try:
            return timm.create_model(name, num_classes=0, **options).eval()
        except (TypeError, RuntimeError, ValueError, AssertionError) as error:
            got = f"{name}: {' '.join(str(error).split())[:300]}"
            raise ComponentError("timm cannot build this tower.", where=f"model.{origin.where}", got=got) from None

    with torch.device("meta"):
        probe = make()
    network = make()
    if origin.folder is not None and not source.on_meta():
        _fill_timm(network, name, origin)
    data = resolve_model_data_config(network)
    overlay = origin.config.get("pretrained_cfg") or {}
    side = image_size or options.get("img_size") or tuple(overlay.get("input_size", data["input_size"])[1:])
    mean, std = (
        tuple(one or overlay.get(key) or data[key]) for one, key in zip(statistics, ("mean", "std"), strict=True)
    )
    config = {"architecture": name, **({"model_args": options} if options else {})}
    return ImageTower(network, "timm", config, Pixels(_pair(side), mean, std), probe)


def _fill_timm(network: nn.Module, name: str, origin: Source) -> None:
    import timm
    from timm.models import load_checkpoint

    assert origin.folder is not None
    files = [origin.folder] if origin.folder.is_file() else [origin.folder / one for one in source.WEIGHTS]
    file = next(one for one in files if one.is_file())
    convert = getattr(sys.modules[timm.model_entrypoint(name).__module__], "checkpoint_filter_fn", None)
    try:
        said = load_checkpoint(network, str(file), strict=False, filter_fn=convert, weights_only=True)
        missing = sorted(said.missing_keys)
        got = f"{len(missing)} missing: {', '.join(missing[:4])}"
    except Exception as error:  # safetensors, pickle and torch raise classes of their own
        missing, got = [""], f"{name}: {' '.join(str(error).split())[:300]}"
    if missing:
        what, expected = "The weights of the tower do not fit its configuration.", "weights of this architecture"
        raise DataError(what, where=str(file), got=got, expected=expected)


def _of_transformers(origin: Source, image_size: int | None, statistics: Statistics) -> ImageTower:
    config, part = source.part_of(source.configuration(origin), NAMES)
    size, mean, std = processor(origin.folder)
    side = getattr(config, "image_size", None)
    chosen = (image_size, image_size) if image_size else _pair(side) if side else size or (224, 224)
    with torch.device("meta"):
        probe = source.build(config, origin.where)
    pixels = Pixels(chosen, statistics[0] or mean or IMAGENET_MEAN, statistics[1] or std or IMAGENET_STD)
    network = source.network(origin, config, part)
    try:
        return ImageTower(network, "transformers", source.plain(config), pixels, probe)
    except (RuntimeError, NotImplementedError, ValueError, TypeError, AttributeError) as error:
        got = f"{type(network).__name__}: {' '.join(str(error).split())[:200]}"
        what = "The image tower does not turn pixels into hidden states."
        expected = "an encoder with pixel_values in and last_hidden_state out"
        raise ComponentError(what, where="model.image", got=got, expected=expected) from None


def processor(folder: Path | None) -> tuple[tuple[int, int] | None, Numbers | None, Numbers | None]:
    """Reads size, mean and deviation of the processor beside a tower's weights; None for what it leaves open."""
    if folder is None or not folder.is_dir():
        return None, None, None
    named = (folder / "preprocessor_config.json", folder / "processor_config.json")
    file = next((path for path in named if path.is_file()), None)
    settings = {} if file is None else source.read_json(file, "image")
    settings = settings.get("image_processor", settings)
    mean, std = (tuple(map(float, settings.get(key) or ())) or None for key in ("image_mean", "image_std"))
    size = settings.get("crop_size") if settings.get("do_center_crop") else settings.get("size")
    known = isinstance(size, int) or (isinstance(size, dict) and "height" in size)
    return _pair(size) if known else None, mean, std  # type: ignore[return-value]
