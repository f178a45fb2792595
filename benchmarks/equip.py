"""What equipping models of other libraries does to them: nothing while tables are zero, and every table learns.

    python benchmarks/equip.py                                # every model with every encoding that it takes
    python benchmarks/equip.py --models "timm DINOv3" LXMERT --export
    python benchmarks/equip.py --table                        # the table of docs/equip.md

Models are small, with random weights. ``identity`` is the largest change of any output by tables of zeros, as a share
of the largest output (1 at least), in float32; ``gradient`` is the smallest over tables of the largest entry of their
gradients, of a random sum of all outputs, with tables drawn from a normal distribution of deviation 0.3. ``export``
says whether ``torch.export`` of the equipped model gives the same outputs (1e-5), for models whose export works
without an encoding.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "fixtures"))
import foreign_models as fm


def exported(name: str, encoding: str) -> str:
    """Whether the equipped model exports, and the program computes what the model does."""
    with torch.no_grad():
        try:
            torch.export.export(fm.made(name).model, fm.made(name).args, fm.made(name).inputs)
        except Exception as error:
            return f"no, nor without an encoding ({type(error).__name__})"
        foreign = fm.equipped(name, encoding)
        fm.draw(fm.added(foreign, name))
        torch.manual_seed(5)
        wanted = fm.flat(foreign.model(*foreign.args, **foreign.inputs))
        program = torch.export.export(foreign.model, foreign.args, foreign.inputs)
        got = fm.flat(program.module()(*foreign.args, **foreign.inputs))
    return "yes" if torch.allclose(got, wanted, atol=1e-5) else f"differs by {float((got - wanted).abs().max()):.1e}"


def figures(name: str, encoding: str, export: bool) -> dict[str, object]:
    """One model with one encoding."""
    kinds = ("eager", "sdpa")
    found: dict[str, object] = {"model": name, "encoding": encoding}
    found |= {f"identity {kind}": fm.identity(name, encoding, kind) for kind in kinds}
    found |= {f"gradient {kind}": min(fm.gradients(name, encoding, kind).values()) for kind in kinds}
    return found | ({"export": exported(name, encoding)} if export else {})


def table() -> str:
    """The table of docs/equip.md."""
    rows = [["model", *(f"`{name}`" for name in fm.ENCODINGS)], ["---"] * (1 + len(fm.ENCODINGS))]
    rows += [fm.row(name) for name in fm.MODELS]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="*", default=list(fm.MODELS), choices=list(fm.MODELS))
    parser.add_argument("--encodings", nargs="*", default=list(fm.ENCODINGS), choices=list(fm.ENCODINGS))
    parser.add_argument("--export", action="store_true")
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    if given.table:
        print(table())
        return
    for name in given.models:
        for encoding in given.encodings:
            if set(fm.cell(fm.made(name), encoding)) - set(fm.REASONS):
                print(json.dumps(figures(name, encoding, given.export)), flush=True)


if __name__ == "__main__":
    main()
