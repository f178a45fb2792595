"""``vlcli validate``, ``push``, ``schema``, ``trust`` and ``checkpoint``."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from vlcli.cli import console, options
from vlcli.cli.guard import RunRequest, guarded, requested
from vlcli.errors import DataError, Problem, RecipeError, UsageError, VlcliError
from vlcli.files import write_text
from vlcli.plain import comma_list
from vlcli.recipe import plan
from vlcli.recipe import trust as trusting
from vlcli.recipe.load import load
from vlcli.recipe.locate import Resolved
from vlcli.recipe.table import is_table, load_table
from vlcli.recipe.validate import shallow

if TYPE_CHECKING:
    from vlcli.checkpoints.identify import Match
    from vlcli.checkpoints.trial import Trial


_DEEP = "Import components, check every parameter, try one fake step a stage."


@requested("output", "plugin", "trust", "json_", "verbose")
def validate(
    request: RunRequest,
    words: options.RecipeAndWords,
    deep: Annotated[bool, Option("--deep", help=_DEEP)] = False,
    yes: options.Yes = False,
) -> None:
    """Check a recipe: structure, names, wiring, files; with --deep everything that can be known beforehand."""
    name, overrides = options.one_name(words)
    if is_table(name):
        table = load_table(name, overrides, trust=request.trust, deep=deep, many=yes)
        problems: list[Problem] = []
        for label in table.chosen:
            try:
                _check(table.member(label), deep, request.output, request.verbose)
            except RecipeError as error:
                problems += [replace(one, key=f"{label}: {one.key}") for one in error.problems]
        if problems:
            raise RecipeError(problems, table.reference)
        recipe, unit, parts = table.name, "row", table.chosen
    else:
        resolved = load(name, overrides, trust=request.trust, deep=deep)
        _check(resolved, deep, request.output, request.verbose)
        recipe, unit, parts = resolved.name, "stage", list(resolved.stages)
    if request.json_:
        console.out_json({"recipe": recipe, f"{unit}s": parts, "valid": True, "deep": deep})
        return
    console.out(f"{name}: valid ({'deep' if deep else 'shallow'}), {len(parts)} {unit}{'s' * (len(parts) != 1)}")
    if not deep:
        console.err(f"not checked: options of components, data (vlcli validate {name} --deep checks them)")


def _check(resolved: Resolved, deep: bool, output: Path, verbose: int) -> None:
    if not deep:
        if problems := shallow(resolved):
            raise RecipeError(problems, resolved.reference)
        return
    from vlcli.runner.preflight import preflight

    planner, steps = plan.make(resolved, plan.RunOptions(output))
    console.err_lines(preflight(planner, steps, list(resolved.stages), console.progress(verbose)))


@guarded
def push(
    folder: Annotated[Path, Argument(help="Folder of a model card: hub/ of an export stage, or the stage's.")],
    name: Annotated[str, Argument(help="Repository on the hub: OWNER/NAME, or NAME for your own.")],
    public: Annotated[bool, Option("--public", help="Anybody may see it; else you and your team alone.")] = False,
    message: Annotated[str, Option(help="Message of the commit.")] = "Upload by vlcli",
    json_: options.Json = False,
) -> None:
    """Upload a model with its card to the Hugging Face hub (or the one that HF_ENDPOINT names).

    vlcli push runs/quickstart/hub me/nlvr2-shapes
    """
    from vlcli.tools.hub import upload

    address = upload(folder, name, public=public, message=message)
    console.answer(json_, {"url": address}, address)


@guarded
def schema(
    output: Annotated[Path | None, Option("--out", "-o", help="Write it to this file instead of stdout.")] = None,
) -> None:
    """Print the JSON Schema of recipes, with which an editor completes keys and marks faults.

    vlcli schema -o recipe.schema.json

    The first line of a recipe tells the YAML plugin of an editor where the file is:

    # yaml-language-server: $schema=recipe.schema.json
    """
    from vlcli.recipe.json_schema import recipe_schema

    text = json.dumps(recipe_schema(), indent=1)
    if output is not None:
        write_text(output, text + "\n")
    console.out(text if output is None else str(output))


@guarded
def trust(
    places: Annotated[list[Path] | None, Argument(metavar="FOLDER...", help="Folders, or single Python files.")] = None,
    show: Annotated[bool, Option("--list", help="Show what is trusted.")] = False,
    remove: Annotated[bool, Option("--remove", help="No longer trust these.")] = False,
    json_: options.Json = False,
) -> None:
    """Let recipes run the plugin files that lie in a folder, or show whose may.

    vlcli trust papers/bag
    vlcli trust --list
    """
    if not places and not show:
        raise UsageError("Name a folder to trust.", expected="vlcli trust FOLDER, or vlcli trust --list")
    if remove and not places:
        raise UsageError("Name the folder or file that is no longer trusted.", expected="vlcli trust --remove FOLDER")
    for place in places or []:
        changed = trusting.forget(place) if remove else trusting.trust(place)
        console.err(f"{'no longer trusted' if remove else 'trusted'}: {changed}")
    kept = [str(path) for path in trusting.trusted()]
    if json_:
        console.out_json({"file": str(trusting.list_file()), "trusted": kept})
    elif show and kept:
        console.table(["trusted"], [[path] for path in kept])
    elif show:
        console.err("nothing is trusted yet: vlcli trust FOLDER")


@requested("plugin", "json_")
def checkpoint(
    request: RunRequest,
    name: Annotated[str | None, Argument(metavar="[NAME_OR_FILE]", help="A published checkpoint, or a file.")] = None,
) -> None:
    """Say which layout a file has and what of it a model reads; without a name: of every published checkpoint."""
    from vlcli.checkpoints.load import every, named
    from vlcli.checkpoints.trial import COLUMNS, checked, trial_row

    if name is not None:
        _identify(Path(name), request.json_) if Path(name).exists() else _describe(named(name), request.json_)
        return
    trials = [(one, checked(one)) for one in every()]
    document = {"checkpoints": [vars(trial) for _, trial in trials]}
    rows = [trial_row(one, trial) for one, trial in trials]
    console.out_json(document) if request.json_ else console.table(COLUMNS, rows)


def _describe(one: Any, json_: bool) -> None:
    from vlcli.checkpoints.trial import as_row, checked, reasons

    facts, trial = as_row(one), checked(one) if one.file.loads else None
    if json_:
        console.out_json({**facts, "trial": None if trial is None else vars(trial)})
        return
    console.out(f"{one.name}: {one.file.about}")
    labels = ("family", "source", "licence", "layout", "written_by", "code")
    console.out_lines(f"  {label.replace('_', ' ')}: {facts[label]}" for label in labels if facts[label])
    console.out(f"  holds: {facts['tensors']} tensors, {facts['numbers']:,} numbers")
    console.out_lines(f"  {score.task}: {score.metric} {score.value:g}" for score in one.file.scores)
    if trial is not None:
        console.out(f"  read by: {_spec(one)}")
        _tell(trial)
        console.out_lines(f"    {line}" for line in reasons(trial))


def _spec(one: Any) -> str:
    options = ", ".join(f"{key}: {value}" for key, value in one.reader.items() if key != "kind")
    return f"{one.reader['kind']}: {{{options}}}"


def _tell(trial: Trial) -> None:
    console.out(f"  of {trial.tensors} tensors {len(trial.read)} are read, {len(trial.excused)} are excused by a rule")
    _tell_names({"not read": trial.lost, "not in the file": trial.missing, "shape": trial.mismatched}, "    ")


def _tell_names(groups: Mapping[str, Collection[str]], indent: str) -> None:
    console.out_lines(f"{indent}{len(names)} {what}: {comma_list(names, 6)}" for what, names in groups.items() if names)


def _identify(path: Path, json_: bool) -> None:
    from vlcli.checkpoints.identify import matches, read_tensors
    from vlcli.checkpoints.trial import attempt
    from vlcli.nn.weights import WEIGHT_FILES

    if path.is_dir():
        file = next((path / name for name in WEIGHT_FILES if (path / name).is_file()), None)
        if file is None:
            raise DataError("There are no weights here.", where=str(path), expected=" or ".join(WEIGHT_FILES))
        path = file
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
    console.out(f"{path}: {len(tensors)} tensors, {sum(entry.count for entry in tensors.values()):,} numbers")
    for one in nearest if nearest[0].faults else nearest[:1]:
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
    exact = f"in all but {one.faults} names" if one.faults else "exactly"
    console.out(f"layout {known.family.family}: {known.file.layout}{named}, {exact}; {known.layout.about or ''}")
    shapes = [f"{name} {file} for {known}" for name, (file, known) in one.other_shape.items()]
    _tell_names({"of another shape": shapes, "not in the file": one.missing, "further": one.further}, "  ")
