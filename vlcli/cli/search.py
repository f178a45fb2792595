"""``vlcli search``: finds pictures by a sentence or a picture, and sentences by a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vlcli.cli import console
from vlcli.cli import options as o
from vlcli.cli.guard import guarded
from vlcli.cli.predict import load_model
from vlcli.errors import UsageError

if TYPE_CHECKING:
    from vlcli.api import Loaded


@guarded
def search(
    text: Annotated[str | None, typer.Argument(help="What to look for: a sentence.", show_default=False)] = None,
    model: Annotated[
        str, typer.Option("--from", help="A stage's folder, RECIPE/STAGE under runs/, or an exported model.")
    ] = "",
    images: Annotated[Path | None, typer.Option(help="The folder of pictures to search.")] = None,
    image: Annotated[Path | None, typer.Option(help="Look for what is like this picture.")] = None,
    texts: Annotated[
        Path | None, typer.Option(help="With --image: rank the sentences of this file, one a line.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="How many are shown.")] = 10,
    sheet: Annotated[Path | None, typer.Option(help="Draw what was found into this PNG.")] = None,
    store: Annotated[Path | None, typer.Option(help="Where the vectors are kept; default: beside the folder.")] = None,
    features: o.Features = None,
    objective: Annotated[str, typer.Option(help="What embeds, where several objectives do.")] = "contrast",
    backend: Annotated[o.Backend, typer.Option(help="Exact products, or FAISS.")] = o.Backend.exact,
    memory: Annotated[int, typer.Option(min=1, help="MiB a search may hold.")] = 256,
    batch_size: Annotated[int, typer.Option(min=1, help="Pictures embedded at a time.")] = 32,
    workers: Annotated[int, typer.Option(min=1, help="Threads that read pictures.")] = 2,
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
    o.refuse_bytes(text)
    pictures = None if texts is not None and features is not None else [] if image is None else [str(image)]
    loaded = load_model(model, "search", pictures, device, str(images or "FOLDER"), features=features)
    if images is None:
        assert image is not None
        assert texts is not None
        _tell_sentences(loaded, image, texts, top, objective, json_)
        return
    progress = console.progress(verbose, quiet)
    how: dict[str, Any] = {"store": store, "batch_size": batch_size, "workers": workers, "progress": progress}
    index = loaded.index(images, objective=objective, **how)
    query = loaded.embed_text(text or "", objective) if image is None else loaded.embed_image(image, objective)
    nearest = index.nearest(query[0], top, memory=memory, backend=backend.value)
    for name, reason in index.failures.items():
        progress.warn(f"left out {name}: {reason}")
    if sheet is not None:
        draw(nearest, sheet, text or Path(str(image)).name)  # its folders would push the name off the sheet
    if json_:
        rows = [{"rank": n, "picture": str(path), "score": score} for n, (path, score) in enumerate(nearest, 1)]
        kept = {"store": str(index.store.path), **({"sheet": str(sheet)} if sheet else {})}
        console.out_json({"query": text or str(image), **index.counts, **kept, "found": rows})
        return
    _tell(["rank", "score", "picture"], nearest)
    progress.info(", ".join(f"{count} {name}" for name, count in index.counts.items()))


def _refuse(
    text: str | None, model: str, images: Path | None, image: Path | None, texts: Path | None, sheet: Path | None
) -> None:
    if not model:
        raise UsageError("Say which model embeds.", expected="--from RECIPE/STAGE, or a folder")
    if (text is None) == (image is None):
        got = "neither" if text is None else "both"
        raise UsageError("Look for a sentence or for a picture.", got=got, expected='"a sentence", or --image FILE')
    if (images is None) == (texts is None) or (texts is not None and (image is None or sheet is not None)):
        expected = "--images FOLDER; or --image FILE and --texts FILE, without --sheet"
        raise UsageError("Say what is to be searched.", expected=expected)


def _tell_sentences(loaded: Loaded, image: Path, texts: Path, top: int, objective: str, as_json: bool) -> None:
    from vlcli.tools.search import rank, read_sentences

    sentences = read_sentences(texts)
    vectors = loaded.embed_text(sentences, objective)
    nearest = rank(loaded.embed_image(image, objective)[0], vectors, sentences, top)
    if as_json:
        rows = [{"rank": n, "text": text, "score": score} for n, (text, score) in enumerate(nearest, 1)]
        console.out_json({"query": str(image), "sentences": len(sentences), "found": rows})
    else:
        _tell(["rank", "score", "sentence"], nearest)


def _tell(columns: list[str], nearest: list[tuple[Any, float]]) -> None:
    console.table(columns, [[str(n), f"{score:.3f}", str(item)] for n, (item, score) in enumerate(nearest, 1)])


def draw(nearest: list[tuple[Path, float]], sheet: Path, query: str) -> None:
    """Draws the pictures that were found, best first, into one PNG."""
    from vlcli.data.images import load_image
    from vlcli.drawings.base import save_picture
    from vlcli.report.sheet import INK, Cell, contact_sheet

    cells = [
        Cell(load_image(path), [(f"{number}. {score:.3f} {path.name}", INK)])
        for number, (path, score) in enumerate(nearest, 1)
    ]
    heading = (f"nearest to: {query}", "#1f5fbf")
    save_picture(contact_sheet(cells, columns=min(5, len(cells)), width=200, heading=heading), sheet)
