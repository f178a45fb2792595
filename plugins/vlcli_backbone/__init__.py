"""Convolutional networks: region extractors from a torchvision ResNet or timm backbone, and FiLM on pixels."""

from vlcli.detection import RegionBackbone
from vlcli_backbone.classifier import RegionClassifier
from vlcli_backbone.extractor import BackboneExtractor
from vlcli_backbone.film import FiLM

__all__ = ["BackboneExtractor", "FiLM", "RegionBackbone", "RegionClassifier"]
