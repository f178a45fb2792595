"""``vlcli ask`` of a picture whose regions nobody extracted yet."""

from __future__ import annotations

import pytest
from PIL import Image
from small_run import make_bundle, make_store
from typer.testing import CliRunner

from vlcli.cli import app
from vlcli.recipe import ledger
from vlcli.recipe.ledger import Record

NLVR2 = [{"name": "classification", "classes": 2, "images": 2}]


@pytest.mark.parametrize("stored", [False, True])
def test_a_new_picture_is_answered_with_what_to_type(tmp_path, monkeypatch, stored):
    monkeypatch.chdir(tmp_path)
    make_store(tmp_path / "runs/tiny-lxmert/regions", ["a", "b"])
    ledger.write(tmp_path / "runs/tiny-lxmert/regions", Record("regions", "extract", "done", "k", recipe="tiny/lxmert"))
    stage = make_bundle(tmp_path / "runs/tiny-lxmert/nlvr2", {"name": "nlvr2"}, NLVR2)
    store = str(tmp_path / "runs/tiny-lxmert/regions")
    ledger.write(stage, Record("nlvr2", "finetune", "done", "key", features=[store]))
    Image.new("RGB", (8, 8)).save("new.png")
    words = ["ask", "tiny-lxmert/nlvr2", "a red wall", "new.png", "a"]
    ended = CliRunner().invoke(app, [*words, *(["--features", store] if stored else [])])
    assert ended.exit_code == 2
    assert f"got: new.png{'' if stored else ', a'}\n" in ended.stderr
    assert "vlcli extract --recipe tiny/lxmert --only regions stages.regions.root=FOLDER" in ended.stderr
    assert "load(" not in ended.stderr
