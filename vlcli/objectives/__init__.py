"""Objectives: the base class that packages extend, its outputs, and parts that several objectives share."""

from typing import TYPE_CHECKING

from vlcli.lazy import lazily
from vlcli.objectives.base import Mean, Objective, ObjectiveOutput, full_precision

if TYPE_CHECKING:
    from vlcli.objectives.answers import AnswerTable
    from vlcli.objectives.contrast import Known
    from vlcli.objectives.matching import MARK as MATCHED
    from vlcli.objectives.matching import Matching, SwapSentence
    from vlcli.objectives.mlm import MARK as MASKED_WORDS
    from vlcli.objectives.mlm import ROLE_OPTIONS, MaskedLanguageModelling, MaskWords, role_picker
    from vlcli.objectives.momentum import MomentumHeads, checked_share, momentum_copy, ramped, softened
    from vlcli.objectives.momentum_contrast import MomentumContrast


__getattr__ = lazily(__name__, __file__)
