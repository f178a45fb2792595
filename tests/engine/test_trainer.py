from __future__ import annotations

import inspect
import json
import re
import textwrap
from pathlib import Path

import pytest
import torch

from tests.engine.parts import DATA_SPEC, Block, FakeData, config
from vlcli.engine import checkpoint, processes
from vlcli.engine.checkpoint import Checkpoints
from vlcli.engine.evaluation import TaskRunner, mean_losses
from vlcli.engine.trackers import JsonLines, TensorBoard, read_log
from vlcli.engine.trainer import Score, StepPlan, Trainer
from vlcli.engine.training_module import build_training_module
from vlcli.errors import DataError, RecipeError, UsageError, VlcliError
from vlcli.progress import Silent

torch.set_num_threads(1)

ALL = ["engine-words", "engine-contrast", "engine-queue", "engine-reader"]
TIMES = ("examples_per_second", "data_wait", "seconds")


class StoppedError(Exception):
    pass


class Stopping(FakeData):
    """Data whose loader breaks down after some batches, as a killed run would."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.left = after

    def loader(self, batch_size, **options):
        for batch in super().loader(batch_size, **options):
            if self.left == 0:
                raise StoppedError
            self.left -= 1
            yield batch


class Told(Silent):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def warn(self, message: str) -> None:
        self.lines.append(message)


def make(folder, data=None, objectives=ALL, *, progress=None, evaluate=None, model=None, **options):
    module = build_training_module(model or {"name": "engine-tiny", "dropout": 0.2}, objectives, DATA_SPEC, seed=1)
    trackers = [JsonLines(folder)]
    given = {"seed": 3, "device": "cpu", "trackers": trackers, "progress": progress}
    score = None if evaluate is None else lambda autocast, epoch: evaluate(module, autocast, epoch)
    return Trainer(module, data or FakeData(), config(**options), folder, evaluate=score, **given)


def lines(folder):
    return [{k: v for k, v in line.items() if k not in TIMES} for line in read_log(folder / "log.jsonl")]


def same(first, second):
    return all(torch.equal(first[name], second[name]) for name in first) and set(first) == set(second)


def losses(module, autocast, epoch):
    metrics = mean_losses(module, TaskRunner(module, FakeData(10, 1), autocast=autocast), epoch=epoch, seed=0)
    return Score(metrics, -metrics["loss"])


@pytest.mark.parametrize("options", [{}, {"name": "bert-adam"}, {"name": "sgd", "lr": 0.01}])
def test_a_resumed_run_equals_the_undisturbed_one_to_the_bit(tmp_path, options):
    common = {"optimizer": options, "ema": {"decay": 0.9}, "accumulate": 2, "save_every": 1, "steps": 7}
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    whole = make(tmp_path / "a", evaluate=losses, **common)
    ended = whole.run()
    with pytest.raises(StoppedError):
        make(tmp_path / "b", Stopping(7), evaluate=losses, **common).run()
    again = make(tmp_path / "b", evaluate=losses, **common)
    assert again.position.step == 4
    resumed = again.run()
    assert same(whole.module.state_dict(), again.module.state_dict())
    assert same(whole.ema.shadow, again.ema.shadow)
    assert lines(tmp_path / "a") == lines(tmp_path / "b")
    assert ended == resumed


def test_what_is_finished_is_not_trained_again(tmp_path):
    first = make(tmp_path).run()
    second = make(tmp_path, Stopping(0))
    assert second.run() == first


def test_without_resume_it_starts_anew(tmp_path):
    make(tmp_path).run()
    trainer = make(tmp_path)
    assert trainer.position.step == 6
    fresh = Trainer(trainer.module, FakeData(), config(), tmp_path, seed=3, device="cpu", resume=False)
    assert fresh.position.step == 0
    assert Checkpoints(tmp_path / "checkpoints").complete() == []


@pytest.mark.parametrize("harm", ["truncate", "flip", "remove", "state"])
def test_a_damaged_checkpoint_is_passed_over(tmp_path, harm):
    make(tmp_path, save_every=2).run()
    newest = tmp_path / "checkpoints" / "step-00000006"
    file = newest / ("state.json" if harm == "state" else "model.safetensors")
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    {
        "truncate": lambda: file.write_bytes(content[:-9]),
        "flip": lambda: file.write_bytes(content),
        "remove": file.unlink,
        "state": lambda: file.write_text("{"),
    }[harm]()
    told = Told()
    trainer = make(tmp_path, progress=told, save_every=2)
    assert trainer.position.step == 4
    assert "step-00000006 is damaged" in told.lines[0]
    assert trainer.run().steps == 6


def test_what_a_kill_left_half_written_is_ignored_and_swept(tmp_path):
    make(tmp_path, save_every=2).run()
    left = tmp_path / "checkpoints" / ".step-00000008.tmp-1"
    left.mkdir()
    (left / "state.json").write_text("{}")
    assert make(tmp_path).position.step == 6
    assert not left.exists()


def test_only_so_many_checkpoints_are_kept_and_the_best(tmp_path):
    scores = iter([1.0, 5.0, 2.0, 3.0])
    trainer = make(tmp_path, steps=8, save_every=2, evaluate_every=2, evaluate=lambda *_: Score({"m": 1}, next(scores)))
    outcome = trainer.run()
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == ["best-00000004", "step-00000006", "step-00000008"]
    assert outcome.best == 4
    assert set(trainer.checkpoints.best(4)) == set(trainer.module.state_dict())


@pytest.mark.parametrize(("objective", "where"), [({"name": "engine-words", "bad_at": 3}, "step 4, epoch 2")])
def test_a_loss_that_is_not_finite_stops_with_the_last_good_checkpoint_kept(tmp_path, objective, where):
    with pytest.raises(VlcliError) as caught:
        make(tmp_path, objectives=[objective], save_every=1, optimizer={"lr": 1e-4}).run()
    assert caught.value.exit_code == 1
    assert caught.value.where == where
    assert "engine-words = nan at learning rate 0.0001" in caught.value.got
    assert "step-00000003" in caught.value.hint
    state = Checkpoints(tmp_path / "checkpoints").complete()[-1]
    assert json.loads((state / "state.json").read_text())["position"]["step"] == 3


def test_a_full_disk_is_one_message_and_older_checkpoints_stay(tmp_path, monkeypatch):
    trainer = make(tmp_path, save_every=2)
    write = checkpoint.save_tensors

    def full(path, tensors):
        if trainer.position.step == 4 and path.name.startswith("optimizer"):
            raise OSError(28, "No space left on device")
        write(path, tensors)

    monkeypatch.setattr(checkpoint, "save_tensors", full)
    with pytest.raises(VlcliError, match="disk is full") as caught:
        trainer.run()
    assert caught.value.exit_code == 1
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00000002"]
    monkeypatch.setattr(checkpoint, "save_tensors", write)
    assert make(tmp_path).position.step == 2


def test_another_model_does_not_resume(tmp_path):
    make(tmp_path).run()
    with pytest.raises(DataError, match="another model") as caught:
        make(tmp_path, model={"name": "engine-tiny", "hidden": 8})
    assert "--force" in caught.value.hint


def test_accumulation_counts_batches_and_epochs():
    plan = StepPlan.of(25, config(batch_size=8, accumulate=2, steps=None, epochs=3), 1)
    assert (plan.batches, plan.steps, plan.drop_last) == (3, 6, True)
    assert StepPlan.of(5, config(batch_size=8, steps=None), 1) == StepPlan(1, 1, False)
    assert StepPlan.of(25, config(batch_size=8, steps=4, epochs=1), 1).steps == 3
    with pytest.raises(RecipeError, match="1 problem"):
        StepPlan.of(25, config(batch_size=1), 2)


def test_accumulated_equal_batches_give_the_mean_gradient(tmp_path):
    options = {"steps": 1, "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.0}, "clip": None}
    model = {"name": "engine-tiny"}
    results = []
    for number, size in enumerate((8, 24)):
        folder = tmp_path / str(number)
        folder.mkdir()
        trainer = make(
            folder, objectives=["engine-queue"], model=model, batch_size=size, accumulate=24 // size, **options
        )
        trainer.run()
        results.append({n: p.detach() for n, p in trainer.module.named_parameters()})
    assert all(torch.allclose(results[0][name], results[1][name], atol=1e-6) for name in results[0])


def test_half_precision_trains_and_its_weights_stay_in_float32(tmp_path):
    trainer = make(tmp_path, precision="bf16", evaluate=losses, steps=4)
    outcome = trainer.run()
    assert outcome.metrics["loss"] > 0
    assert {p.dtype for p in trainer.module.parameters()} == {torch.float32}
    with pytest.raises(UsageError, match="fp16"):
        processes.start("cpu", "fp16")


def test_recomputed_activations_change_no_number(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    plain, recomputed = make(tmp_path / "a"), make(tmp_path / "b", checkpointing=True)
    assert all(m.checkpointing for m in recomputed.module.modules() if isinstance(m, Block))
    plain.run(), recomputed.run()
    assert same(plain.module.state_dict(), recomputed.module.state_dict())


def test_the_log_tells_losses_rates_and_waiting(tmp_path):
    make(tmp_path, evaluate=losses, steps=4).run()
    first = read_log(tmp_path / "log.jsonl")[0]
    wanted = {"step", "epoch", "loss", "loss/engine-words", "engine-words/accuracy", "grad_norm", "lr", *TIMES}
    assert wanted <= set(first)
    assert first["step"] == 2
    assert any("eval/loss" in line for line in read_log(tmp_path / "log.jsonl"))


def test_a_tracker_forgets_what_will_come_again(tmp_path):
    tracker = JsonLines(tmp_path)
    for step in (1, 2, 3):
        tracker.log(step, {"loss": step})
    with tracker.path.open("a") as file:
        file.write('{"step": 4, "lo')
    tracker.resume(2)
    assert [line["step"] for line in read_log(tracker.path)] == [1, 2]


def test_objectives_come_and_go_by_epoch(tmp_path):
    late = {"name": "engine-contrast", "from_epoch": 1, "until_epoch": 2}
    make(tmp_path, objectives=["engine-words", late], steps=9, log_every=1, optimizer={"lr": 1e-3}).run()
    seen = ["loss/engine-contrast" in line for line in read_log(tmp_path / "log.jsonl")]
    assert seen == [False] * 3 + [True] * 3 + [False] * 3


def test_training_lowers_the_loss(tmp_path):
    make(tmp_path, objectives=["engine-words"], steps=60, log_every=10, optimizer={"lr": 1e-2}).run()
    log = read_log(tmp_path / "log.jsonl")
    assert log[-1]["loss"] < 0.7 * log[0]["loss"]


def test_steps_draw_the_same_again_and_differ_from_one_another():
    def draw(step, part=0):
        processes.seed_step(7, step, part)
        return torch.rand(3).tolist()

    assert draw(1) == draw(1)
    assert len({tuple(draw(step, part)) for step in range(3) for part in range(2)}) == 6


def test_tensorboard_gets_every_log_line(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    trainer = make(tmp_path, objectives=["engine-words"], steps=4)
    trainer.trackers.append(TensorBoard(tmp_path))
    trainer.run()
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    told = [(event.step, event.value) for event in events.Scalars("loss")]
    log = read_log(tmp_path / "log.jsonl")
    assert told == [(line["step"], pytest.approx(line["loss"], rel=1e-6)) for line in log]


@pytest.mark.slow
def test_compiled_layers_give_the_same_training(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    # Adam divides gradients that are nearly zero by their own size: rounding would become a step
    options = {"model": "engine-tiny", "optimizer": {"name": "sgd", "lr": 0.1}}
    plain, compiled = make(tmp_path / "a", **options), make(tmp_path / "b", compile=True, **options)
    plain.run(), compiled.run()
    for name, value in plain.module.state_dict().items():
        assert torch.allclose(value, compiled.module.state_dict()[name], atol=2e-6, rtol=1e-5), name


def test_the_page_on_training_shows_the_step_as_it_is():
    page = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")
    section = page.split("## One step")[1].split("\n## ")[0]
    shown = re.search(r"```python\n(.*?)```", section, re.DOTALL)[1]
    assert shown == textwrap.dedent(inspect.getsource(Trainer._step))
