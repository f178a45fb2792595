"""Draws the cost of encodings: multiply-accumulates by resolution (Figure 4), measured time and memory (Figure 10)."""

import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from vlcli import registry
from vlcli.drawings import DrawingContext, new_figure, save_numbers, save_picture
from vlcli.errors import UsageError
from vlcli.nn import DataSpec, Model, model_macs
from vlcli.registry import Spec
from vlcli_irpe.figures import Plot

SIDES = {"K": ["key"], "QK": ["query", "key"], "QKV": ["query", "key", "value"]}
# Product with 50 buckets (iRPE), and what Figure 10 compares it with as supplement 4 sets it up
ENCODINGS: dict[str, Spec | None] = {
    "none": None,
    **{label: {"name": label.lower()} for label in ("Shaw", "Transformer-XL", "Huang", "SASA")},
    **{f"iRPE {label}": {"name": "irpe", "sides": sides} for label, sides in SIDES.items()},
}
Size = Literal["tiny", "small", "base"]


class ExtraMacs(Plot):
    """Multiply-accumulates that iRPE adds to DeiT, by resolution and implementation (Figure 4).

    *Per bucket* is what runs here: every token meets every bucket once (Eq. 27). *Per pair* multiplies a vector for
    every pair of tokens (Eq. 15).

    Args:
        size: of DeiT.
        resolutions: sides of the picture in pixels.
        sides: K, QK or QKV, one line each.
    """

    paper = "iRPE, Wu et al., ICCV 2021, Figure 4"

    def __init__(
        self,
        *,
        size: Size = "small",
        resolutions: list[int] = [224, 288, 384, 512, 640, 800],  # noqa: B006
        sides: list[Literal["K", "QK", "QKV"]] = ["K", "QKV"],  # noqa: B006
    ) -> None:
        self.size, self.resolutions, self.sides = size, resolutions, sides

    def draw(self, scene: DrawingContext) -> list[Path]:
        rows = []
        with scene.progress.task("count", len(self.resolutions), "px") as bar:
            for pixels in self.resolutions:
                rows.append(self._row(pixels))
                bar.advance()
        figure = new_figure(10, 4.2)
        left, right = figure.subplots(1, 2)
        for label in self.sides:
            for way, style in (("per bucket", "-"), ("per pair", "--")):
                extra = [row["extra"][f"{label}, {way}"] for row in rows]
                share = [100 * more / row["none"] for more, row in zip(extra, rows, strict=True)]
                left.plot(self.resolutions, [more / 1e9 for more in extra], style, marker="o", label=f"{label}, {way}")
                right.plot(self.resolutions, share, style, marker="o", label=f"{label}, {way}")
        for axes, unit in ((left, "extra multiply-accumulates (billions)"), (right, "extra, % of the model")):
            axes.set(xlabel="resolution", ylabel=unit, yscale="log")
            axes.grid(alpha=0.3)
            axes.legend(fontsize=8)
        return [save_picture(figure, scene.folder / "macs.png"), save_numbers(rows, scene.folder / "macs.json")]

    def _row(self, pixels: int) -> dict[str, Any]:
        bare, model = self._macs(pixels, None)
        tokens = model.grid[0] * model.grid[1] + model.specials
        extra = {}
        for label in self.sides:
            extra[f"{label}, per bucket"] = self._macs(pixels, ENCODINGS[f"iRPE {label}"])[0] - bare
            extra[f"{label}, per pair"] = len(label) * model.depth * tokens**2 * model.dim
        return {"resolution": pixels, "tokens": tokens, "none": bare, "extra": extra}

    def _macs(self, pixels: int, position: Spec | None) -> tuple[int, Any]:
        with torch.device("meta"):
            model = deit(size=self.size, image_size=pixels, position=position)
        return sum(model_macs(model, model.input_spec(), model.data_spec).values()), model


@dataclass(frozen=True)
class Trial:
    """One measurement: DeiT's size, side of a picture, pictures a batch, forward and backward or forward alone."""

    size: str
    pixels: int
    batch: int
    train: bool
    device: str
    dtype: str


