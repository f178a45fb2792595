"""iRPE against numbers computed with the authors' code: every array of the golden files, whatever they hold."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from vlcli_irpe import IRPE, BucketRule, TokenGrid, grid_ids

from tests.plugins.irpe.oracle import uniform
from vlcli.nn import AttentionContext, AttentionMask, AttentionShape, Layout, StandardAttention

METHODS = {"euc": "euclidean", "quant": "quantization", "cross": "cross", "product": "product"}
SIDES = {"q": "query", "k": "key", "v": "value"}
SEEDS = {"q": 11, "k": 12, "v": 13}
TOLERANCE = 1e-10


@pytest.fixture(scope="module")
def golden(shared: Path) -> dict[str, np.ndarray]:
    """All arrays of every golden file."""
    found: dict[str, np.ndarray] = {}
    for file in sorted((shared / "reference").glob("irpe_golden*.npz")):
        with np.load(file) as arrays:
            found.update({name: arrays[name] for name in arrays.files})
    assert found
    return found


def tensor(seed: int, *shape: int, amp: float = 1.0) -> torch.Tensor:
    return torch.from_numpy(uniform(seed, shape, amp))


def ids_of(name: str) -> np.ndarray:
    """The ids a golden name asks for: ``euc/r20/4x4/skip1``."""
    method, ratio, size, skip = name.split("/")[:4]
    rows, columns = map(int, size.split("x"))
    rule = BucketRule(METHODS[method.partition("_")[0]], float(ratio[1:]))
    grid = TokenGrid(rows, columns, int(skip[4:]))
    return grid_ids(rule, grid, grid)[method.endswith("_cols")].numpy().astype("<i4")


def test_bucket_ids_are_exact(golden: dict[str, np.ndarray]) -> None:
    names = [name for name in golden if name.startswith("bucket/")]
    assert names
    for name in names:
        made = ids_of(name.removeprefix("bucket/"))
        skip = int(re.search(r"skip(\d+)", name)[1])  # type: ignore[index]
        made = made[skip] if name.endswith("row_first_patch") else made
        assert np.array_equal(made, golden[name]), name


def test_bucket_tables_have_the_published_sums(shared: Path) -> None:
    text = (shared / "reference/irpe_golden.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([a-z_]+/r\S+/\d+x\d+/skip\d) \| (\d+) \| (\d+) \| .*? \| `(\w{64})` \|$", text, re.M)
    assert len(rows) == 99
    for name, allocated, used, digest in rows:
        made = ids_of(name)
        assert hashlib.sha256(made.tobytes()).hexdigest() == digest, name
        method, ratio, _, skip = name.split("/")
        rule = BucketRule(METHODS[method.partition("_")[0]], float(ratio[1:]))
        assert rule.buckets + (skip != "skip0") == int(allocated)
        assert len(np.unique(made)) == int(used)


def parse(name: str) -> dict[str, Any]:
    """``attn/euc/r1.5/bias/shared/k/4x4/skip0`` (or ``attn/none/4x4/skip0``) as options."""
    parts = name.split("/")
    sides = "" if parts[1] == "none" else parts[5]
    rows, columns = map(int, parts[-2].split("x"))
    made = {"rows": rows, "columns": columns, "skip": int(parts[-1][4:]), "sides": sides, "spec": None}
    if sides:
        made["spec"] = {
            "method": METHODS[parts[1]],
            "ratio": float(parts[2][1:]),
            "mode": {"ctx": "contextual", "bias": "bias"}[parts[3]],
            "shared_heads": parts[4] == "shared",
            "sides": [SIDES[letter] for letter in sides],
            "off_plane": "bucket" if made["skip"] else "nothing",
        }
    return made


def attention(dim: int, heads: int) -> StandardAttention:
    """An attention with the golden weights."""
    module = StandardAttention(AttentionShape(dim, heads)).double()
    weight, bias = tensor(1, 3 * dim, dim), tensor(2, 3 * dim, amp=0.1)
    with torch.no_grad():
        for number, part in enumerate((module.query, module.key, module.value)):
            part.weight.copy_(weight[number * dim : (number + 1) * dim])
            part.bias.copy_(bias[number * dim : (number + 1) * dim])
        module.dense.weight.copy_(tensor(3, dim, dim, amp=0.5))
        module.dense.bias.copy_(tensor(4, dim, amp=0.1))
    return module


def fill(position: IRPE) -> dict[str, torch.nn.Parameter]:
    """The golden tables, by their released names."""
    own = position.layers[0]
    with torch.no_grad():
        for name, parameter in own.named_parameters():
            seed = SEEDS[name[4]] + (100 if "rp_cols" in name else 0)
            parameter.copy_(tensor(seed, *parameter.shape, amp=0.5))
    return dict(own.named_parameters())


def cases(golden: dict[str, np.ndarray]) -> Iterator[str]:
    return iter(sorted(name.removesuffix("/out") for name in golden if re.match(r"attn/.*/out$", name)))


def run(case: str) -> dict[str, torch.Tensor]:
    """Output and gradients of one case."""
    options = parse(case)
    small = options["rows"] < 14
    dim, heads, batch = (24, 3, 2) if small else (32, 2, 1)
    layout = Layout.for_grid(options["rows"], options["columns"], skip=options["skip"])
    x = tensor(20, batch, len(layout), dim).requires_grad_()
    module, position, tables, state = attention(dim, heads), None, {}, None
    if options["spec"]:
        position = IRPE(AttentionShape(dim, heads), **options["spec"]).double()
        tables, state = fill(position), position.prepare(x, x, layout, layout)
    out = module(x, context=AttentionContext(x_layout=layout, position=position, state=state))
    (out * tensor(30, *out.shape)).sum().backward()
    made = {"out": out, "grad_x": x.grad}
    return {**made, **{f"grad_{name}": parameter.grad for name, parameter in tables.items()}}


def test_attention_and_its_gradients(golden: dict[str, np.ndarray]) -> None:
    names, seen = list(cases(golden)), 0
    assert names
    for case in names:
        made = run(case)
        wanted = {name.removeprefix(f"{case}/"): value for name, value in golden.items() if name.startswith(f"{case}/")}
        for what, value in wanted.items():
            seen += 1
            assert np.abs(made[what].detach().numpy() - value).max() < TOLERANCE, f"{case}/{what}"
    assert seen == sum(name.startswith("attn/") for name in golden)


def test_raw_terms(golden: dict[str, np.ndarray]) -> None:
    names = [name for name in golden if name.startswith("term/")]
    for name in names:
        _, method, ratio, mode, letter, size, skip = name.split("/")
        rows, columns = map(int, size.split("x"))
        layout = Layout.for_grid(rows, columns, skip=int(skip[4:]))
        made = term(METHODS[method], float(ratio[1:]), mode, letter, layout)
        assert np.abs(made.detach().numpy() - golden[name]).max() < TOLERANCE, name
    if not names:
        pytest.skip("no raw terms among the golden arrays")


def term(method: str, ratio: float, mode: str, letter: str, layout: Layout) -> torch.Tensor:
    """One term by itself; the term on queries is read untransposed, as the golden file has it."""
    full = {"ctx": "contextual", "bias": "bias"}[mode]
    spec = {"method": method, "ratio": ratio, "mode": full, "sides": [SIDES[letter]], "shared_heads": False}
    position = IRPE(AttentionShape(24, 3), **spec).double()
    fill(position)
    state = position.prepare(torch.zeros(()), torch.zeros(()), layout, layout)
    if letter == "v":
        weights = tensor(41, 2, 3, len(layout), len(layout), amp=2.0).softmax(-1)
        made = position.values(weights, state, 0)
    else:
        z = tensor(40, 2, 3, len(layout), 8) / position.scale
        made = position.logits(z, z, state, 0)
        assert made is not None
        made = made.transpose(-1, -2) if letter == "q" else made
    assert made is not None
    return made


def test_detr_attention_with_padding(golden: dict[str, np.ndarray]) -> None:
    names = [name for name in golden if name.startswith("detr/")]
    for name in names:
        _, method, ratio, _, sharing, letters, size, what = name.split("/")
        rows, columns = map(int, size.split("x"))
        made = detr(METHODS[method], float(ratio[1:]), sharing == "shared", letters, (rows, columns))
        assert np.abs(made[what].detach().numpy() - golden[name]).max() < TOLERANCE, name
    if not names:
        pytest.skip("no DETR arrays among the golden arrays")


def detr(method: str, ratio: float, shared: bool, letters: str, grid: tuple[int, int]) -> dict[str, torch.Tensor]:
    """Section 6 of the golden file: absolute positions on queries and keys only, and a padded second image."""
    from vlcli.nn import Recorder

    layout = Layout.for_grid(*grid)
    src, pos = tensor(20, len(layout), 2, 24).transpose(0, 1), tensor(21, len(layout), 2, 24, amp=0.3).transpose(0, 1)
    sides = [SIDES[letter] for letter in letters]
    spec = {"method": method, "ratio": ratio, "shared_heads": shared, "sides": sides, "off_plane": "nothing"}
    position, module, record = IRPE(AttentionShape(24, 3), **spec).double(), attention(24, 3), Recorder()
    fill(position)
    state = position.prepare(src, src, layout, layout)
    valid = torch.ones(2, *grid, dtype=torch.bool)
    valid[1, 2:], valid[1, :, 4:] = False, False
    q, k, v = module.project(src + pos, src + pos, src, layout, layout)
    facts = {
        "mask": AttentionMask(valid.flatten(1)),
        "position": position,
        "state": state,
        "record": record,
        "name": "a",
    }
    context = module.attend(q, k, v, context=AttentionContext(**facts))
    out = module.output(context.transpose(1, 2).flatten(2), layout)
    return {"out": out.transpose(0, 1), "attn_mean": record.attention["a"].mean(1)}


# Section 7 of the golden file: the first three numbers and the sum of outputs whose arrays may not be at hand.
SPOTS = {
    "attn/none/14x14/skip1": ([5.364779039459238, 0.10997366235041633, -6.331584435620374], 919.6418565579073),
    "attn/product/r1.9/ctx/shared/qkv/14x14/skip1": (
        [5.102184374894476, 0.18785727202027114, -6.549188489790058],
        883.003142644425,
    ),
    "attn/product/r1.9/ctx/shared/k/4x4/skip1": (
        [-0.33510765791288, -0.002807351029400419, -2.6511030286984667],
        -78.61016807196974,
    ),
}


@pytest.mark.parametrize("case", SPOTS)
def test_spot_values(case: str) -> None:
    out = run(case)["out"].detach().flatten()
    assert torch.allclose(out[:3], torch.tensor(SPOTS[case][0], dtype=torch.float64), atol=TOLERANCE, rtol=0)
    assert abs(float(out.sum()) - SPOTS[case][1]) < 1e-8


def test_detr_spot_value() -> None:
    out = detr("product", 2.0, True, "k", (3, 5))["out"].detach().flatten()
    wanted = torch.tensor([-1.453348292648431, 0.07377902024469737, -2.2745469163178695], dtype=torch.float64)
    assert torch.allclose(out[:3], wanted, atol=TOLERANCE, rtol=0)
    assert abs(float(out.sum()) + 90.42148188094265) < 1e-8
