"""docs/extending.md as written, as a file and as a package; and packages that are broken or take another's name."""

from __future__ import annotations

import json
import pydoc
import re
from functools import cache
from pathlib import Path

import pytest

from vlcli.recipe.table import load_table
from vlcli.registry import names
from vlcli.registry.public import public_names

from . import strangers
from .pages import PROJECT, files, pages, vlcli

PAGE = files((PROJECT / "docs" / "extending.md").read_text(encoding="utf-8"))
RECIPE = """\
root: {root}
text: {{vocabulary: {{train: {{name: coco-captions}}, size: 200}}}}
stages:
  bag:
    kind: pretrain
    model: {{name: "{model}", width: 16}}
    features: {store}
    data: {{name: coco-captions}}
    objectives: [{{name: contrast-in-batch, temperature: 0.2}}]
    steps: 3
  lxmert:
    kind: pretrain
    model: {{name: lxmert, hidden: 16, heads: 2, text_layers: 1, image_layers: 1, cross_layers: 1,
            image_position: [box, distance-bias]}}
    features: {store}
    data: {{name: coco-captions}}
    objectives: [mlm]
    steps: 1
"""


def recipe(folder: Path, quickstart, model: str, keep: tuple[str, ...] = ("bag", "lxmert")) -> Path:
    """The doc's two training stages on the regions that the quickstart made."""
    text = RECIPE.format(
        root=quickstart.runs / "world" / "world", store=quickstart.runs / "regions" / "features.h5", model=model
    )
    path = folder / "stranger.yaml"
    path.write_text(text)
    if "lxmert" not in keep:
        path.write_text(text.split("  lxmert:")[0])
    return path


def test_the_page_is_short_and_imports_public_names_only():
    code = PAGE["tiny_paper.py"]
    assert len(code.splitlines()) < 80
    imported = re.findall(r"^from (\S+) import|^import (\S+)", code, re.M)
    assert {a or b for a, b in imported} <= {"torch", "vlcli.nn", "vlcli.objectives", "vlcli.registry"}
    import vlcli.nn
    import vlcli.objectives

    for module in (vlcli.nn, vlcli.objectives):
        (names,) = re.findall(rf"^from {module.__name__} import (.*)", code, re.M)
        assert set(names.split(", ")) <= set(public_names(module.__name__))


def test_every_name_that_a_page_gives_is_there():
    named = {name for text in pages().values() for name in re.findall(r"`(vlcli(?:\.\w+)+)[`(]", text)}
    modules = {name for name in named if name.islower()}
    assert len(named) > 15
    modules |= {"vlcli.KIND"}  # stands for any entry-point group
    assert [name for name in sorted(named - modules) if pydoc.locate(name) is None] == []


def test_every_recipe_and_row_that_a_page_names_is_there():
    known = set(names("recipes"))
    packages = "|".join(sorted({name.partition("/")[0] for name in known if "/" in name}))
    pattern = rf"`((?:{packages})/[a-z0-9-]+)(?::([A-Za-z0-9/-]+))?`"
    named = {found for text in pages().values() for found in re.findall(pattern, text)}
    assert len(named) > 50
    assert [name for name, _ in sorted(named) if name not in known] == []
    assert [(name, row) for name, row in sorted(named) if row and row not in rows_of(name)] == []


