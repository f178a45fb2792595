"""``vlcli eval`` of probes: a folder of transformers as it is, files of scores, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pair_folders
import pytest
from typer.testing import CliRunner

from vlcli.cli import app
from vlcli.foreign.pairs import PairScorer
from vlcli.recipe import stage_record

KINDS = ("add_att", "add_obj", "replace_att", "replace_obj", "replace_rel", "swap_att", "swap_obj")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("probes")
    pair_folders.sugarcrepe(folder / "crepe")
    pair_folders.winoground(folder / "wino")
    for kind in (*pair_folders.KINDS, "gpt2"):
        pair_folders.folder(kind, folder / kind)
    return folder


def evaluated(home: Path, out: Path, *words: str):
    ended = CliRunner().invoke(app, ["eval", *map(str, words), "--output", str(out)])
    assert ended.exit_code == 0, ended.output
    (stage,) = [path for path in (out / "eval").iterdir() if (path / "stage.json").is_file()]
    rows = [json.loads(line) for line in (stage / "predictions.jsonl").read_text().splitlines()]
    return ended.output, stage_record.read(stage).metrics, rows


@pytest.mark.parametrize("kind", pair_folders.KINDS)
def test_sugarcrepe_of_a_folder_of_transformers(home, tmp_path, kind):
    words = ("sugarcrepe", "--stage", home / kind, "--root", home / "crepe", f"task.language_model={home / 'gpt2'}")
    out, metrics, rows = evaluated(home, tmp_path, *words)
    assert len(rows) == 2 * (4 + 4 + 5)
    by_item: dict[str, dict[int, float]] = {}
    for row in rows:
        by_item.setdefault(row["item"], {})[row["part"]] = row["score"]
    right = [pair[0] > pair[1] for pair in by_item.values()]
    assert metrics["accuracy"] == pytest.approx(sum(right) / len(right))
    assert {f"accuracy/{one}" for one in KINDS} < metrics.keys()
    assert metrics["shorter/accuracy/swap_obj"] == 0.5
    assert metrics["shorter/accuracy/add_att"] == 1.0
    assert "likelier/accuracy" in metrics
    assert "2 images" in out
    assert "95 % interval" in out


def test_winoground_asks_both_captions_of_both_pictures(home, tmp_path):
    _, metrics, rows = evaluated(home, tmp_path, "winoground", "--stage", home / "clip", "--root", home / "wino")
    from PIL import Image

    scorer, texts = PairScorer(home / "clip"), ("a red circle and a blue square", "a blue circle and a red square")
    hits = []
    for item in range(3):
        names = [str(2 * item), str(2 * item + 1)]
        pictures = {name: Image.open(home / "wino/images" / f"{name}.png").convert("RGB") for name in names}
        s = scorer([texts[0], texts[0], texts[1], texts[1]], [*names, *names], pictures)
        assert [row["score"] for row in rows if row["item"] == str(item)] == pytest.approx(s, abs=1e-4)
        hits.append((s[0] > s[2] and s[3] > s[1], s[0] > s[1] and s[3] > s[2]))
    assert metrics["text"] == pytest.approx(sum(text for text, _ in hits) / 3)
    assert metrics["image"] == pytest.approx(sum(image for _, image in hits) / 3)
    assert {"group/Object", "group/Relation"} < metrics.keys()


@pytest.mark.parametrize(("share", "swap"), [(0.0, False), (0.5, False), (1.0, False), (0.25, True)])
def test_a_file_of_scores_has_its_known_score(home, tmp_path, share, swap):
    rows = []
    for item in range(4):
        right = (item < 4 * share) is not swap
        rows += [{"key": f"add_att-{item}-{part}", "prediction": float(right is (part == 0))} for part in (0, 1)]
    file = tmp_path / "scores.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    words = ["eval", "sugarcrepe", "--predictions", file, "--root", home / "crepe", "--split", "add_att", "--json"]
    ended = CliRunner().invoke(app, list(map(str, words)))
    assert ended.exit_code == 0, ended.output
    metrics = json.loads(ended.stdout)["metrics"]
    assert metrics["accuracy"] == (1 - share if swap else share)
    assert metrics["shorter/accuracy"] == 1.0


def refused(*words: object) -> str:
    ended = CliRunner().invoke(app, ["eval", *map(str, words)])
    assert ended.exit_code not in (0, 1)
    assert "Traceback" not in ended.output
    return ended.output


def test_what_cannot_be_scored_is_told(home, tmp_path):
    crepe = ("--root", home / "crepe", "--output", tmp_path)
    assert "scores no pairs" in refused("sugarcrepe", "--stage", home / "gpt2", *crepe)
    assert "sugarcrepe" in refused("sugarcrepe", "--stage", home / "clip", "--root", tmp_path, "--output", tmp_path)


def test_a_damaged_picture_is_told_or_left_out(home, tmp_path):
    pair_folders.sugarcrepe(tmp_path / "crepe")
    (tmp_path / "crepe/val2017/1.png").write_bytes(b"\x89PNG cut")
    words = ("sugarcrepe", "--stage", home / "clip", "--root", tmp_path / "crepe")
    assert "1.png" in refused(*words, "--output", tmp_path / "a")
    _, metrics, rows = evaluated(home, tmp_path / "b", *words, "missing=drop")
    assert len(rows) == 2 * (2 + 2 + 5)
    assert "accuracy/swap_obj" in metrics
