"""Bad inputs of every kind end in one message and the documented exit code, and change nothing."""

from __future__ import annotations

import pytest

from tests.fuzz import annotations, bundles, images, recipes, records, stores
from tests.fuzz.harness import Trial, fault_of

KINDS = (recipes, annotations, images, stores, bundles, records)
TRIALS = [trial for kind in KINDS for trial in kind.trials()]


def test_names_are_unique():
    names = [trial.id for trial in TRIALS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("trial", [pytest.param(t, id=t.id, marks=() if t.quick else pytest.mark.slow) for t in TRIALS])
def test_a_bad_input_ends_as_documented(trial: Trial, tmp_path, valid, tally):
    assert fault_of(trial, tmp_path, valid, tally) == ""
