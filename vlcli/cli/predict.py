"""``vlcli predict``, ``ask`` and ``search``: asks a trained model about pictures, or searches among them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Exit, Option

from vlcli.cli import console, options
from vlcli.cli.guard import RunRequest, requested
from vlcli.errors import UsageError, shown
from vlcli.plain import to_plain
from vlcli.recipe import stage_record
from vlcli.recipe.load import slug
from vlcli.recipe.yaml import scalar
from vlcli.registry import names

if TYPE_CHECKING:
    from vlcli.api import Loaded
    from vlcli.prediction.records import Failure, Prediction, Request, Use


def load_model(
    name: str, verb: str, pictures: list[str] | None, device: str | None = None, folder: str = "FOLDER", **named: Any
) -> Loaded:
    """Loads a model as :func:`vlcli.load` does, and refuses pictures whose regions it needs and nobody extracts.

    Args:
        pictures: files, or ids in the store; None: not known beforehand.
        folder: of the pictures, where that is known.
        named: the other options of :func:`vlcli.load`.

    Raises UsageError: names the pictures, the options for an extractor, and the command that extracts the regions.
    """
    from vlcli.api import load
    from vlcli.engine.processes import resolve_device

    loaded = load(name, device=resolve_device(device or "cpu"), **named)
    if pictures is None or not loaded.model.input_spec().regions or loaded.reader.fresh.known:
        return loaded
    trained = None if verb == "search" else loaded.reader.trained  # a folder's pictures are not read by their names
    store = loaded.features if loaded.features is not None else trained
    absent = [one for one in pictures if store is None or store.missing([store.id_of(one)])]
    if absent or store is None:
        lacks = "no store was given" if loaded.features is None else "the store does not hold them"
        extract = "or what extracts them: --features-from STAGE, --extractor '{name: NAME}'"
        more = "" if verb == "search" else f", or ids of pictures in it; {extract}"
        what = f"This model reads regions of pictures, and {lacks}."
        got, expected = ", ".join(absent) or folder, f"--features STORE with these pictures{more}"
        raise UsageError(what, got=got, expected=expected, hint=_extraction(loaded.folder, verb, folder))
    return loaded


def _extraction(model: Path, verb: str, folder: str) -> str:
    # the extraction that the model learnt from, of another folder
    record = stage_record.read(model) or stage_record.read(model.parent)
    recipe, stage = "RECIPE", "STAGE"
    for path in map(Path, record.features if record else []):
        store = path.parent if path.is_file() or path.suffix == ".h5" else path
        if (extract := stage_record.read(store)) is not None:
            known = next((one for one in names("recipes") if extract.recipe in (one, slug(one))), None)
            file = extract.recipe if Path(extract.recipe).is_file() else str(store.parent / "recipe.yaml")
            recipe, stage = known or file, extract.stage
            break
    words = f"stages.{stage}.root={folder} 'stages.{stage}.data={{name: folder, images: .}}'"
    where = ", where FOLDER holds the pictures" if folder == "FOLDER" else ""
    command = f"vlcli extract --recipe {recipe} --only {stage} {words}{where}"
    return f"{command}; then {verb} with --features and the folder it prints"


STDIN = "-"
MOST_DRAWN = 60
_TASK = "What to ask a model that can do several things."
_ASKED = "RECIPE/STAGE or a folder (else a small model of shapes); pictures; a text; -: JSON lines."
_ASKED_ONE = "RECIPE/STAGE or a folder (else a small model of shapes); a text; picture files, or ids in the store."


@requested("device", "plugin", "quiet", "verbose")
def predict(
    request: RunRequest,
    words: Annotated[list[str], Argument(metavar="[MODEL] PICTURE... [TEXT]", help=_ASKED)],
    text: Annotated[str | None, Option(help="The text, where it looks like a file.")] = None,
    task: Annotated[str | None, Option(help=_TASK, autocompletion=options.complete_tasks)] = None,
    top: Annotated[int, Option(min=1, help="How many answers, or pictures for a sentence.")] = 5,
    min_score: Annotated[float | None, Option(min=0, max=1, help="Leave out boxes below this score.")] = None,
    draw: Annotated[Path | None, Option(help="Draw pictures, boxes and answers into this PNG.")] = None,
    features: Annotated[Path | None, Option(help="A store; pictures whose ids it holds are read from there.")] = None,
    features_from: options.FeaturesFrom = None,
    extractor: options.Extractor = None,
    boxes: Annotated[Path | None, Option(help="Boxes of the pictures, for extractors of given boxes.")] = None,
    batch_size: Annotated[int, Option(min=1, help="Requests answered together.", rich_help_panel="How")] = 16,
    json_: Annotated[bool, Option("--json", help="One JSON line a request.", rich_help_panel="What is shown")] = False,
) -> None:
    """Ask a trained model about pictures that it has never seen.

    vlcli predict RECIPE/STAGE photo.jpg "what colour is the bus?"
    vlcli predict RECIPE/STAGE photos --json
    vlcli predict RECIPE/STAGE - < requests.jsonl
    """
    from vlcli.prediction.pictures import is_file
    from vlcli.prediction.records import read_lines, requests_of, split_words

    model, words = _model_of(words, is_file(words[0]) or words[0] == STDIN)
    pictures, said = split_words(words, text)
    options.refuse_bytes(said)
    sources: dict[str, Any] = {"features": features, "features_from": features_from, "boxes": boxes}
    sources["extractor"], piped = read_extractor(extractor), pictures == [STDIN]
    refuse_over(draw, pictures)
    loaded = load_model(model, "predict", None if piped else pictures, request.device, **sources)
    use = loaded.choose(task).use
    asked: Iterable[Request | Failure] = read_lines(sys.stdin) if piped else requests_of(pictures, said, use)
    count = len(asked) if isinstance(asked, list) else 0
    answers = loaded.predict_many(asked, task=task, top=top, batch_size=batch_size, min_score=min_score)
    shown = []
    with console.progress(request.verbose, request.quiet or count == 1).task("predict", count, "requests") as bar:
        for answer in answers:
            if json_:
                console.out(json.dumps(answer.as_dict(), ensure_ascii=False))
                console.flush()
            bar.advance()
            shown.append(answer)
        _show(use, shown, top, draw, json_, alone=count == 1)


def _model_of(words: list[str], without: bool) -> tuple[str, list[str]]:
    from vlcli.prediction.sources import SMALL

    model, words = (SMALL, words) if without else (words[0], words[1:])
    if len(words) < 1 + without and model == SMALL:
        raise UsageError("Name a picture and a question.", got=" ".join(words), hint="vlcli ask 'QUESTION' PICTURE")
    return model, words


def read_extractor(value: str | None) -> dict[str, Any] | None:
    """Returns the mapping of ``--extractor``."""
    if value is None:
        return None
    spec = None
    with suppress(ValueError):
        spec = scalar(value)
    if not isinstance(spec, dict) or not spec:
        expected = "'{name: backbone, weights: resnet50.pth}', or '{weights: FILE}' for the known one"
        raise UsageError("--extractor is no mapping.", got=shown(value), expected=expected)
    return spec


def _show(use: Use, answers: list[Prediction | Failure], top: int, draw: Path | None, json_: bool, alone: bool) -> None:
    from vlcli.prediction.extracting import EITHER, GRID
    from vlcli.prediction.records import Failure, failed

    bad = [one for one in answers if isinstance(one, Failure)]
    good = [one for one in answers if not isinstance(one, Failure)]
    if bad and alone and not json_:
        raise bad[0].error
    for note in dict.fromkeys(chain.from_iterable(one.notes for one in good)):
        console.err(f"note: {note}" + (" (--boxes FILE gives boxes)" if note in (GRID, EITHER) else ""))
    if use.kind == "match" and len({one.text for one in good}) == 1:
        good = sorted(good, key=lambda one: -float(one.prediction))[:top]
    if good and not json_:
        _tables(use, good)
    if draw is not None and good:
        from vlcli.prediction.drawing import draw_all

        draw_all([(one, one.images) for one in good[:MOST_DRAWN]], draw)
        console.err(f"drawn: {draw}" + (f" (the first {MOST_DRAWN})" if len(good) > MOST_DRAWN else ""))
    if bad:
        console.err_lines(f"{one.as_dict()['key']}: {one.error.what} {one.error.got}".rstrip() for one in bad)
        error = failed(bad, len(answers))
        console.err(f"error: {error}")
        raise Exit(error.exit_code)  # not by the guard, which would print a document behind the JSON lines


def _tables(use: Use, answers: list[Prediction]) -> None:
    if use.kind == "boxes" or (use.kind == "box" and len(answers) > 1):
        rows = [
            [one.images[box.image], box.label, f"{box.score:.3f}", *(f"{value:.0f}" for value in box.box)]
            for one in answers
            for box in one.boxes
        ]
        if rows:
            console.table(["picture", "label", "score", "x1", "y1", "x2", "y2"], rows)
        for one in answers if use.kind == "boxes" else []:
            if not one.boxes:
                best = max(one.get("scores") or [0.0])
                console.err(f"{one.images[0]}: no box; the best score is {best:.3f} (--min-score shows weaker boxes)")
    elif len(answers) == 1 and answers[0].choices:
        kind = use.kind if use.kind in ("answer", "verdict") else "label"
        console.table([kind, "probability"], [[one.label, f"{one.probability:.3f}"] for one in answers[0].choices])
    elif len(answers) == 1:
        console.out(answers[0].words())
    else:
        chances = [f"{one.choices[0].probability:.3f}" if one.choices else "" for one in answers]
        rows = [[", ".join(one.images), one.words(), chance] for one, chance in zip(answers, chances, strict=True)]
        columns = ["picture", use.kind, "probability"]
        wide = 3 if any(chances) else 2
        console.table(columns[:wide], [row[:wide] for row in rows])


@requested("plugin", "json_")
def ask(
    request: RunRequest,
    words: Annotated[list[str], Argument(metavar="[MODEL] TEXT PICTURE...", help=_ASKED_ONE)],
    features: options.Features = None,
    features_from: options.FeaturesFrom = None,
    extractor: options.Extractor = None,
    top: Annotated[int, Option(min=1, help="How many answers.")] = 5,
) -> None:
    """Ask a trained model: the best answers to a question, else what its task predicts.

    The text may also stand behind the pictures, as in `vlcli predict`.
    """
    from vlcli.prediction.pictures import is_file

    model, (text, *pictures) = _model_of(words, len(words) < 3)
    if is_file(text) and not is_file(pictures[-1]):
        text, pictures = pictures[-1], [text, *pictures[:-1]]
    options.refuse_bytes(text)
    sources: dict[str, Any] = {"features": features, "features_from": features_from}
    loaded = load_model(model, "ask", pictures, extractor=read_extractor(extractor), **sources)
    images = pictures[0] if len(pictures) == 1 else pictures
    if loaded.answerer is None and loaded.ranker is None:
        silent = bool(loaded.uses) and loaded.use.text == "none"
        if silent and text:
            console.err(f"{loaded.use.name} takes no text: {shown(text, 60)} is not read")
        facts = {key: to_plain(value) for key, value in loaded.predict(None if silent else text, images).items()}
        cells = [[key, str(value)] for key, value in facts.items() if key != "key"]
        columns = ["what", "value"]
    else:
        answers = loaded.answers(text, images, top)
        facts = {"answers": [{"answer": answer, "probability": chance} for answer, chance in answers]}
        cells = [[answer, f"{chance:.3f}"] for answer, chance in answers]
        columns = ["answer", "probability"]
    console.out_json(facts) if request.json_ else console.table(columns, cells)


@requested("device", "json_", "quiet", "verbose")
def search(
    request: RunRequest,
    model: options.Trained,
    text: Annotated[str | None, Argument(help="What to look for: a sentence.", show_default=False)] = None,
    images: Annotated[Path | None, Option("--pictures", help="The folder of pictures to search.")] = None,
    image: Annotated[Path | None, Option("--picture", help="Look for what is like this picture.")] = None,
    texts: Annotated[Path | None, Option(help="With --picture: rank the sentences of this file, one a line.")] = None,
    top: Annotated[int, Option(min=1, help="How many are shown.")] = 10,
    sheet: Annotated[Path | None, Option("--draw", help="Draw what was found into this PNG.")] = None,
    store: Annotated[Path | None, Option(help="Where the vectors are kept; default: beside the folder.")] = None,
    features: options.Features = None,
    objective: Annotated[str, Option(help="What embeds, where several objectives do.")] = "contrast",
    backend: Annotated[Literal["exact", "faiss"], Option(help="Exact products, or FAISS.")] = "exact",
    memory: Annotated[int, Option(min=1, help="MiB a search may hold.")] = 256,
    batch_size: Annotated[int, Option(min=1, help="Pictures embedded at a time.")] = 32,
    workers: Annotated[int, Option(min=1, help="Threads that read pictures.")] = 2,
) -> None:
    """Search a folder of pictures with a trained model that has learnt contrast.

    vlcli search RECIPE/STAGE "a red circle" --pictures FOLDER --top 5 --draw found.png
    vlcli search RECIPE/STAGE --picture one.png --pictures FOLDER
    """
    if (not (text or "").strip()) == (image is None):
        got = "neither" if image is None else "both"
        raise UsageError("Look for a sentence or for a picture.", got=got, expected='"a sentence", or --picture FILE')
    if (images is None) == (texts is None) or (texts is not None and (image is None or sheet is not None)):
        expected = "--pictures FOLDER; or --picture FILE and --texts FILE, without --draw"
        raise UsageError("Say what is to be searched.", expected=expected)
    options.refuse_bytes(text)
    refuse_over(sheet, [one for one in (image, images) if one is not None])
    pictures = None if texts is not None and features is not None else [] if image is None else [str(image)]
    loaded = load_model(model, "search", pictures, request.device, str(images or "FOLDER"), features=features)
    if image is not None and texts is not None:
        from vlcli.tools.search import rank, read_sentences

        sentences = read_sentences(texts)
        vectors = loaded.embed_text(sentences, objective)
        ranked = rank(loaded.embed_image(image, objective)[0], vectors, sentences, top)
        _tell({"query": str(image), "sentences": len(sentences)}, ranked, "text", "sentence", request.json_)
        return
    assert images is not None
    progress = request.progress()
    how: dict[str, Any] = {"store": store, "batch_size": batch_size, "workers": workers, "progress": progress}
    index = loaded.index(images, objective=objective, **how)
    query = loaded.embed_text(text or "", objective) if image is None else loaded.embed_image(image, objective)
    nearest = index.nearest(query[0], top, memory=memory, backend=backend)
    if sheet is not None:
        draw(nearest, sheet, text or Path(str(image)).name)  # its folders would push the name off the sheet
    kept = {"store": str(index.store.path), **({"sheet": str(sheet)} if sheet else {})}
    _tell({"query": text or str(image), **index.counts, **kept}, nearest, "picture", "picture", request.json_)
    if not request.json_:
        progress.info(", ".join(f"{count} {name}" for name, count in index.counts.items()))


def _tell(facts: dict[str, Any], nearest: Sequence[tuple[Any, float]], key: str, head: str, json_: bool) -> None:
    rows = [{"rank": rank, key: str(item), "score": score} for rank, (item, score) in enumerate(nearest, 1)]
    cells = [[str(rank), f"{score:.3f}", str(item)] for rank, (item, score) in enumerate(nearest, 1)]
    console.out_json({**facts, "found": rows}) if json_ else console.table(["rank", "score", head], cells)


def refuse_over(sheet: Path | None, pictures: Sequence[str | Path]) -> None:
    """Refuses to draw over one of the pictures that are asked about."""
    if sheet and sheet.exists() and any(sheet.absolute().is_relative_to(Path(p).absolute()) for p in pictures):
        what, hint = "This file is one of the pictures, and would be replaced.", "name another file: --draw FILE"
        raise UsageError(what, where=str(sheet), hint=hint)


def draw(nearest: list[tuple[Path, float]], sheet: Path, query: str) -> None:
    """Draws the pictures that were found, best first, into one PNG."""
    from vlcli.data.images import load_image
    from vlcli.drawings.base import save_picture
    from vlcli.report.sheet import INK, Cell, contact_sheet

    labels = [f"{number}. {score:.3f} {path.name}" for number, (path, score) in enumerate(nearest, 1)]
    cells = [Cell(load_image(path), [(label, INK)]) for (path, _), label in zip(nearest, labels, strict=True)]
    heading = (f"nearest to: {query}", "#1f5fbf")
    save_picture(contact_sheet(cells, columns=min(5, len(cells)), width=200, heading=heading), sheet)
