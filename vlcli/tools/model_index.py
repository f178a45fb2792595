"""Writes a table as the metadata ``model-index`` of Hugging Face model cards."""

from pathlib import Path
from typing import Any

from vlcli.recipe import stage_record
from vlcli.recipe.yaml import to_yaml
from vlcli.registry import as_spec
from vlcli.tables.results import RowResults, TableResults
from vlcli.tables.statistics import Estimate
from vlcli.tables.summary import Summary


def model_index(table: TableResults, summary: Summary) -> str:
    """Returns YAML for the front matter of a card: a model for each row, the mean of each metric with its interval."""
    from huggingface_hub.repocard_data import eval_results_to_model_index

    models = []
    for line in summary.rows:
        row = table.row(line.label)
        results = [_result(row, name, line.estimates[name]) for name in summary.metrics if name in line.estimates]
        models += eval_results_to_model_index(line.label, results) if results else []
    return to_yaml({"model-index": models})


def _result(row: RowResults, metric: str, estimate: Estimate) -> Any:
    from huggingface_hub import EvalResult

    _, name, folder = row.done[0].place(metric)
    chain = _configs(folder)
    config = chain[0] if chain else {}
    task = next((one["task"] for one in chain if one.get("task")), "vision-language")
    data = [as_spec(one) for one in config.get("data") or []]
    spread = {"low": estimate.low, "high": estimate.high, "over": estimate.over, "seeds": estimate.seeds}
    return EvalResult(
        task_type=str(as_spec(task)["name"]),
        dataset_type="other",
        dataset_name=", ".join(dict.fromkeys(str(one["name"]) for one in data)) or "evaluation",
        dataset_split=config.get("split") or next((str(one["split"]) for one in data if "split" in one), None),
        metric_type=name,
        metric_value=estimate.mean,
        metric_name=metric,
        metric_args=None if estimate.low is None else spread,
    )


def _configs(folder: Path | None) -> list[dict[str, Any]]:
    """Returns the configuration of an evaluation, and those of the stages that it evaluates."""
    record = None if folder is None else stage_record.read(folder)
    if record is None:
        return []
    sources = [stage_record.read(Path(one["path"])) for one in record.inputs.values()]
    return [record.config, *(one.config for one in sources if one is not None)]
