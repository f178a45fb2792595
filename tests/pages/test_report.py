"""``vlcli report`` without a browser: what stands in the page, and what happens to runs that are not whole."""

from __future__ import annotations

import json
import re
import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from run_folders import answers, write_recipe, write_stage
from shown_run import EVIL, make_pictures, make_run
from typer.testing import CliRunner

from vlcli.cli import app
from vlcli.data.sample import Example
from vlcli.errors import UsageError
from vlcli.metrics.rows import kind_fields
from vlcli.nn import Layout
from vlcli.pages import samples
from vlcli.pages.album import Thumbnails
from vlcli.pages.charts import HEIGHT, line_chart, nice_ticks, thinned
from vlcli.pages.looks import _Tokens
from vlcli.pages.page import refuse_other
from vlcli.pages.samples import as_text, choose, right_of
from vlcli.pages.summary import replay
from vlcli.tables.results import RowResults, RunResults, TableResults, write_results
from vlcli.tools.run_folder import read_run


def report(*words: object) -> Any:
    """Run the command in this process."""
    return CliRunner().invoke(app, ["report", *map(str, words)])


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs on one set of data."""
    folder = tmp_path_factory.mktemp("report")
    make_run(folder)
    make_run(folder, "other", right=14, lr=2e-3)
    return folder


@pytest.fixture(scope="module")
def page(base: Path) -> str:
    """The page of one run, with its model."""
    ended = report("small", "--output", base / "runs", "-q")
    assert ended.exit_code == 0, ended.output
    assert ended.stdout.strip() == str(base / "runs" / "small" / "report.html")
    return (base / "runs" / "small" / "report.html").read_text(encoding="utf-8")


def test_strangers_text_is_escaped(page: str) -> None:
    """Markup in sentences, labels and recipes is text."""
    assert EVIL not in page
    assert "&lt;script&gt;document.title=" in page
    assert "<b>mine</b>" not in page
    assert "<i>of</i>" not in page
    assert page.count("<script") == 2  # the page's own, and the numbers of attention


def test_nothing_is_fetched(page: str) -> None:
    """No address outside, and a policy that would refuse one."""
    assert "default-src &#39;none&#39;" in page
    assert "unsafe-inline" not in page
    assert not re.findall(r"(?:src|href)=\"(?!#|data:)[^\"]+\"", page)


def test_all_parts(page: str) -> None:
    """Scores with intervals, samples with pictures and regions, attention, curves, stages, what is missing."""
    for part in ("scores", "samples", "attention", "curves", "stages", "setup"):
        assert f'id="{part}"' in page
    assert page.count("data:image/jpeg;base64,") == 16
    assert 'class="box region"' in page
    assert "0.332 to 0.769" in page  # 9 of 16, Wilson
    assert "Not begun: later." in page
    looks = json.loads(re.findall(r'id="looks">(.*?)</script>', page, re.S)[0])
    names = [part["name"] for part in looks[0]["examples"][0]["maps"]]
    assert "cross.0.text_to_image" in names
    assert len(looks[0]["examples"]) == 8


def test_several_runs(base: Path, tmp_path: Path) -> None:
    """Two runs: what differs, and paired intervals."""
    ended = report("small", "other", "--output", base / "runs", "-o", tmp_path / "page.html", "--no-model", "-q")
    assert ended.exit_code == 0, ended.output
    made = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "stages.tune.optimizer.lr" in made
    assert "+0.312" in made
    assert 'id="looks"' not in made


def test_unfinished(base: Path, tmp_path: Path) -> None:
    """A run whose stages failed, stopped or never began, and whose files are damaged: the page says so."""
    run = tmp_path / "broken"
    write_recipe(run, stages={name: {"kind": "evaluate"} for name in ("a", "b", "c", "d", "e")})
    write_stage(run, "a", status="failed", error="Out of memory.\n  where: <here>")
    write_stage(run, "b", status="running")
    folder = write_stage(run, "c", metrics={"accuracy": 0.5}, rows=answers(4, 2))
    with (folder / "predictions.jsonl").open("a") as file:
        file.write("{damaged\n")
    damaged = write_stage(run, "d")
    for name in ("stage.json", ".stage.json.copy"):
        (damaged / name).write_text("[")
    ended = report(run, "-q")
    assert ended.exit_code == 0, ended.output
    made = (run / "report.html").read_text()
    for part in (
        "Failed: a.",
        "Stopped before the end: b.",
        "1 of 5 lines are damaged",
        "Damaged: d.",
        "Not begun: e.",
        "where: &lt;here&gt;",
        "Pictures and sentences of c cannot be shown.",
    ):
        assert part in made
    assert made.count("lines are damaged") == made.count("1 of 5 lines are damaged"), "only a file that is there"


def test_recipe_gone(tmp_path: Path) -> None:
    """A folder of stages without its recipe still has a report."""
    write_stage(tmp_path / "run", "test", metrics={"accuracy": 0.5, "mean": float("nan")})
    ended = report(tmp_path / "run", "-q", "--no-model")
    assert ended.exit_code == 0, ended.output
    assert "recipe.yaml is missing." in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.parametrize("words", [("nowhere",), ("nowhere", "-o", "x.html")])
def test_absent(words: tuple[str, ...], tmp_path: Path) -> None:
    """No such run: one message and the next command."""
    ended = report(*words, "--output", tmp_path)
    assert ended.exit_code == 5
    assert "There is no such run." in ended.stderr


def test_other_file_is_kept(base: Path, tmp_path: Path) -> None:
    """A file that is no report is not replaced; a report is."""
    (tmp_path / "mine.html").write_text("<p>mine</p>")
    ended = report("small", "--output", base / "runs", "-o", tmp_path / "mine.html")
    assert ended.exit_code == 2
    assert (tmp_path / "mine.html").read_text() == "<p>mine</p>"
    refuse_other(tmp_path / "new.html")
    with (tmp_path / "weights.bin").open("wb") as file:
        file.truncate(1 << 25)
    tracemalloc.start()
    try:
        with pytest.raises(UsageError, match="not a report"):
            refuse_other(tmp_path / "weights.bin")
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_pictures_gone(tmp_path: Path) -> None:
    """Data that were moved, and a damaged picture: sentences and scores remain, the page says what lacks."""
    run = make_run(tmp_path)
    picture = next((tmp_path / "data" / "nlvr2" / "images" / "dev").glob("*.png"))
    picture.write_bytes(b"no picture")
    assert report(run, "-q", "--no-model").exit_code == 0
    assert f"The picture cannot be read. {picture}" in (run / "report.html").read_text()
    (tmp_path / "data").rename(tmp_path / "moved")
    assert report(run, "-q").exit_code == 0
    assert "The data of this stage are gone." in (run / "report.html").read_text()


def test_choice() -> None:
    """Wrong answers first, kinds in turn, and right ones too."""
    rows = answers(60, 40)
    chosen = choose(rows, kind_fields(rows)[0], 12)
    assert [right_of(row) for row in chosen] == [0.0] * 8 + [1.0] * 4
    assert {row["kind"] for row in chosen[:2]} == {"colour", "count"}
    assert len(choose(rows, None, 100)) == 60


@pytest.mark.parametrize(
    ("value", "text"),
    [(True, "true"), (None, ""), ({"b": 0.25, "a": 1.0}, "a (1), b (0.25)"), (["x", "x", "y"], "x / y"), (3, "3")],
)
def test_words(value: Any, text: str) -> None:
    """Predictions of all kinds in words."""
    assert as_text(value) == text
    assert len(as_text("x" * 10**6)) < 500


def test_chart_bounds() -> None:
    """Lines and marks lie inside the chart; what is not finite is left out."""
    points = [(n, 10.0**-n) for n in range(1, 9)] + [(9, float("nan")), (10, 0.0)]
    made = line_chart("loss", {"a": points, "b validation": [(1, 1.0)]}, log=True)
    assert made is not None
    assert made.log
    assert len(made.lines[0].points) == 8
    assert made.lines[1].dashed
    assert all(0 <= tick.at <= HEIGHT for tick in made.ys)
    assert line_chart("loss", {"a": [(1, float("inf"))]}) is None
    assert nice_ticks(0, 1, 4) == [0, 0.5, 1.0]
    assert len(thinned([(n, 0.0) for n in range(10_000)])) <= 260


def test_album_has_a_bound(tmp_path: Path) -> None:
    """Beyond its bytes the page takes no more pictures, and says so."""
    make_run(tmp_path)
    files = sorted((tmp_path / "data" / "nlvr2" / "images" / "dev").glob("*.png"))
    album = Thumbnails(most=20_000)
    made = [album.of(file) for file in files]
    assert made[0] is not None
    assert made[-1] is None
    assert album.full


def test_replay(tmp_path: Path) -> None:
    """The command names the recipe with its overrides where these give the same recipe, else the run's own."""
    from vlcli.recipe.load import load

    document = load("tiny/lxmert", ["seed=7"]).document.value
    write_recipe(tmp_path / "run", **document)
    write_stage(tmp_path / "run", "world", "make", recipe="tiny/lxmert")
    assert replay(read_run(tmp_path / "run")) == "vlcli run tiny/lxmert seed=7"
    write_stage(tmp_path / "run", "world", "make", recipe="gone.yaml")
    assert replay(read_run(tmp_path / "run")) == f"vlcli run {tmp_path / 'run' / 'recipe.yaml'}"
    (tmp_path / "run" / "recipe.yaml").unlink()
    assert replay(read_run(tmp_path / "run")) == ""


