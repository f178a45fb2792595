"""``vlcli draw`` and ``vlcli export``: runs a single stage, or a recipe's stages of the kind."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from vlcli import registry
from vlcli.cli import options
from vlcli.cli.guard import RunRequest, one_stage, requested
from vlcli.cli.run import carry_out, run_kind
from vlcli.errors import DataError, UsageError
from vlcli.files import new_folder, write_bytes
from vlcli.recipe import stage_record
from vlcli.recipe.locate import Resolved
from vlcli.recipe.schema import Draw
from vlcli.runner.execute import StageOutcome

_ABOUT = "A drawing (vlcli ls drawings), then its options."
_DRAWING = options.names("NAME [KEY=VALUE]...", _ABOUT, options.complete_drawings)
_DRAWN = "What is drawn: RECIPE/STAGE, or a folder (repeatable)."
_MODEL = options.names("[MODEL] [KEY=VALUE]...", "A model, then options of the format.", None)
_FORMAT = "hub, onnx, safetensors, transformers: vlcli ls exporters."


@requested()
def draw(
    request: RunRequest,
    words: Annotated[list[str] | None, _DRAWING] = None,
    source: Annotated[list[str] | None, Option("--stage", help=_DRAWN, show_default=False)] = None,
    out: Annotated[Path | None, Option("--out", "-o", help="Put the pictures into this folder.")] = None,
    root: options.Root = None,
    recipe: options.RunRecipe = None,
) -> None:
    """Draw pictures of data, of a trained model, or of what stages measured.

    vlcli draw attention --stage quickstart/nlvr2
    vlcli draw --recipe my.yaml
    """
    if recipe is not None:
        names, overrides = options.split_words(words)
        if names:
            raise UsageError("Name a drawing or a recipe, not both.", got=f"{names[0]} and --recipe {recipe}")
        run_kind(recipe, "draw", overrides, request)
        return
    name, overrides = options.one_name(words, "drawing")
    request = replace(request, only=None, folder=request.output / "draw")
    resolved = _resolved(name, overrides, [_find(one, request.output) for one in source or []], root)
    carry_out(resolved, request, lambda outcome: {"files": list(map(str, _copied(outcome, out, request.force)))})


def _find(source: str, output: Path) -> Path:
    if (path := stage_record.earlier(output, source)) is not None:
        return stage_record.made_in(path.absolute())
    expected = f"a folder, or RECIPE/STAGE under {output}/"
    hint = stage_record.similar(output, source) or "make it: vlcli run RECIPE"
    raise DataError("There is nothing to draw here.", got=source, expected=expected, hint=hint)


def _resolved(name: str, overrides: list[str], folders: list[Path], root: Path | None) -> Resolved:
    known = [one for path in folders if (one := stage_record.read(path) or stage_record.read(path.parent)) is not None]
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


@requested()
def export(
    request: RunRequest,
    words: Annotated[list[str] | None, _MODEL] = None,
    format_: Annotated[str | None, Option("--format", help=_FORMAT)] = None,
    out: Annotated[Path | None, Option("--out", "-o", help="The folder; new, or empty.")] = None,
    recipe: options.RunRecipe = None,
) -> None:
    """Write a trained model in another format; without a model, run the recipe's export stages.

    vlcli export quickstart/nlvr2 --format hub license=apache-2.0 -o nlvr2-shapes
    vlcli export --recipe quickstart
    """
    names, more = options.split_words(words)
    if not names:
        if format_ or out:
            got = " ".join(word for word, value in {"--format": format_, "-o": out}.items() if value)
            raise UsageError("Say which model to export.", got=got, expected="vlcli export MODEL --format hub -o OUT")
        run_kind(recipe, "export", more, request)
        return
    if recipe or len(names) > 1 or not format_:
        expected = "vlcli export MODEL --format hub, onnx, safetensors or transformers; or vlcli export --recipe RECIPE"
        raise UsageError("Name one model and its format.", got=" ".join(names), expected=expected)
    if out is not None and out.exists() and (not out.is_dir() or any(out.iterdir())):
        hint = "choose another folder with -o"
        raise UsageError("The folder is not empty.", where=str(out), expected="a new or an empty folder", hint=hint)
    from vlcli.engine.bundle import read_bundle
    from vlcli.prediction.sources import find_model

    source = find_model(names[0], request.output)
    read_bundle(source)  # before a run folder is made
    stage = {"kind": "export", "from": [str(source)], "format": {"name": format_}}
    overrides = [f"stages.export.format.{word}" for word in more]
    resolved = one_stage({"name": "export", "stages": {"export": stage}}, overrides, f"{source.name}-{format_}")

    def exported(outcome: StageOutcome) -> dict[str, Any]:
        folder = outcome.folder
        if outcome.status == "done" and (record := stage_record.read(folder)) is not None:
            files = [folder / name for name in record.files.values()]
            folder = files[0] if len(files) == 1 and files[0].is_dir() else folder
            if out is not None:
                ours = shutil.ignore_patterns(stage_record.FILE, stage_record.COPY)
                with new_folder(out) as beside:
                    shutil.copytree(folder, beside, dirs_exist_ok=True, ignore=ours)
                folder = out
        return {"exported": str(folder)}

    carry_out(resolved, replace(request, only=None, folder=request.output / "export"), exported)
