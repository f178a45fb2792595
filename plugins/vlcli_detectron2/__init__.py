"""Any detectron2 configuration as an extractor, where detectron2 is installed."""

from vlcli_detectron2.extractor import Detectron2Extractor

__all__ = ["Detectron2Extractor"]
