"""``vlcli draw``: draws one drawing's pictures, or a recipe's draw stages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from vlcli import registry
from vlcli.cli import options
from vlcli.cli.guard import guarded
from vlcli.cli.request import RunRequest, one_stage, requested
from vlcli.cli.run import carry_out, run_one
from vlcli.errors import DataError, UsageError
from vlcli.files import write_bytes
from vlcli.recipe import stage_record
from vlcli.recipe.locate import Resolved
from vlcli.recipe.schema import Draw


@guarded
@requested
def draw(
    words: Annotated[
        list[str] | None,
        options.names(
            "NAME [KEY=VALUE]...", "A drawing (vlcli ls drawings), then its options.", options.complete_drawings
        ),
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option("--stage", help="What is drawn: RECIPE/STAGE, or a folder (repeatable).", show_default=False),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Put the pictures into this folder.")] = None,
    root: options.Root = None,
    recipe: options.RunRecipe = None,
    *,
    request: RunRequest,
) -> None:
    """Draw pictures of data, of a trained model, or of what stages measured.

    vlcli draw attention --stage quickstart/nlvr2

    vlcli draw --recipe my.yaml
    """
    if recipe is not None:
        names, overrides = options.split_words(words)
        if names:
            raise UsageError("Name a drawing or a recipe, not both.", got=f"{names[0]} and --recipe {recipe}")
        run_one(recipe, overrides, replace(request, kind=None if request.only else "draw"), verb="draw")
        return
    name, overrides = options.one_name(words, "drawing")
    request = replace(request, kind=None, only=None, folder=request.output / "draw")
    resolved = _resolved(name, overrides, [_find(one, request.output) for one in source or []], root)
    carry_out(resolved, request, lambda outcome: {"files": list(map(str, _copied(outcome, out, request.force)))})


def _find(source: str, output: Path) -> Path:

    if (path := stage_record.earlier(output, source)) is not None:
        return stage_record.made_in(path.absolute())
    expected = f"a folder, or RECIPE/STAGE under {output}/"
    hint = stage_record.similar(output, source) or "make it: vlcli run RECIPE"
    raise DataError("There is nothing to draw here.", got=source, expected=expected, hint=hint)


def _resolved(name: str, overrides: list[str], folders: list[Path], root: Path | None) -> Resolved:

    records = [stage_record.read(path) or stage_record.read(path.parent) for path in folders]
    known = [record for record in records if record is not None]
    roots = [root] if root else [Path(record.root) for record in known if record.root]
    features = next((record.features for record in known if record.features), [])
    stage: dict[str, Any] = {"kind": "draw", "drawing": {"name": name}, "from": [str(path) for path in folders]}
    if root is None:
        stage["features"] = [path for path in features if Path(path).exists()]
        if data := next(filter(None, (_data_of(record.config) for record in known)), None):
            stage["data"] = data
        elif split := next((record.config["split"] for record in known if record.config.get("split")), None):
            stage["split"] = split
    value = {"name": "draw", "root": str(roots[0]) if roots else ".", "stages": {"draw": stage}}
    return one_stage(value, [_placed(word, name) for word in overrides], name)


def _data_of(config: dict[str, Any]) -> list[Any]:
    # those that the stage is checked on, else those it reads; none where its task chooses
    data = config.get("validation") or config.get("data") or []
    split = config.get("split")
    return [{**spec, "split": split} if split and isinstance(spec, dict) else spec for spec in data]


def _placed(word: str, name: str) -> str:
    # an option of the drawing as an override of the stage; the stage's own keys (data, split) stay

    bare = word.lstrip("~")
    key = bare.replace("=", ".").split(".")[0]
    of_stage = {field.alias or name for name, field in Draw.model_fields.items()} - {"kind", "drawing"}
    if key in registry.parameters(registry.load("drawings", name)) or key not in of_stage | {"root", "stages"}:
        return f"{word[: len(word) - len(bare)]}stages.draw.drawing.{bare}"
    return word if key in ("root", "stages") else f"{word[: len(word) - len(bare)]}stages.draw.{bare}"


def _copied(outcome: Any, out: Path | None, force: bool) -> list[Path]:
    from vlcli.report.refuse_overwrite import refuse_others

    record = stage_record.read(outcome.folder) if outcome.error is None else None
    files = [outcome.folder / name for name in record.files.values()] if record else []
    if out is None:
        return files
    copies = {out / file.relative_to(outcome.folder): file.read_bytes() for file in files}
    if not force:
        refuse_others(copies)
    return [write_bytes(path, content) for path, content in copies.items()]
