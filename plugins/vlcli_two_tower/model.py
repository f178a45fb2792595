"""The model ``two-tower``: a dual encoder of public towers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Self

import torch
from pydantic import Field
from torch import Tensor, nn

from vlcli.nn import DataSpec, EncoderOutput, Images, InputSpec, Layout, Model, Recorder, Text, initialise
from vlcli_two_tower import names, towers
from vlcli_two_tower.lora import Tuning
from vlcli_two_tower.source import Choice
from vlcli_two_tower.text import Pool
from vlcli_two_tower.towers import Options

VIT: dict[str, Any] = {"model_type": "vit"}
BERT: dict[str, Any] = {"model_type": "bert"}


class TowerModel(Model):
    """Base of the models of two towers: what they read, how they are tuned, and how a bundle describes them.

    Args:
        data_spec: vocabulary and length of texts.
        options: what the recipe says of the towers.
    """

    grid: tuple[int, int]

    def __init__(self, data_spec: DataSpec, options: Options) -> None:
        super().__init__(data_spec)
        self.options = options
        made = towers.build(options, data_spec)
        self.described = towers.described(made)
        self.image, self.text, self.dual_config = made.image, made.text, made.dual_config
        self.pad_id = made.text.pad_id(data_spec)
        self.grid = made.image.grid
        self._dual = [made.dual]  # in a list: its parts are registered above

    def input_spec(self) -> InputSpec:
        pixels = self.image.pixels
        return InputSpec(text=True, pixels=True, size=pixels.size, mean=pixels.mean, std=pixels.std)

    def read_pixels(self, images: Images) -> tuple[Tensor, Tensor]:
        """States (M, R, C) and vectors (M, C') of the image tower."""
        pixels = images.pixels_for("two-tower").to(next(self.image.parameters()).dtype)
        found: tuple[Tensor, Tensor] = self.image(pixels)
        return found

    def adapt(self, state: dict[str, Tensor], report: list[str]) -> dict[str, Tensor]:
        return names.adapt(self, state, report)

    def released_state(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return names.released(self, state)

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        for tower, how in ((self.image, self.options.image_tuning), (self.text, self.options.text_tuning)):
            if how == "frozen":
                tower.eval()
        return self

    @classmethod
    def tower_folders(cls, options: Mapping[str, Any]) -> dict[str, str]:
        return towers.folders(options)

    @classmethod
    def vocabulary_folder(cls, options: Mapping[str, Any]) -> str | None:
        return towers.vocabulary(options)

    def bundle_options(self) -> dict[str, Any]:
        return dict(self.described)


class TwoTower(TowerModel):
    """A dual encoder of an image tower and a text tower of timm and transformers: CLIP, SigLIP, LiT and their kin.

    A tower is a name (of timm: ``vit_base_patch16_siglip_224.webli``; of a hub repository in the local cache:
    ``openai/clip-vit-base-patch32``), a folder, or a configuration with drawn weights: ``{model_type: bert,
    hidden_size: 256}`` (transformers), ``{architecture: vit_tiny_patch16_224}`` (timm). Nothing is downloaded. ``both``
    names a dual model (CLIP, SigLIP), whose projections, scale and bias are taken along. Texts get the tokenizer that
    lies beside the text tower, unless the recipe names ``text.vocabulary``; pixels get the size, mean and deviation of
    the image tower's processor. The pooled vectors are projected to ``width``; ``contrast`` and ``sigmoid-contrast``
    use them, the scale and the bias as they are. Attention inside a tower cannot be recorded.

    Args:
        data_spec: vocabulary and length of texts.
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
        text_pool: which vector stands for a sentence: of its ``first`` or ``last`` token, the ``mean`` over tokens, or
            the ``tower``'s own; ``auto``: as CLIP and SigLIP were trained, and the first token of others.
        width: of the space in which texts and images are compared.
        temperature: to begin with; the scale is log(1 / temperature).
        offset: a learned bias of the cosines' logits to begin with (SigLIP: -10); None: there is none.
    """

    paper = "CLIP, Radford et al. 2021; SigLIP, Zhai et al. 2023; LiT, Zhai et al. 2022; LoRA, Hu et al. 2022"
    capabilities = frozenset({"text", "image"})

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
        lora_alpha: float | None = None,
        lora_targets: list[str] | None = None,
        lora_dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0,
        image_size: Annotated[int, Field(ge=1, le=8192)] | None = None,
        mean: list[float] | None = None,
        std: list[float] | None = None,
        text_pool: Pool = "auto",
        width: Annotated[int, Field(ge=1, le=65_536)] = 512,
        temperature: Annotated[float, Field(gt=0)] = 0.07,
        offset: float | None = None,
    ) -> None:
        tuning = image_tuning, text_tuning, lora_rank, lora_alpha, lora_targets, lora_dropout
        super().__init__(data_spec, Options(both, image, text, *tuning, image_size, mean, std, text_pool))
        dual = self._dual.pop()
        if dual is not None:
            self._take(dual)
        else:
            self._draw(width, temperature, offset)

    def _draw(self, width: int, temperature: float, offset: float | None) -> None:
        self.text_projection: nn.Module = nn.Linear(self.text.pooled, width, bias=False)
        self.visual_projection: nn.Module = nn.Linear(self.image.pooled, width, bias=False)
        for layer in (self.text_projection, self.visual_projection):
            initialise(layer, layer.in_features**-0.5)
        self.width = width
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / temperature)))
        self.logit_bias = None if offset is None else nn.Parameter(torch.tensor(float(offset)))

    def _take(self, dual: Any) -> None:
        self.text_projection = getattr(dual, "text_projection", None) or nn.Identity()
        self.visual_projection = getattr(dual, "visual_projection", None) or nn.Identity()
        self.width = int(getattr(self.visual_projection, "out_features", self.image.pooled))
        self.logit_scale = dual.logit_scale
        self.logit_bias = getattr(dual, "logit_bias", None)

    @property
    def dim(self) -> int:
        return self.width

    def encode_text(self, text: Text, record: Recorder | None = None) -> EncoderOutput:
        hidden, pooled = self.text(text, self.pad_id)
        return EncoderOutput(hidden, Layout.for_text(text.mask, text.special), self.text_projection(pooled))

    def encode_image(self, images: Images, record: Recorder | None = None) -> EncoderOutput:
        hidden, pooled = self.read_pixels(images)
        return EncoderOutput(hidden, self.image.layout(hidden.device), self.visual_projection(pooled))

    def similarity(self) -> tuple[nn.Parameter, nn.Parameter | None]:
        return self.logit_scale, self.logit_bias

    def logits_per_image(self, text: EncoderOutput, image: EncoderOutput) -> Tensor:
        """Logits (M, N) of images and texts, as CLIP and SigLIP define them."""
        assert text.pooled is not None
        assert image.pooled is not None
        left, right = (nn.functional.normalize(one.pooled, dim=-1) for one in (image, text))  # type: ignore[arg-type]
        scores = self.logit_scale.exp() * left @ right.T
        return scores if self.logit_bias is None else scores + self.logit_bias
