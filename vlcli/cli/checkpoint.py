"""``vlcli checkpoint``: describes a published checkpoint, or says which layout a file has."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vlcli.cli import console, options
from vlcli.cli.guard import guarded
from vlcli.errors import DataError, VlcliError
from vlcli.plain import comma_list

if TYPE_CHECKING:
    from vlcli.checkpoints.identify import Match
    from vlcli.checkpoints.trial import Trial


@guarded
def checkpoint(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME_OR_FILE]", help="A published checkpoint, or a file of yours.")
    ] = None,
    plugin: options.Plugin = None,
    json_: options.Json = False,
) -> None:
    """Say which layout a file has and what of it a model reads; without a name: of every published checkpoint."""
    from vlcli.checkpoints.load import every, named
    from vlcli.checkpoints.trial import COLUMNS, checked, trial_row

    if name is not None:
        _identify(Path(name), json_) if Path(name).exists() else _describe(named(name), json_)
        return
    trials = [(one, checked(one)) for one in every()]
    if json_:
        console.out_json({"checkpoints": [vars(trial) for _, trial in trials]})
    else:
        console.table(COLUMNS, [trial_row(one, trial) for one, trial in trials])


def _describe(one: Any, json_: bool) -> None:
    from vlcli.checkpoints.trial import as_row, checked, reasons

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
    options = ", ".join(f"{key}: {value}" for key, value in one.reader.items() if key != "kind")
    return f"{one.reader['kind']}: {{{options}}}"


def _tell(trial: Trial) -> None:
    console.out(f"  of {trial.tensors} tensors {len(trial.read)} are read, {len(trial.excused)} are excused by a rule")
    _tell_names({"not read": trial.lost, "not in the file": trial.missing, "shape": trial.mismatched}, "    ")


def _tell_names(groups: Mapping[str, Collection[str]], indent: str) -> None:
    for what, names in groups.items():
        if names:
            console.out(f"{indent}{len(names)} {what}: {comma_list(names, 6)}")


def _identify(path: Path, json_: bool) -> None:
    from vlcli.checkpoints.identify import matches, read_tensors
    from vlcli.checkpoints.trial import attempt

    if path.is_dir():
        expected = "model.safetensors or pytorch_model.bin"
        files = [path / name for name in expected.split(" or ") if (path / name).is_file()]
        if not files:
            raise DataError("There are no weights here.", where=str(path), expected=expected)
        path = files[0]
    tensors = read_tensors(path)
    nearest = matches(tensors)[:3]
    if not nearest:
        got = f"{len(tensors)} tensors: {', '.join(list(tensors)[:3])} ..."
        hint = "list the known ones: vlcli ls checkpoints"
        raise DataError("This file has no layout that is known.", where=str(path), got=got, hint=hint)
    trial = None
    if nearest[0].checkpoint.file.loads:
        with suppress(VlcliError):  # other sizes than the layout's: what differs is listed
            trial = attempt(nearest[0].checkpoint, tensors)
    if json_:
        layouts = [_match(one) for one in nearest]
        console.out_json({"file": str(path), "layouts": layouts, "trial": None if trial is None else vars(trial)})
        return
    count = sum(entry.count for entry in tensors.values())
    console.out(f"{path}: {len(tensors)} tensors, {count:,} numbers")
    for one in nearest[:1] if not nearest[0].faults else nearest:
        _tell_match(one)
    if trial is not None:
        console.out(f"read by {_spec(nearest[0].checkpoint)}:")
        _tell(trial)


def _match(one: Match) -> dict[str, Any]:
    facts = {"family": one.checkpoint.family.family, "layout": one.checkpoint.file.layout, "same": len(one.same)}
    other = {name: [list(shape) for shape in both] for name, both in one.other_shape.items()}
    return {**facts, "other_shape": other, "missing": list(one.missing), "further": list(one.further)}


def _tell_match(one: Match) -> None:
    known = one.checkpoint
    files = [file.name for file in known.family.files if file.layout == known.file.layout]
    named = f" (as {', '.join(files[:3])}{' ...' if len(files) > 3 else ''})" if files else ""
    exact = "exactly" if not one.faults else f"in all but {one.faults} names"
    console.out(f"layout {known.family.family}: {known.file.layout}{named}, {exact}; {known.layout.about or ''}")
    shapes = [f"{name} {file} for {known}" for name, (file, known) in one.other_shape.items()]
    _tell_names({"of another shape": shapes, "not in the file": one.missing, "further": one.further}, "  ")
