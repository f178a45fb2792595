"""Defines ``two-tower``: a dual encoder of public towers."""

import math
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor, nn

from vlcli.nn import DataSpec, EncoderOutput, Images, Layout, Recorder, Text, initialise
from vlcli_two_tower.towers import TowerModel


class TwoTower(TowerModel):
    """A dual encoder of an image tower and a text tower of timm and transformers: CLIP, SigLIP, LiT and their kin.

    A tower is a timm name, the name of a hub repository in the local cache, a folder, or a configuration with drawn
    weights: ``{model_type: bert, hidden_size: 256}`` (transformers), ``{architecture: vit_tiny_patch16_224}`` (timm).
    Nothing is downloaded. ``both`` names a dual model, whose projections, scale and bias are taken along. Tokenizer,
    size, mean and deviation are those beside the towers unless the recipe names others. Attention inside a tower cannot
    be recorded.

    Args:
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
        width: Annotated[int, Field(ge=1, le=65_536)] = 512,
        temperature: Annotated[float, Field(gt=0)] = 0.07,
        offset: float | None = None,
        **options: Any,
    ) -> None:
        super().__init__(data_spec, **options)
        self.width, dual = width, self._dual.pop()
        if dual is not None:  # SigLIP has no projections: its towers end in one space
            self.text_projection = getattr(dual, "text_projection", None) or nn.Identity()
            self.visual_projection = getattr(dual, "visual_projection", None) or nn.Identity()
            self.width = int(getattr(self.visual_projection, "out_features", self.image.pooled))
            self.logit_scale, self.logit_bias = dual.logit_scale, getattr(dual, "logit_bias", None)
            return
        text, visual = (nn.Linear(tower.pooled, width, bias=False) for tower in (self.text, self.image))
        for layer in (text, visual):
            initialise(layer, layer.in_features**-0.5)
        self.text_projection, self.visual_projection = text, visual
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / temperature)))
        self.logit_bias = None if offset is None else nn.Parameter(torch.tensor(float(offset)))

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
        """Returns logits (M, N) of images and texts, as CLIP and SigLIP define them."""
        left, right = (nn.functional.normalize(one.pooled, dim=-1) for one in (image, text))  # type: ignore[arg-type]
        scores: Tensor = self.logit_scale.exp() * left @ right.T
        return scores if self.logit_bias is None else scores + self.logit_bias
