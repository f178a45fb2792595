"""The result of a run in words: what stands first, what is compared, what is not, and where it is printed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from run_folders import write_recipe, write_stage

from vlcli.tools.conclusions import conclusions
from vlcli.tools.run_folder import read_run

DATA = [{"name": "jsonl", "split": "test"}]
TASK = {"name": "vqa", "loss": "ce"}


def evaluated(run: Path, name: str, share: float, source: str = "", **config: Any) -> None:
    """An evaluate stage of 300 answers about 100 pictures, of which a share is right (the first of every picture)."""
    right = np.zeros(300, bool)
    right[np.random.default_rng(3).permutation(300)[: round(300 * share)]] = True
    rows = [{"key": f"k{n}", "prediction": "x", "accuracy": float(right[n])} for n in range(300)]
    images = "".join(json.dumps({"key": f"k{n}", "images": [f"p{n // 3}"]}) + "\n" for n in range(300))
    known = {"from": [source] if source else [], "data": DATA, "task": TASK, **config}
    metrics = {"accuracy": float(right.mean()), "most_frequent": 0.05}
    folder = write_stage(run, name, metrics=metrics, rows=rows, config=known, files={"images": "images.jsonl"})
    (folder / "images.jsonl").write_text(images)


def trained(run: Path, name: str, task: Mapping[str, Any], log: Sequence[float] = (), **more: Any) -> None:
    lines = [{"step": n, "eval/accuracy": value} for n, value in enumerate(log)]
    config = {"task": dict(task), "epochs": more.pop("epochs", 12)}
    metrics = more.pop("metrics", {})
    write_stage(run, name, "finetune", config=config, log=lines, metrics=metrics, **more)


def made(run: Path, model: float, control: float | None, baselines: Mapping[str, float] = {}, **more: Any) -> list[str]:
    """What is said of a run with a model, its control and baselines of these scores."""
    rows = {"with pictures": "test"}
    trained(run, "answer", TASK, more.pop("log", ()), **more.pop("training", {}))
    evaluated(run, "test", model, "answer")
    if control is not None:
        trained(run, "answer-blind", {**TASK, "only": "text"}, **more.pop("blind", {}))
        evaluated(run, "test-blind", control, "answer-blind")
        rows["question alone"] = "test-blind"
    for name, share in baselines.items():
        evaluated(run, name, share, fit=[{"name": "jsonl"}], task={"name": "baseline", "by": name, "task": TASK})
        rows[name] = name
    write_recipe(
        run, stages={name: {} for name in rows.values()}, table={"rows": rows, "metrics": ["accuracy"]}, **more
    )
    return conclusions([read_run(run)])


def test_what_pictures_add_has_the_clustered_interval(tmp_path: Path) -> None:
    (line, best) = made(tmp_path / "run", 0.4, 0.3, {"words": 0.31})
    assert line.startswith("Pictures add 10.0 points (")
    assert line.endswith(") over the question alone; the most frequent answer has 5.0 %.")
    low, high = (float(word) for word in line.split("(")[1].split(")")[0].split(" to "))
    assert 0 < low < 10 < high < 20
    assert best.startswith("The best baseline is words: it has 31.0 %, with pictures 40.0 % (+9.0 points")


def test_a_model_below_a_baseline_says_so_first_and_names_the_best(tmp_path: Path) -> None:
    first, second, *_ = made(tmp_path / "run", 0.3, 0.2, {"words": 0.33, "words*image": 0.4, "question": 0.2})
    assert first.startswith(
        "The trained model is below a baseline: words*image has 40.0 %, with pictures 30.0 % (-10.0"
    )
    assert second.startswith("Pictures add")


def test_a_difference_that_may_be_0_says_so(tmp_path: Path) -> None:
    first, *_ = made(tmp_path / "run", 0.3, 0.2, {"words": 0.31})
    assert first.startswith("The trained model is below a baseline: words has 31.0 %")
    assert first.endswith("The interval of the difference contains 0.")


def test_a_model_below_the_most_frequent_answer_says_so_without_baselines(tmp_path: Path) -> None:
    first, *_ = made(tmp_path / "run", 0.04, None)
    assert first.startswith("The trained model is below a baseline: the most frequent answer has 5.0 %")


def test_nothing_learnt_from_pictures_is_said(tmp_path: Path) -> None:
    line, tried = made(tmp_path / "run", 0.30, 0.30)
    assert line.startswith("Nothing was learnt from pictures: +0.0 points (")
    assert "against the question alone" in line
    assert tried.startswith("Try next: other features")


def test_a_gain_whose_interval_contains_0_is_open(tmp_path: Path) -> None:
    line, tried = made(tmp_path / "run", 0.304, 0.30)
    assert line.startswith("It is not sure that anything was learnt from pictures: +0.3 points (-")
    assert tried.startswith("Try next: more examples to test on, or other features")
    assert tried.endswith("add nothing that is sure.")


def test_a_control_with_other_settings_is_told_and_not_compared(tmp_path: Path) -> None:
    lines = made(tmp_path / "run", 0.4, 0.3, blind={"epochs": 17})
    assert lines == [
        "The control question alone was trained otherwise than with pictures (epochs 17, not 12): not compared."
    ]


def test_a_control_that_learnt_nothing_is_no_control(tmp_path: Path) -> None:
    (line,) = made(tmp_path / "run", 0.4, 0.05)
    assert line.startswith("The control question alone has no more than the most frequent answer: it is no control")


def test_a_collapse_is_told(tmp_path: Path) -> None:
    facts = {"collapsed": "one answer for 97 % of validation"}
    lines = made(tmp_path / "run", 0.05, None, {"words": 0.3}, training={"facts": facts})
    assert lines[1] == "with pictures collapsed: one answer for 97 % of validation."
    assert [line for line in lines if line.startswith("Try next")] == [], "the cause in the line above is the advice"


@pytest.mark.parametrize("log", [[0.1, 0.2, 0.3, 0.4], [0.4, 0.4, 0.4]])
def test_one_page_advises_one_thing_about_a_model_that_collapsed(tmp_path: Path, log: list[float]) -> None:
    cause = "likely cause: no warm-up: set schedule.warmup, or leave `lr` out"
    lines = made(tmp_path / "run", 0.3, 0.3, {"words": 0.4}, log=log, training={"facts": {"collapsed": cause}})
    assert sum("lr" in line for line in lines) == 1
    assert not any(line.startswith("Try next") for line in lines)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"log": [0.1, 0.2, 0.3, 0.4]}, "more epochs (stages.answer.epochs)"),
        (
            {"log": [0.1, 0.4, 0.3], "training": {"metrics": {"train/answering/score": 0.95, "accuracy": 0.4}}},
            "more pictures",
        ),
        ({"log": [0.1, 0.4, 0.3]}, ""),
    ],
)
def test_what_to_try_next_comes_from_what_was_seen(tmp_path: Path, more: dict[str, Any], said: str) -> None:
    lines = made(tmp_path / "run", 0.4, 0.3, **more)
    tried = [line for line in lines if line.startswith("Try next: ")]
    assert [line.removeprefix("Try next: ")[: len(said)] for line in tried] == ([said] if said else [])


def test_runs_with_several_seeds_are_one_result(tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        made(tmp_path / f"run{seed}", 0.4 + seed / 100, 0.3 + seed / 300, seed=seed)
    (line,) = conclusions([read_run(tmp_path / f"run{seed}") for seed in (1, 2, 3)])
    assert "over 3 seeds" in line


def test_a_run_without_anything_to_compare_says_nothing(tmp_path: Path) -> None:
    assert made(tmp_path / "run", 0.4, None) == []
    assert conclusions([]) == []


@pytest.mark.parametrize(("value", "said"), [(0.003, True), (0.2, False)])
def test_a_detector_that_finds_nothing_says_so(tmp_path: Path, value: float, said: bool) -> None:
    run = tmp_path / "run"
    trained(run, "detector", {"name": "detection"})
    write_stage(run, "test", metrics={"AP": value}, config={"from": ["detector"], "data": DATA})
    write_recipe(run, stages={"test": {}}, table={"rows": {"Faster R-CNN": "test"}, "metrics": ["AP"]})
    lines = conclusions([read_run(run)])
    assert lines == (["Faster R-CNN finds next to nothing: it has 0.3 %."] if said else [])


def test_table_and_report_say_it_first(cli: Any, tmp_path: Path) -> None:
    made(tmp_path / "runs" / "mine", 0.3, 0.2, {"words": 0.4})
    shown = cli("table", "mine")
    assert shown.code == 0, shown.err
    assert shown.out.startswith("The trained model is below a baseline: words has 40.0 %")
    document = json.loads(cli("table", "mine", "--json").out)
    assert document["statistics"]["conclusions"][0] == shown.out.splitlines()[0]
    assert cli("report", "mine", "--no-model").code == 0
    page = (tmp_path / "runs" / "mine" / "report.html").read_text()
    assert page.index("The trained model is below a baseline") < page.index('class="headline"')
    assert "300 examples of 100 images" in page


def test_a_model_that_equals_the_most_frequent_answer_is_neither_below_it_nor_told_of_code(tmp_path: Path) -> None:
    first, tried = made(tmp_path / "run", 0.05, None)
    assert first.startswith("The trained model has no more than a baseline: the most frequent answer has 5.0 %, ")
    assert first.endswith("with pictures 5.0 % (+0.0 points).")
    assert (
        tried
        == "Try next: more epochs (stages.answer.epochs) or more examples: the most frequent answer needs no model."
    )