class Speed(Plot):
    """Time and memory of DeiT with encodings, to the same model without, measured on this machine (Figure 10).

    Every round times each model once, in an order that turns; a ratio is the median over rounds. Memory is the peak of
    two steps, weights included: on a GPU what was allocated, else what a process of its own held beyond its imports.

    Args:
        size: of DeiT.
        resolution: side of the picture in pixels.
        batch: pictures at a time.
        rounds: how often each is timed.
        encodings: which ones; ``none`` is always there.
        train: forward and backward instead of inference.
        dtype: float32, bfloat16 or float16.
    """

    paper = "iRPE, Wu et al., ICCV 2021, Figure 10"

    def __init__(
        self,
        *,
        size: Size = "small",
        resolution: int = 224,
        batch: int = 8,
        rounds: int = 5,
        encodings: list[str] | None = None,
        train: bool = False,
        dtype: Literal["float32", "bfloat16", "float16"] = "float32",
    ) -> None:
        if unknown := [name for name in encodings or [] if name not in ENCODINGS]:
            expected = ", ".join(ENCODINGS)
            raise UsageError("No such encoding.", where="drawing irpe-speed", got=unknown[0], expected=expected)
        self.names = list(dict.fromkeys(["none", *(encodings or ENCODINGS)]))
        self.rounds = rounds
        self.trial = Trial(size, resolution, batch, train, "cpu", dtype)

    def draw(self, scene: DrawingContext) -> list[Path]:
        trial = replace(self.trial, device=str(scene.device))
        times = self._times(trial, scene)
        peaks = {}
        with scene.progress.task("memory", len(self.names), "model") as bar:
            for name in self.names:
                peaks[name] = peak(trial, name)
                bar.advance()
        rows = [
            {
                "encoding": name,
                "seconds": times[name],
                "images_per_second": trial.batch / min(times[name]),
                "time_ratio": statistics.median(t / base for t, base in zip(times[name], times["none"], strict=True)),
                "peak_mib": peaks[name],
                "memory_ratio": peaks[name] / peaks["none"],
            }
            for name in self.names
        ]
        facts = {"trial": vars(trial), "torch": torch.__version__, "threads": torch.get_num_threads(), "rows": rows}
        figure = self._figure(rows, trial)
        return [save_picture(figure, scene.folder / "speed.png"), save_numbers(facts, scene.folder / "speed.json")]

    def _times(self, trial: Trial, scene: DrawingContext) -> dict[str, list[float]]:
        steps = {name: step_of(trial, name) for name in self.names}
        for step in steps.values():
            step()
        times: dict[str, list[float]] = {name: [] for name in self.names}
        with scene.progress.task("time", self.rounds, "round") as bar:
            for number in range(self.rounds):
                turn = number % len(self.names)
                for name in self.names[turn:] + self.names[:turn]:
                    begin = _clock(trial)
                    steps[name]()
                    times[name].append(_clock(trial) - begin)
                bar.advance()
        return times

    def _figure(self, rows: Sequence[Mapping[str, Any]], trial: Trial) -> Any:
        figure = new_figure(10, 4.2)
        panels = {"time_ratio": "time", "memory_ratio": "peak memory"}
        for axes, (key, label) in zip(figure.subplots(1, 2), panels.items(), strict=True):
            bars = axes.bar([row["encoding"] for row in rows], [row[key] for row in rows], color="#4363d8")
            axes.bar_label(bars, fmt="%.2f", fontsize=8)
            axes.axhline(1.0, color="0.4", linewidth=0.8)
            axes.set_ylabel(f"{label}, to the model without")
            axes.tick_params(axis="x", rotation=40, labelsize=8)
        way, base = "forward and backward" if trial.train else "forward", rows[0]
        figure.suptitle(
            f"DeiT {trial.size}, {trial.pixels} px, batch {trial.batch}, {way}, {trial.device} {trial.dtype}; without: "
            f"{base['images_per_second']:.1f} images/s, {base['peak_mib']:.0f} MiB",
            fontsize=9,
        )
        return figure


def deit(**options: Any) -> Any:
    """Returns the registered model ``deit`` for ImageNet's classes, with these options."""
    return registry.of(Model).build({"name": "deit", **options}, DataSpec())


def step_of(trial: Trial, name: str) -> Callable[[], None]:
    """Returns a function that runs one step of DeiT with an encoding."""
    torch.manual_seed(0)
    model = deit(size=trial.size, image_size=trial.pixels, position=ENCODINGS[name], drop_path=0.0)
    dtype = getattr(torch, trial.dtype)
    model = model.to(trial.device, dtype).train(trial.train)
    pixels = torch.randn(trial.batch, 3, trial.pixels, trial.pixels, device=trial.device, dtype=dtype)

    def step() -> None:
        with torch.set_grad_enabled(trial.train), torch.inference_mode(not trial.train):
            scores = model(pixels)
        if trial.train:
            scores.float().square().mean().backward()
            model.zero_grad()

    return step


def _clock(trial: Trial) -> float:
    if trial.device.startswith("cuda"):
        torch.cuda.synchronize()
    alone = trial.device == "cpu" and torch.get_num_threads() == 1  # then other programs do not count
    return time.process_time() if alone else time.perf_counter()


def peak(trial: Trial, name: str) -> float:
    """Returns the peak memory in MiB of two steps."""
    if trial.device.startswith("cuda"):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        _twice(trial, name)
        return torch.cuda.max_memory_allocated() / 2**20
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_resident, trial, name, torch.get_num_threads()).result()


def _twice(trial: Trial, name: str) -> None:
    step = step_of(trial, name)
    step()
    step()


def _resident(trial: Trial, name: str, threads: int) -> float:
    torch.set_num_threads(threads)
    before = _high_water()
    _twice(trial, name)
    return _high_water() - before


def _high_water() -> float:
    # The most memory in MiB that this process has held at a time.
    status = Path("/proc/self/status")
    if status.is_file():  # getrusage would count what the parent held before this program was started in its place
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    import resource

    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
