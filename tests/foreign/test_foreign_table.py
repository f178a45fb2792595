"""The table of docs/equip.md, cell by cell: what is said to work does, and what is said to be refused is."""

from __future__ import annotations

from pathlib import Path

import foreign_models as fm
import pytest

from vlcli.errors import ComponentError
from vlcli.foreign import equip

PAGE = Path(__file__).parents[2] / "docs" / "equip.md"
HANDFUL = [
    ("timm DINOv3", "irpe"),
    ("timm NaFlexViT", "swin-bias"),
    ("SigLIP 2", "transformer-xl"),
    ("ModernBERT", "shaw, line"),
    ("Llama with a picture", "log-cpb"),
    ("LXMERT", "ace-rpe"),
    ("ViLT", "disentangled"),
    ("timm Swin", "irpe"),
    ("BERT", "irpe"),
]
KINDS = ["eager", "sdpa"]


def cells() -> dict[tuple[str, str], str]:
    """The table of the page: what stands for each model and encoding."""
    lines = [line.strip("| ").split(" | ") for line in PAGE.read_text(encoding="utf-8").splitlines() if "|" in line]
    head = next(number for number, line in enumerate(lines) if line[0] == "model")
    names = [name.strip("`") for name in lines[head][1:]]
    rows = [line for line in lines[head + 2 :] if line[0] in fm.MODELS]
    return {(row[0], name): said for row in rows for name, said in zip(names, row[1:], strict=True)}


TABLE = cells()
EVERY = list(TABLE)


def check(model: str, encoding: str, kind: str) -> None:
    said = TABLE[model, encoding]
    assert fm.cell(fm.made(model), encoding) == said
    if set(said) <= set(fm.REASONS):
        foreign = fm.made(model)
        with pytest.raises(ComponentError, match="cannot be equipped") as caught:
            equip(foreign.model, fm.ENCODINGS[encoding], **foreign.options)
        assert all(fm.REASONS[letter] in caught.value.got for letter in said)
        assert "*" in caught.value.got  # the layer's name
        return
    assert fm.identity(model, encoding, kind) <= 1e-6
    found = fm.gradients(model, encoding, kind)
    assert found
    assert min(found.values()) > 1e-3  # rounding leaves 1e-5


def test_the_table_is_whole() -> None:
    assert {model for model, _ in EVERY} == set(fm.MODELS)
    assert {encoding for _, encoding in EVERY} == set(fm.ENCODINGS)


@pytest.mark.parametrize(("model", "encoding"), HANDFUL)
def test_a_handful_of_cells(model: str, encoding: str) -> None:
    check(model, encoding, "sdpa")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("model", list(fm.MODELS))
def test_every_cell(model: str, kind: str) -> None:
    for encoding in fm.ENCODINGS:
        check(model, encoding, kind)
