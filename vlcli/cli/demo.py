"""``vlcli demo MODEL``: a local web page on which one asks a trained model."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vlcli.cli import options as o
from vlcli.cli.guard import guarded

if TYPE_CHECKING:
    from vlcli.demo.asking import Demo, Limits

_PAGE = "The page"
_MODEL = "The model"
Folder = Annotated[
    Path | None,
    typer.Option("--folder", help="Pictures to search, with a model that has learnt contrast.", rich_help_panel=_PAGE),
]
Store = Annotated[
    Path | None,
    typer.Option("--store", help="With --folder: where vectors are kept; default: beside it.", rich_help_panel=_PAGE),
]
Samples = Annotated[
    Path | None,
    typer.Option(
        "--samples", help="Sample pictures; default: those on which the run is tested.", rich_help_panel=_PAGE
    ),
]


@guarded
def demo(
    model: o.Trained,
    host: Annotated[
        str,
        typer.Option(
            "--host", help="Address to listen on; 0.0.0.0: all machines of the network.", rich_help_panel=_PAGE
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="0: any free one.", rich_help_panel=_PAGE)
    ] = 7860,
    folder: Folder = None,
    store: Store = None,
    samples: Samples = None,
    max_upload: Annotated[
        int, typer.Option("--max-upload", min=1, max=1000, help="Largest picture file, in MB.", rich_help_panel=_PAGE)
    ] = 20,
    max_pixels: Annotated[
        int, typer.Option("--max-pixels", min=1, max=178, help="Largest picture, in millions.", rich_help_panel=_PAGE)
    ] = 50,
    queue: Annotated[
        int,
        typer.Option("--queue", min=1, max=1000, help="Requests that may wait for the model.", rich_help_panel=_PAGE),
    ] = 32,
    check: Annotated[
        bool, typer.Option("--check", help="Load the model, ask once, and end without serving.", rich_help_panel=_PAGE)
    ] = False,
    features_from: Annotated[
        Path | None,
        typer.Option("--features-from", help="Extract stage whose extractor reads pictures.", rich_help_panel=_MODEL),
    ] = None,
    device: o.Device = None,
    plugin: o.Plugin = None,
    quiet: o.Quiet = False,
    verbose: o.Verbose = 0,
) -> None:
    """Serve a web page on this machine: drop a picture, ask, see the answer and where the model looked.

    vlcli demo runs/quickstart/nlvr2

    vlcli demo contrast/pairs --folder photos --port 8000

    Ctrl-C ends it.
    """
    from vlcli.cli import console
    from vlcli.demo.asking import Limits
    from vlcli.demo.server import Server
    from vlcli.stopping import Stopped

    o.load_plugins(plugin)
    progress = console.progress(verbose, quiet)
    server = Server(None, host, port, progress.debug)  # before the model is loaded: a port in use is told at once
    open_ = False
    try:
        limits = Limits(max_upload * 2**20, max_pixels * 1_000_000, waiting=queue)
        server.demo = _demo(model, features_from, device, folder, store, samples, limits, progress)
        if check:
            console.out(_about(server.demo))
            return
        open_ = True
        console.out(server.url)
        console.flush()
        progress.info(_about(server.demo))
        if not server.is_local:
            progress.warn("everyone who reaches this machine can open the page; it has no password")
        progress.info("open this address in a browser; Ctrl-C ends the page")
        _serve(server)
    except Stopped as stop:
        if not open_:
            raise
        console.err("the page has ended")
        raise typer.Exit(stop.code) from None
    finally:
        server.server_close()


def _demo(
    place: str,
    features_from: Path | None,
    device: str | None,
    folder: Path | None,
    store: Path | None,
    samples: Path | None,
    limits: Limits,
    progress: Any,
) -> Demo:
    """Load the model, embed the folder, and ask once."""
    from vlcli.api import load
    from vlcli.demo.asking import Demo
    from vlcli.demo.samples import of_folder, of_run
    from vlcli.engine.processes import resolve_device

    model = load(place, features_from=features_from, device=resolve_device(device or "cpu"))
    index = None if folder is None else model.index(folder, store=store, progress=progress)
    for name, reason in index.failures.items() if index is not None else ():
        progress.warn(f"left out {name}: {reason}")
    made = Demo(model, limits, of_folder(samples) if samples is not None else of_run(model), index)
    made.warm_up()
    return made


def _about(demo: Demo) -> str:
    """What the page can do, in one line."""
    page = demo.page()
    can = [use["name"] for use in page["uses"]]
    can += [f"search in {page['folder']['pictures']} pictures"] if page["folder"] else []
    return f"{page['model']}: {', '.join(can)}; an answer takes at most about {page['within']} s"


def _serve(server: Any) -> None:
    """Serve in another thread until a signal comes, which this thread waits for."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(0.5)
    finally:
        server.shutdown()
