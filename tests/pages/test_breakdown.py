"""Breakdowns by kind and answer, and confusions: counts, few and many classes, nothing where nothing can be counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from run_folders import write_recipe, write_stage

from vlcli.pages.breakdown import answer_of, breakdowns_of
from vlcli.pages.curves import curves_of
from vlcli.pages.report import ReportOptions, render
from vlcli.pages.samples import Samples, choose
from vlcli.pages.scores import groups_of
from vlcli.progress import Silent
from vlcli.tools.run_folder import read_run


def row(number: int, label: Any, said: Any, **more: Any) -> dict[str, Any]:
    return {"key": str(number), "label": label, "prediction": said, "correct": label == said, **more}


def evaluated(run: Path, rows: list[dict[str, Any]], name: str = "test", **config: Any) -> None:
    share = sum(bool(one["correct"]) for one in rows) / max(len(rows), 1)
    write_stage(run, name, metrics={"accuracy": share}, rows=rows, config={"from": ["tune"], **config})


def tables(run: Path) -> dict[str, dict[str, Any]]:
    (group,) = groups_of([read_run(run)])
    return {table["name"]: table for table in breakdowns_of(Samples(group, [], [], 0))}


def test_counts_by_kind_and_answer_for_model_and_control(tmp_path: Path) -> None:
    rows = [row(n, "cat" if n < 6 else "dog", "cat", kind=("colour", "count")[n % 2]) for n in range(10)]
    evaluated(tmp_path, rows)
    evaluated(tmp_path, [{**one, "prediction": "dog", "correct": one["label"] == "dog"} for one in rows], "blind")
    evaluated(tmp_path, rows, "frequent", fit=[{"name": "jsonl"}])
    write_recipe(tmp_path, stages={"test": {}, "blind": {}, "frequent": {}})
    found = tables(tmp_path)
    assert [column.short for column in found["answer"]["columns"]] == ["test", "blind"]
    assert found["answer"]["rows"] == [("cat", 6, ["100 %", "0 %"]), ("dog", 4, ["0 %", "100 %"])]
    assert found["kind"]["rows"] == [("colour", 5, ["60 %", "40 %"]), ("count", 5, ["60 %", "40 %"])]
    assert found["confusions"]["rows"] == [("cat", [6, 0]), ("dog", [4, 0])]
    page = render([read_run(tmp_path)], ReportOptions(model=False), Silent())
    assert "rows are the answers, columns what was said" in page


def test_of_a_thousand_classes_the_most_frequent_and_their_confusions_are_listed(tmp_path: Path) -> None:
    rows = [row(n, f"class {n % 1000}", f"class {n % 1000 if n % 3 else 0}") for n in range(3000)]
    rows += [row(3000 + n, "class 7", "class 8") for n in range(9)]
    evaluated(tmp_path, rows)
    found = tables(tmp_path)
    assert len(found["answer"]["rows"]) == 21
    assert found["answer"]["rows"][0][:2] == ("class 7", 12)
    assert found["answer"]["rows"][-1][:2] == ("980 others", 3009 - 12 - 19 * 3)
    assert found["confusions"]["pairs"][0] == ("class 7", "class 8", 9)
    assert len(render([read_run(tmp_path)], ReportOptions(model=False), Silent())) < 400_000


def test_one_example_and_captions_have_no_breakdown(tmp_path: Path) -> None:
    evaluated(tmp_path / "one", [row(1, "cat", "dog")])
    assert tables(tmp_path / "one") == {}
    captions = [{"key": str(n), "caption": f"a dog {n}", "cider_d": 1.0, "correct": False} for n in range(4)]
    evaluated(tmp_path / "said", captions)
    assert tables(tmp_path / "said") == {}
    for run in ("one", "said"):
        assert "By kind and answer" not in render([read_run(tmp_path / run)], ReportOptions(model=False), Silent())


def test_the_answer_of_a_row() -> None:
    assert answer_of({"answers": {"red": 0.3, "blue": 1.0}}) == "blue"
    assert answer_of({"answers": ["red", "blue", "blue"]}) == "blue"
    assert answer_of({"label": False}) == "False"
    assert answer_of({"label": None, "caption": "a dog"}) == ""


def test_samples_differ_in_picture_prediction_and_answer() -> None:
    rows = [row(n, ("one", "two", "three")[n % 3], ("four", "five")[n % 2]) for n in range(60)]
    clusters = {str(n): f"picture {n // 10}" for n in range(60)}
    chosen = choose(rows, None, 6, clusters)
    assert {clusters[str(one["key"])] for one in chosen} == set(clusters.values())
    plain = choose(rows, None, 6)
    assert {(one["label"], one["prediction"]) for one in plain} == {(one["label"], one["prediction"]) for one in rows}


def test_a_model_and_its_control_share_a_chart(tmp_path: Path) -> None:
    for name, top in (("answer", 0.9), ("blind", 0.3)):
        log = [{"step": n, "loss": 1 / n, "eval/accuracy": top * n / 3, "eval/most_frequent": 0.2} for n in (1, 2, 3)]
        write_stage(tmp_path, name, "finetune", log=log, config={"task": {"name": "vqa"}})
    write_stage(tmp_path, "other", "finetune", log=[{"step": 1, "loss": 1.0}], config={"task": {"name": "nlvr2"}})
    first, second = curves_of([read_run(tmp_path)])
    assert first["stage"] == "answer, blind"
    accuracy = next(chart for chart in first["charts"] if chart.title == "accuracy")
    assert [line.label for line in accuracy.lines] == ["answer", "blind"]
    assert "most_frequent" not in [chart.title for chart in first["charts"]]
    assert second["stage"] == "other"


def test_captions_stand_beside_one_caption_for_all_and_without_counts(tmp_path: Path) -> None:
    rows = [{"key": str(n), "caption": "a dog" * (n % 2), "cider_d": 1.0 * (n % 2)} for n in range(4)]
    metrics = {
        "words": 2.0,
        "pictures": 4.0,
        "bleu_4": 0.1,
        "cider_d": 0.5,
        "baseline/cider_d": 0.25,
        "chosen/dims": 8.0,
    }
    write_stage(tmp_path, "said", metrics=metrics, rows=rows, config={"from": ["tune"]})
    write_recipe(tmp_path, stages={"said": {}}, table={"rows": {"said": "said"}, "metrics": ["cider_d", "bleu_4"]})
    (group,) = groups_of([read_run(tmp_path)])
    assert group.metrics == ["cider_d", "bleu_4"]
    caption = group.columns[0].measured["cider_d"]
    assert (caption.baseline, caption.by) == (0.25, "one answer for all")
    page = render([read_run(tmp_path)], ReportOptions(model=False), Silent())
    assert "(nothing)" in page


def test_many_metrics_by_class_are_folded(tmp_path: Path) -> None:
    metrics = {"AP": 0.5, **{f"AP/class {n}": 0.5 for n in range(40)}}
    write_stage(tmp_path, "found", metrics=metrics, config={"from": ["tune"]})
    page = render([read_run(tmp_path)], ReportOptions(model=False), Silent())
    assert "<summary>40 more by kind</summary>" in page
