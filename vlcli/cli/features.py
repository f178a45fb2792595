"""``vlcli features``: shows, verifies, joins, imports, exports and draws feature stores."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from vlcli.cli import console, options
from vlcli.cli.guard import RunRequest, leave, verb

app = typer.Typer(
    help="Region-feature stores: look, verify, merge, join, import, export, draw.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
IMPORTED = "obj36, butd, npz, vlp, concepts, mattnet"
EXPORTED = "obj36, butd"
_PICTURES = "A folder of pictures or a COCO file: names and sizes that are not said."
Store = Annotated[Path, Argument(help="A store: an HDF5 file, or a folder of them (a stage's folder too).")]
BoxSet = Annotated[str | None, Option(help="The box set; needed where there are several.")]
Compression = Annotated[str | None, Option(help="gzip or lzf: smaller, slower to read.")]


@verb(app, "info")
def info(path: Store, json_: options.Json = False) -> None:
    """Counts, widths, size and provenance."""
    from vlcli.features.inspect import info as read_info

    facts = read_info(path)
    if json_:
        console.out_json({"store": facts})
        return
    joined = ", joined by an index" if facts["joined"] else ""
    console.out(f"{facts['path']}: {facts['files']} file(s){joined}, {facts['bytes'] / 2**20:.1f} MiB")
    for name, details in facts["sets"].items():
        parts = {key: value for key, value in details.items() if isinstance(value, dict)}
        rows = [[key, str(value)] for key, value in details.items() if key not in parts]
        rows += [[f"{key}.{name}", _short(fact)] for key, value in parts.items() for name, fact in value.items()]
        console.table(["fact", "value"], rows, f"boxes {name}")


def _short(value: Any, most: int = 8) -> str:
    if isinstance(value, list) and len(value) > most:
        return f"{', '.join(map(str, value[:most]))} ... ({len(value)})"
    return str(value)


@verb(app, "verify", "json_", "quiet", "verbose")
def verify(request: RunRequest, path: Store) -> None:
    """Read every record and check it; exit code 5 where something is wrong."""
    from vlcli.features.inspect import verify as find_faults

    faults = find_faults(path, request.progress())
    document = {"path": str(path), "sound": not faults, "faults": [vars(fault) for fault in faults]}
    console.answer(request.json_, document, "\n".join(map(str, faults)) or f"{path}: sound")
    leave(5 if faults else 0)


@verb(app, "merge", "json_", "quiet", "verbose")
def merge(
    request: RunRequest,
    stores: Annotated[list[str], Argument(metavar="[NAME=]STORE...", help="Shards; NAME= renames a store's only set.")],
    into: Annotated[Path, Option("--out", "-o", help="The new file.")],
    compression: Compression = None,
    force: options.Replace = False,
) -> None:
    """Copy shards, or the box sets of several stores, into one file.

    vlcli features merge part1.h5 part2.h5 --out all.h5
    vlcli features merge detected=seen.h5 ground-truth=truth.h5 --out both.h5
    """
    from vlcli.features.join import merge as copy

    options.refuse_existing(into, force)
    paths: list[str | Path] = []
    names: dict[str | Path, str] = {}
    for word in stores:
        name, equals, path = word.partition("=")
        renamed = bool(equals) and not Path(word).exists()
        paths.append(Path(path if renamed else word))
        names |= {paths[-1]: name} if renamed and name else {}
    file = str(copy(paths, into, names=names, compression=compression, progress=request.progress()))
    console.answer(request.json_, {"path": file}, file)


@verb(app, "join")
def join(
    stores: Annotated[list[Path], Argument(help="The shards.")],
    into: Annotated[Path, Option("--out", "-o", help="The index, in a folder above the shards.")],
    force: options.Replace = False,
    json_: options.Json = False,
) -> None:
    """Join shards by an index file; nothing is copied."""
    from vlcli.features.join import join as write_index

    options.refuse_existing(into, force)
    file = str(write_index(stores, into))
    console.answer(json_, {"path": file}, file)


@verb(app, "import", "json_", "quiet", "verbose")
def import_(
    request: RunRequest,
    format: Annotated[str, Argument(help=f"One of: {IMPORTED}.")],
    source: Annotated[Path, Argument(help="The file, folder or prefix.")],
    out: Annotated[Path, Argument(help="The store; one that is there grows.")],
    set: Annotated[str | None, Option(help="The box set to write; by default the format's own.")] = None,
    dtype: Annotated[str, Option(help="float16 or float32.")] = "float16",
    compression: Compression = None,
    boxes: Annotated[Path | None, Option(help="vlp: the file with the boxes.")] = None,
    pictures: Annotated[Path | None, Option(help=_PICTURES)] = None,
    vocabulary: Annotated[Path | None, Option(help="concepts: the words in the order of their numbers.")] = None,
    ids: Annotated[str | None, Option(help="Image ids from the names in the file: 'COCO_val2014_{:012d}'.")] = None,
    clip: Annotated[bool, Option("--clip", help="Cut boxes that leave their image.")] = False,
    skip_bad: Annotated[bool, Option("--skip-bad", help="Leave damaged images out and list them.")] = False,
    force: Annotated[bool, Option("--force", help="Start the box set anew.")] = False,
) -> None:
    """Read others' features into a store; run again after an interruption, it goes on.

    vlcli features import obj36 train2014_obj36.tsv train2014.h5
    """
    from vlcli.features.importing import errors_file, import_features

    how: dict[str, Any] = {"set": set, "dtype": dtype, "compression": compression, "boxes": boxes, "ids": ids}
    how |= {"pictures": pictures, "vocabulary": vocabulary, "clip": clip, "skip_bad": skip_bad, "resume": not force}
    report = import_features(format, source, out, **how, progress=request.progress())
    if request.json_:
        errors = [vars(bad) for bad in report.errors]
        console.out_json({"path": str(out), "set": report.set, "counts": report.counts, "errors": errors})
        return
    console.out(f"{out} [{report.set}]: " + ", ".join(f"{value} {key}" for key, value in report.counts.items()))
    if report.errors:
        console.err(f"left out: see {errors_file(out)}")


@verb(app, "export", "json_", "quiet", "verbose")
def export(
    request: RunRequest,
    format: Annotated[str, Argument(help=f"One of: {EXPORTED}.")],
    path: Store,
    out: Annotated[Path, Argument(help="The new file.")],
    set: BoxSet = None,
    images: Annotated[Path | None, Option(help="A file of image ids, one a line: these only.")] = None,
    force: options.Replace = False,
) -> None:
    """Write a store in a format that others read."""
    from vlcli.data.files import read_text
    from vlcli.features import FeatureStore
    from vlcli.features.importing import export_features

    options.refuse_existing(out, force)
    names = None if images is None else [line.strip() for line in read_text(images).splitlines() if line.strip()]
    report = export_features(format, FeatureStore(path, set), out, images=names, progress=request.progress())
    if request.json_:
        console.out_json({"path": str(out), "images": report.images, "notes": report.notes})
        return
    console.out(f"{out}: {report.images} images")
    console.err_lines(report.notes)


@verb(app, "draw", "json_", "quiet", "verbose")
def draw(
    request: RunRequest,
    path: Store,
    pictures: Annotated[list[Path], Argument(help="Pictures whose boxes the store holds.")],
    out: Annotated[Path, Option("--out", "-o", help="Folder for ID.png of each.")] = Path("drawn"),
    set: BoxSet = None,
    limit: Annotated[int | None, Option(min=1, help="Most boxes a picture, by score.")] = None,
    least: Annotated[float, Option("--min-score", help="Lowest score drawn.")] = 0.0,
    classes: Annotated[Path | None, Option(help="Names of the classes, one a line.")] = None,
    attributes: Annotated[Path | None, Option(help="Names of the attributes.")] = None,
    force: options.Replace = False,
) -> None:
    """Draw the stored boxes on pictures, with labels and scores where there are any."""
    from vlcli.drawings.stored_boxes import draw_stored, read_names
    from vlcli.features import FeatureStore

    how: dict[str, Any] = {"limit": limit, "least": least, "force": force}
    how |= {key: read_names(file) for key, file in {"classes": classes, "attributes": attributes}.items() if file}
    files = draw_stored(FeatureStore(path, set), pictures, out, **how, progress=request.progress())
    names = [str(file) for file in files]
    console.answer(request.json_, {"pictures": names}, "\n".join(names))
