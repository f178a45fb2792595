"""Figure 4 as a drawing, and Grad-CAM of any model: on a small trained model of shapes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from vlcli_ace_rpe.drawings import anchor_shares, by_clearness, measured
from vlcli_ace_rpe.encoding import ACERPE

from vlcli.cli import app
from vlcli.errors import UsageError
from vlcli.nn import AttentionShape, Layout
from vlcli.report.drawing import draw_heat

RECIPE = """
about: a small ALBEF with ACE-RPE on a few shapes
root: world
model: {name: albef, image_size: 32, patch: 8, hidden: 16, heads: 2, image_layers: 1, text_layers: 1, cross_layers: 2,
        dropout: 0.0, cross_position: {name: ace-rpe, groups: 2}}
text: {vocabulary: {train: {name: refcoco, split: train}, size: 80}, length: 16}
stages:
  world: {kind: make, world: {name: shapes, images: 20, parts: [coco, refcoco, snli-ve], size: 64}}
  learn:
    kind: finetune
    task: {name: grounding, layer: "cross.1.*"}
    objectives: [matching, contrast]
    data: {name: refcoco, split: train}
    steps: 3
    batch_size: 8
  test: {kind: evaluate, from: learn, split: val}
  point: {kind: evaluate, from: learn, task: {name: grounding, by: point}, split: val}
  anchors: {kind: draw, drawing: {name: ace-anchors, count: 2, words: 2}, from: learn, split: val}
  ve:
    {kind: finetune, task: snli-ve, objectives: [{name: distilled-classification, classes: 3}], steps: 2, batch_size: 8}
  ve-test: {kind: evaluate, from: ve, split: test}
  cam: {kind: draw, drawing: {name: grad-cam, count: 1}, from: learn, split: val}
  cosine: {kind: evaluate, from: learn, task: {name: grounding, of: image, objective: contrast}, split: val}
  cosine-cam: {kind: draw, drawing: {name: grad-cam, of: image, objective: contrast, count: 1}, from: learn, split: val}
"""


def test_grounding_and_its_pictures_by_recipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(RECIPE)
    with pytest.raises(SystemExit) as left:
        app(["run", "small.yaml", "--json"])
    assert left.value.code in (0, None)
    stages = {row["stage"]: row for row in json.loads(capsys.readouterr().out)["stages"]}
    metrics = stages["test"]["metrics"]
    assert 0 < metrics["chance"] < 1
    assert 0 < metrics["pointing_chance"] < 1
    assert stages["point"]["metrics"]["accuracy"] == stages["point"]["metrics"]["pointing"]
    assert set(stages["ve-test"]["metrics"]) >= {"accuracy", "accuracy/plain", "accuracy/neutral"}
    answers = (Path(stages["ve-test"]["folder"]) / "snli_ve.jsonl").read_text().splitlines()
    assert set(json.loads(answers[0])) == {"pairID", "label"}
    folder = Path(stages["anchors"]["folder"])
    assert {path.name for path in folder.glob("*.png")} == {"anchors-1.png", "anchors-2.png"}
    assert len(json.loads((folder / "anchors.json").read_text())[0]["words"]) == 2
    wide = [Image.open(Path(stages[name]["folder"]) / "grad-cam-1.png").width for name in ("cam", "cosine-cam")]
    assert wide[0] > wide[1] > 400, "a panel a word; the picture and one panel"
    assert stages["cosine"]["metrics"]["chance"] == metrics["chance"]
    assert stages["cosine"]["metrics"] != metrics


def test_anchors_are_those_the_encoding_measured() -> None:
    torch.manual_seed(0)
    shape = AttentionShape(8, 2, cross=True)
    model = torch.nn.Sequential(ACERPE(shape, groups=2))
    words, patches = torch.randn(1, 3, 8), torch.randn(1, 5, 8)
    text = Layout.for_text(torch.ones(1, 3, dtype=torch.bool))
    with measured(model) as states:
        model[0].prepare(words, patches, text, Layout.for_grid(2, 2, skip=1))
    shares = anchor_shares(states, 3, 5)
    groups = torch.nn.functional.normalize(words.view(3, 2, 4), dim=-1), patches[0].view(5, 2, 4)
    alike = torch.einsum("wgc,pgc->wpg", groups[0], torch.nn.functional.normalize(groups[1], dim=-1)) >= 0.05
    np.testing.assert_allclose(shares[:, 1:], alike.float().mean(-1)[:, 1:])
    assert not shares[:, 0].any()  # the class token is no patch
    assert "prepare" not in vars(model[0])
    with pytest.raises(UsageError), measured(torch.nn.Linear(1, 1)):
        pass
    with pytest.raises(UsageError):
        anchor_shares(states, 9, 9)


def test_clear_words_come_first_and_heat_is_red() -> None:
    shares = np.zeros((3, 10), np.float32)
    shares[0] = 1
    shares[1, 4] = 0.5
    ranked = by_clearness(shares, [(0, "a"), (1, "red"), (2, "is")])
    assert [word for _, word, _ in ranked] == ["red", "a", "is"]
    assert [clear for *_, clear in ranked] == pytest.approx([1.0, 0.1, 0.0])
    grey = Image.new("RGB", (4, 4), (100, 100, 100))
    heat = np.zeros((4, 4))
    heat[1, 2] = 3.0
    found = np.asarray(draw_heat(grey, heat))
    assert found[1, 2, 0] > found[1, 2, 1] == found[1, 2, 2]
    assert (found[0] == 100).all()
