"""Processes that evaluate together find what one finds, to the bit, and end together."""

from __future__ import annotations

import threading
from functools import partial

import pytest
import torch

from tests.engine.parts import DATA_SPEC, FakeData
from vlcli import stopping
from vlcli.detection.extraction import Share
from vlcli.engine import evaluation
from vlcli.engine.evaluation import JointEvaluation, TaskRunner, mean_losses
from vlcli.engine.training_module import build_training_module

OBJECTIVES = ["engine-words", {"name": "engine-contrast", "weight": 0.5}]


class Meeting:
    """Processes played by threads: every one hands in a value and gets all of them."""

    def __init__(self, count: int) -> None:
        self.count, self.values = count, {}
        self.barrier = threading.Barrier(count, timeout=20)

    def gather(self, rank, value):
        self.values[rank] = value
        self.barrier.wait()
        found = [self.values[number] for number in range(self.count)]
        self.barrier.wait()
        return found

    def each(self, work):
        """What ``work(rank)`` gives or raises in every thread."""
        found = {}

        def run(rank):
            try:
                found[rank] = work(rank)
            except BaseException as error:
                found[rank] = error

        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(self.count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        return [found[rank] for rank in range(self.count)]


@pytest.mark.parametrize("count", [2, 3, 7])
def test_rows_and_mean_losses_are_those_of_one_process(count):
    module = build_training_module({"name": "engine-tiny", "dropout": 0.1}, OBJECTIVES, DATA_SPEC, seed=1)
    data = FakeData(22)  # five batches of five at most: uneven shares, or none at all
    alone = TaskRunner(module, data, batch_size=5)
    whole = mean_losses(module, alone, epoch=0, seed=3)
    keys = alone.rows(lambda batch: list(batch.keys))
    for rank in range(count):  # one after another: random numbers are the process's
        own = {}
        for place in [*(other for other in range(count) if other != rank), rank]:
            share = Share(place, count, gather=partial(_keep, own, place, count))
            runner = TaskRunner(module, data, batch_size=5, share=share)
            found = mean_losses(module, runner, epoch=0, seed=3)
        assert found == whole
    meeting = Meeting(count)

    def read(rank):
        share = Share(rank, count, gather=lambda value: meeting.gather(rank, value))
        return TaskRunner(module, data, batch_size=5, share=share).rows(lambda batch: list(batch.keys))

    assert meeting.each(read) == [keys] * count


def _keep(own, place, count, value):
    own[place] = value
    return [own.get(number, []) for number in range(count)]


@pytest.mark.parametrize("asked", [0, 1])
@pytest.mark.parametrize("late", [False, True])
def test_a_signal_to_one_ends_all_and_nobody_waits_in_vain(monkeypatch, asked, late):
    meeting, ranks = Meeting(2), threading.local()
    monkeypatch.setattr(evaluation.processes, "collect", lambda value: meeting.gather(ranks.rank, value))

    def evaluate(rank):
        ranks.rank = rank
        own = JointEvaluation()

        def work():
            if rank == asked and not late:
                raise stopping.Stopped(15)
            own.gather("rows")
            if rank == asked:
                raise stopping.Stopped(15)
            return torch.ones(1)

        return own.run(work)

    ended = meeting.each(evaluate)
    assert [type(each) for each in ended] == [stopping.Stopped] * 2
    assert [each.number for each in ended] == [15, 15]
