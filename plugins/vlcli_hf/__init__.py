"""Models of transformers as extractors: vision towers and backbones, detectors, and words for pictures."""

from vlcli_hf.concepts import OpenVocabularyConcepts
from vlcli_hf.detectors import TransformersDetector
from vlcli_hf.extractor import TransformersExtractor
