"""``vlcli search TEXT --from MODEL --images FOLDER``: pictures by a sentence or a picture, sentences by a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from vlcli.cli import options as o
from vlcli.cli.guard import guarded
from vlcli.cli.words import refuse_bytes


@guarded
def search(
    text: Annotated[str | None, typer.Argument(help="What to look for: a sentence.", show_default=False)] = None,
    model: Annotated[
        str, typer.Option("--from", help="A stage's folder, RECIPE/STAGE under runs/, or an exported model.")
    ] = "",
    images: Annotated[Path | None, typer.Option("--images", help="The folder of pictures to search.")] = None,
    image: Annotated[Path | None, typer.Option("--image", help="Look for what is like this picture.")] = None,
    texts: Annotated[
        Path | None, typer.Option("--texts", help="With --image: rank the sentences of this file, one a line.")
    ] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="How many are shown.")] = 10,
    sheet: Annotated[Path | None, typer.Option("--sheet", help="Draw what was found into this PNG.")] = None,
    store: Annotated[
        Path | None, typer.Option("--store", help="Where the vectors are kept; default: beside the folder.")
    ] = None,
    features: Annotated[
        Path | None, typer.Option("--features", help="For models that read regions: a store or its stage's folder.")
    ] = None,
    objective: Annotated[
        str, typer.Option("--objective", help="What embeds, where several objectives do.")
    ] = "contrast",
    backend: Annotated[o.Backend, typer.Option("--backend", help="Exact products, or FAISS.")] = o.Backend.exact,
    memory: Annotated[int, typer.Option("--memory", min=1, help="MiB a search may hold.")] = 256,
    batch_size: Annotated[int, typer.Option("--batch-size", min=1, help="Pictures embedded at a time.")] = 32,
    workers: Annotated[int, typer.Option("--workers", min=1, help="Threads that read pictures.")] = 2,
    device: o.Device = None,
    json_: o.Json = False,
    quiet: o.Quiet = False,
    verbose: o.Verbose = 0,
) -> None:
    """Search a folder of pictures with a trained model that has learnt contrast.

    vlcli search "a red circle" --from RECIPE/STAGE --images FOLDER --top 5 --sheet found.png

    vlcli search --image one.png --from RECIPE/STAGE --images FOLDER
    """
    _refuse(text, model, images, image, texts, sheet)
    refuse_bytes(text)
    from vlcli.cli import console

    loaded = _loaded(model, features, device, images, image, texts)
    if texts is not None:
        _tell_sentences(loaded, image, texts, top, objective, json_)
        return
    assert images is not None
    progress = console.progress(verbose, quiet)
    index = loaded.index(
        images, objective=objective, store=store, batch_size=batch_size, workers=workers, progress=progress
    )
    query = loaded.embed_text(text or "", objective) if image is None else loaded.embed_image(image, objective)
    found = index.nearest(query[0], top, memory=memory, backend=backend.value)
    for name, reason in index.failures.items():
        progress.warn(f"left out {name}: {reason}")
    if sheet is not None:
        draw(found, sheet, text or Path(str(image)).name)  # its folders would push the name off the sheet
    _tell_pictures(index, found, text or str(image), sheet, progress, json_)


def _loaded(
    model: str, features: Path | None, device: str | None, images: Path | None, image: Path | None, texts: Path | None
) -> Any:
    """The model; pictures whose regions it needs and does not have are refused before anything is embedded."""
    from vlcli.api import load
    from vlcli.cli.regions import refuse_unknown
    from vlcli.engine.processes import resolve_device

    loaded = load(model, features=features, device=resolve_device(device or "cpu"))
    if texts is None or loaded.features is None:
        folder = "FOLDER" if images is None else str(images)
        refuse_unknown(loaded, [] if image is None else [str(image)], "search", folder)
    return loaded


def _tell_pictures(
    index: Any, found: list[tuple[Path, float]], query: str, sheet: Path | None, progress: Any, as_json: bool
) -> None:
    """The pictures that were found, best first, as JSON or as a table."""
    from vlcli.cli import console

    if as_json:
        rows = [{"rank": n, "picture": str(path), "score": score} for n, (path, score) in enumerate(found, 1)]
        kept = {"store": str(index.store.path), **({"sheet": str(sheet)} if sheet else {})}
        console.out_json({"query": query, **index.counts, **kept, "found": rows})
        return
    console.table(["rank", "score", "picture"], [[str(n), f"{s:.3f}", str(p)] for n, (p, s) in enumerate(found, 1)])
    progress.info(", ".join(f"{count} {name}" for name, count in index.counts.items()))


def _refuse(
    text: str | None, model: str, images: Path | None, image: Path | None, texts: Path | None, sheet: Path | None
) -> None:
    from vlcli.errors import UsageError

    if not model:
        raise UsageError("Say which model embeds.", expected="--from RECIPE/STAGE, or a folder")
    if (text is None) == (image is None):
        got = "neither" if text is None else "both"
        raise UsageError("Look for a sentence or for a picture.", got=got, expected='"a sentence", or --image FILE')
    if (images is None) == (texts is None) or (texts is not None and (image is None or sheet is not None)):
        expected = "--images FOLDER; or --image FILE and --texts FILE, without --sheet"
        raise UsageError("Say what is to be searched.", expected=expected)


def _tell_sentences(loaded: Any, image: Any, texts: Path, top: int, objective: str, as_json: bool) -> None:
    from vlcli.cli import console
    from vlcli.tools.search import rank, read_sentences

    sentences = read_sentences(texts)
    vectors = loaded.embed_text(sentences, objective)
    found = rank(loaded.embed_image(image, objective)[0], vectors, sentences, top)
    if as_json:
        rows = [{"rank": n, "text": text, "score": score} for n, (text, score) in enumerate(found, 1)]
        console.out_json({"query": str(image), "sentences": len(sentences), "found": rows})
    else:
        cells = [[str(n), f"{score:.3f}", text] for n, (text, score) in enumerate(found, 1)]
        console.table(["rank", "score", "sentence"], cells)


def draw(found: list[tuple[Path, float]], sheet: Path, query: str) -> None:
    """The pictures that were found, best first, in one PNG."""
    from vlcli.data.images import load_image
    from vlcli.drawings.base import save_picture
    from vlcli.report.sheet import INK, Cell, contact_sheet

    cells = [
        Cell(load_image(path), [(f"{number}. {score:.3f} {path.name}", INK)])
        for number, (path, score) in enumerate(found, 1)
    ]
    heading = (f"nearest to: {query}", "#1f5fbf")
    save_picture(contact_sheet(cells, columns=min(5, len(cells)), width=200, heading=heading), sheet)
