"""Shows examples of evaluate stages on a page: what was right by kind, samples, and where a model looks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vlcli.pages.album import Thumbnails
from vlcli.pages.breakdown import breakdowns_of
from vlcli.pages.samples import Samples, samples_of
from vlcli.pages.scores import Group
from vlcli.progress import Progress

_SAMPLES = 36  # samples of each group of evaluate stages
# Models whose attention is shown, over all groups
MODELS = 3
# Sections of ``examples.html``: id and title by the key of :func:`examples_of`
EXAMPLE_SECTIONS = {
    "breakdowns": ("breakdown", "Breakdown"),
    "samples": ("samples", "Samples"),
    "looks": ("attention", "Attention"),
}


@dataclass(frozen=True)
class ReportOptions:
    """Contents of a report; ``samples`` of each group of evaluate stages, 0 leaves pictures out."""

    samples: int = _SAMPLES
    model: bool = True
    device: str = "auto"


def examples_of(
    groups: Sequence[Group], album: Thumbnails, options: ReportOptions, progress: Progress
) -> dict[str, Any]:
    """Return what the template ``examples.html`` shows of some groups; pictures are added to the album."""
    samples = []
    with progress.task("samples", len(groups), "stages") as bar:
        for group in groups:
            part = samples_of(group, options.samples, album, progress, options.device)
            samples += [] if part is None else [part]
            bar.advance()
    looks, notes = _looks(samples, options, progress)
    breakdowns = [(part.group, tables) for part in samples if (tables := breakdowns_of(part))]
    return {"breakdowns": breakdowns, "samples": samples, "looks": looks, "look_notes": notes, "thumbnails": album.all}


def _looks(
    samples: Sequence[Samples], options: ReportOptions, progress: Progress
) -> tuple[list[dict[str, Any]], list[str]]:
    if not options.model or not samples:
        return [], []
    from vlcli.pages.looks import MOST_BYTES, looks_of

    looks: list[dict[str, Any]] = []
    notes: list[str] = []
    several = len({column.run for part in samples for column in part.group.columns}) > 1
    with progress.task("attention", min(len(samples), MODELS), "models") as bar:
        for part in samples:
            if len(looks) == MODELS:
                break
            faults = []
            for number, column in enumerate(part.group.columns):
                title = column.label if several else column.stage.name
                found, more = looks_of(part, number, title, MOST_BYTES // MODELS, progress, options.device)
                faults += more
                if found:
                    looks.append({"title": title, "examples": found})
                    break
            else:
                notes += faults[:1]
            bar.advance()
    return looks, notes
