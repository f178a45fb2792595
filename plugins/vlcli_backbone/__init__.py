"""Image classifiers as region extractors: any torchvision ResNet or timm backbone with RoIAlign."""

from __future__ import annotations

from vlcli.detection import RegionBackbone
from vlcli_backbone.classifier import RegionClassifier
from vlcli_backbone.extractor import BackboneExtractor

__all__ = ["BackboneExtractor", "RegionBackbone", "RegionClassifier"]
