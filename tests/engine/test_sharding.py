"""Shared parameters (FSDP2) train as copies do (DDP), and their checkpoints serve any number of processes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from process_group import places
from pydantic import ValidationError
from torch import nn

from tests.cli.test_ranks import folder  # noqa: F401 (a fixture)
from tests.engine import sharded
from tests.engine.test_processes import ROOT, environment, unordered
from vlcli.engine.checkpoint import Checkpoints, read_state
from vlcli.engine.sharding import blocks_of
from vlcli.engine.trackers import read_log
from vlcli.engine.weights import read_tensors
from vlcli.errors import DataError
from vlcli.recipe.schema import Pretrain

SAME = ("loss", "grad_norm", "eval", "engine")
LIMIT = 1500
"""Seconds after which a process hangs: four of them share two cores, and every start compiles and imports."""


def together(world: int, command: list[str], place: Path = ROOT, here: int | None = None) -> None:
    """Run a command in so many processes of one group, ``here`` of them on a machine."""
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    words = [sys.executable, *command]
    started = [subprocess.Popen(words, cwd=place, env=environment(**more), **pipes) for more in places(world, here)]
    for process in started:
        _, errors = process.communicate(timeout=LIMIT)
        assert process.returncode == 0, errors[-3000:]


def trained(folder: Path, world: int, mode: str, *words: str, here: int | None = None) -> Path:  # noqa: F811
    together(world, ["-m", "tests.engine.sharded", str(folder), mode, *words], here=here)
    return folder


def assert_same(first: Path, second: Path) -> None:
    """Weights, averages, chosen weights and log lines are the same to 1e-6."""
    for name in ("final", "ema", "chosen"):
        own, other = (read_tensors(path / f"{name}.safetensors") for path in (first, second))
        assert set(own) == set(other)
        for key, value in own.items():
            close = torch.allclose(unordered(key, value), unordered(key, other[key]), atol=1e-6, rtol=0)
            assert close, (name, key)
    logs = [read_log(path / "log.jsonl") for path in (first, second)]
    for left, right in zip(*logs, strict=True):
        kept = [key for key in left if key.startswith(SAME)]
        assert [left[key] for key in kept] == pytest.approx([right[key] for key in kept], abs=1e-6)


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two processes that each hold all parameters."""
    return trained(tmp_path_factory.mktemp("copies"), 2, "none")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("world", "mode", "here", "more"),
    [
        (2, "full", 2, ()),
        (4, "full", 4, ()),
        (4, "hybrid", 2, ()),
        (2, "full", 2, ("6", "sgd", "all", "checkpointing")),
        (2, "full", 2, ("6", "sgd", "all", "compile")),
    ],
    ids=str,
)
def test_shared_parameters_train_as_copies_do(copies, tmp_path, world, mode, here, more):
    assert_same(copies, trained(tmp_path, world, mode, *more, here=here))


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["adamw", "bert-adam"])
def test_other_optimizers_do_too(tmp_path, optimizer):
    first = trained(tmp_path / "copies", 2, "none", "6", optimizer, "late")
    assert_same(first, trained(tmp_path / "shares", 2, "full", "6", optimizer, "late"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after"), [((4, "full"), (2, "full")), ((2, "full"), (1, "none")), ((1, "none"), (2, "full"))], ids=str
)
def test_another_number_of_processes_goes_on_from_either_kind_of_checkpoint(copies, tmp_path, before, after):
    trained(tmp_path, *before, "4")
    assert_same(copies, trained(tmp_path, *after))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["late", "rare"])
def test_four_copies_go_on_to_the_bit_where_an_objective_begins_late(tmp_path, kind):
    """More than two add numbers up in an order that depends on which parameters are reduced together."""
    whole, parts = trained(tmp_path / "whole", 4, "none", "6", "sgd", kind), tmp_path / "parts"
    shutil.copytree(whole, parts)
    shutil.rmtree(parts / "checkpoints" / "step-00000006")
    (parts / "final.safetensors").unlink()
    trained(parts, 4, "none", "6", "sgd", kind)
    first, second = (read_tensors(path / "final.safetensors") for path in (whole, parts))
    assert all(torch.equal(first[key], second[key]) for key in first)


@pytest.mark.slow
def test_a_damaged_share_is_noticed_and_the_checkpoint_before_it_used(copies, tmp_path):
    trained(tmp_path, 2, "full", "4")
    found = Checkpoints(tmp_path / "checkpoints").complete()
    file = sorted((found[-1] / "shards").iterdir())[1]
    data = bytearray(file.read_bytes())
    data[-5] ^= 1
    file.write_bytes(bytes(data))
    with pytest.raises(DataError, match="damaged"):
        read_state(found[-1])
    assert_same(copies, trained(tmp_path, 2, "full"))
    assert (tmp_path / "checkpoints" / f"damaged-{found[-1].name}").is_dir()


