"""Fine-tunes a model on a task, by default with the task's data set and objectives."""

from vlcli.builders.context import StageContext, StageResult
from vlcli.errors import Problem, RecipeError
from vlcli.recipe.schema import Finetune
from vlcli.stages.training import run_training


def run(context: StageContext) -> StageResult:
    """Trains a stage that names a task."""
    if context.section(Finetune).task is None:
        key = f"stages.{context.name}.task"
        raise RecipeError([Problem(key, "a fine-tuning needs a task", hint="task: NAME (vlcli ls tasks)")])
    return run_training(context)
