"""Bottom-up attention: the published Visual Genome detectors on torchvision's operators."""

from vlcli_bottom_up.detector import Detector
from vlcli_bottom_up.extractor import BottomUpExtractor
from vlcli_bottom_up.families import FAMILIES, Family

__all__ = ["FAMILIES", "BottomUpExtractor", "Detector", "Family"]
