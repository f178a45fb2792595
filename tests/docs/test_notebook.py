"""docs/notebook.ipynb, cell by cell as Jupyter runs it; and what objects show there, with a display and without."""

from __future__ import annotations

import ast
import json
import re
import shlex
import sys
from io import BytesIO
from typing import Any

import pytest
from PIL import Image

from .pages import PROJECT, run

CELLS = json.loads((PROJECT / "docs" / "notebook.ipynb").read_text(encoding="utf-8"))["cells"]


def execute(source: str, scope: dict[str, Any], folder) -> Any:
    """The value of a cell's last line; lines that begin with ! are commands, as in IPython."""
    for line in re.findall(r"^!(.+)$", source, re.M):
        code = re.sub(r"^!.+$", "", source.partition(f"!{line}")[0], flags=re.M)
        exec(code, scope)
        ended = run([sys.executable, "-m", *shlex.split(line)], folder)
        assert ended.code == 0, ended.err
        source = source.partition(f"!{line}")[2]
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), scope)
    return None if last is None else eval(compile(ast.Expression(last.value), "cell", "eval"), scope)


@pytest.fixture(scope="module")
def shown(tmp_path_factory) -> list[dict[str, Any]]:
    """What each cell shows, as Jupyter asks for it when the cell ends: value, text, and what it is drawn as."""
    folder, scope, seen = tmp_path_factory.mktemp("notebook"), {}, []
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for cell in CELLS:
            value = execute("".join(cell["source"]), scope, folder) if cell["cell_type"] == "code" else None
            forms = ("_repr_png_", "_repr_markdown_", "_repr_html_")
            drawn = {form: getattr(value, form)() for form in forms if hasattr(value, form)}
            seen += [] if value is None else [{"value": value, "text": repr(value), **drawn}]
    assert (folder / "mine.html").stat().st_size > 10_000
    return seen


@pytest.mark.slow
def test_the_notebook_runs_and_shows_picture_attention_table_and_page(shown):
    pictures = [one["_repr_png_"] for one in shown if "_repr_png_" in one]
    assert len(pictures) == 2
    for content in pictures:
        drawn = Image.open(BytesIO(content)).convert("L")
        assert drawn.width > 480, "the picture, and beside it where the words look"
        assert drawn.crop((drawn.width // 2 + 8, 40, drawn.width - 8, 240)).getextrema()[0] < 120
    (table,) = [one["_repr_markdown_"] for one in shown if "_repr_markdown_" in one]
    (page,) = [one["_repr_html_"] for one in shown if "_repr_html_" in one]
    assert "| ---" in table
    assert "accuracy" in table
    assert page.startswith('<iframe sandbox="allow-scripts"')
    assert "<script>" not in page, "the page is inside an attribute, escaped"


@pytest.mark.slow
def test_without_a_display_each_has_a_line_of_text(shown):
    texts = [one["text"] for one in shown]
    assert any(re.match(r"<image-qa: 'how many circles are there' of .*png: \w+>$", text) for text in texts)
    assert any("accuracy" in text and "0." in text for text in texts)
    assert any("save('report.html') writes it" in text for text in texts)


def test_the_notebook_is_kept_without_outputs():
    code = [cell for cell in CELLS if cell["cell_type"] == "code"]
    assert [cell for cell in code if cell["outputs"] or cell["execution_count"]] == []
    assert len({cell["id"] for cell in CELLS}) == len(CELLS)


def test_a_prediction_about_no_file_shows_its_words(tmp_path):
    from vlcli.prediction.records import Prediction, Use

    use = Use("vqa", "answer", 1, "needed", "")
    for pictures in ((), ("an-id-in-a-store",), (str(tmp_path / "gone.png"),)):
        shown = Prediction(use, "k", ["7"], "what is it", "a cat", pictures=pictures)
        assert shown._repr_png_() is None
        assert repr(shown) == "<vqa: 'what is it' of 7: a cat>"
