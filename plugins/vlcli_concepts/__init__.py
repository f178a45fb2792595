"""Predicts visual concepts, words seen in pictures, by noisy-OR over regions or cells (Fang et al. 2015)."""

from vlcli_concepts.extractor import ConceptExtractor
from vlcli_concepts.model import NoisyOr
from vlcli_concepts.objective import ConceptClassification, log_noisy_or
