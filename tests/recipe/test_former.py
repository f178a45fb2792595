"""A plugin written for the former names of classes and hooks works, and gets warnings with the present names."""

from __future__ import annotations

import importlib
import os

import forked
import pytest

import vlcli
from vlcli import former, nn, objectives, tasks
from vlcli.registry import contract, schema

CLASSES = {
    "vlcli.nn": {
        "Facts": "DataSpec",
        "Needs": "InputSpec",
        "States": "EncoderOutput",
        "Fused": "FusionOutput",
        "Step": "ForwardPasses",
        "Detections": "DetectionOutput",
    },
    "vlcli.api": {"Regions": "RegionFeatures"},
    "vlcli.data.transforms": {"Scene": "TransformInput"},
    "vlcli.drawings": {"Scene": "DrawingContext"},
    "vlcli.progress": {"Task": "ProgressTask"},
    "vlcli.tasks.concepts": {"Concepts": "ConceptPrediction"},
    "vlcli.data.readers.vg": {"Regions": "VGRegions"},
    "vlcli_concepts": {"Concepts": "ConceptClassification"},
    "vlcli.nn.model": {"Facts": "DataSpec"},
    "vlcli.nn.forward_passes": {"Step": "ForwardPasses"},
    "vlcli.objectives": {"Outcome": "ObjectiveOutput"},
    "vlcli.data": {"Marks": "MaskLabels"},
}


@pytest.mark.parametrize(
    ("module", "old", "present"), [(m, a, b) for m, pairs in CLASSES.items() for a, b in pairs.items()]
)
def test_a_former_class_name_is_the_present_class(module, old, present):
    found = importlib.import_module(module)
    with pytest.warns(FutureWarning, match=f"{old} is called {module}.{present} now"):
        given = getattr(found, old)
    assert given is getattr(found, present)


def test_a_name_that_never_was_is_an_error():
    with pytest.raises(AttributeError, match="no attribute 'Factoids'"):
        nn.Factoids  # noqa: B018


@pytest.mark.parametrize(("old", "present"), former.MODULES.items())
def test_a_former_module_is_the_present_one(tmp_path, old, present):
    script = tmp_path / "former.py"
    code = f"import warnings; warnings.simplefilter('always'); import {old} as old, {present} as present\n"
    script.write_text(code + "assert old is present; assert present.__spec__.name == present.__name__\n")
    made = forked.run([], tmp_path, os.environ, 300, script)
    assert made.returncode == 0, made.stderr
    assert f"{script}:1: FutureWarning: {old} is called {present} now" in made.stderr


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


def test_a_model_and_an_objective_that_call_their_data_spec_facts():
    class Old(nn.Model):
        """A model written before."""

        dim = 4

        def __init__(self, facts, *, width: int = 4):
            super().__init__(facts)
            self.rows = facts.vocab_size

        def input_spec(self):
            return nn.InputSpec(text=True)

    class OldLoss(objectives.Objective):
        """An objective written before, which names its arguments."""

        def __init__(self, model, facts, *, scale: float = 1.0):
            super().__init__(model=model, facts=facts)
            self.facts = facts

        def forward(self, step, others):
            return None

    assert list(schema.parameters(Old)) == ["width"]
    spec = nn.DataSpec(vocab_size=7)
    model = Old(spec)
    with pytest.warns(FutureWarning, match=r"Old\.facts is called Old\.data_spec now") as warned:
        assert model.facts is spec
    assert warned[0].filename == __file__
    with pytest.warns(FutureWarning, match=r"\(facts=\) is called data_spec= now"):
        assert OldLoss(model, spec).facts is spec
    with pytest.warns(FutureWarning, match="data_spec= now"):
        assert vlcli.model("lxmert", facts=spec, hidden=8, heads=2).data_spec is spec


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