def test_ranking(tmp_path: Path) -> None:
    """A sentence's row shows the true image and the one ranked first; an image's row the sentence ranked first."""
    make_pictures(tmp_path / "data" / "images", ["one", "two"], ".jpg")
    pictures = [
        {"id": n, "file_name": f"{name}.jpg", "height": 100, "width": 100} for n, name in enumerate(("one", "two"))
    ]
    captions = [{"id": 7 + n, "image_id": n, "caption": f"caption {n}"} for n in (0, 1)]
    (tmp_path / "data" / "coco" / "annotations").mkdir(parents=True)
    file = tmp_path / "data" / "coco" / "annotations" / "captions_test.json"
    file.write_text(json.dumps({"images": pictures, "annotations": captions}))
    rows = [
        {"key": "image/7", "prediction": "two", "score": 0.4, "rank": 2.0, "correct": False},
        {"key": "text/two", "prediction": "7", "score": 0.4, "rank": 2.0, "correct": False},
    ]
    config = {"kind": "evaluate", "from": [], "data": [{"name": "coco-captions", "split": "test"}], "task": "retrieval"}
    run = tmp_path / "run"
    write_recipe(run, stages={"rank": {"kind": "evaluate"}})
    facts = {"metrics": {"image/r@1": 0.0}, "rows": rows, "config": config, "root": str(tmp_path / "data")}
    write_stage(run, "rank", **facts)
    assert report(run, "-q", "--no-model").exit_code == 0
    made = (run / "report.html").read_text()
    assert "ranked first</figcaption>" in made
    assert "Ranked first: caption 0" in made
    assert "rank 2" in made