@pytest.mark.slow
def test_whole_weights_are_read_from_shares_by_one_process(copies, tmp_path):
    trained(tmp_path, 2, "full")
    kept = Checkpoints(tmp_path / "checkpoints")
    for averaged in (False, True):
        state = kept.weights(6, averaged=averaged)
        final = read_tensors(tmp_path / "final.safetensors")
        final |= read_tensors(tmp_path / "ema.safetensors") if averaged else {}
        assert set(state) == set(final)
        assert state["objectives.engine-words.table"] is state["model.words.weight"]  # still tied
        assert all(torch.equal(value, final[key]) for key, value in state.items() if "words.table" not in key)


PAPERS = """\
root: world
seed: 3
text: {{vocabulary: {{train: {{name: coco-captions, split: train}}, size: 100}}, length: 16}}
defaults:
  pretrain:
    data: {{name: coco-captions, split: train}}
    batch_size: 8
    steps: 4
    log_every: 1
    accumulate: 2
    optimizer: {{name: sgd, lr: 0.05}}
    ema: {{decay: 0.9}}
    threads: 1
    sharding: {sharding}
stages:
  regions:
    kind: extract
    extractor: {{name: backbone, arch: tiny-conv, short: 0}}
    data: {{name: coco-instances, split: train}}
  lxmert:
    kind: pretrain
    model: {{name: lxmert, hidden: 16, heads: 2, text_layers: 2, image_layers: 1, cross_layers: 2}}
    objectives: [mlm, matching, masked-object]
  dimbert:
    kind: pretrain
    model: {{name: dimbert, hidden: 16, heads: 2, layers: 2, concepts: 0}}
    objectives: [blm-s2slm]
  vlmo:
    kind: pretrain
    model: {{name: vlmo, hidden: 16, heads: 2, layers: 3, fused_layers: 1, image_size: 32, patch: 16}}
    objectives: [contrast, contrast-matching, mlm]
  albef:
    kind: pretrain
    model: {{name: albef, hidden: 16, heads: 2, text_layers: 1, image_layers: 2, cross_layers: 1, image_size: 32}}
    objectives: [{{name: distilled-mlm, ramp: 2}}, {{name: momentum-contrast, width: 8, queue: 20}}, contrast-matching]
"""


@pytest.mark.slow
@pytest.mark.parametrize(("world", "mode", "here"), [(2, "full", 2), (4, "full", 4), (4, "hybrid", 2)], ids=str)
def test_the_papers_models_train_as_copies_do(folder, world, mode, here):  # noqa: F811
    runs = []
    for sharding in ("none", mode):
        name = f"papers-{world}-{sharding}"
        (folder / f"{name}.yaml").write_text(PAPERS.format(sharding=sharding))
        words = ["-m", "vlcli", "run", f"{name}.yaml", "--output", name, "--device", "cpu"]
        together(world, words, folder, here)
        runs.append(folder / name / name)
    for stage in ("lxmert", "dimbert", "vlmo", "albef"):
        logs = [read_log(run / stage / "log.jsonl") for run in runs]
        for left, right in zip(*logs, strict=True):
            kept = [key for key in left if key.startswith(("loss", "grad_norm"))]
            expected = pytest.approx([right[key] for key in kept], abs=1e-6, rel=1e-6)
            assert [left[key] for key in kept] == expected, stage
        first, second = (read_tensors(run / stage / "model/model.safetensors") for run in runs)
        assert set(first) == set(second)
        assert all(torch.allclose(value, second[key], atol=1e-6, rtol=0) for key, value in first.items()), stage
        assert list((runs[1] / stage / "checkpoints").glob("step-*/shards/*.safetensors"))
    shutil.rmtree(runs[0])


class Pair(nn.Module):
    """Two stacks: one block of the second uses a layer of the first."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Module(), nn.Module()
        for stack in (self.first, self.second):
            stack.checkpointing = False
            stack.layers = nn.ModuleList(nn.Sequential(nn.Linear(2, 2)) for _ in range(2))
        self.second.layers[0].other = self.first.layers[1][0]
        self.head = nn.Linear(2, 2)
        self.head.weight = self.second.layers[1][0].weight


def test_blocks_that_share_a_parameter_are_not_gathered_by_themselves():
    pair = Pair()
    assert blocks_of(pair) == [pair.first.layers[0]]


def test_fp16_is_refused_beside_it():
    with pytest.raises(ValidationError, match="bf16 or float32"):
        Pretrain(kind="pretrain", precision="fp16", sharding="full")


def test_one_process_shares_nothing(tmp_path):
    sharded.train(tmp_path, "full")
    assert not list(tmp_path.glob("checkpoints/*/shards"))
