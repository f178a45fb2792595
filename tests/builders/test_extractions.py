"""Where the weights of an extractor lie that a run used, after folders were moved, linked or made again."""

import numpy as np
import pytest

from vlcli.builders.extractions import Extraction, of_store
from vlcli.features import FeatureWriter, Record
from vlcli.recipe import stage_record
from vlcli.recipe.stage_record import StageRecord


def test_weights_beside_a_linked_bundle_are_found_from_the_link(tmp_path):
    """A run folder that was moved, whose model lies on another disk."""
    (tmp_path / "disk" / "model").mkdir(parents=True)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "model").symlink_to(tmp_path / "disk" / "model")
    (tmp_path / "run" / "weights.bin").touch()
    found = Extraction({"name": "grid"}, "boxes", "float32", "/gone", "../weights.bin").with_bundle(
        tmp_path / "run" / "model"
    )
    assert found.weights == str(tmp_path / "run" / "weights.bin")


@pytest.mark.parametrize(("status", "found"), [("done", True), ("running", False)])
def test_weights_of_a_stage_that_is_being_made_again_are_not_those_that_were_used(tmp_path, status, found):
    weights = tmp_path / "seen" / "model" / "model.safetensors"
    weights.parent.mkdir(parents=True)
    weights.touch()
    stage_record.write(tmp_path / "seen", StageRecord("seen", "pretrain", status, ""))
    store = tmp_path / "regions" / "features.h5"
    store.parent.mkdir()
    with FeatureWriter(store) as writer:
        writer.append(Record("a", np.zeros((1, 2), np.float32), np.array([[0, 0, 4, 4]], np.float32), (8, 8)))
    config = {"extractor": {"name": "backbone"}, "from": ["seen"]}
    record = StageRecord("regions", "extract", "done", "", config, {"seen": {"path": "/moved/seen"}})
    stage_record.write(store.parent, record)
    assert of_store(store, "boxes").weights == (str(weights) if found else "")
