"""Collects what a rerun of a table on other machines needs, and what it has measured."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from vlcli.errors import UsageError
from vlcli.files import write_text
from vlcli.nn.weights import file_sha256
from vlcli.progress import Progress
from vlcli.recipe import keys
from vlcli.recipe.locate import Resolved, slug
from vlcli.recipe.stage_record import digest
from vlcli.recipe.table import RowTable
from vlcli.runner.rows import results, row_runs
from vlcli.tables.equal import RULE, equal_range
from vlcli.tables.results import DONE, FILE, RowResults, RunResults, TableResults, read_results, write_results
from vlcli.tables.summary import summarise
from vlcli.tables.text import verdicts
from vlcli.tools.counting import training_stages
from vlcli.tools.published import ANSWERS, MADE, Wanted, joined, wanted_by
from vlcli.tools.rehearsal import stage_cost

README, RESULTS = "README.md", "results.json"
"""The files of a kit: the page, and what is sent back."""


def collected(table: RowTable, seeds: int, runs: Path) -> TableResults:
    """Return what the runs of a table in ``runs`` have measured so far, beside the published numbers and ranges."""
    whole = TableResults(f"{table.reference}: {table.title}", about=str(table.document.value.get("about") or ""))
    rows: dict[str, RowResults] = {}
    for label, planned in results(table, row_runs(table, seeds)).items():
        file = runs / (f"table-{slug(label)}.json" if label else FILE)
        measured = {row.label: row.runs for row in read_results(file).rows} if file.is_file() else {}
        for row in (row for row in planned.rows if row.label in table.chosen):
            into = rows.setdefault(row.label, RowResults(row.label, cell=row.cell))
            _add(into, replace(row, runs=measured.get(row.label, row.runs)), label)
    for row in rows.values():
        for name, one in row.published.items():
            row.equal[name] = equal_range(one.value, _answers(table.member(row.label), name))
    whole.rows = list(rows.values())
    known = {name for row in whole.rows for run in row.done for name in run.metrics}
    whole.metrics = [name for name in dict.fromkeys(n for row in whole.rows for n in row.published) if name in known]
    return whole


def _add(into: RowResults, row: RowResults, label: str) -> None:
    # the numbers of one evaluate stage, under its label
    start = f"{label}/" if label else ""
    into.published |= {start + name: one for name, one in row.published.items()}
    into.apart |= {start + name: one for name, one in row.apart.items()}
    by_seed = {run.seed: run for run in into.runs}
    for run in row.runs:
        one = by_seed.setdefault(run.seed, RunResults(run.seed, run.state, error=run.error))
        one.metrics |= {start + name: value for name, value in run.metrics.items()}
        if one.metrics:
            one.state, one.error = DONE, ""
        if not label:
            one.evaluation = run.evaluation
        elif run.evaluation is not None:
            one.evaluations[label] = run.evaluation
    into.runs = list(by_seed.values())


def _answers(member: Resolved, metric: str) -> int | None:
    """Return how many answers of the recipe's data a metric is the share of; None where nobody knows."""
    layout = member.recipe.table
    stages = dict(layout.rows) if layout is not None else {name: name for name in member.of_kind("evaluate")}
    label = max((one for one in stages if metric.startswith(f"{one}/")), key=len, default="")
    name = metric.removeprefix(f"{label}/")
    stage = member.stages.get(stages.get(label) or next(iter(stages.values()), ""))
    specs = [] if stage is None else keys.data_specs(member.recipe, stage)
    if len(specs) != 1 or not re.fullmatch(r"accuracy|top[15]|((image|text)/)?r(_mean|@\d+)", name):
        return None
    return ANSWERS.get((str(specs[0]["name"]), str(specs[0].get("split")), Path(str(specs[0].get("file", ""))).stem))


def write_kit(
    folder: Path, table: RowTable, whole: TableResults, facts: dict[str, Any], *, costs: list[list[str]], **more: str
) -> list[Path]:
    """Write the file that is sent back, without paths of this machine, and the page, unless it is there.

    ``facts`` about the table stand in both; ``costs`` are the page's rows of stages, ``more`` its further texts.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    summary = summarise(whole)
    folder.mkdir(parents=True, exist_ok=True)
    pathless = {row.label: [replace(one, evaluation=None, evaluations={}) for one in row.runs] for row in whole.rows}
    bare = [replace(row, runs=pathless[row.label]) for row in whole.rows]
    kept = {"kit": {**facts, "rule": RULE}, "statistics": summary.as_dict()}
    files = [write_results(replace(whole, rows=bare), folder / RESULTS, **kept)]
    if not (folder / README).is_file():
        numbers = [cells for _, cells in verdicts(summary).rows]
        apart = [line for row in whole.rows for line in row.told_apart]
        values: dict[str, Any] = {"needed": needed(table), "costs": costs, "numbers": numbers, "apart": apart, **more}
        values |= {"facts": facts, "title": whole.title, "rule": RULE, "file": RESULTS, "digests": digests}
        values["paper"] = str(table.document.value.get("paper") or "")
        options: dict[str, Any] = {"undefined": StrictUndefined, "keep_trailing_newline": True}
        environment = Environment(loader=PackageLoader("vlcli.tools"), **options)  # noqa: S701 (no HTML)
        text = environment.get_template("kit.md").render(values)
        files.append(write_text(folder / README, text))
    return files


def refuse_other(folder: Path, title: str) -> None:
    """Refuse the folder of another table's kit. Raises UsageError: it is one, or a file; DataError: it is damaged."""
    there = (folder / RESULTS).is_file() and read_results(folder / RESULTS).title
    if (there and there != title) or folder.is_file():
        what, got = "A kit needs a folder of its own.", f"the kit of {there}" if there else "a file"
        raise UsageError(what, where=str(folder), got=got, expected=title, hint="name another: -o FOLDER")


def needed(table: RowTable) -> list[Wanted]:
    """Return the data and weights of all rows, each once, without what stages make."""
    return joined(one for label in table.chosen for one in wanted_by(table.member(label)) if one.state != MADE)


def digests(one: Wanted) -> list[str]:
    """Return what is known of the files' SHA-256: of files that lie here, and the part that a published name has."""
    files = [path for path in map(Path, one.files) if path.is_file() and path.stat().st_size < 10e9]
    lines = [f"{path.name}: SHA-256 {file_sha256(path)} of the file that lay here" for path in files]
    named = re.findall(r"-([0-9a-f]{8,64})\.pth", " ".join(one.source.commands if one.source is not None else ()))
    return [*lines, *(f"SHA-256 begins with {part}, as the published name says" for part in named)]


def costs(table: RowTable, gpus: int, memory: float, progress: Progress) -> list[dict[str, Any]]:
    """Return what each training stage takes, as ``vlcli plan`` says it; stages that are alike once, with their rows."""
    known: dict[str, dict[str, Any]] = {}
    with progress.task("plan", len(table.chosen), "rows") as bar:
        for label in table.chosen:
            member = table.member(label)
            for name in training_stages(member):
                stage = member.stages[name].model_dump(mode="json", exclude={"about", "source", "features"})
                key = digest([name, member.recipe.model, member.recipe.text.model_dump(mode="json"), stage])
                if key not in known:
                    known[key] = {"rows": [], **stage_cost(member, name, gpus, memory)}
                known[key]["rows"].append(label)
            bar.advance()
    return list(known.values())
