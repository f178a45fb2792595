"""``vlcli checkpoint``: what is known of a published checkpoint, and which layout a file has."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vlcli.cli import options as o
from vlcli.cli.guard import guarded
from vlcli.plain import comma_list

if TYPE_CHECKING:
    from vlcli.checkpoints.identify import Match
    from vlcli.checkpoints.trial import Trial


@guarded
def checkpoint(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME_OR_FILE]", help="A published checkpoint, or a file of yours.")
    ] = None,
    plugin: o.Plugin = None,
    json_: o.Json = False,
    verbose: o.Verbose = 0,
) -> None:
    """Say which layout a file has and what of it a model reads; without a name: of every published checkpoint."""
    from vlcli.checkpoints.load import named

    o.load_plugins(plugin)
    if name is None:
        _all(json_)
    elif Path(name).exists():
        _identify(Path(name), json_)
    else:
        _describe(named(name), json_)


def _all(json_: bool) -> None:
    """The table of what becomes of every published file."""
    from vlcli.checkpoints.listing import COLUMNS, trial_row
    from vlcli.checkpoints.load import every
    from vlcli.checkpoints.trial import checked
    from vlcli.cli import console

    found = [(one, checked(one)) for one in every()]
    if json_:
        console.out_json({"checkpoints": [vars(trial) for _, trial in found]})
        return
    console.table(COLUMNS, [trial_row(one, trial) for one, trial in found])


def _describe(one: Any, json_: bool) -> None:
    from vlcli.checkpoints.listing import as_row, reasons
    from vlcli.checkpoints.trial import checked
    from vlcli.cli import console

    facts, trial = as_row(one), checked(one) if one.file.loads else None
    if json_:
        console.out_json({**facts, "trial": None if trial is None else vars(trial)})
        return
    console.out(f"{one.name}: {one.file.about}")
    for label in ("family", "source", "licence", "layout", "written_by", "code"):
        if facts[label]:
            console.out(f"  {label.replace('_', ' ')}: {facts[label]}")
    console.out(f"  holds: {facts['tensors']} tensors, {facts['numbers']:,} numbers")
    for score in one.file.scores:
        console.out(f"  {score.task}: {score.metric} {score.value:g}")
    if trial is not None:
        console.out(f"  read by: {_spec(one)}")
        _tell(trial)
        for line in reasons(trial):
            console.out(f"    {line}")


def _spec(one: Any) -> str:
    """The model or extractor as a recipe writes it."""
    reader = one.reader
    options = ", ".join(f"{key}: {value}" for key, value in reader.items() if key != "kind")
    return f"{reader['kind']}: {{{options}}}"


def _tell(trial: Trial) -> None:
    from vlcli.cli import console

    console.out(f"  of {trial.tensors} tensors {len(trial.read)} are read, {len(trial.excused)} are excused by a rule")
    for what, names in {"not read": trial.lost, "not in the file": trial.missing, "shape": trial.mismatched}.items():
        if names:
            console.out(f"    {len(names)} {what}: {comma_list(names, 6)}")


def _identify(path: Path, json_: bool) -> None:
    """The nearest layouts of a file, and what the model of the nearest one would read of it."""
    from vlcli.checkpoints.identify import matches, read_tensors
    from vlcli.cli import console
    from vlcli.errors import DataError

    path = _weight_file(path)
    tensors = read_tensors(path)
    found = matches(tensors)[:3]
    if not found:
        got = f"{len(tensors)} tensors: {', '.join(list(tensors)[:3])} ..."
        hint = "list the known ones: vlcli ls checkpoints"
        raise DataError("This file has no layout that is known.", where=str(path), got=got, hint=hint)
    trial = _try(found[0], tensors)
    if json_:
        nearest = [_match(one) for one in found]
        console.out_json({"file": str(path), "layouts": nearest, "trial": None if trial is None else vars(trial)})
        return
    count = sum(entry.count for entry in tensors.values())
    console.out(f"{path}: {len(tensors)} tensors, {count:,} numbers")
    for one in found[:1] if not found[0].faults else found:
        _tell_match(one)
    if trial is not None:
        console.out(f"read by {_spec(found[0].checkpoint)}:")
        _tell(trial)


def _weight_file(path: Path) -> Path:
    """The weights of a folder of the Hugging Face hub."""
    from vlcli.errors import DataError

    if not path.is_dir():
        return path
    for name in ("model.safetensors", "pytorch_model.bin"):
        if (path / name).is_file():
            return path / name
    expected = "model.safetensors or pytorch_model.bin"
    raise DataError("There are no weights here.", where=str(path), expected=expected)


def _try(nearest: Match, tensors: Any) -> Trial | None:
    """What the model of the nearest layout reads of the file; None where nothing reads that layout."""
    from vlcli.checkpoints.trial import attempt
    from vlcli.errors import VlcliError

    if not nearest.checkpoint.file.loads:
        return None
    try:
        return attempt(nearest.checkpoint, tensors)
    except VlcliError:
        return None  # other sizes than the layout's: what differs has been listed


def _match(one: Match) -> dict[str, Any]:
    facts = {"family": one.checkpoint.family.family, "layout": one.checkpoint.file.layout, "same": len(one.same)}
    other = {name: [list(shape) for shape in both] for name, both in one.other_shape.items()}
    return {**facts, "other_shape": other, "missing": list(one.missing), "further": list(one.further)}


def _tell_match(one: Match) -> None:
    from vlcli.cli import console

    known = one.checkpoint
    files = [file.name for file in known.family.files if file.layout == known.file.layout]
    named = f" (as {', '.join(files[:3])}{' ...' if len(files) > 3 else ''})" if files else ""
    exact = "exactly" if not one.faults else f"in all but {one.faults} names"
    console.out(f"layout {known.family.family}: {known.file.layout}{named}, {exact}; {known.layout.about or ''}")
    shapes = [f"{name} {file} for {known}" for name, (file, known) in one.other_shape.items()]
    for what, names in {"of another shape": shapes, "not in the file": one.missing, "further": one.further}.items():
        if names:
            console.out(f"  {len(names)} {what}: {comma_list(names, 6)}")
