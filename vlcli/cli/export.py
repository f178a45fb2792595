"""``vlcli export``: writes a trained model in another format, or runs a recipe's export stages."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from vlcli.cli import options
from vlcli.cli.guard import guarded
from vlcli.cli.request import RunRequest, one_stage, requested
from vlcli.cli.run import carry_out, chosen, run_one
from vlcli.errors import UsageError
from vlcli.files import new_folder
from vlcli.recipe import stage_record
from vlcli.runner.execute import StageOutcome


@guarded
@requested
def export(
    words: Annotated[
        list[str] | None, options.names("[MODEL] [KEY=VALUE]...", "A model, then options of the format.", None)
    ] = None,
    format_: Annotated[
        str | None, typer.Option("--format", help="hub, onnx, safetensors, transformers: vlcli ls exporters.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The folder; new, or empty.")] = None,
    recipe: options.RunRecipe = None,
    *,
    request: RunRequest,
) -> None:
    """Write a trained model in another format; without a model, run the recipe's export stages.

    vlcli export quickstart/nlvr2 --format hub license=apache-2.0 -o nlvr2-shapes

    vlcli export --recipe quickstart
    """
    names, more = options.split_words(words)
    if not names:
        if format_ or out:
            got = " ".join(word for word, is_there in {"--format": format_, "-o": out}.items() if is_there)
            raise UsageError("Say which model to export.", got=got, expected="vlcli export MODEL --format hub -o OUT")
        request = replace(request, kind=None if request.only else "export")
        run_one(chosen(recipe, "export", request), more, request, verb="export")
        return
    if recipe or len(names) > 1 or not format_:
        expected = "vlcli export MODEL --format hub, onnx, safetensors or transformers; or vlcli export --recipe RECIPE"
        raise UsageError("Name one model and its format.", got=" ".join(names), expected=expected)
    if out is not None and out.exists() and not (out.is_dir() and not any(out.iterdir())):
        hint = "choose another folder with -o"
        raise UsageError("The folder is not empty.", where=str(out), expected="a new or an empty folder", hint=hint)
    _export(names[0], more, format_, out, request)


def _export(model: str, overrides: list[str], form: str, out: Path | None, request: RunRequest) -> None:
    from vlcli.engine.bundle import read_bundle
    from vlcli.prediction.sources import find_model

    source = find_model(model, request.output)
    read_bundle(source)  # before a run folder is made
    stage = {"kind": "export", "from": [str(source)], "format": {"name": form}}
    overrides = [f"stages.export.format.{word}" for word in overrides]
    resolved = one_stage({"name": "export", "stages": {"export": stage}}, overrides, f"{source.name}-{form}")

    def exported(outcome: StageOutcome) -> dict[str, Any]:
        folder = outcome.folder
        if outcome.status == "done" and (record := stage_record.read(folder)) is not None:
            files = list(record.files.values())
            folder = folder / files[0] if len(files) == 1 and (folder / files[0]).is_dir() else folder
            if out is not None:
                ours = shutil.ignore_patterns(stage_record.FILE, stage_record.COPY)
                with new_folder(out) as beside:
                    shutil.copytree(folder, beside, dirs_exist_ok=True, ignore=ours)
                folder = out
        return {"exported": str(folder)}

    carry_out(resolved, replace(request, kind=None, only=None, folder=request.output / "export"), exported)
