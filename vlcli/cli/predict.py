"""``vlcli predict MODEL PICTURE... [TEXT]``: what a trained model says of pictures that it has never seen."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vlcli.cli import options as o
from vlcli.cli.guard import guarded
from vlcli.cli.words import refuse_bytes

if TYPE_CHECKING:
    from vlcli.prediction.records import Failure, Prediction, Request, Use

STDIN = "-"
MOST_DRAWN = 60
_HOW, _OUTPUT = "How", "What is shown"


@guarded
def predict(
    model: o.Trained,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="PICTURE... [TEXT]",
            help="Picture files or folders, then a question or sentence; -: JSON lines.",
        ),
    ],
    text: Annotated[str | None, typer.Option("--text", help="The text, where it looks like a file.")] = None,
    task: Annotated[
        str | None,
        typer.Option("--task", help="What to ask a model that can do several things.", autocompletion=o.complete_tasks),
    ] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="How many answers, or pictures for a sentence.")] = 5,
    min_score: Annotated[
        float | None, typer.Option("--min-score", min=0, max=1, help="Leave out boxes below this score.")
    ] = None,
    draw: Annotated[Path | None, typer.Option("--draw", help="Draw pictures, boxes and answers into this PNG.")] = None,
    features: Annotated[
        Path | None, typer.Option("--features", help="A store; pictures whose ids it holds are read from there.")
    ] = None,
    features_from: o.FeaturesFrom = None,
    extractor: o.Extractor = None,
    boxes: Annotated[
        Path | None, typer.Option("--boxes", help="Boxes of the pictures, for extractors of given boxes.")
    ] = None,
    batch_size: Annotated[
        int, typer.Option("--batch-size", min=1, help="Requests answered together.", rich_help_panel=_HOW)
    ] = 16,
    device: o.Device = None,
    plugin: o.Plugin = None,
    json_: Annotated[bool, typer.Option("--json", help="One JSON line a request.", rich_help_panel=_OUTPUT)] = False,
    quiet: o.Quiet = False,
    verbose: o.Verbose = 0,
) -> None:
    """Ask a trained model about pictures that it has never seen.

    vlcli predict RECIPE/STAGE photo.jpg "what colour is the bus?"

    vlcli predict RECIPE/STAGE photos --json

    vlcli predict RECIPE/STAGE - < requests.jsonl
    """
    from vlcli.api import load
    from vlcli.cli import console
    from vlcli.cli.regions import refuse_unknown
    from vlcli.engine.processes import resolve_device
    from vlcli.prediction.requests import read_lines, requests_of, split_words

    o.load_plugins(plugin)
    pictures, said = split_words(words, text)
    refuse_bytes(said)
    named: dict[str, Any] = {"features": features, "features_from": features_from, "boxes": boxes}
    loaded = load(model, **named, extractor=read_extractor(extractor), device=resolve_device(device or "cpu"))
    use = loaded.choose(task).use
    if pictures == [STDIN]:
        asked: Iterable[Request | Failure] = read_lines(sys.stdin)
        count = 0
    else:
        refuse_unknown(loaded, pictures, "predict")
        asked = requests_of(pictures, said, use)
        count = len(asked)
    options: dict[str, Any] = {"task": task, "top": top, "batch_size": batch_size, "min_score": min_score}
    answers = loaded.predict_many(asked, **options)
    with console.progress(verbose, quiet or count == 1).task("predict", count, "requests") as bar:
        _show(use, _told(answers, json_, bar), top, draw, json_, single=count == 1)


def read_extractor(value: str | None) -> dict[str, Any] | None:
    """The mapping of ``--extractor``.

    Raises:
        UsageError: it is no mapping.
    """
    from vlcli.errors import UsageError, shown
    from vlcli.recipe.yaml import scalar

    if value is None:
        return None
    try:
        found = scalar(value)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not found:
        expected = "'{name: backbone, weights: resnet50.pth}', or '{weights: FILE}' for the known one"
        raise UsageError("--extractor is no mapping.", got=shown(value), expected=expected)
    return found


def _told(answers: Iterator[Prediction | Failure], as_json: bool, bar: Any) -> Iterator[Prediction | Failure]:
    """The same answers, each said as JSON when it is there."""
    for found in answers:
        if as_json:
            typer.echo(json.dumps(found.as_dict(), ensure_ascii=False))
        bar.advance()
        yield found


def _show(
    use: Use, answers: Iterable[Prediction | Failure], top: int, draw: Path | None, as_json: bool, single: bool
) -> None:
    from vlcli.cli import console
    from vlcli.prediction.extracting import EITHER, GRID
    from vlcli.prediction.records import Failure
    from vlcli.prediction.requests import failed

    found = list(answers)
    bad = [one for one in found if isinstance(one, Failure)]
    good = [one for one in found if not isinstance(one, Failure)]
    if single and bad and not as_json:
        raise bad[0].error
    for note in dict.fromkeys(chain.from_iterable(one.notes for one in good)):
        console.err(f"note: {note}" + (" (--boxes FILE gives boxes)" if note in (GRID, EITHER) else ""))
    if use.kind == "match" and len({one.text for one in good}) == 1:
        good = sorted(good, key=lambda one: -float(one.prediction))[:top]
    if good and not as_json:
        _tables(use, good)
    if draw is not None and good:
        _draw(good, draw)
    if bad:
        for one in bad:
            console.err(f"{one.as_dict()['key']}: {one.error.what} {one.error.got}".rstrip())
        error = failed(bad, len(found))
        console.err(f"error: {error}")
        raise typer.Exit(error.exit_code)  # not by the guard, which would print a document behind the JSON lines


def _tables(use: Use, found: list[Prediction]) -> None:
    """One prediction with all that is known of it, or several with a row each."""
    from vlcli.cli import console

    if use.kind == "boxes" or (use.kind == "box" and len(found) > 1):
        rows = [
            [one.images[box.image], box.label, f"{box.score:.3f}", *(f"{value:.0f}" for value in box.box)]
            for one in found
            for box in one.boxes
        ]
        if rows:
            console.table(["picture", "label", "score", "x1", "y1", "x2", "y2"], rows)
        for one in found if use.kind == "boxes" else []:
            if not one.boxes:
                best = max(one.get("scores") or [0.0])
                console.err(f"{one.images[0]}: no box; the best score is {best:.3f} (--min-score shows weaker boxes)")
    elif len(found) == 1 and found[0].choices:
        kind = {"answer": "answer", "verdict": "verdict"}.get(use.kind, "label")
        console.table([kind, "probability"], [[one.label, f"{one.probability:.3f}"] for one in found[0].choices])
    elif len(found) == 1:
        console.out(found[0].words())
    else:
        chances = [f"{one.choices[0].probability:.3f}" if one.choices else "" for one in found]
        rows = [[", ".join(one.images), one.words(), chance] for one, chance in zip(found, chances, strict=True)]
        shown = ["picture", "match" if use.kind == "match" else use.kind, "probability"]
        wide = 3 if any(chances) else 2
        console.table(shown[:wide], [row[:wide] for row in rows])


def _draw(found: list[Prediction], file: Path) -> None:
    from vlcli.cli import console
    from vlcli.prediction.drawing import draw_all

    draw_all([(one, one.images) for one in found[:MOST_DRAWN]], file)
    console.err(f"drawn: {file}" + (f" (the first {MOST_DRAWN})" if len(found) > MOST_DRAWN else ""))
