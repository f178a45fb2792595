"""What is measured where a GPU can be had, in pieces of a few minutes, each a line of JSON.

    python benchmarks/gpu.py --json gpu.jsonl                 # every piece that the file does not have yet
    python benchmarks/gpu.py --json gpu.jsonl --budget 1500   # start none that may not end in these seconds (2400)
    python benchmarks/gpu.py --json gpu.jsonl --table         # what the file has
    python benchmarks/gpu.py --list
    python benchmarks/gpu.py --json cpu.jsonl --device cpu --tiny --only "irpe-*"

Each piece is a command of this folder or of vlcli in a process of its own, ended after ``LIMIT`` seconds. A line has
the piece, its command, state (``done``, ``failed``, ``too long``), seconds, device, versions, the last lines printed
and the ratio among them. Lines are added when a piece ends: killed and begun again, the rest is done. A piece that
failed is tried again. Captions, words and pictures are made; nothing is downloaded.
"""

from __future__ import annotations

import argparse
import fnmatch
import importlib.metadata
import json
import os
import re
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

HERE = Path(__file__).resolve().parent
LIMIT = 470
"""Seconds after which a piece is ended."""
KEPT = 30
"""Last lines of a piece's output that are kept."""
VERSIONS = ("torch", "transformers", "timm", "torchvision", "numpy")


@dataclass(frozen=True)
class Piece:
    """One measurement.

    Attributes:
        name: by which it is found again.
        words: the command; ``{device}``, ``{captions}``, ``{vocabulary}``, ``{pictures}`` and ``{runs}`` are put in.
        tiny: words that replace or follow them where ``--tiny`` asks for the smallest sizes.
        about: seconds it is expected to take on a GPU.
        gpus: GPUs that it needs; with fewer it is left out.
    """

    name: str
    words: str
    tiny: str
    about: int = 80
    gpus: int = 1


def _irpe(size: int, batch: int, *more: str, sides: str = "") -> Piece:
    """DeiT with encodings; of compiled models a few at a time, since compiling one takes up to a minute."""
    name = "-".join(["irpe", str(size), *(word.strip("-") for word in more or ("forward",)), *sides.split()])
    words = f"irpe.py --device {{device}} --dtype bfloat16 --size {size} --batch {batch} --rounds 25 {' '.join(more)}"
    words += f" --models 'none, fused' {sides}" if sides else ""
    few = f"--models {sides.split(maxsplit=1)[0]}" if sides else ""
    tiny = f"--model tiny --size 32 --batch 1 --rounds 1 --dtype float32 {few}"
    return Piece(name, words, tiny, 150 if "--compile" in more else 60)


def _flex(size: int, batch: int) -> Piece:
    words = f"irpe.py --device {{device}} --dtype bfloat16 --size {size} --batch {batch} --rounds 25 --train"
    models = "--models 'none, fused' 'none, explicit' K QK 'flex K' 'flex QK'"
    tiny = "--model tiny --size 32 --batch 1 --rounds 1 --dtype float32 --no-train"  # a CPU's flex has no backward pass
    return Piece(f"irpe-{size}-flex", f"{words} {models}", tiny)


def _interrupted(name: str, words: str, gpus: int = 1) -> Piece:
    return Piece(name, f"interrupted.py {words} --device {{device}}", "--tiny", 90, gpus)


