"""Defines the base class of dual encoders: builds the two towers from options, freezes them or adds LoRA."""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, cast

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from vlcli.errors import ComponentError, DataError
from vlcli.nn import DataSpec, Images, InputSpec, Model, State, translate
from vlcli_two_tower import encoders, source
from vlcli_two_tower.source import Choice

Tuning = Literal["trained", "frozen", "lora"]
INSTALL = "pip install 'vlcli[lora]'"


def tune(network: nn.Module, how: Tuning, options: dict[str, Any], where: str) -> None:
    """Freezes a tower's network in place, or adds adapters under peft's names to its frozen weights.

    ``options``: ``rank``, ``alpha``, ``targets``, ``dropout``. Raises ComponentError: no peft, or targets match no
    layer.
    """
    if how != "trained":
        network.requires_grad_(False)
    if how != "lora":
        return
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError:
        raise ComponentError("LoRA needs the package peft.", where=f"model.{where}", hint=INSTALL) from None
    targets = targeted(network, options["targets"], where)
    rank, alpha, dropout = (options[name] for name in ("rank", "alpha", "dropout"))
    config = LoraConfig(r=rank, lora_alpha=alpha, lora_dropout=dropout, target_modules=targets)
    inject_adapter_in_model(config, network)
    for name, parameter in network.named_parameters():
        parameter.requires_grad_("lora_" in name)


def targeted(network: nn.Module, targets: list[str] | None, where: str) -> list[str]:
    """Returns full names of the linear layers that LoRA adapts. Raises ComponentError: a target matches none.

    Args:
        targets: ends of names (``q_proj``, ``attn.qkv``) or patterns of whole names; None: every linear layer.
    """
    layers = _linear(network)
    if targets is None:
        return layers
    lacking = [target for target in targets if not any(_matches(target, name) for name in layers)]
    if lacking or not targets:
        ends = Counter(name.rpartition(".")[2] for name in layers)
        what = "LoRA has targets that match no linear layer of the tower."
        got = f"looked for {', '.join(map(repr, lacking)) or 'nothing'}"
        expected = ", ".join(f"{end} ({count})" for end, count in sorted(ends.items())) or "a tower with linear layers"
        hint = f"lora_targets: [{next(iter(sorted(ends)), 'NAME')}]; leave lora_targets out for every linear layer"
        raise ComponentError(what, where=f"model.{where}", got=got, expected=expected, hint=hint)
    return [name for name in layers if any(_matches(target, name) for target in targets)]


def _matches(target: str, name: str) -> bool:
    if name == target or name.endswith(f".{target}"):
        return True
    try:
        return re.fullmatch(target, name) is not None
    except re.error:
        return False


def _linear(network: nn.Module) -> list[str]:
    # torch's own attention reads the weight of its output layer (of that class) itself, so that layer is never called.
    layers = [(name, module) for name, module in network.named_modules() if isinstance(module, nn.Linear)]
    return [name for name, module in layers if not isinstance(module, NonDynamicallyQuantizableLinear)]


VIT: dict[str, Any] = {"model_type": "vit"}
BERT: dict[str, Any] = {"model_type": "bert"}
CLIP_MEAN: encoders.Numbers = (0.48145466, 0.4578275, 0.40821073)
# Of CLIP's pictures (Radford et al. 2021, released code), where no processor says otherwise.
CLIP_STD: encoders.Numbers = (0.26862954, 0.26130258, 0.27577711)
_TOKENIZERS = ("tokenizer.json", "vocab.txt")  # files that hold a text tower's vocabulary
_PREFIXES = {"text_model.": "text.network.", "vision_model.": "image.network."}


