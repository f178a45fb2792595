"""Pre-train: a model on objectives; ``from`` goes on from weights, nothing starts from scratch."""

from __future__ import annotations

from vlcli.builders.context import StageContext, StageResult
from vlcli.stages.training import run_training


def run(context: StageContext) -> StageResult:
    """Train as the stage says."""
    return run_training(context)
