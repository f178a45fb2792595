"""torchvision's detectors: trained on one's own boxes, and as extractors of region features."""

from vlcli_torchvision.detector import FasterRCNN
from vlcli_torchvision.extractor import TorchvisionExtractor

__all__ = ["FasterRCNN", "TorchvisionExtractor"]