class TowerModel(Model):
    """Base of the models of two towers.

    Args:
        both: a dual model, in place of ``image`` and ``text``.
        image: the image tower.
        text: the text tower.
        image_tuning: whether the image tower is ``trained``, ``frozen``, or trained by ``lora``.
        text_tuning: the same of the text tower.
        lora_rank: rank of the adapters.
        lora_alpha: their update is multiplied by alpha / rank; None: twice the rank.
        lora_targets: ends of the names of linear layers (``q_proj``), or patterns of whole names; None: all of them.
        lora_dropout: before an adapter.
        image_size: height and width of pictures in pixels; None: the tower's own.
        mean: per channel, of pixels in [0, 1]; None: that of the tower's processor.
        std: the same of the deviation.
        text_pool: which vector stands for a sentence: of its ``first`` or ``last`` token, the ``mean``, or the
            ``tower``'s own; ``auto``: as CLIP and SigLIP were trained, and the first token of others.

    Raises:
        ComponentError: a configuration cannot be built, or LoRA matches no layer.
        DataError: a folder, its weights or the vocabulary do not fit.
    """

    grid: tuple[int, int]

    def __init__(
        self,
        data_spec: DataSpec,
        *,
        both: Choice | None = None,
        image: Choice = VIT,
        text: Choice = BERT,
        image_tuning: Tuning = "trained",
        text_tuning: Tuning = "trained",
        lora_rank: Annotated[int, Field(ge=1, le=4096)] = 8,
        lora_alpha: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None,
        lora_targets: list[str] | None = None,
        lora_dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0,
        image_size: Annotated[int, Field(ge=1, le=8192)] | None = None,
        mean: Annotated[list[float], Field(min_length=3, max_length=3)] | None = None,
        std: Annotated[list[float], Field(min_length=3, max_length=3)] | None = None,
        text_pool: encoders.Pool = "auto",
    ) -> None:
        super().__init__(data_spec)
        statistics: Any = tuple(numbers and tuple(numbers) for numbers in (mean, std))
        self.dual_config: Any = None
        self._dual: list[Any] = [None]  # in a list: its parts are registered below
        if both is None:
            image_tower = encoders.build_image(source.find(image, "image"), image_size, statistics)
            network = _text_network(text, data_spec)
        else:
            dual, self.dual_config, pixels = _dual(both, data_spec, image_size, statistics)
            config = dual.vision_model.config
            with torch.device("meta"):
                probe = source.build(config, "both")
            image_tower = encoders.ImageTower(dual.vision_model, "transformers", source.plain(config), pixels, probe)
            network, self._dual = dual.text_model, [dual]
        text_tower = encoders.TextTower(network, text_pool)
        encoders.check_text(text_tower, data_spec, "text" if both is None else "both")
        self.image, self.text = image_tower, text_tower
        self.tuning: dict[str, Tuning] = {"image": image_tuning, "text": text_tuning}
        options = {"rank": lora_rank, "alpha": lora_alpha or 2 * lora_rank, "dropout": lora_dropout}
        targets = self._targets(lora_targets)
        for side, how in self.tuning.items():
            tune(getattr(self, side).network, how, {**options, "targets": targets.get(side)}, "lora_targets")
        self.pad_id, self.grid = text_tower.pad_id(data_spec), image_tower.grid

    def _targets(self, targets: list[str] | None) -> dict[str, list[str] | None]:
        # Of two towers with LoRA, a target may match in one of them alone.
        tuned = [side for side, how in self.tuning.items() if how == "lora"]
        if targets is None or len(tuned) < 2:
            return dict.fromkeys(self.tuning, targets)
        split: dict[str, list[str] | None] = {}
        for side in tuned:
            layers = _linear(getattr(self, side).network)
            split[side] = [target for target in targets if any(_matches(target, name) for name in layers)]
        idle = [target for target in targets if not any(target in (names or ()) for names in split.values())]
        return dict.fromkeys(tuned, idle) if idle else split

    def bundle_options(self) -> dict[str, Any]:
        # Options that build the same towers without any folder: configurations in place of names. The ids are written
        # out: a configuration leaves out its class's defaults, which the data would fill in.
        config, pixels = self.text.config, self.image.pixels
        ids = {name: getattr(config, name) for name in encoders.IDS if hasattr(config, name)}
        plain = {"mean": list(pixels.mean), "std": list(pixels.std)}
        if self.dual_config is not None:
            dual = source.plain(self.dual_config)
            return {"both": dual | {"text_config": {**dual.get("text_config", {}), **ids}}, **plain}
        text = {**source.plain(config), **ids}
        return {"image": self.image.config, "text": text, "image_size": pixels.size[0], **plain}

    def input_spec(self) -> InputSpec:
        pixels = self.image.pixels
        return InputSpec(text=True, pixels=True, size=pixels.size, mean=pixels.mean, std=pixels.std)

    def read_pixels(self, images: Images) -> tuple[Tensor, Tensor]:
        """Returns states (M, R, C) and vectors (M, C') of the image tower."""
        pixels = images.pixels_for("two-tower").to(next(self.image.parameters()).dtype)  # (M, 3, H, W)
        return cast("tuple[Tensor, Tensor]", self.image(pixels))

    def adapt(self, state: dict[str, Tensor], report: list[str]) -> dict[str, Tensor]:
        weights = self.state_dict()
        named = {translate(name, _PREFIXES) or name: value for name, value in state.items()}
        named = {name: value for name, value in named.items() if not name.endswith("position_ids")}
        if named.keys() != state.keys():
            report.append("names of transformers' dual model: text_model, vision_model")
        bases = {name.replace(".base_layer.", "."): name for name in weights if ".base_layer." in name}
        named = {bases.get(name, name): value for name, value in named.items()}
        fresh = {name: value for name, value in weights.items() if ".lora_" in name and name not in named}
        if fresh and any(name in named for name in bases.values()):
            report.append(f"{len(fresh)} weights of adapters begin where they change nothing")
            named |= fresh
        return named

    def released_state(self, state: Mapping[str, Tensor]) -> State:
        ours = {mine: theirs for theirs, mine in _PREFIXES.items()}
        merged = {}
        for name, value in state.items():
            if ".lora_" in name:
                continue
            plain = name.replace(".base_layer.", ".")
            merged[translate(plain, ours) or plain] = value
            if name.endswith(".base_layer.weight"):
                path = name.removesuffix(".base_layer.weight")
                layer: Any = self.get_submodule(path)
                down, up = (state[f"{path}.lora_{side}.default.weight"] for side in ("A", "B"))
                merged[translate(plain, ours) or plain] = value + (up @ down) * float(layer.scaling["default"])
        return merged

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        for side, how in self.tuning.items():
            if how == "frozen":
                getattr(self, side).eval()
        return self

    @classmethod
    def tower_folders(cls, options: Mapping[str, Any]) -> dict[str, str]:
        names = ("both",) if options.get("both") is not None else ("image", "text")
        return {name: options[name] for name in names if isinstance(options.get(name), str)}

    @classmethod
    def vocabulary_folder(cls, options: Mapping[str, Any]) -> str | None:
        folders = cls.tower_folders(options)
        name = "both" if "both" in folders else "text"
        folder = source.find(folders[name], name).folder if name in folders else None
        if folder is None or folder.is_file():  # one of timm, which has no text towers
            return None
        if any((folder / file).is_file() for file in _TOKENIZERS):
            return str(folder)
        raise DataError(
            "The text tower has no tokenizer.",
            where=str(folder),
            got=", ".join(sorted(path.name for path in folder.iterdir())[:10]),
            expected=" or ".join(_TOKENIZERS),
            hint="fetch the whole repository (from a slow tokenizer, transformers' AutoTokenizer.save_pretrained "
            "writes tokenizer.json), or name another: text: {vocabulary: FOLDER}",
        )


