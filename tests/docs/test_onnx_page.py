"""The program of docs/onnx.md on the quickstart's own files."""

from __future__ import annotations

import json
import runpy

import numpy as np
import pytest

import vlcli

from .pages import PROJECT, files

PAGE = files((PROJECT / "docs" / "onnx.md").read_text(encoding="utf-8"))


@pytest.mark.slow
def test_the_program_judges_two_pictures_of_the_quickstart_as_vlcli_does(quickstart, tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(quickstart.desk)
    for name, code in PAGE.items():
        (tmp_path / name).write_text(code)
    runpy.run_path(str(tmp_path / "store_to_npz.py"))
    assert np.load("regions.npz")["boxes"].max() <= 1
    exported = runpy.run_path(str(tmp_path / "from_pixels.py"))["Exported"]("runs/quickstart/onnx")
    assert exported.how["regions"]["extractor"]["extractor"] == "torchvision"
    model = vlcli.load("quickstart/nlvr2", features="runs/quickstart/regions")
    sentence = "there is a red circle in both pictures"
    wanted = model.predict(sentence, ["000000000001", "000000000001"])["score"]
    found = dict(exported.answers(sentence, ["regions.npz", "regions.npz"]))
    assert found["1"] == pytest.approx(wanted, abs=1e-4)
    assert json.loads((quickstart.runs / "onnx" / "model.onnx.json").read_text())["pictures"] == 2