STEP = "--captions {captions} --vocabulary {vocabulary} --device {device}"
QUICK = "vlcli run quickstart --output {runs} --device {device}"
SMALLEST = (
    "stages.world.world.images=40 stages.world.world.nlvr2_train=40 stages.world.world.nlvr2_pool=20 "
    "stages.world.world.nlvr2_dev=10 stages.world.world.nlvr2_test=10 stages.detector.steps=2 stages.pretrain.steps=2"
)
PIECES = [
    Piece("parity", "parity.py --device {device}", "--tiny", 150),
    _interrupted("kill", "kill"),
    _interrupted("ddp", "processes", 2),
    _interrupted("fsdp2", "processes --sharding full", 2),
    *(_irpe(size, batch, *more) for size, batch in ((224, 128), (384, 32)) for more in ((), ("--train",))),
    *(_irpe(size, batch, "--train", "--compile", sides=sides)
      for size, batch in ((224, 128), (384, 32)) for sides in ("K", "QK QKV")),
    _irpe(384, 32, "--memory"),
    _flex(224, 128),
    _flex(384, 32),
    Piece("lxmert-step", f"lxmert_step.py {STEP} --batch 128 --steps 30 --workers 4",
          "--hidden 32 --heads 4 --layers 1 1 1 --batch 2 --steps 1 --workers 0"),
    Piece("vlmo-step", f"vlmo_step.py {STEP} --batch 32 --steps 20", "--pixels 32 --batch 2 --steps 1"),
    Piece("ace-rpe-384", "ace_rpe_model.py --device {device} --bf16 --sizes 384 --batch 16 --steps 20",
          "--sizes 32 --batch 1 --steps 1"),
    Piece("beam", "beam.py --device {device} --hidden 768 --layers 12 --batch 64 --images 512",
          "--images 2 --batch 2 --hidden 32 --layers 1 --words 3 --vocabulary 200"),
    Piece("extraction", "extraction.py {pictures} --device {device} --count 256 --part 64 --workers 8",
          "--count 4 --part 2 --workers 0 --arch resnet18"),
    Piece("loader", "loader.py --device {device} --images 4000 --batch 256 --steps 40 --hidden 768 --workers 4 8 12",
          "--images 12 --batch 4 --steps 1 --hidden 32 --workers 0"),
    Piece("quickstart", QUICK, f"--until pretrain {SMALLEST}", 420),
    Piece("fp16", f"{QUICK} --until pretrain stages.pretrain.precision=fp16",
          f"{SMALLEST} stages.pretrain.precision=bf16"),
]  # fmt: skip


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="file of lines, which grows")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", default="*", help="pieces by name, with * and ?")
    parser.add_argument("--budget", type=float, default=2400, help="seconds in all (2400)")
    parser.add_argument("--work", type=Path, help="folder for what is made and for runs; else beside the file")
    parser.add_argument("--tiny", action="store_true", help="the smallest sizes, to see that all of it runs")
    parser.add_argument("--list", action="store_true", help="print the pieces and end")
    parser.add_argument("--table", action="store_true", help="print what the file has and end")
    given = parser.parse_args()
    if not given.list and given.json is None:
        parser.error("--json FILE says where the lines go")
    return given


