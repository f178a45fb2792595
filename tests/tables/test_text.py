"""Tables as text, Markdown, LaTeX, CSV and pictures."""

from __future__ import annotations

import csv
import io
import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from PIL import Image
from table_rows import plain_row, row_of

from vlcli.errors import UsageError
from vlcli.recipe.locate import Published
from vlcli.tables.heat import heat_map
from vlcli.tables.outputs import write_plot, write_table
from vlcli.tables.results import RowResults, RunResults, TableResults, read_results
from vlcli.tables.summary import summarise
from vlcli.tables.text import aligned, blocks, comma_separated, latex, markdown

AWKWARD = r"50 % & more_{$#~^\} | *a* <b>"


def table(metrics: list[str] | None = None) -> TableResults:
    """Five rows: the reference, one that is surely better, one with one seed, one that failed, one awkward."""
    none = plain_row("none", [0.70, 0.71, 0.72])
    for run in none.runs:
        run.metrics["most_frequent"] = 0.4
    good = plain_row("irpe", [0.80, 0.82, 0.81])
    good.published["accuracy"] = Published(0.85, 0.01)
    lost = RowResults("lost", [RunResults(0, "failed", error="out of\nmemory"), RunResults(1, "failed")])
    rows = [none, good, plain_row("few", [0.72]), lost, plain_row(AWKWARD, [0.70, 0.72, 0.71])]
    return TableResults("Positions", metrics or ["accuracy"], rows, "none")


def grid() -> TableResults:
    cells = [(a, b) for a in ("none", "irpe", "ace") for b in ("lxmert", "vlmo")]
    rows = [
        RowResults(f"{a}/{b}", plain_row("", [0.5 + 0.1 * n, 0.52 + 0.12 * n]).runs, cell=(a, b))
        for n, (a, b) in enumerate(cells)
    ]
    rows[-1].runs = [RunResults(None, "refused", error="vlmo has no cross-attention")]
    return TableResults(
        "Grid", ["accuracy"], rows, "none", {"position": ["none", "irpe", "ace"], "model": ["lxmert", "vlmo"]}
    )


def test_the_text_has_numbers_differences_published_and_reasons() -> None:
    text = aligned(summarise(table()))
    assert re.search(r"^none \(reference\) +3 +0\.710 ± 0\.025", text, re.MULTILINE)
    assert re.search(r"^irpe +3 +0\.810 ± 0\.025 +0\.850 ± 0\.010 +\+0\.100 \(.* to .*\) \*", text, re.MULTILINE)
    assert "failed: out of memory (2 of 2 seeds)" in text
    assert re.search(r"^most frequent answer +0\.400", text, re.MULTILINE)
    assert "Some rows have fewer than 3 seeds: few 1." in text
    assert "Holm's correction over 2 contrasts" in text


def test_many_metrics_are_blocks_of_their_own() -> None:
    found = table(["accuracy", "a*", "b*"])
    for row in found.rows:
        for run in row.done:
            run.metrics |= {"again": 0.1, "b": 2.0}
    titles = [block.title for block in blocks(summarise(found))]
    assert titles == ["Positions", "published", "difference to none"]


def test_latex_is_escaped_and_has_as_many_cells_as_columns() -> None:
    text = latex(summarise(table()))
    assert r"50 \% \& more\_\{\$\#\textasciitilde{}\textasciicircum{}\textbackslash{}\}" in text
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert {len(re.findall(r"(?<!\\)&", line)) for line in rows} == {7}
    assert text.count(r"\midrule") == 2


