"""``vlcli search``: a folder is embedded once, changes are seen, faults are named."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tiny_contrast import SENTENCES, make_model
from typer.testing import CliRunner

import vlcli
from vlcli.cli import app


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return make_model(tmp_path_factory.mktemp("model") / "model")


@pytest.fixture
def photos(tmp_path) -> Path:
    """Five pictures, one of them in a subfolder, one file that only looks like one, and one that does not."""
    rng = np.random.default_rng(0)
    (tmp_path / "photos/more").mkdir(parents=True)
    for name in ("a.png", "b.png", "c.jpg", "d.png", "more/e.png"):
        Image.fromarray(rng.integers(0, 255, (40, 50, 3), dtype=np.uint8)).save(tmp_path / "photos" / name)
    (tmp_path / "photos/broken.jpg").write_bytes(b"no picture")
    (tmp_path / "photos/notes.txt").write_text("no picture either")
    return tmp_path / "photos"


def ask(*words: object):
    return CliRunner().invoke(app, ["search", *map(str, words)], prog_name="vlcli")


def found(*words: object) -> dict:
    ended = ask(*words, "--json")
    assert ended.exit_code == 0, ended.stderr
    return json.loads(ended.stdout)


def test_it_finds_what_products_say_and_embeds_once(model, photos):
    first = found(model, "a red wall", "--pictures", photos, "--top", 3)
    assert {name: first[name] for name in ("pictures", "embedded", "kept", "unreadable")} == {
        "pictures": 5,
        "embedded": 5,
        "kept": 0,
        "unreadable": 1,
    }
    loaded = vlcli.load(model)
    files = [path for path in sorted(photos.rglob("*")) if path.suffix in (".png", ".jpg") and path.stem != "broken"]
    scores = dict(
        zip(map(str, files), (loaded.embed_image(files) @ loaded.embed_text("a red wall")[0]).tolist(), strict=True)
    )
    best = sorted(scores, key=scores.get, reverse=True)[:3]
    assert [row["picture"] for row in first["found"]] == best
    assert [row["score"] for row in first["found"]] == pytest.approx([scores[path] for path in best], abs=1e-5)
    again = found(model, "a red wall", "--pictures", photos, "--top", 3)
    assert (again["embedded"], again["kept"]) == (0, 5)
    assert again["found"] == first["found"]
    assert Path(again["store"]).parent == photos.with_name("photos.embeddings")


def test_new_changed_and_removed_pictures_are_seen(model, photos):
    found(model, "a red wall", "--pictures", photos)
    (photos / "a.png").unlink()
    Image.new("RGB", (30, 30), (200, 0, 0)).save(photos / "b.png")
    os.utime(photos / "b.png", ns=(1, 1))
    Image.new("RGB", (30, 30), (0, 200, 0)).save(photos / "new.png")
    after = found(model, "a red wall", "--pictures", photos)
    assert (after["pictures"], after["embedded"], after["kept"]) == (5, 2, 3)
    names = {Path(row["picture"]).name for row in after["found"]}
    assert "a.png" not in names
    assert {"b.png", "new.png"} <= names
    (photos / "b.png").write_bytes(b"damaged now")
    assert "b.png" not in {Path(row["picture"]).name for row in found(model, "x", "--pictures", photos)["found"]}


def test_another_models_vectors_are_not_taken(model, photos, tmp_path):
    store = tmp_path / "kept.h5"
    first = found(model, "a red wall", "--pictures", photos, "--store", store)
    other = make_model(tmp_path / "other", seed=2)
    second = found(other, "a red wall", "--pictures", photos, "--store", store)
    assert second["embedded"] == 5
    assert [row["score"] for row in second["found"]] != [row["score"] for row in first["found"]]
    store.write_bytes(b"damaged")
    assert found(other, "a red wall", "--pictures", photos, "--store", store)["found"] == second["found"]


def test_pictures_by_a_picture_and_sentences_by_a_picture(model, photos, tmp_path):
    like = found(model, "--picture", photos / "c.jpg", "--pictures", photos, "--top", 1)
    assert like["found"][0]["picture"] == str(photos / "c.jpg")
    assert like["found"][0]["score"] == pytest.approx(1.0, abs=1e-5)
    (tmp_path / "said.txt").write_text("\n".join([*SENTENCES, "", SENTENCES[0]]) + "\n")
    said = found(model, "--picture", photos / "c.jpg", "--texts", tmp_path / "said.txt", "--top", 2)
    loaded = vlcli.load(model)
    scores = (loaded.embed_text(SENTENCES) @ loaded.embed_image(photos / "c.jpg")[0]).tolist()
    assert said["sentences"] == len(SENTENCES)
    assert [row["text"] for row in said["found"]] == [SENTENCES[n] for n in np.argsort(scores)[::-1][:2]]


def test_a_table_and_a_sheet_from_a_process_of_its_own(cli, model, photos, tmp_path):
    ended = cli("search", model, "two red dogs", "--pictures", photos, "--top", 4, "--draw", "found.png")
    assert ended.code == 0, ended.err
    lines = ended.out.splitlines()
    assert lines[0].split() == ["rank", "score", "picture"]
    assert len(lines) == 5
    assert "broken.jpg" in ended.err
    with Image.open(tmp_path / "found.png") as sheet:
        assert sheet.width > 4 * 200


def test_from_python(model, photos):
    rows = vlcli.load(model).search("a red wall", photos, top=2)
    assert [str(path) for path, _ in rows] == [
        row["picture"] for row in found(model, "a red wall", "--pictures", photos, "--top", 2)["found"]
    ]


def test_faiss_names_the_same_pictures(model, photos):
    pytest.importorskip("faiss")
    words = (model, "a red wall", "--pictures", photos, "--top", 3)
    rows = [found(*words, *more)["found"] for more in ((), ("--backend", "faiss"))]
    assert [row["picture"] for row in rows[0]] == [row["picture"] for row in rows[1]]
    assert [row["score"] for row in rows[0]] == pytest.approx([row["score"] for row in rows[1]], abs=1e-5)


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["MODEL", "--pictures", "PHOTOS"], 2, "neither"),
        (["MODEL", "x"], 2, "what is to be searched"),
        (["nowhere", "x", "--pictures", "PHOTOS"], 5, "no such model"),
        (["MODEL", "x", "--pictures", "nowhere"], 5, "no such folder"),
        (["MODEL", "x", "--pictures", "EMPTY"], 5, "no picture"),
        (["MODEL", "x", "--pictures", "PHOTOS", "--objective", "y", "--top", "1"], 4, "no objective 'y'"),
        (["MUTE", "x", "--pictures", "PHOTOS"], 4, "nothing to embed"),
        (["MODEL", "x", "--pictures", "PHOTOS", "--backend", "faiss"], 4, "pip install 'vlcli[faiss]'"),
        (["MODEL", "--picture", "broken.jpg", "--pictures", "PHOTOS"], 5, "There is no such picture"),
    ],
)
def test_what_a_user_gets_wrong_is_named(model, photos, tmp_path, monkeypatch, words, code, says):
    monkeypatch.setitem(__import__("sys").modules, "faiss", None)
    (tmp_path / "empty").mkdir()
    mute = make_model(tmp_path / "mute", objectives=("mlm",)) if "MUTE" in words else ""
    places = {"MODEL": model, "PHOTOS": photos, "EMPTY": tmp_path / "empty", "MUTE": mute}
    ended = ask(*(places.get(word, word) for word in words))
    assert ended.exit_code == code, ended.stderr
    assert says in ended.stderr
    assert "Traceback" not in ended.stderr


def test_where_the_vectors_are_kept_is_said_before(model, photos, tmp_path):
    first = ask(model, "a red wall", "--pictures", photos)
    assert f"vectors of 6 pictures are kept in {photos}.embeddings/" in first.stderr
    assert "--store FILE" in first.stderr
    named = ask(model, "a red wall", "--pictures", photos, "--store", tmp_path / "mine.h5")
    assert "are kept in" not in named.stderr
