"""``vlcli demo MODEL``: serves a local web page on which one asks a trained model."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Exit, Option

from vlcli.cli import console, options
from vlcli.cli.guard import RunRequest, requested
from vlcli.stopping import Stopped

if TYPE_CHECKING:
    from vlcli.demo.asking import Demo


@requested("device", "plugin", "quiet", "verbose")
def demo(
    request: RunRequest,
    model: options.TrainedOrSmall = "small",
    host: Annotated[str, Option(help="Address to listen on; 0.0.0.0: all machines of the network.")] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="0: any free one.")] = 7860,
    pictures: Annotated[Path | None, Option(help="A folder to search, with a model that has learnt contrast.")] = None,
    store: Annotated[Path | None, Option(help="With --pictures: where vectors are kept; default: beside it.")] = None,
    samples: Annotated[Path | None, Option(help="Sample pictures; default: those on which the run is tested.")] = None,
    max_upload: Annotated[int, Option(min=1, max=1000, help="Largest picture file, in MB.")] = 20,
    max_pixels: options.MaxPixels = 50,
    queue: Annotated[int, Option(min=1, max=1000, help="Requests that may wait for the model.")] = 32,
    check: Annotated[bool, Option("--check", help="Load the model, ask once, and end without serving.")] = False,
    features_from: options.FeaturesFrom = None,
) -> None:
    """Serve a web page on this machine: drop a picture, ask, see the answer and where the model looked.

    vlcli demo
    vlcli demo runs/quickstart/nlvr2
    vlcli demo contrast/pairs --pictures photos --port 8000

    Ctrl-C ends it.
    """
    from vlcli.api import load
    from vlcli.demo.asking import Demo, Limits
    from vlcli.demo.samples import of_folder, of_run, of_world
    from vlcli.demo.server import Server
    from vlcli.engine.processes import resolve_device
    from vlcli.prediction.sources import SMALL_FOLDER

    progress = request.progress()
    # the server before the model is loaded: a port in use is told at once
    with Server(None, host, port, progress.debug) as server, tempfile.TemporaryDirectory() as drawn:
        loaded = load(model, features_from=features_from, device=resolve_device(request.device or "cpu"))
        index = None if pictures is None else loaded.index(pictures, store=store, progress=progress)
        limits = Limits(max_upload * 2**20, max_pixels * 1_000_000, waiting=queue)
        small = SMALL_FOLDER in loaded.folder.parents
        shown = of_folder(samples) if samples else of_world(Path(drawn)) if small else of_run(loaded)
        server.demo = page = Demo(loaded, limits, shown, index)
        page.warm_up()
        if check:
            console.out(_about(page))
            return
        try:
            console.out(server.url)
            console.flush()
            progress.info(_about(page))
            if not server.is_local:
                progress.warn("everyone who reaches this machine can open the page; it has no password")
            progress.info("open this address in a browser; Ctrl-C ends the page")
            server.serve_forever(poll_interval=0.1)
        except Stopped as stop:
            console.err("the page has ended")
            raise Exit(stop.code) from None


def _about(demo: Demo) -> str:
    page = demo.page()
    can = [use["name"] for use in page["uses"]]
    can += [f"search in {page['folder']['pictures']} pictures"] if page["folder"] else []
    return f"{page['model']}: {', '.join(can)}; an answer takes at most about {page['within']} s"
