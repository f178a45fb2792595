"""The rate that the engine chooses: by width, depth, norm placement and batch, without a word of the model."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from torch import nn

from tests.engine.parts import DATA_SPEC, TinyModel, config
from tests.engine.test_trainer import lines, make
from vlcli.engine.schedule import rule, with_rate
from vlcli.nn.model import DataSpec
from vlcli.nn.shape import NetworkShape
from vlcli.nn.slots import build_model

POST = NetworkShape(64, 3, post_norm=True)
sizes = st.integers(16, 2048)


@given(sizes, sizes, st.integers(1, 48), st.integers(1, 48), st.integers(1, 4096), st.booleans())
def test_wider_and_deeper_networks_get_no_higher_rate_and_larger_batches_no_lower_one(w, v, d, e, batch, post):
    (narrow, wide), (shallow, deep) = sorted((w, v)), sorted((d, e))
    assert rule(NetworkShape(narrow, d, post), batch) >= rule(NetworkShape(wide, d, post), batch)
    assert rule(NetworkShape(w, shallow, post), batch) >= rule(NetworkShape(w, deep, post), batch)
    assert rule(NetworkShape(w, d, post), batch) <= rule(NetworkShape(w, d, post), 2 * batch)
    assert rule(NetworkShape(w, d + 2, True), batch) <= rule(NetworkShape(w, d + 2, False), batch)


def test_the_rates_that_were_found_are_those_of_the_rule():
    assert rule(NetworkShape(192, 6, post_norm=True), 32) == pytest.approx(1e-4, rel=0.1)
    assert rule(NetworkShape(192, 2, post_norm=True), 32) == pytest.approx(2e-4, rel=0.25)
    assert rule(POST, 64) < 5e-4


class Foreign(TinyModel):
    """A model of a third party, of torch's layers, that declares nothing."""

    def __init__(self, data_spec: DataSpec, *, first: bool = False) -> None:
        super().__init__(data_spec, hidden=24, layers=0)
        layers = [nn.TransformerEncoderLayer(24, 2, 48, norm_first=first, batch_first=True) for _ in range(4)]
        self.encoder = nn.Sequential(*layers)

    def layer_of(self, name: str) -> None:
        return None


@pytest.mark.parametrize("first", [True, False])
def test_a_model_that_declares_nothing_is_read_off_its_modules(first):
    assert Foreign(DATA_SPEC, first=first).network_shape == NetworkShape(24, 4, post_norm=not first)


def test_a_model_without_layers_has_its_width_alone():
    assert TinyModel(DATA_SPEC, hidden=24, layers=0).network_shape == NetworkShape(24, 0, post_norm=False)


def test_parallel_encoders_count_once():
    sizes = {"hidden": 64, "heads": 2, "text_layers": 3, "image_layers": 2, "cross_layers": 3}
    with torch.device("meta"):
        assert build_model({"name": "lxmert", **sizes}, DataSpec()).network_shape == NetworkShape(64, 6, True)
        deep = {"name": "beit3", "hidden": 64, "heads": 2, "layers": 3}
        assert build_model(deep, DataSpec()).network_shape == NetworkShape(64, 3, False)


def test_a_stated_rate_changes_nothing():
    stated = config(optimizer={"lr": 3e-3})
    assert with_rate(stated, POST, 1000, 6) == (stated, "")


@pytest.mark.parametrize(("steps", "warmup"), [(3, 1), (100, 20), (2000, 200), (10_000, 500)])
def test_the_rate_comes_with_a_warm_up_and_a_line(steps, warmup):
    chosen, line = with_rate(config(schedule={"name": "cosine"}, accumulate=4), POST, 1000, steps)
    assert chosen.optimizer.lr == rule(POST, 32)
    assert (chosen.schedule.warmup, chosen.optimizer.betas) == (warmup, (0.9, 0.98))
    assert line.startswith("learning rate 0.0003 (width 64, 3 post-norm layers, batch 32), warm-up ")
    kept = with_rate(config(schedule={"warmup": 0}, optimizer={"betas": [0.9, 0.999]}), POST, 1000, steps)[0]
    assert (kept.schedule.warmup, kept.optimizer.betas) == (0, (0.9, 0.999))


def test_the_trainer_trains_with_the_rate_it_names(tmp_path):
    trainer = make(tmp_path, objectives=["engine-words"], schedule={"name": "constant"}, steps=4)
    trainer.run()
    rate = rule(trainer.module.model.network_shape, 8)
    assert trainer.rate_line.startswith(f"learning rate {rate:g} ")
    assert lines(tmp_path)[-1]["lr"] == pytest.approx(rate)


def test_sgd_must_state_its_rate():
    with pytest.raises(ValidationError, match="`lr` beside `name: sgd`"):
        config(optimizer={"name": "sgd"})
