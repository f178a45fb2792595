"""``vlcli features`` from the command line."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from vlcli.cli import app
from vlcli.features import FeatureStore, FeatureWriter, Record


def _run(*words):
    return CliRunner().invoke(app, ["features", *map(str, words)])


@pytest.fixture
def table(tmp_path):
    """Three pictures as LXMERT's TSV."""
    lines = []
    for number in range(3):
        rng = np.random.default_rng(number)
        arrays = [np.array([0, 1]), rng.random(2, dtype=np.float32), np.array([1, 0]), rng.random(2, dtype=np.float32)]
        arrays += [np.array([[0, 0, 20, 10], [5, 5, 29, 19]], np.float32), rng.random((2, 4), dtype=np.float32)]
        cells = [base64.b64encode(array.tobytes()).decode() for array in arrays]
        lines.append("\t".join([f"COCO_{number}", "20", "30", *cells[:4], "2", *cells[4:]]) + "\r\n")
    (tmp_path / "in.tsv").write_bytes("".join(lines).encode())
    return tmp_path / "in.tsv"


def test_in_and_out_again(tmp_path, table):
    ended = _run("import", "obj36", table, tmp_path / "f.h5", "--dtype", "float32")
    assert (ended.exit_code, ended.stdout) == (
        0,
        f"{tmp_path / 'f.h5'} [boxes]: 3 images, 3 written, 0 resumed, 0 errors\n",
    )
    made = json.loads(_run("import", "obj36", table, tmp_path / "f.h5", "--dtype", "float32", "--json").stdout)
    assert made["counts"] == {"images": 3, "written": 0, "resumed": 3, "errors": 0}
    assert _run("export", "obj36", tmp_path / "f.h5", tmp_path / "out.tsv").exit_code == 0
    assert (tmp_path / "out.tsv").read_bytes() == table.read_bytes()
    assert _run("export", "obj36", tmp_path / "f.h5", tmp_path / "out.tsv").exit_code == 2
    (tmp_path / "ids").write_text("COCO_2\n\nCOCO_0\n")
    words = (
        "export",
        "butd",
        tmp_path / "f.h5",
        tmp_path / "out.tsv",
        "--images",
        tmp_path / "ids",
        "--force",
        "--json",
    )
    assert json.loads(_run(*words).stdout)["images"] == 2
    assert (tmp_path / "out.tsv").read_text().split("\t")[0] == "COCO_2"
    (tmp_path / "ids").write_text("COCO_9")
    assert _run(*words).exit_code == 5


def test_damage_is_told_or_listed(tmp_path, table):
    table.write_bytes(table.read_bytes()[:-30])
    ended = _run("import", "obj36", table, tmp_path / "f.h5")
    assert ended.exit_code == 5
    assert "in.tsv:3" in ended.stderr
    assert "--skip-bad" in ended.stderr
    ended = _run("import", "obj36", table, tmp_path / "f.h5", "--skip-bad")
    assert "2 images, 0 written, 2 resumed, 1 errors" in ended.stdout
    assert "f.errors.jsonl" in ended.stderr
    assert _run("import", "tsv", table, tmp_path / "f.h5").exit_code == 2


def test_merge_join_verify(tmp_path, table):
    for name in ("a", "b"):
        _run("import", "obj36", table, tmp_path / f"{name}.h5", "--ids", name + "{:d}")
    a, b, all_, both, index = (tmp_path / f"{name}.h5" for name in ("a", "b", "all", "both", "index"))
    assert _run("merge", a, b, "--out", all_).exit_code == 5  # ids were made otherwise
    assert _run("merge", f"seen={a}", f"truth={b}", "--out", both).stdout.strip() == str(both)
    assert FeatureStore(both, "truth").ids == ["b0", "b1", "b2"]
    assert _run("merge", a, "--out", both).exit_code == 2
    assert _run("join", a, "--out", index).exit_code == 0
    assert json.loads(_run("info", index, "--json").stdout)["store"]["joined"] is True
    assert "joined by an index" in _run("info", index).stdout
    assert _run("verify", index).stdout.strip() == f"{index}: sound"
    a.unlink()
    assert _run("verify", index).exit_code == 5


def test_drawing(tmp_path, table):
    _run("import", "obj36", table, tmp_path / "f.h5", "--ids", "{:012d}")
    picture = tmp_path / "COCO_val_1.png"
    Image.new("RGB", (30, 20), "white").save(picture)
    (tmp_path / "names").write_text("dog,puppy\ncat\n")
    words = ("draw", tmp_path / "f.h5", picture, "--out", tmp_path / "drawn", "--classes", tmp_path / "names")
    ended = _run(*words, "--limit", 1)
    assert ended.exit_code == 0, ended.stderr
    drawn = Image.open(tmp_path / "drawn" / "000000000001.png")
    assert drawn.size == (30, 20)
    best = FeatureStore(tmp_path / "f.h5").read("000000000001").class_scores.argmax()
    assert (drawn.getpixel((20, 0)) != (255, 255, 255)) == (best == 0)  # the edge of the first box
    assert (drawn.getpixel((29, 12)) != (255, 255, 255)) == (best == 1)
    assert _run(*words, "--limit", 1).exit_code == 0, "the same picture again"
    ended = _run(*words)
    assert ended.exit_code == 2
    assert "Other pictures lie here" in ended.stderr
    assert _run(*words, "--force").exit_code == 0
    Image.new("RGB", (30, 20)).save(tmp_path / "other_7.png")
    assert _run("draw", tmp_path / "f.h5", tmp_path / "other_7.png").exit_code == 5
    assert _run(*words[:-1], tmp_path / "none").exit_code == 5


def test_several_sets_must_be_named(tmp_path):
    for name in ("one", "two"):
        with FeatureWriter(tmp_path / "f.h5", set=name) as writer:
            writer.append(Record("a", np.ones((1, 2)), np.array([[0, 0, 5, 5]]), (9, 9)))
    ended = _run("export", "butd", tmp_path / "f.h5", tmp_path / "o.tsv")
    assert ended.exit_code == 5
    assert "one, two" in ended.stderr
    assert _run("export", "butd", tmp_path / "f.h5", tmp_path / "o.tsv", "--set", "two").exit_code == 0


def test_concepts_beside_regions_leave_the_regions_the_default(tmp_path):
    for name in ("seen", "concepts"):
        with FeatureWriter(tmp_path / "f.h5", set=name) as writer:
            writer.append(Record("a", np.ones((1, 2)), np.array([[0, 0, 5, 5]]), (9, 9)))
    assert FeatureStore(tmp_path / "f.h5").parts()[0].name == "seen"
