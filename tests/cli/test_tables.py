"""``vlcli table``: from run folders to text, JSON, CSV, LaTeX, Markdown and pictures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from huggingface_hub import ModelCard
from huggingface_hub.repocard_data import model_index_to_eval_results
from run_folders import accuracies, answers, write_recipe, write_stage
from typer.testing import CliRunner

from vlcli.cli import app
from vlcli.tables.outputs import write_table
from vlcli.tables.results import FILE, RowResults, RunResults, TableResults, write_results

LAYOUT = {"title": "small", "rows": {"trained": "test", "scratch": "control"}, "metrics": ["accuracy"]}


def run_of(folder: Path, seed: int, right: int, hidden: int = 8) -> Path:
    stages = {"test": {"kind": "evaluate"}, "control": {"kind": "evaluate"}}
    write_recipe(
        folder, name="small", seed=seed, model={"name": "lxmert", "hidden": hidden}, stages=stages, table=LAYOUT
    )
    for name, count in (("test", right), ("control", right - 20)):
        rows = answers(60, count)
        write_stage(folder, name, metrics=accuracies(rows), rows=rows)
        images = [{"key": row["key"], "images": [f"image{n // 3}"]} for n, row in enumerate(rows)]
        (folder / name / "images.jsonl").write_text("".join(json.dumps(line) + "\n" for line in images))
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    for seed, right in ((1, 50), (2, 52), (3, 48)):
        run_of(folder / f"small-{seed}", seed, right)
    run_of(folder / "wide", 1, 55, hidden=16)
    write_recipe(folder / "bare", name="bare", stages={"world": {"kind": "make"}})
    write_stage(folder / "bare", "world", kind="make")
    results = TableResults("rows", ["accuracy"], [RowResults("a", [RunResults(1, metrics={"accuracy": 0.5})])])
    (folder / "rows").mkdir()
    write_table(results, folder / "rows")
    (folder / "damaged").mkdir()
    (folder / "damaged" / FILE).write_text("{")
    return folder


def table(runs: Path, *words: str) -> tuple[int, str, str]:
    made = CliRunner().invoke(app, ["table", *words, "--output", str(runs)])
    return made.exit_code, made.stdout, made.stderr


def test_one_run_shows_its_rows_over_images(runs: Path) -> None:
    code, out, _ = table(runs, "small-1", "--reference", "scratch")
    assert code == 0
    assert "scratch (reference)" in out
    assert "95 % intervals over 20 images." in out
    assert "paired by 20 images" in out
    assert "most frequent answer  1.000" in out


def test_seeds_of_one_recipe_are_one_row_and_other_settings_another(runs: Path) -> None:
    code, out, _ = table(runs, "small-1", "small-2", "small-3", "wide", "--json")
    assert code == 0
    lines = {line["label"]: line for line in json.loads(out)["statistics"]["lines"]}
    assert list(lines)[:4] == ["small-1: trained", "small-1: scratch", "wide: trained", "wide: scratch"]
    assert lines["small-1: trained"]["seeds"] == 3
    assert lines["small-1: trained"]["metrics"]["accuracy"]["measured"]["over"] == "seeds"
    assert lines["wide: trained"]["metrics"]["accuracy"]["measured"]["over"] == "images"


@pytest.mark.parametrize(
    ("form", "word"),
    [
        ("csv", "row,kind"),
        ("latex", r"\toprule"),
        ("markdown", "| ---"),
        ("text", "trained"),
        ("model-index", "model-index:"),
    ],
)
def test_formats_are_printed_and_written(runs: Path, tmp_path: Path, form: str, word: str) -> None:
    assert word in table(runs, "small-1", "--format", form)[1]
    code, out, _ = table(runs, "small-1", "--format", form, "-o", str(tmp_path / "made"))
    assert (code, out.strip()) == (0, str(tmp_path / "made"))
    assert word in (tmp_path / "made").read_text()


def test_a_table_is_metadata_that_the_hub_library_reads(runs: Path) -> None:
    front = yaml.safe_load(table(runs, "small-1", "small-2", "small-3", "--format", "model-index")[1])
    shown = json.loads(table(runs, "small-1", "small-2", "small-3", "--json")[1])["statistics"]["lines"]
    for model, line in zip(front["model-index"], shown, strict=False):
        name, read = model_index_to_eval_results([model])
        assert name == line["label"]
        (accuracy,) = [one for one in read if one.metric_name == "accuracy"]
        measured = line["metrics"]["accuracy"]["measured"]
        assert (accuracy.metric_value, accuracy.metric_args["low"]) == (measured["mean"], measured["low"])
        assert accuracy.metric_args["seeds"] == 3
    card = ModelCard(f"---\n{yaml.safe_dump(front)}---\n# A card\n")
    assert card.data.to_dict()


def test_a_plot_and_a_table_of_rows(runs: Path, tmp_path: Path) -> None:
    code, out, err = table(runs, "rows", "--plot", str(tmp_path / "plot.svg"))
    assert code == 0, err
    assert "0.500" in out
    assert "</svg>" in (tmp_path / "plot.svg").read_text()
    assert table(runs, str(runs / "rows" / FILE))[1] == out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["nowhere"], 5, "no such run"),
        (["bare"], 2, "no evaluate stage"),
        (["damaged"], 5, "damaged"),
        (["small-1", "--metric", "acuracy"], 2, "accuracy/colour"),
        (["small-1", "--reference", "other"], 2, "trained, scratch"),
        (["small-1", "--format", "word"], 2, "markdown"),
        (["small-1", "--plot", "plot.jpg"], 2, ".svg or .png"),
        (["rows", "small-1"], 2, "together with other runs"),
    ],
)
def test_what_is_wrong_is_one_message(runs: Path, words: list[str], code: int, said: str) -> None:
    ended, _, err = table(runs, *words)
    assert ended == code, err
    assert said in err
    assert "Traceback" not in err


def report(runs: Path, *words: str) -> tuple[int, str, str]:
    made = CliRunner().invoke(app, ["report", *words, "--output", str(runs)])
    return made.exit_code, made.stdout, made.stderr


def test_a_table_of_rows_has_a_page(runs: Path, tmp_path: Path) -> None:
    rows = [
        RowResults("<new>", [RunResults(seed, metrics={"accuracy": 0.7 + 0.01 * seed}) for seed in (1, 2, 3)]),
        RowResults("old", [RunResults(seed, metrics={"accuracy": 0.5 + 0.02 * seed}) for seed in (1, 2, 3)]),
        RowResults("broken", [RunResults(1, "failed", error="out of <memory>")]),
    ]
    write_results(
        TableResults("small & new", ["accuracy"], rows, "old", about="Which is better?"), tmp_path / "t" / FILE
    )
    code, out, err = report(tmp_path, "t")
    assert code == 0, err
    page = tmp_path / "t" / "report.html"
    assert out.strip() == str(page)
    html = page.read_text()
    assert "<h1>small &amp; new</h1>" in html
    assert "Which is better?" in html
    assert "0.720 ± 0.025" in html
    assert "+0.180" in html
    assert "<span>6 of 7 runs done</span>" in html
    assert html.count("out of &lt;memory&gt;") == 2
    assert "<new>" not in html
    assert report(tmp_path, str(tmp_path / "t" / FILE), "-o", str(tmp_path / "t.html"))[0] == 0
    assert (tmp_path / "t.html").stat().st_size == page.stat().st_size


def test_a_page_of_a_table_stands_alone_and_a_damaged_one_is_one_message(runs: Path) -> None:
    code, _, err = report(runs, "rows", "small-1")
    assert (code, "have a page of their own" in err) == (2, True)
    code, _, err = report(runs, "damaged")
    assert code == 5
    assert "table.json" in err
    assert not (runs / "damaged" / "report.html").exists()
