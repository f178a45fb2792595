"""Pre-trains a model on objectives, from the weights that ``from`` names or from scratch."""

from vlcli.builders.context import StageContext, StageResult
from vlcli.stages.training import run_training


def run(context: StageContext) -> StageResult:
    """Trains the stage."""
    return run_training(context)