@cache
def rows_of(table: str) -> set[str]:
    return set(load_table(table).rows)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A folder with the files of the page; what the stages of one recipe make there is there for the next."""
    folder = tmp_path_factory.mktemp("page")
    for name, text in PAGE.items():
        if name.endswith((".py", ".yaml")):
            (folder / name).write_text(text)
    return folder


def test_the_page_runs_as_written(page):
    ended = vlcli(page, "run", "tiny_paper.yaml", "--trust", "--json")
    assert ended.code == 0, ended.err
    stages = {stage["stage"]: stage for stage in json.loads(ended.out)["stages"]}
    assert {stage["status"] for stage in stages.values()} == {"done"}
    assert list(stages) == ["world", "regions", "bag", "lxmert"]
    log = [json.loads(line) for line in (page / "runs/tiny_paper/bag/log.jsonl").read_text().splitlines()]
    assert log[-1]["loss/contrast-in-batch"] < log[0]["loss/contrast-in-batch"]
    config = json.loads((page / "runs/tiny_paper/lxmert/model/config.json").read_text())
    assert "distance-bias" in json.dumps(config)
    assert json.loads(vlcli(page, "run", "tiny_paper.yaml", "--trust", "--json").out)["stages"][-1]["action"] == "skip"


def test_the_reader_and_the_task_of_the_page_run_as_written(page):
    ended = vlcli(page, "run", "statements.yaml", "--trust", "--json")
    assert ended.code == 0, ended.err
    stages = [stage["stage"] for stage in json.loads(ended.out)["stages"]]
    assert stages == ["world", "regions", "pretrain", "tune", "test"]
    rows = [json.loads(line) for line in (page / "runs/statements/test/predictions.jsonl").read_text().splitlines()]
    right = json.loads((page / "runs/statements/test/metrics.json").read_text())["accuracy"]
    assert len(rows) > 10
    assert right == pytest.approx(sum(row["right"] for row in rows) / len(rows))


def test_the_model_with_slots_of_the_page_runs_as_written(page):
    ended = vlcli(page, "run", "gated.yaml", "--trust", "--json")
    assert ended.code == 0, ended.err
    assert [stage["status"] for stage in json.loads(ended.out)["stages"]] == ["done"] * 3
    config = json.loads((page / "runs/gated/gated/model/config.json").read_text())
    assert "distance-bias" in json.dumps(config)
    assert "rope-2d" in json.dumps(config)
    plugins = ["--plugin", "tiny_paper.py", "--plugin", "gated.py"]
    drawn = vlcli(page, "draw", "attention", "--stage", "gated/gated", *plugins, "count=1")
    assert drawn.code == 0, drawn.err
    refused = vlcli(page, "validate", "--deep", "gated.yaml", "--trust", "stages.gated.model.cross_position=box")
    assert refused.code == 4
    assert "gated.image_position" in refused.err


def test_the_model_of_pixels_of_the_page_learns_as_written(page):
    ended = vlcli(page, "run", "patches.yaml", "--trust", "--json")
    assert ended.code == 0, ended.err
    log = [json.loads(line) for line in (page / "runs/patches/patches/log.jsonl").read_text().splitlines()]
    assert log[-1]["loss/contrast-in-batch"] < log[0]["loss/contrast-in-batch"]
    assert vlcli(page, "validate", "--deep", "patches.yaml", "--trust").code == 0


PLUGINS = "plugins: [tiny_paper.py]\n"


def test_one_stream_of_the_page_runs_and_equals_transformers(page):
    ended = vlcli(page, "run", "one_stream.yaml", "--trust", "--json")
    assert ended.code == 0, ended.err
    assert [stage["status"] for stage in json.loads(ended.out)["stages"]] == ["done"] * 2
    words = ("plugin", "check", "one-stream", "--plugin", "one_stream.py")
    against = vlcli(page, *words, "--against", "transformers:ViltModel", "--json")
    assert against.code == 0, against.err
    assert json.loads(against.out)["largest"] < 1e-5
    assert vlcli(page, *words, "--quick").code == 0


@pytest.fixture(scope="module")
def crowd(tmp_path_factory):
    """An environment with the page's package and one whose import raises; returns its Python."""
    folder = tmp_path_factory.mktemp("crowd")
    code = re.sub(r"^@component\(.*\n|^from vlcli.registry import component\n", "", PAGE["tiny_paper.py"], flags=re.M)
    assert "component" not in code
    paper = folder / "tiny-paper"
    paper.mkdir()
    (paper / "tiny_paper.py").write_text(code)
    (paper / "pyproject.toml").write_text(PAGE["pyproject.toml"])
    (paper / "tiny_paper_recipes").mkdir()
    (paper / "tiny_paper_recipes/__init__.py").touch()
    (paper / "tiny_paper_recipes/on_shapes.yaml").write_text(PAGE["tiny_paper.yaml"].replace(PLUGINS, ""))
    points = {"models": {"cracked": "Model"}, "tasks": {"cracked-task": "Task"}}
    cracked = strangers.package(folder / "cracked", "cracked", "cracked", 'raise OSError("no such driver")\n', points)
    python = strangers.environment(folder / "env")
    strangers.install(python, paper, cracked)
    return python


