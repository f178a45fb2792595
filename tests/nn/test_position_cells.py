"""Every position encoding in every slot of every model: it acts, or the build is refused with a reason.

``python -m pytest tests/nn/test_position_cells.py -n 0 -s -k table`` prints the table of all cells.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from cells import DATA_SPEC, NEEDED, TINY, VARIANTS, difference, make_batch, models, outputs, summed, tiny
from torch import nn

from vlcli import registry
from vlcli.errors import ComponentError
from vlcli.nn import AttentionShape, Model, Slot, build_model, build_positions
from vlcli.nn.slots import all_slots, encoding_name, objection, position_parameters
from vlcli.registry import PositionSpec

SHAPE = AttentionShape(16, 2)
CHOICES: dict[str, Any] = {
    **{entry.name: entry.name for entry in registry.entries("positions") if entry.distribution == "vlcli"},
    "ace-rpe, bias": {"name": "ace-rpe", "mode": "bias"},
    "huang, sequence": {"name": "huang", "plane": "sequence"},
    "irpe, query and value": {"name": "irpe", "sides": ["query", "value"]},
    "irpe, cross": {"name": "irpe", "method": "cross"},
    "irpe, off plane nothing": {"name": "irpe", "off_plane": "nothing"},
    "learned, 8 words": {"name": "learned", "length": 8},
    "rope-2d, mixed": {"name": "rope-2d", "frequencies": "mixed"},
    "shaw, sequence": {"name": "shaw", "plane": "sequence"},
    "transformer-xl, sequence": {"name": "transformer-xl", "plane": "sequence"},
}
SLOTS = [
    (model, variant, slot)
    for model in models()
    for variant in ("", *VARIANTS.get(model, {}))
    for slot in position_parameters(registry.load("models", model))
]
FIRST = [pytest.param(*place, marks=[pytest.mark.slow] if place[1] else []) for place in SLOTS]
"""Models as they are by default; their variants among the slow tests."""


def build(model: str, variant: str, slot: str, choice: Any) -> Model:
    options = NEEDED.get((model, slot), {}) | (VARIANTS[model][variant] if variant else {})
    return tiny(model, **options, **{slot: choice})


@cache
def plain(model: str, variant: str, slot: str) -> Model:
    return build(model, variant, slot, "none")


def added(model: Model, base: Model, name: str) -> list[nn.Module]:
    """The encodings called ``name`` that ``base`` has not."""
    before = {place: type(module) for place, module in base.named_modules()}
    made = [(p, m) for p, m in model.named_modules() if getattr(m, "spec_in_recipe", {}).get("name") == name]
    return [module for place, module in made if before.get(place) is not type(module)]


def check_acts(model: Model, base: Model, name: str) -> None:
    """Outputs differ from those without it; each of its parameters has a gradient, and changes the outputs."""
    encodings, batch = added(model, base, name), make_batch(model)
    assert encodings, "built, and no such encoding is in the model"
    parameters = [parameter for encoding in encodings for parameter in encoding.parameters()]
    before = outputs(model, batch)
    if not parameters:
        base.load_state_dict(model.state_dict(), strict=False)
        assert difference(before, outputs(base, batch)) > 1e-6
        return
    gradients = torch.autograd.grad(summed(before), parameters, allow_unused=True)
    assert any(gradient is not None and gradient.abs().max() > 1e-9 for gradient in gradients), "no gradient"
    rng = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in parameters:
            parameter.add_(torch.randn(parameter.shape, generator=rng, dtype=parameter.dtype))
        assert difference(before, outputs(model, batch)) > 1e-6


def reason(error: ComponentError, name: str, place: str, variant: str) -> str:
    """Why a cell is refused, the message checked."""
    assert error.what == f"The position encoding {name!r} would have no effect here.", str(error)
    assert (error.where, bool(error.got)) == (place.partition(".")[2], True)
    assert f"slots that take {name!r}" in error.hint
    assert f" {place}," not in f"{error.hint}," or variant, "the refused slot is among those that take it"
    return error.got


@cache
def cell(model: str, variant: str, slot: str, label: str) -> str:
    """``acts``, ``nothing`` for no encoding at all, or why the build was refused; fails on a third kind."""
    name = label.split(",", maxsplit=1)[0]
    try:
        made = build(model, variant, slot, CHOICES[label])
    except ComponentError as error:
        return reason(error, name, f"{model}.{slot}", variant)
    if name == "none":
        return "nothing"
    check_acts(made, plain(model, variant, slot), name)
    return "acts"


@pytest.mark.parametrize(("model", "variant", "slot"), FIRST)
def test_every_encoding_acts_or_is_refused(model, variant, slot):
    found = {label: cell(model, variant, slot, label) for label in CHOICES}
    assert found["none"] == "nothing"
    declared = registry.load("models", model).slots[slot]
    for label, what in found.items():
        if label == "none" or variant:
            continue
        encoding = registry.build("positions", CHOICES[label], SHAPE)
        learned_grid = label == "learned" and what == "acts"  # a picture's slot gives it the picture's grid
        assert learned_grid or (what == "acts") == (not objection(encoding, declared)), (label, what)


def test_every_model_has_a_line_and_declares_its_slots():
    assert set(TINY) == set(models())
    for name in models():
        kind = registry.load("models", name)
        assert sorted(kind.slots) == sorted(position_parameters(kind)), name
        assert all(slot.name == place for place, slot in kind.slots.items())


def test_every_encoding_has_a_slot():
    for label, choice in CHOICES.items():
        encoding = registry.build("positions", choice, SHAPE)
        assert label == "none" or any(not objection(encoding, slot) for slot in all_slots().values()), label


def test_the_docs_table_is_what_acts():
    """The table of docs/seams.md: each slot with the encodings that act in it as they stand."""
    plain_names = [label for label in CHOICES if label == CHOICES[label] and label != "none"]
    rows = []
    for model, variant, slot in SLOTS:
        acting = [label for label in plain_names if not variant and cell(model, variant, slot, label) == "acts"]
        rows += [] if variant else [f"| `{model}.{slot}` | {', '.join(f'`{label}`' for label in acting)} |"]
    page = (Path(__file__).parents[2] / "docs" / "seams.md").read_text(encoding="utf-8")
    table = [line for line in page.splitlines() if re.match(r"\| `[a-z0-9-]+\.[a-z_]*position`", line)]
    assert table == rows, "the table should read\n" + "\n".join(rows)


@pytest.mark.slow
def test_table(capsys):
    """Prints all cells (with ``-s``): what each slot does with each encoding."""
    found = {(m, v, s): {label: cell(m, v, s, label) for label in CHOICES} for m, v, s in SLOTS}
    acting = sum(what == "acts" for row in found.values() for what in row.values())
    refused = sum(what not in ("acts", "nothing") for row in found.values() for what in row.values())
    with capsys.disabled():
        for (model, variant, slot), row in found.items():
            print(f"\n{model}.{slot}" + (f" ({variant})" if variant else ""))
            for label, what in row.items():
                print(f"  {label:28} {what if what in ('acts', 'nothing') else 'refused: ' + what}")
        print(f"\n{acting} cells act, {refused} are refused, {len(SLOTS)} slots and {len(CHOICES)} choices")
    assert acting + refused == len(SLOTS) * (len(CHOICES) - 1)


class Stranger(Model):
    """A model of somebody else's package; what it does with its encodings is up to each test."""

    slots: ClassVar = {"position": Slot.of("position", ["tokens", "pairs"], ["cell"])}
    keeps: ClassVar = ("tokens", "pairs")

    def __init__(self, data_spec, *, position: PositionSpec | list[PositionSpec] | None = None) -> None:
        super().__init__(data_spec)
        tokens, pairs = build_positions(position, SHAPE, self.slots["position"])
        if "tokens" in self.keeps:
            self.tokens = tokens
        if "pairs" in self.keeps:
            self.pairs = pairs