def make_inputs(folder: Path, tiny: bool) -> dict[str, str]:
    """Captions, a vocabulary and pictures, made once."""
    from PIL import Image

    draw = np.random.default_rng(0)
    words = [a + b for a in ("ba", "ko", "mi", "tu") for b in ("lo", "na", "pe", "si")]
    (folder / "pictures").mkdir(parents=True, exist_ok=True)
    specials = ["[PAD]", *(f"[unused{n}]" for n in range(99)), "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    rows = [*specials, *words, *(f"[word{n}]" for n in range(30522 - len(specials) - len(words)))]
    (folder / "vocabulary.txt").write_text("\n".join(rows) + "\n")
    names = [{"id": n, "file_name": f"{n}.jpg", "height": 480, "width": 640} for n in range(20 if tiny else 5000)]
    texts = [" ".join(draw.choice(words, draw.integers(6, 17))) for _ in names]
    notes = [{"id": n, "image_id": n, "caption": text} for n, text in enumerate(texts)]
    (folder / "captions.json").write_text(json.dumps({"images": names, "annotations": notes}))
    for number in range(4 if tiny else 256):
        small = Image.fromarray(draw.integers(0, 256, (30, 40, 3), np.uint8))
        small.resize((640, 480)).save(folder / "pictures" / f"{number}.jpg")
    return {
        "captions": str(folder / "captions.json"),
        "vocabulary": str(folder / "vocabulary.txt"),
        "pictures": str(folder / "pictures"),
        "runs": str(folder / "runs"),
    }


def command(piece: Piece, inputs: dict[str, str], given: argparse.Namespace) -> list[str]:
    """The command line of a piece."""
    words = [word.format(device=given.device, **inputs) for word in shlex.split(piece.words)]
    words += shlex.split(piece.tiny) if given.tiny else []
    first = ["-m", "vlcli"] if words[0] == "vlcli" else [str(HERE / words[0])]
    return [sys.executable, *first, *words[1:]]


def measured(piece: Piece, words: list[str], device: str, *, tiny: bool) -> dict[str, Any]:
    """Run a piece; its line."""
    begun, state = time.monotonic(), "done"
    try:
        made = subprocess.run(
            words, capture_output=True, text=True, timeout=LIMIT, check=False, env={**os.environ, "NO_COLOR": "1"}
        )
        printed, state = made.stdout, "done" if made.returncode == 0 else "failed"
        printed += "" if made.returncode == 0 else made.stderr
    except subprocess.TimeoutExpired as error:
        printed, state = (error.stdout or b"").decode(errors="replace"), "too long"
    lines = printed.splitlines()[-KEPT:]
    return {
        "piece": piece.name,
        "state": state,
        "seconds": round(time.monotonic() - begun, 1),
        "ratio": next((float(n) for line in reversed(lines) for n in re.findall(r"ratio +([0-9.]*[0-9])", line)), None),
        "device": device_name(device),
        "tiny": tiny,
        "command": " ".join(words[1:]),
        "versions": {name: version(name) for name in VERSIONS},
        "lines": lines,
    }


def device_name(device: str) -> str:
    """The device in words."""
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else device


def version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of the file; a half-written last one does not count."""
    rows = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows


def add(path: Path, row: dict[str, Any]) -> None:
    """Add a line, on the disk when this returns."""
    with path.open("a+") as file:
        file.seek(max(0, file.tell() - 1))
        cut = file.read(1) not in ("", "\n")  # killed while it wrote
        file.write(("\n" if cut else "") + json.dumps(row) + "\n")
        file.flush()
        os.fsync(file.fileno())


def show(rows: list[dict[str, Any]]) -> None:
    """The newest line of every piece."""
    newest = {(row["piece"], row["device"]): row for row in rows}
    for row in newest.values():
        ratio = "" if row["ratio"] is None else f"ratio {row['ratio']}"
        print(f"{row['piece']:24} {row['state']:9} {row['seconds']:7.1f} s  {ratio:14} {row['device']}")
        for line in row["lines"] if row["state"] != "done" or row["ratio"] is None else []:
            print(f"    {line}")


def main() -> None:
    given = arguments()
    pieces = [piece for piece in PIECES if fnmatch.fnmatch(piece.name, given.only)]
    if given.list:
        for piece in pieces:
            print(f"{piece.name:24} about {piece.about} s  {piece.words}")
        return
    if given.table:
        show(read(given.json))
        return
    if given.device.startswith("cuda") and not torch.cuda.is_available():
        sys.exit("There is no GPU here that torch can use; --device cpu --tiny tries the commands on the processor.")
    work = given.work or given.json.parent / f"{given.json.stem}.work"
    inputs, begun, device = make_inputs(work, given.tiny), time.monotonic(), device_name(given.device)
    kept = read(given.json)
    done = {
        row["piece"] for row in kept if row["state"] == "done" and row["device"] == device and row["tiny"] == given.tiny
    }
    failed = 0
    for piece in pieces:
        if piece.name in done:
            continue
        if given.device.startswith("cuda") and torch.cuda.device_count() < piece.gpus:
            print(f"{piece.name}: needs {piece.gpus} GPUs")
            continue
        if time.monotonic() - begun + piece.about > given.budget:
            print(f"{piece.name}: no time left for it")
            continue
        row = measured(piece, command(piece, inputs, given), given.device, tiny=given.tiny)
        add(given.json, row)
        show([row])
        failed += row["state"] != "done"
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