def test_a_strangers_package_is_used_by_a_recipe(crowd, quickstart, tmp_path):
    path = recipe(tmp_path, quickstart, "bag")
    ended = vlcli(tmp_path, "run", path, "--json", python=crowd)
    assert ended.code == 0, ended.err
    stages = json.loads(ended.out)["stages"]
    assert [stage["status"] for stage in stages] == ["done", "done"]
    assert stages[0]["metrics"]["train/loss/contrast-in-batch"] > 0
    record = json.loads((tmp_path / "runs/stranger/bag/stage.json").read_text())
    assert record["versions"]["tiny-paper"] == "1.0"
    assert vlcli(tmp_path, "validate", path).code == 4, "the package is in its own environment alone"


def test_a_strangers_recipe_is_found_from_any_folder(crowd, tmp_path):
    assert PLUGINS in PAGE["tiny_paper.yaml"]
    ended = vlcli(tmp_path, "run", "tiny-paper/on-shapes", "--dry-run", "--json", python=crowd)
    assert ended.code == 0, ended.err
    assert [stage["stage"] for stage in json.loads(ended.out)["stages"]] == ["world", "regions", "bag", "lxmert"]


@pytest.mark.slow
def test_a_broken_package_is_named_and_stops_nobody(crowd, tmp_path):
    plain = json.loads(vlcli(tmp_path, "ls", "models", "--json", python=crowd).out)["components"]
    assert {"bag", "cracked", "lxmert"} <= {row["name"] for row in plain}
    checked = vlcli(tmp_path, "ls", "--check", "--json", python=crowd)
    assert checked.code == 4, checked.err
    broken = {r["name"]: (r["distribution"], r["broken"]) for r in json.loads(checked.out)["components"] if r["broken"]}
    cause = ("cracked", "OSError: no such driver")
    assert broken == {"cracked": cause, "cracked-task": cause}
    shown = vlcli(tmp_path, "show", "cracked", python=crowd)
    assert shown.code == 4
    assert "OSError: no such driver" in shown.err
    assert "cracked 2.0" in shown.err
    assert "Traceback" not in shown.err


COPY = '''
from tiny_bag import Bag


class Copy(Bag):
    """A model under a name that is taken."""
'''


@pytest.mark.slow
def test_a_name_used_twice_is_told_apart(quickstart, tmp_path):
    code = re.sub(r"^@component\(.*\n|^from vlcli.registry import component\n", "", PAGE["tiny_paper.py"], flags=re.M)
    bag = {"objectives": {"contrast-in-batch": "Contrast"}}
    first = strangers.package(tmp_path / "one", "tiny-bag", "tiny_bag", code, bag)
    second = strangers.package(tmp_path / "two", "copy-cat", "copy_cat", COPY, {"models": {"deit": "Copy"}})
    python = strangers.environment(tmp_path / "env")
    strangers.install(python, first, second)
    path = recipe(tmp_path, quickstart, "deit", keep=("bag",))
    refused = vlcli(tmp_path, "validate", path, python=python)
    assert refused.code == 4
    for word in ("copy-cat (copy_cat:Copy)", "vlcli (vlcli_deit:DeiT)", "copy-cat:deit or vlcli:deit"):
        assert word in refused.err
    ended = vlcli(tmp_path, "run", path, "stages.bag.model.name=copy-cat:deit", "--json", python=python)
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["stages"][0]["status"] == "done"
    assert "DeiT" in vlcli(tmp_path, "show", "vlcli:deit", python=python).out
    assert vlcli(tmp_path, "run", "quickstart", "--dry-run", python=python).code == 0