def stranger(monkeypatch: pytest.MonkeyPatch, choice: Any, **changes: Any) -> Model:
    made = type("Stranger", (Stranger,), {**changes, "__module__": __name__})
    monkeypatch.setattr(sys.modules["vlcli.registry.entries"], "_session", {})
    registry.register("models", "stranger", made)
    return build_model({"name": "stranger", "position": choice}, DATA_SPEC)


@pytest.mark.parametrize(("keeps", "choice"), [(("tokens",), "irpe"), (("pairs",), ["irpe", "cpvt"])])
def test_a_strangers_model_cannot_drop_one_half(monkeypatch, keeps, choice):
    with pytest.raises(ComponentError, match="does not use what its slot 'position' was given") as caught:
        stranger(monkeypatch, choice, keeps=keeps)
    assert caught.value.got == ("irpe" if keeps == ("tokens",) else "cpvt")
    whole = stranger(monkeypatch, choice)
    kept = {encoding_name(module) for module in whole.modules() if hasattr(module, "spec_in_recipe")}
    assert kept - {"stranger"} == set(choice if isinstance(choice, list) else [choice])


def test_a_strangers_slot_refuses_what_it_does_not_take(monkeypatch):
    slots = {"position": Slot.of("position", ["pairs"], ["cell"])}
    with pytest.raises(ComponentError, match="'cpvt' would have no effect here") as caught:
        stranger(monkeypatch, ["irpe", "cpvt"], slots=slots)
    assert caught.value.got == "it is an encoding of tokens, and the slot takes pairwise encodings"
    assert "deit.position" in caught.value.hint


def test_a_strangers_model_cannot_ignore_its_parameter(monkeypatch):
    def init(self, data_spec, *, position: PositionSpec | None = None) -> None:
        Model.__init__(self, data_spec)

    with pytest.raises(ComponentError, match="does not use what its slot 'position' was given"):
        stranger(monkeypatch, "irpe", __init__=init)
    assert stranger(monkeypatch, "none", __init__=init)


def test_a_call_without_a_slot_says_what_to_add():
    with pytest.raises(ComponentError, match="must be told where the encodings go") as caught:
        build_positions("learned", SHAPE)
    assert "Slot.of(" in caught.value.hint


def test_a_stack_without_layers_takes_no_pairs():
    with pytest.raises(ComponentError, match="no effect") as caught:
        tiny("lxmert", cross_layers=0, cross_position="ace-rpe")
    assert caught.value.got == "there are no layers here"