def test_run_ends_with_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``report: true``: the page is written once, kept while nothing changes, and is no reason for a run to fail."""
    monkeypatch.chdir(tmp_path)
    world = {"kind": "make", "world": {"name": "shapes", "images": 20, "parts": ["coco"]}}
    Path("r.yaml").write_text(json.dumps({"report": True, "stages": {"world": world}}))

    def run(*words: str) -> Any:
        ended = CliRunner().invoke(app, ["run", "r.yaml", "-q", *words])
        assert ended.exit_code == 0, ended.output
        return ended

    page = Path("runs/r/report.html")
    assert run().stdout.splitlines()[-1] == f"report: {page}"
    assert "vlcli run r.yaml" in page.read_text()
    written = page.stat().st_mtime_ns
    assert json.loads(run("--json").stdout)["report"] == str(page)
    assert page.stat().st_mtime_ns == written
    page.write_text("mine")
    assert "the report could not be written" in run("--force").stderr
    assert page.read_text() == "mine"


@pytest.mark.parametrize("target", [{"box": [0.1, 0.2, 0.5, 0.6]}, {"pixel_box": [20, 20, 100, 60]}])
def test_the_box_of_an_expression_lies_where_the_data_say_in_shares_or_in_pixels(target):
    thumbnail = SimpleNamespace(size=(100, 200))  # height, width
    example = Example("1", "the dog", ["a"], targets=target)
    row = {"prediction": [20.0, 20.0, 100.0, 60.0]}
    boxes = samples._boxes(row, example, SimpleNamespace(thumbnail=thumbnail), [])
    assert [(box.label, box.role) for box in boxes] == [("reference", "true"), ("predicted", "said")]
    assert [box.place for box in boxes] == [pytest.approx([0.1, 0.2, 0.4, 0.4])] * 2


def test_the_page_of_a_table_shows_every_rows_answers_and_the_first_attention_there_is(base: Path) -> None:
    """A baseline has no model: attention is that of the row below; ``--no-model`` leaves attention out."""
    runs = base / "runs"
    rows = read_run(runs / "small").stages["test"].predictions
    config = {"kind": "evaluate", "from": [], "data": [{"name": "nlvr2"}], "split": "dev", "task": "nlvr2"}
    write_stage(runs / "plain", "test", metrics={"accuracy": 0.5}, rows=rows, config=config, root=str(base / "data"))
    results = [
        RowResults(name, [RunResults(1, metrics={"accuracy": 0.5}, evaluation=runs / name / "test")])
        for name in ("plain", "small", "other")
    ]
    write_results(TableResults("all", ["accuracy"], results), runs / "all" / "table.json")
    ended = report("all", "--output", runs, "-q", "--samples", 8)
    assert ended.exit_code == 0, ended.output
    page = (runs / "all" / "report.html").read_text()
    for part in ("table", "breakdown", "samples", "attention"):
        assert page.count(f'<section id="{part}"') == page.count(f'href="#{part}"') == 1
    assert page.count('<small class="by">plain</small>') == page.count('<small class="by">other</small>') == 8
    assert EVIL not in page
    looks = json.loads(re.findall(r'id="looks">(.*?)</script>', page, re.S)[0])
    assert [look["title"] for look in looks] == ["small"]
    assert report("all", "--output", runs, "-q", "--no-model", "--samples", 0).exit_code == 0
    page = (runs / "all" / "report.html").read_text()
    assert "<article" not in page
    assert '<section id="attention"' not in page


def test_attention_of_a_whole_sentence_over_regions_is_shown():
    layout = Layout.for_boxes(torch.rand(1, 4, 4), torch.ones(1, 4, dtype=torch.bool))
    batch = SimpleNamespace(clean=SimpleNamespace(image_rows=torch.tensor([[0]])))
    weights = torch.tensor([[[[0.1, 0.2, 0.3, 0.4]]]])
    (shown,) = _Tokens(batch, layout, 5).maps("top_down", "attention", weights)
    assert (shown.asked, shown.names, shown.keys) == ("tokens", ["whole sentence"], 4)
    assert shown.values[0].tolist() == weights[0].tolist()
