"""Fine-tunes a model on a task, with the task's data set and objectives unless the stage names others."""

from vlcli.builders.context import StageContext, StageResult
from vlcli.errors import Problem, RecipeError
from vlcli.recipe.schema import Finetune
from vlcli.stages.training import run_training


def run(context: StageContext) -> StageResult:
    """Trains as the task and the stage say."""
    if context.section(Finetune).task is None:
        key = f"stages.{context.name}.task"
        raise RecipeError([Problem(key, "a fine-tuning needs a task", hint="task: NAME (vlcli ls tasks)")])
    return run_training(context)
