"""A training that is killed and begun again, or shared by two processes, beside one that nothing disturbs.

    python benchmarks/interrupted.py kill --device cuda
    python benchmarks/interrupted.py processes --device cuda                   # DDP, needs two GPUs
    python benchmarks/interrupted.py processes --device cuda --sharding full   # FSDP2
    python benchmarks/interrupted.py kill --device cpu --tiny

Pre-training of ``tiny/lxmert`` (no dropout). ``kill`` sends SIGKILL to the process once a checkpoint lies on the disk,
and gives the same command again. Prints seconds, and by how much the final weights differ (the norm of the difference
over the norm of the undisturbed weights); exit code 1 where that is more than ``ROUNDING``, on a CPU after ``kill``
more than 0.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor

ROUNDING = 5e-3
SMALLEST = ("images=60", "questions=1", "nlvr2_train=20", "nlvr2_dev=10", "nlvr2_test=10")


def command(output: Path, options: argparse.Namespace, until: str, *more: str) -> list[str]:
    steps, every = (60, 10) if options.tiny else (400, 50)
    words = [f"stages.world.world.{word}" for word in SMALLEST] + ["stages.eyes.steps=3"] if options.tiny else []
    words += [f"stages.pretrain.steps={steps}", "stages.pretrain.epochs=null", f"stages.pretrain.save_every={every}"]
    words += ["--until", until, "--output", str(output), "--device", options.device, "--quiet", *more]
    return [sys.executable, "-m", "vlcli", "run", "tiny/lxmert", *words]


def run(words: list[str]) -> float:
    """Seconds of a command that must succeed."""
    begun = time.monotonic()
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(words[1:])} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return time.monotonic() - begun


def kill_after_checkpoint(words: list[str], output: Path) -> None:
    """Send SIGKILL to a command and its children once its pre-training has a checkpoint."""
    child = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    while not any(output.glob("*/pretrain/checkpoints/step-*")):
        if child.poll() is not None:
            sys.exit(f"{' '.join(words[1:])} ended with {child.returncode} before it had a checkpoint")
        time.sleep(0.02)
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    if any(output.glob("*/pretrain/model")):
        sys.exit("the training ended before it was killed: give it more steps")


def weights(output: Path) -> dict[str, Tensor]:
    (file,) = output.glob("*/pretrain/model/*.safetensors")
    return load_file(file)


def difference(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    apart = sum(float((other[name].double() - value.double()).square().sum()) for name, value in one.items())
    return (apart / sum(float(value.double().square().sum()) for value in one.values())) ** 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["kill", "processes"])
    parser.add_argument("--sharding", choices=["none", "full"], default="none", help="of processes: DDP or FSDP2")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="a world of few pictures, for a rehearsal")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        plain, disturbed = Path(folder) / "plain", Path(folder) / "disturbed"
        run(command(plain, options, "regions"))
        shutil.copytree(plain, disturbed)
        alone = run(command(plain, options, "pretrain"))
        more = []
        if options.what == "processes":
            more = ["--processes", "2", *(["stages.pretrain.sharding=full"] if options.sharding == "full" else [])]
        else:
            kill_after_checkpoint(command(disturbed, options, "pretrain"), disturbed)
        seconds = run(command(disturbed, options, "pretrain", *more))
        apart = difference(weights(plain), weights(disturbed))
    print(f"{options.what} {' '.join(more)}: {seconds:.1f} s, undisturbed {alone:.1f} s; weights differ by {apart:.1e}")
    exact = options.what == "kill" and options.device == "cpu"
    sys.exit(0 if apart <= (0 if exact else ROUNDING) else 1)


if __name__ == "__main__":
    main()
