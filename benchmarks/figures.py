"""Writes docs/performance.json and the table of docs/performance.md from it: each hot path beside its peer.

    make figures                                        # all of them, about 40 minutes of one core
    python benchmarks/figures.py --only "irpe-*"        # some; the others keep their values
    python benchmarks/figures.py --gpu gpu.jsonl        # also takes in what benchmarks/gpu.py measured
    python benchmarks/figures.py --only "" --page FILE  # writes the table alone

Each figure is a command of this folder in a process of its own, with one thread, whose last lines have the ratio of
vlcli's time to its peer's (or of its rate to the peer's). A ratio that is worse by a tenth than the one in
docs/performance.json is named, and the exit code is then 1; the file has the new value nevertheless.
"""

from __future__ import annotations

import argparse
import datetime
import fnmatch
import json
import os
import platform
import re
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gpu

ROOT = Path(__file__).resolve().parents[1]
JSON, PAGE = ROOT / "docs" / "performance.json", ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- figures: written by benchmarks/figures.py -->", "<!-- end of figures -->"
WORSE = 0.1
NUMBER = r"([0-9][0-9,]*\.?[0-9]*)"
RATIO = rf"ratio\s+{NUMBER}"
STEP = "--captions {captions} --vocabulary {vocabulary}"


@dataclass(frozen=True)
class Figure:
    """One measurement.

    Attributes:
        name: by which it is found again.
        what: of vlcli, for the page.
        peer: beside what.
        words: the command; ``{captions}``, ``{vocabulary}`` and ``{pictures}`` are put in.
        values: regular expression of each number by its label; the last line that has it counts.
        more_is_better: rates, not times.
    """

    name: str
    what: str
    peer: str
    words: str
    values: dict[str, str] = field(default_factory=lambda: {"": RATIO})
    more_is_better: bool = False


def _row(start: str, column: int) -> str:
    """The number in a column of the line that starts so; the start is column 0."""
    return rf"^\s*{start}" + r"\s+\S+" * (column - 1) + rf"\s+{NUMBER}"


IRPE = {side: _row(rf"{side}", 2) for side in ("K", "QK", "QKV")}
FIGURES = [
    Figure("examples", "examples a second of the data pipeline", "one by one", "examples.py --rounds 3",
           {name: _row(name, 3) for name in ("pairs", "lxmert", "roles")}, more_is_better=True),
    Figure("decoded-80", "images of 80 x 80 pixels kept decoded", "decoded in every epoch", "decoded.py",
           more_is_better=True),
    Figure("decoded-224", "images of 224 x 224 pixels kept decoded", "decoded in every epoch",
           "decoded.py --side 224 --images 200", more_is_better=True),
    Figure("store", "bytes a second of records of 36 x 2,048 float16", "a raw memory map",
           "store.py --images 1000 --rounds 5",
           {"a batch": _row("store.read_batch", 2), "one by one": _row("store.read, record by record", 2),
            "a loader": _row("store, DataLoader", 2)}, more_is_better=True),
    Figure("irpe-224", "forward of DeiT-S with iRPE at 224 pixels", "no encoding, fused attention",
           "irpe.py --rounds 15", IRPE),
    Figure("irpe-384", "the same at 384 pixels", "no encoding, fused attention", "irpe.py --size 384 --batch 2", IRPE),
    Figure("irpe-384-memory", "memory of the same", "no encoding, fused attention",
           "irpe.py --memory --inference --size 384 --batch 2", IRPE),
    Figure("ace-rpe-path", "shortest paths of ACE-RPE, forward and backward", "all terms of Eq. 7 at once",
           "ace_rpe_path.py --repeats 3", {"time": rf"^time.*{RATIO}", "memory": rf"^memory.*{RATIO}"}),
    Figure("ace-rpe-256", "a training step of ACE-RPE at 256 pixels", "no encoding", "ace_rpe_model.py --sizes 256"),
    Figure("beam", "beam search with cached keys and values", "anew for every word", "beam.py --images 8 --batch 4",
           {"": rf"{NUMBER} of the time"}),
    Figure("lxmert-step", "a training step of LXMERT (base, 8 pairs)", "transformers' LXMERT",
           f"lxmert_step.py --batch 8 {STEP}"),
    Figure("partial-pass", "a fine-tuning step of a small LXMERT that computes only what its head reads", "all tokens",
           "partial_pass.py"),
    Figure("vlmo-step", "a training step of VLMo (base, 4 pairs)", "the released plan of passes",
           f"vlmo_step.py {STEP}"),
    Figure("loop-128", "the training loop, a step of 11 ms", "a bare loop", "training.py", {"": rf"{NUMBER}\s*$"}),
    Figure("loop-64", "the same, a step of 3 ms", "a bare loop", "training.py --hidden 64", {"": rf"{NUMBER}\s*$"}),
    Figure("extraction", "extraction of ResNet-50 regions of 48 pictures", "the network alone",
           "extraction.py {pictures} --count 48", {"": _row("ratio", 1)}),
    Figure("extraction-hf", "extraction with transformers' encoders", "the network alone",
           "extraction_hf.py {pictures} --count 32",
           {name: rf"^{name}.*{RATIO}" for name in ("DINOv2", "CLIP", "SigLIP")}),
    Figure("extraction-processes", "extraction by two processes (engine: processes)", "one network on two threads",
           "extraction_processes.py", {name: rf"^{name}.*{RATIO}" for name in ("tiny-conv", "resnet18", "resnet50")}),
    Figure("roi-align", "RoIAlign by bilinear sampling, forward and backward", "torchvision's", "roi_align.py"),
    Figure("muon", "a step of muon over the 50 matrices of the quickstart's model", "torch.optim.Muon", "muon.py"),
    Figure("search", "search among a million vectors of 256", "the matrix product alone", "search.py"),
    Figure("checksums", "training with checks of a store's records", "without checks", "checksums.py",
           {"": rf"^{NUMBER}$"}),
]  # fmt: skip


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="*", help="figures by name, with * and ?")
    parser.add_argument("--json", type=Path, default=JSON, metavar="FILE")
    parser.add_argument("--page", type=Path, default=PAGE, metavar="FILE")
    parser.add_argument("--gpu", type=Path, metavar="FILE", help="lines that benchmarks/gpu.py wrote")
    return parser.parse_args()


