"""Writes the model card of a folder for a hub: training, data, scores and intervals."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vlcli.export.base import Trained
from vlcli.metrics.clusters import read_clusters
from vlcli.metrics.rows import Measured, measured, read_lines
from vlcli.recipe import stage_record
from vlcli.recipe.stage_record import StageRecord
from vlcli.recipe.yaml import to_yaml
from vlcli.registry import as_spec
from vlcli.version import __version__

PREDICTIONS = "predictions.jsonl"
# Keys of a training stage that the card shows
SETTINGS = ("epochs", "steps", "batch_size", "accumulate", "precision", "optimizer", "schedule", "objectives")


def card(trained: Trained, *, title: str, licence: str, loads: Sequence[str]) -> str:
    """Return README.md: front matter for hubs, code that loads the model, scores, and training."""
    stage = trained.folder.parent if trained.folder.name == "model" else trained.folder
    chain = history(stage)
    scores = evaluations(stage)
    parts = [
        f"---\n{front_matter(trained, licence, chain, scores)}---\n",
        f"# {title}\n",
        _about(trained, chain, licence),
        "## Use\n\n```python\n" + "\n".join(loads) + "\n```\n",
        "## Evaluation\n\n" + _scores(scores),
        "## Training\n\n" + _training(chain),
        "## Limits\n\nThis page was made by vlcli from the recipe and its records. What the training data do not "
        "show, the model has not learnt: look at wrong answers before you rely on it.\n",
    ]
    return "\n".join(parts)


def front_matter(
    trained: Trained, licence: str, chain: Sequence[StageRecord], scores: Sequence[tuple[StageRecord, list[Measured]]]
) -> str:
    """Return the fields that hubs index, as YAML."""
    task = as_spec(getattr(trained, "task_spec", None) or "pre-training")["name"]
    results = [
        {
            "task": {"type": task},
            "dataset": {"name": ", ".join(_data(record)) or "evaluation", "type": "other"},
            "metrics": [{"type": one.name, "value": one.value} for one in measures],
        }
        for record, measures in scores
    ]
    fields: dict[str, Any] = {
        "license": licence,
        "library_name": "vlcli",
        "tags": ["vision-language", model_name(trained), task],
        "datasets": sorted({name for record in chain for name in _data(record)}),
    }
    if results:
        fields["model-index"] = [{"name": model_name(trained), "results": results}]
    return to_yaml(fields)


def model_name(trained: Trained) -> str:
    """Return the registered name of the model."""
    return str(as_spec(getattr(trained, "model_spec", None) or "model")["name"])


def history(stage: Path) -> list[StageRecord]:
    """Return the records of the training stages that led to a model, first to last."""
    records: list[StageRecord] = []
    folder: Path | None = stage
    while folder is not None and (record := stage_record.read(folder)) is not None and len(records) < 100:
        records.insert(0, record)
        sources = [name for name in _sources(record) if name in record.inputs]
        folder = Path(record.inputs[sources[0]]["path"]) if sources else None
    return [record for record in records if record.kind in ("pretrain", "finetune", "average")]


def _sources(record: StageRecord) -> list[str]:
    named = record.config.get("from") or []
    return [named] if isinstance(named, str) else [str(name) for name in named]


def evaluations(stage: Path) -> list[tuple[StageRecord, list[Measured]]]:
    """Return the evaluations of a stage's model in the same run, with intervals if there are predictions."""
    scores = []
    for folder in sorted(path for path in stage.parent.glob("*") if path.is_dir()):
        record = stage_record.read(folder)
        if record is None or record.kind != "evaluate" or record.status != "done" or not record.metrics:
            continue
        if stage.name in _sources(record):
            rows = read_lines(folder / PREDICTIONS)[0]
            scores.append((record, measured(record.metrics, rows, read_clusters(folder))))
    return scores


def _data(record: StageRecord) -> list[str]:
    rows = record.config.get("data") or []
    rows = rows if isinstance(rows, list) else [rows]
    return list(dict.fromkeys(str(as_spec(row)["name"]) for row in rows if row))


def _about(trained: Trained, chain: Sequence[StageRecord], licence: str) -> str:
    count = sum(value.numel() for value in trained.model.parameters())
    task = as_spec(getattr(trained, "task_spec", None) or "none")["name"]
    steps = " → ".join(f"{record.stage} ({record.kind})" for record in chain) or "not recorded"
    unnamed = " (nobody named one: `format: {name: hub, license: ...}`)" if licence == "other" else ""
    return (
        f"- model: `{model_name(trained)}`, {count:,} parameters (heads not counted)\n"
        f"- after: {trained.model.paper or 'not named'}\n"
        f"- task: {task}\n"
        f"- trained by: {steps}\n"
        f"- licence: {licence}{unnamed}\n"
        f"- made by: vlcli {__version__}; `recipe.yaml` repeats it\n"
    )


def _scores(scores: Sequence[tuple[StageRecord, list[Measured]]]) -> str:

    def interval(one: Measured) -> str:
        return "-" if one.low is None or one.high is None else f"{one.low:.4g} to {one.high:.4g}"

    rows = [
        f"| {record.stage} | {record.config.get('split') or '-'} | {one.name} | {one.value:.4g} | {interval(one)} | "
        f"{'-' if one.baseline is None else f'{one.baseline:.4g} ({one.by})'} | {one.count or '-'} |"
        for record, measures in scores
        for one in measures
    ]
    if not rows:
        return "The run has no finished evaluation of this model.\n"
    head = ["| stage | split | metric | value | 95 % interval | baseline | examples |", "| --- " * 7 + "|"]
    return "\n".join([*head, *rows]) + "\n"


def _training(chain: Sequence[StageRecord]) -> str:
    parts = []
    for record in chain:
        chosen = {key: record.config[key] for key in SETTINGS if record.config.get(key) not in (None, [], {})}
        versions = ", ".join(f"{name} {version}" for name, version in record.versions.items())
        data = ", ".join(_data(record)) or "of the task"
        facts = f"data: {data}; seed {record.seed}; {record.seconds:.0f} s; {versions}"
        parts.append(f"### {record.stage}\n\n{facts}\n\n```yaml\n{to_yaml(chosen)}```\n")
    return "\n".join(parts) or "No record of the training is there.\n"