def _text_network(choice: Choice, data_spec: DataSpec) -> Any:
    tower = source.find(choice, "text")
    if tower.library == "timm":
        what, expected = "timm has no text towers.", "a text encoder of transformers"
        raise ComponentError(what, where="model.text", got=str(tower.config["architecture"]), expected=expected)
    config = source.configuration(encoders.completed(tower, data_spec))
    return source.network(tower, *source.part_of(config, ("text_config",)))


def _dual(
    choice: Choice, data_spec: DataSpec, image_size: int | None, statistics: encoders.Statistics
) -> tuple[Any, Any, encoders.Pixels]:
    # CLIP or SigLIP, its configuration, and how it reads pictures; without memory its weights are drawn.
    tower = encoders.completed(source.find(choice, "both"), data_spec)
    config = source.configuration(tower)
    image_config, part = source.part_of(config, encoders.NAMES)
    if not part or not source.part_of(config, ("text_config",))[1]:
        raise ComponentError(
            "This is no model of two towers.",
            where="model.both",
            got=str(tower.config.get("model_type", tower.library)),
            expected="a configuration with text_config and vision_config (clip, siglip)",
            hint="name its towers one by one: image, text",
        )
    dual = source.network(tower, config)
    for name in ("text_model", "vision_model"):
        if not isinstance(getattr(dual, name, None), nn.Module):
            got, expected = f"{type(dual).__name__} without {name}", "CLIP, SigLIP and models built as they are"
            raise ComponentError("This model's towers are not known.", where="model.both", got=got, expected=expected)
    _, mean, std = encoders.processor(tower.folder)
    size = (image_size or int(image_config.image_size),) * 2
    return dual, config, encoders.Pixels(size, statistics[0] or mean or CLIP_MEAN, statistics[1] or std or CLIP_STD)