def measured(figure: Figure, inputs: dict[str, str]) -> dict[str, Any]:
    """Run a figure's command; its values, or the lines that it printed where there are none."""
    row = gpu.measured(gpu.Piece(figure.name, figure.words, ""), command(figure, inputs), "cpu", tiny=False)
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    return {"values": values_of(figure, row["lines"]), "seconds": row["seconds"], "date": today, "lines": row["lines"]}


def command(figure: Figure, inputs: dict[str, str]) -> list[str]:
    """The command line of a figure."""
    first, *rest = figure.words.format(**inputs).split()
    return [sys.executable, str(gpu.HERE / first), *rest]


def values_of(figure: Figure, lines: list[str]) -> dict[str, float]:
    """The numbers of a figure in printed lines; empty where one is missing."""
    found = {
        label: [float(hit[1].replace(",", "")) for line in lines if (hit := re.search(pattern, line))]
        for label, pattern in figure.values.items()
    }
    return {label: numbers[-1] for label, numbers in found.items()} if all(found.values()) else {}


def worse(figure: Figure, old: dict[str, float], new: dict[str, float]) -> list[str]:
    """Lines on values that became worse by a tenth."""
    lines = []
    for label, value in new.items():
        before = old.get(label, value)
        change = (before / value if figure.more_is_better else value / before) - 1
        if change > WORSE:
            lines.append(f"{figure.name} {label}".strip() + f": {value:g}, was {before:g}: {change:.0%} worse")
    return lines


def table(known: dict[str, Any]) -> str:
    """The page's table."""
    lines = ["| what | beside | ratio | date | command |", "| --- | --- | --- | --- | --- |"]
    for figure in FIGURES:
        if (row := known.get(figure.name)) is not None:
            values = ", ".join(f"{label} {value:.2f}".strip() for label, value in row["values"].items())
            kind = "times the rate" if figure.more_is_better else "of the time"
            kind = "" if "memory" in figure.name else f" {kind}"
            words = re.sub(r"\{(\w+)\}", lambda hit: hit[1].upper(), figure.words)
            cells = (figure.what, figure.peer, values + kind, row["date"], f"`python benchmarks/{words}`")
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def with_table(page: str, known: dict[str, Any]) -> str:
    """A page with the table between its two marks."""
    start, _, rest = page.partition(BEGIN)
    return f"{start}{BEGIN}\n\n{table(known)}\n\n{END}{rest.partition(END)[2]}"


def main() -> None:
    given = arguments()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    document = json.loads(given.json.read_text()) if given.json.exists() else {}
    known, complaints = document.setdefault("figures", {}), []
    document |= {"machine": f"{os.cpu_count()} processor cores, {platform.machine()}, {platform.system()}"}
    document |= {"python": platform.python_version(), "versions": {name: gpu.version(name) for name in gpu.VERSIONS}}
    with tempfile.TemporaryDirectory() as work:
        inputs = gpu.make_inputs(Path(work), tiny=False)
        for figure in FIGURES:
            if not fnmatch.fnmatch(figure.name, given.only):
                continue
            row = measured(figure, inputs)
            lines = row.pop("lines")
            if not row["values"]:
                complaints.append("\n    ".join([f"{figure.name}: its output has no ratio", *lines[-8:]]))
                continue
            complaints += worse(figure, known.get(figure.name, {}).get("values", {}), row["values"])
            known[figure.name] = row
            print(f"{figure.name:20} {row['seconds']:6.1f} s  {row['values']}", flush=True)
            given.json.write_text(json.dumps(document, indent=1) + "\n")
    if given.gpu is not None:
        document["gpu"] = [row for row in gpu.read(given.gpu) if not row["tiny"]]
    given.json.write_text(json.dumps(document, indent=1) + "\n")
    given.page.write_text(with_table(given.page.read_text(), known))
    print("\n".join(complaints))
    sys.exit(1 if complaints else 0)


if __name__ == "__main__":
    main()
