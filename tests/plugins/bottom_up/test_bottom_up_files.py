"""Files of the published layouts with random values, at full names and narrow widths: every tensor arrives."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from vlcli_bottom_up import BottomUpExtractor
from vlcli_bottom_up.families import canonical

from vlcli.checkpoints.identify import matches
from vlcli.checkpoints.load import Checkpoint, every

FILES = [one for one in every(("bottom-up",)) if one.file.loads]
NARROW = {"stem": 8, "width": 16, "inner": 4, "group": 4, "hidden": 16, "embedding": 8, "attribute_hidden": 16}
NARROW_VLP = {**NARROW, "inner": 16, "pyramid": 16, "fc": 24}


def tensors(one: Checkpoint) -> dict[str, torch.Tensor]:
    """Random values of the layout; scales of norms near one, counters whole."""
    torch.manual_seed(0)
    grouped = {"inner": 16} if "x152" in one.name else {}
    sizes = NARROW_VLP if one.file.layout == "vlp" else {**NARROW, **grouped}
    made = {}
    for name, entry in one.sized(**sizes).items():
        counts = entry.dtype == "int64"
        made[name] = torch.ones(entry.shape, dtype=torch.int64) if counts else torch.rand(entry.shape) * 0.1 + 0.5
    return made


@pytest.mark.parametrize("one", FILES, ids=lambda one: one.name)
def test_every_tensor_of_a_random_file_arrives(one: Checkpoint, tmp_path: Path):
    written = tensors(one)
    save_file(written, tmp_path / "detector.safetensors")
    made = BottomUpExtractor(weights=str(tmp_path / "detector.safetensors"))
    family = {"milvlg-caffe": "caffe", "milvlg-detectron2": "detectron2", "vlp": "vlp"}.get(one.file.layout, "airsplay")
    assert made.detector.family.name == family
    idle = {name for name in written if name.endswith("num_batches_tracked") or name.startswith("pixel_")}
    assert set(made.report.left_over) <= idle
    held = made.detector.state_dict()
    folded = ("norm.", "conv", "shortcut", "res")  # norms are folded into the convolutions before them
    for name, value in canonical(written).items():
        if name in held and not any(part in name for part in folded):
            assert torch.equal(held[name], value), name


def test_a_layout_is_told_by_names_and_shapes():
    for one in FILES:
        best = matches(one.tensors)[0]
        assert best.faults == 0
        assert best.checkpoint.family.family == "bottom-up"
