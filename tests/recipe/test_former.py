"""A plugin written for the former names of classes and hooks works, and gets warnings with the present names."""

from __future__ import annotations

import importlib

import pytest

from vlcli import nn, objectives, tasks
from vlcli.registry import contract

CLASSES = {
    "vlcli.nn": {
        "Facts": "DataSpec",
        "Needs": "InputSpec",
        "States": "EncoderOutput",
        "Fused": "FusionOutput",
        "Step": "ForwardPasses",
    },
    "vlcli.nn.model": {"Facts": "DataSpec"},
    "vlcli.nn.step": {"Step": "ForwardPasses"},
    "vlcli.objectives": {"Outcome": "ObjectiveOutput"},
    "vlcli.data": {"Marks": "MaskLabels"},
}


@pytest.mark.parametrize(
    ("module", "former", "present"), [(m, a, b) for m, pairs in CLASSES.items() for a, b in pairs.items()]
)
def test_a_former_class_name_is_the_present_class(module, former, present):
    found = importlib.import_module(module)
    with pytest.warns(FutureWarning, match=f"{former} is called {module}.{present} now"):
        old = getattr(found, former)
    assert old is getattr(found, present)


def test_a_name_that_never_was_is_an_error():
    with pytest.raises(AttributeError, match="no attribute 'Factoids'"):
        nn.Factoids  # noqa: B018


def test_hooks_of_a_model_under_former_names_serve():
    with pytest.warns(FutureWarning) as warned:

        class Old(nn.Model):
            """A model written before."""

            finishes = True
            takes = {"a.": ("b.",)}  # noqa: RUF012
            keep = (1,)
            dim = 4

            def needs(self):
                return nn.InputSpec(text=True)

    said = [str(one.message) for one in warned]
    assert "Old.needs is called Old.input_spec now" in said
    assert len(said) == 4
    model = Old(nn.DataSpec())
    assert model.input_spec().text
    assert model.supports_partial_output
    assert (model.output_hidden_states, model.init_from) == ((1,), {"a.": ("b.",)})
    assert contract.fault("models", Old) == ""


def test_hooks_of_objectives_and_tasks_too():
    with pytest.warns(FutureWarning, match="setup"):

        class Counting(objectives.Objective):
            """An objective written before."""

            inherits = ("mlm",)

            def study(self, readers, tokenizer, folder):
                self.seen = readers

    counting = Counting.__new__(Counting)
    vars(counting)["seen"] = None
    Counting.setup(counting, [1], None, None)
    assert Counting.init_from == ("mlm",)
    with pytest.warns(FutureWarning, match="input_spec"):

        class Pixels(tasks.base.Task):
            """A task written before."""

            def needs(self, needs, training):
                return nn.InputSpec(pixels=True)

    assert Pixels().input_spec(nn.InputSpec(), training=True).pixels
