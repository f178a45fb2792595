"""Objectives: the base that plugins extend, and what an objective gives back.

base      Objective, Outcome, Mean
mlm       masked language modelling
matching  does the sentence belong to the picture?
"""

from vlcli.objectives.base import Mean, Objective, Outcome, full_precision

__all__ = ["Mean", "Objective", "Outcome", "full_precision"]