def test_markdown_has_as_many_cells_as_columns() -> None:
    lines = [line for line in markdown(summarise(table())).splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {9}


def test_csv_has_every_number_in_full_and_no_formula() -> None:
    found = table()
    found.rows[1].label = "=1+1"
    rows = list(csv.DictReader(io.StringIO(comma_separated(summarise(found)))))
    assert [row["row"] for row in rows][1] == "'=1+1"
    assert float(rows[1]["difference"]) == pytest.approx(0.1)
    assert rows[3]["mean"] == ""
    assert rows[3]["error"].startswith("failed: out of memory")


def test_files_are_written_and_read_again(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    files = write_table(table(), tmp_path)
    assert [file.name for file in files] == [f"table.{end}" for end in ("json", "csv", "tex", "md", "svg", "png")]
    assert read_results(files[0]).rows[1].published["accuracy"] == Published(0.85, 0.01)
    lines = json.loads(files[0].read_text())["statistics"]["lines"]
    assert lines[1]["metrics"]["accuracy"]["difference"]["over"] == "seeds"
    words = {node.text for node in ElementTree.parse(files[4]).iter() if node.text}
    assert {"none", "irpe", "accuracy", "0.810 *"} <= words
    with Image.open(files[5]) as picture:
        assert min(picture.size) > 200
    before = files[5].read_bytes()
    assert write_table(table(), tmp_path)[5].read_bytes() == before


def test_a_grid_is_a_matrix_with_reasons_and_each_cell_has_its_own_reference(tmp_path: Path) -> None:
    summary = summarise(grid())
    block = blocks(summary)[0]
    assert block.columns == ["", "lxmert", "vlmo"]
    assert block.rows[2][1][2] == "- (1)"
    assert block.notes == ["(1) refused: vlmo has no cross-attention"]
    found = {line.label: line.contrasts for line in summary.lines}
    assert found["irpe/vlmo"]["accuracy"].reference == "none/vlmo"
    assert not found["none/vlmo"]
    words = "".join(ElementTree.parse(write_plot(summary, tmp_path / "grid.svg")).getroot().itertext())
    assert "refused: vlmo" in words
    assert "accuracy: difference to none" in words


def test_a_grid_is_coloured_by_differences_on_the_scale_of_their_intervals() -> None:
    pytest.importorskip("matplotlib")
    summary = summarise(grid())
    contrasts = [line.contrasts["accuracy"] for line in summary.lines if line.contrasts]
    furthest = max(abs(end) for one in contrasts for end in (one.low, one.high) if end is not None)
    image = heat_map(summary).axes[0].images[0]
    assert image.get_clim() == pytest.approx((-furthest, furthest))
    values = image.get_array()
    assert values[0].tolist() == [0.0, 0.0]  # the reference
    assert values[1][0] == pytest.approx(contrasts[0].difference)


def test_the_title_of_a_narrow_grid_is_broken_into_lines() -> None:
    pytest.importorskip("matplotlib")
    summary = summarise(grid())
    summary.title = "A title of more words than a figure of two narrow columns has room for in one line"
    assert len(heat_map(summary).get_suptitle().splitlines()) > 1


def test_baselines_that_differ_stand_by_row(tmp_path: Path) -> None:
    first = row_of("first", tmp_path, {1: {"a": 1.0, "b": 0.0}})
    second = row_of("second", tmp_path, {1: {"a": 1.0, "b": 0.0}})
    second.runs[0].metrics["most_frequent"] = 0.7
    lines = [line.label for line in summarise(TableResults("", [], [first, second])).lines[2:]]
    assert lines == ["most frequent answer (first)", "most frequent answer (second)"]


def test_several_evaluate_stages_stand_side_by_side() -> None:
    metrics = {"NLVR2/accuracy": 0.8, "NLVR2/most_frequent": 0.5, "search/r@1": 0.3, "search/chance/r@1": 0.1}
    run = RunResults(1, metrics=metrics, evaluations={"NLVR2": Path("a"), "search": Path("b")})
    summary = summarise(TableResults("", [], [RowResults("both", [run])]))
    assert summary.metrics == ["NLVR2/accuracy", "search/r@1"]
    baselines = {line.label: {name: e.mean for name, e in line.estimates.items()} for line in summary.lines[1:]}
    assert baselines == {"most frequent answer": {"NLVR2/accuracy": 0.5}, "chance": {"search/r@1": 0.1}}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda found: found.metrics.append("acuracy"), "acuracy.*accuracy"),
        (lambda found: setattr(found, "reference", "nowhere"), "nowhere.*none"),
        (lambda found: found.rows.append(plain_row("none", [1.0])), "same label"),
    ],
)
def test_what_is_wrong_is_one_message(change, words: str) -> None:
    found = table()
    change(found)
    with pytest.raises(UsageError) as caught:
        summarise(found)
    assert re.search(words, str(caught.value), re.DOTALL)


def test_a_table_of_one_row_and_one_without_numbers() -> None:
    one = summarise(TableResults("", [], [plain_row("one", [0.5])]))
    assert aligned(one).split() == ["accuracy", "one", "0.500"]
    lost = summarise(TableResults("lost", ["accuracy"], [RowResults("row", [RunResults(1, "stopped")])]))
    assert "stopped" in aligned(lost)
    nan = summarise(TableResults("", ["accuracy"], [plain_row("row", [float("nan")])]))
    assert "accuracy: not a number" in aligned(nan)


def test_a_plot_has_a_known_ending(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="SVG or PNG"):
        write_plot(summarise(table()), tmp_path / "a.jpg")
