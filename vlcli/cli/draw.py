"""``vlcli draw NAME`` draws one picture (or several), ``vlcli draw --recipe R`` runs a recipe's draw stages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from vlcli.cli import options as o
from vlcli.cli.guard import guarded
from vlcli.cli.request import RunRequest, plan_options, requested
from vlcli.cli.run import run_one
from vlcli.files import write_bytes


@guarded
@requested
def draw(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME [KEY=VALUE]...",
            help="A drawing (vlcli ls drawings), then its options.",
            autocompletion=o.complete_drawings,
            show_default=False,
        ),
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option("--from", help="What is drawn: RECIPE/STAGE, or a folder (repeatable).", show_default=False),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Put the pictures into this folder.")] = None,
    root: Annotated[Path | None, typer.Option("--root", help="The data root; default: that of --from.")] = None,
    recipe: Annotated[
        str | None, typer.Option("--recipe", help="Run this recipe's draw stages.", autocompletion=o.complete_recipes)
    ] = None,
    *,
    request: RunRequest,
) -> None:
    """Draw pictures of data, of a trained model, or of what stages measured.

    vlcli draw attention --from quickstart/nlvr2

    vlcli draw --recipe my.yaml
    """
    from vlcli.errors import UsageError

    request = replace(request, kind=None if request.only else "draw")
    names, overrides = o.split_words(words)
    if recipe is not None:
        if names:
            raise UsageError("Name a drawing or a recipe, not both.", got=f"{names[0]} and --recipe {recipe}")
        run_one(recipe, overrides, request, verb="draw")
        return
    if len(names) != 1:
        raise UsageError("Name one drawing.", got=" ".join(names) or "none", hint="list them: vlcli ls drawings")
    _draw(names[0], overrides, replace(request, kind=None, only=None), source or [], root, out)


def _draw(
    name: str, overrides: list[str], request: RunRequest, sources: list[str], root: Path | None, out: Path | None
) -> None:
    from vlcli.cli import console, render
    from vlcli.runner.run import run_recipe

    folders = {source: _find(source, request.output) for source in sources}
    resolved = _resolved(name, overrides, folders, root)
    options = plan_options(replace(request, folder=request.output / "draw"))
    if request.dry_run:
        raise typer.Exit(render.render_plan(resolved, options, request))
    shown = console.progress(request.verbose, request.quiet)
    outcomes = run_recipe(resolved, options, shown)
    files = _copied(outcomes[0], out, request.force)
    if request.json_:
        render.render_outcomes(resolved, outcomes, request, files=[str(file) for file in files])
    else:
        render.render_failures(outcomes, request)
        for file in files:
            console.out(str(file))
    if code := render.exit_code(outcomes):
        raise typer.Exit(code)


def _find(source: str, output: Path) -> Path:
    """A folder, or RECIPE/STAGE of an earlier run.

    Raises:
        DataError: neither is there.
    """
    from vlcli.errors import DataError
    from vlcli.recipe import stage_record

    if (path := stage_record.earlier(output, source)) is not None:
        return stage_record.made_in(path.absolute())
    expected = f"a folder, or RECIPE/STAGE under {output}/"
    hint = stage_record.similar(output, source) or "make it: vlcli run RECIPE"
    raise DataError("There is nothing to draw here.", got=source, expected=expected, hint=hint)


def _resolved(name: str, overrides: list[str], folders: dict[str, Path], root: Path | None) -> Any:
    """A recipe of one draw stage; its data root, data and features are those of the first source that has any."""
    from vlcli.recipe import stage_record
    from vlcli.recipe.load import from_mapping, slug

    records = [stage_record.read(path) or stage_record.read(path.parent) for path in folders.values()]
    known = [record for record in records if record is not None]
    roots = [root] if root else [Path(record.root) for record in known if record.root]
    features = next((record.features for record in known if record.features), [])
    stage: dict[str, Any] = {"kind": "draw", "drawing": {"name": name}, "from": [str(p) for p in folders.values()]}
    if root is None:
        stage["features"] = [path for path in features if Path(path).exists()]
        if data := next((found for record in known if (found := _data_of(record.config))), None):
            stage["data"] = data
        elif split := next((record.config["split"] for record in known if record.config.get("split")), None):
            stage["split"] = split
    value = {"name": "draw", "root": str(roots[0]) if roots else ".", "stages": {"draw": stage}}
    changed = from_mapping("draw", value, [_placed(word, name) for word in overrides])
    made = changed.stages["draw"]
    label = f"{slug(name)}-{stage_record.digest([changed.recipe.root, made.model_dump(mode='json')])[:8]}"
    changed.recipe = changed.recipe.model_copy(update={"stages": {label: made}})
    return changed


def _data_of(config: dict[str, Any]) -> list[Any]:
    """The data sets that a stage names: those it is checked on, else those it reads; none where its task chooses."""
    found = config.get("validation") or config.get("data") or []
    split = config.get("split")
    return [{**spec, "split": split} if split and isinstance(spec, dict) else spec for spec in found]


def _placed(word: str, name: str) -> str:
    """An option of the drawing as an override of the stage; the stage's own keys (``data``, ``split``) stay."""
    from vlcli import registry
    from vlcli.recipe.schema import Draw

    bare = word.lstrip("~")
    key = bare.replace("=", ".").split(".")[0]
    of_stage = {field.alias or name for name, field in Draw.model_fields.items()} - {"kind", "drawing"}
    if key in registry.parameters(registry.load("drawings", name)) or key not in of_stage | {"root", "stages"}:
        return f"{word[: len(word) - len(bare)]}stages.draw.drawing.{bare}"
    return word if key in ("root", "stages") else f"{word[: len(word) - len(bare)]}stages.draw.{bare}"


def _copied(outcome: Any, out: Path | None, force: bool) -> list[Path]:
    """The pictures' files; copies of them where another folder is asked for.

    Raises:
        UsageError: other pictures lie there under these names, and nothing says that they may go.
    """
    from vlcli.recipe import stage_record
    from vlcli.report.refuse_overwrite import refuse_others

    record = stage_record.read(outcome.folder) if outcome.error is None else None
    files = [outcome.folder / name for name in record.files.values()] if record else []
    if out is None:
        return files
    targets = {file: out / file.relative_to(outcome.folder) for file in files}
    if not force:
        refuse_others({copy: file.read_bytes() for file, copy in targets.items()})
    copies = []
    for file, copy in targets.items():
        copies.append(write_bytes(copy, file.read_bytes()))
    return copies
