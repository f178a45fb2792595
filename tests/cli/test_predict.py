"""``vlcli predict``: pictures, folders and JSON lines; what is printed and drawn; bad input in one message."""

from __future__ import annotations

import json
import shutil

import pytest
from PIL import Image
from small_run import SENTENCES
from studio import Studio, make_studio
from typer.testing import CliRunner

from vlcli.cli import app


@pytest.fixture(scope="module")
def studio(tmp_path_factory) -> Studio:
    return make_studio(tmp_path_factory.mktemp("studio"))


def run(*words, stdin=""):
    return CliRunner().invoke(app, ["predict", *map(str, words)], input=stdin)


def test_one_picture_and_a_question(studio, tmp_path):
    ended = run(studio.run / "vqa", studio.photo(0), SENTENCES[0], "--top", "2", "--draw", tmp_path / "drawn.png")
    assert ended.exit_code == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert lines[0].split() == ["answer", "probability"]
    assert len(lines) == 3
    with Image.open(tmp_path / "drawn.png") as drawn:
        assert drawn.width > 400
    by_option = run(studio.run / "vqa", studio.photo(0), "--text", SENTENCES[0], "--top", "2")
    assert by_option.stdout == ended.stdout


def test_a_folder_with_a_broken_picture(studio, tmp_path):
    shutil.copytree(studio.photos, tmp_path / "photos")
    (tmp_path / "photos/br\udce9ken.png").write_bytes(b"no picture")  # a name that is not UTF-8
    ended = run(studio.run / "vqa", tmp_path / "photos", SENTENCES[0], "--json")
    rows = [json.loads(line) for line in ended.stdout.splitlines()]
    assert ended.exit_code == 5
    assert [len(row.get("choices", [])) for row in rows if "error" not in row] == [4] * 6
    (bad,) = [row for row in rows if "error" in row]
    assert bad["images"][0].endswith("br\udce9ken.png")
    assert "1 of 7 requests could not be answered" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_json_lines(studio):
    lines = [
        {"image": studio.photo(0), "text": SENTENCES[0], "key": "first"},
        {"images": [studio.photo(1)], "text": "a" * 1_000_000},
        {"image": 7},
    ]
    ended = run(studio.run / "vqa", "-", "--json", stdin="\n".join(map(json.dumps, lines)) + "\n\nnonsense\n")
    rows = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [row["key"] for row in rows] == ["first", studio.photo(1), "line 3", "line 5"]
    assert rows[0]["prediction"] == rows[0]["choices"][0]["label"]
    assert "1,000,000 characters" in rows[1]["error"]["got"]
    assert ended.exit_code == 2
    assert len(ended.stdout) < 10_000


def test_pictures_of_a_sentence_are_ranked(studio):
    ended = run(studio.run / "pretrain", studio.photos, SENTENCES[0], "--task", "matching", "--top", "3")
    assert ended.exit_code == 0, ended.stderr
    scores = [float(line.split()[-1]) for line in ended.stdout.splitlines()[1:]]
    assert len(scores) == 3
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize(
    ("words", "says", "code"),
    [
        (("vqa", "{photo}"), "vqa needs a text.", 2),
        (("vqa", "{photo}", "a", "--task", "captioning"), "cannot do captioning", 2),
        (("nlvr2", "{photo}", "a red circle"), "takes 2 pictures in one request", 2),
        (("vqa", "absent.png", "a red circle"), "There is no such picture", 5),
        (("vqa", "{photo}", "a", "--extractor", "nonsense"), "--extractor is no mapping", 2),
        (("vqa", "{photo}", "a", "--extractor", "{weights: absent.pth}"), "The extractor's weights are missing", 5),
        (("vqa", "{photo}", "a", "--features-from", "absent"), "There is no feature store here", 5),
    ],
)
def test_bad_input_is_one_message(studio, words, says, code):
    ended = run(studio.run / words[0], *(word.replace("{photo}", studio.photo(0)) for word in words[1:]))
    assert ended.exit_code == code, ended.stderr
    assert says in ended.stderr
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr


def test_an_unknown_extractor_is_named_by_the_caller(studio, tmp_path):
    shutil.copytree(studio.run / "vqa", tmp_path / "vqa")
    config = json.loads((tmp_path / "vqa/model/config.json").read_text())
    del config["extraction"]
    (tmp_path / "vqa/model/config.json").write_text(json.dumps(config))
    lost = run(tmp_path / "vqa", studio.photo(0), SENTENCES[0])
    assert lost.exit_code == 2
    assert "--features-from STAGE" in lost.stderr
    assert "--extractor" in lost.stderr
    wanted = run(studio.run / "vqa", studio.photo(0), SENTENCES[0]).stdout
    grid = "{name: backbone, arch: tiny-conv, boxes: grid, grid: [2, 3]}"
    for option in (("--features-from", studio.run / "regions"), ("--extractor", grid)):
        assert run(tmp_path / "vqa", studio.photo(0), SENTENCES[0], *option).stdout == wanted


def test_a_line_that_no_model_reads_leaves_the_others(studio):
    lines = [{"image": studio.photo(0), "text": text} for text in (SENTENCES[0], "half \ud800")]
    ended = run(studio.run / "vqa", "-", "--json", stdin="\ufeff" + "\n".join(map(json.dumps, lines)))
    rows = [json.loads(line) for line in ended.stdout.splitlines()]
    assert ended.exit_code == 5, ended.stderr
    assert ["error" in row for row in rows] == [False, True]


def test_no_text_is_no_folder(studio, tmp_path, monkeypatch):
    monkeypatch.chdir(studio.photos)
    ended = run(studio.run / "vqa", studio.photo(0), "")
    assert ended.exit_code == 2
    assert "needs a text" in ended.stderr
    assert "photo1" not in ended.stderr


def test_a_picture_is_not_drawn_over(studio, tmp_path):
    shutil.copytree(studio.photos, tmp_path / "photos")
    file = tmp_path / "photos/photo0.png"
    kept = file.read_bytes()
    for asked in (file, file.parent):
        ended = run(studio.run / "vqa", asked, SENTENCES[0], "--draw", file)
        assert ended.exit_code == 2
        assert "one of the pictures" in ended.stderr
    assert file.read_bytes() == kept


def test_a_folder_of_another_program_is_named(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "clip"}')
    (tmp_path / "model.safetensors").write_bytes(b"")
    assert str(tmp_path) in run(tmp_path, "a.png", "a").stderr
