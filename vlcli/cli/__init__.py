"""The verbs of the command line; importing this package imports neither torch nor numpy, nor any component."""

import os
import warnings
from collections.abc import Callable
from pathlib import Path

import typer
from typer import Exit, Option

from vlcli.cli import (
    console,
    costs,
    data,
    demo,
    doctor,
    evaluate,
    features,
    init,
    listing,
    plugin,
    predict,
    reproduce,
    results,
    run,
    runs,
    single_stage,
    small_verbs,
)
from vlcli.stopping import end_with
from vlcli.version import __version__

app = typer.Typer(
    name="vlcli",
    help="Vision-language pre-training from one command line: extract, pretrain, finetune, evaluate, export.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        console.out(f"vlcli {__version__}")
        raise Exit


@app.callback()
def _root(version: bool = Option(False, "--version", callback=_version, is_eager=True, help="Show it.")) -> None:
    pass


_RUNNERS: dict[str, Callable[..., None]] = {
    "init": init.init,
    "run": run.run,
    "extract": run.stage_verb("extract", "Turn images into region features: the recipe's extract stages."),
    "pretrain": run.stage_verb("pretrain", "Pre-train: the recipe's pretrain stages, with what they build on."),
    "finetune": run.stage_verb("finetune", "Fine-tune: the recipe's finetune stages, with what they build on."),
    "rehearse": costs.rehearse,
    "kit": costs.kit,
    "export": single_stage.export,
    "eval": evaluate.evaluate,
    "reproduce": reproduce.reproduce,
    "draw": single_stage.draw,
    "predict": predict.predict,
    "ask": predict.ask,
    "search": predict.search,
    "push": small_verbs.push,
    "demo": demo.demo,
}
_LOOKERS: dict[str, Callable[..., None]] = {
    "ls": listing.ls,
    "show": listing.show,
    "cp": listing.cp,
    "validate": small_verbs.validate,
    "schema": small_verbs.schema,
    "count": costs.count,
    "plan": costs.plan,
    "checkpoint": small_verbs.checkpoint,
    "doctor": doctor.doctor,
    "trust": small_verbs.trust,
    "runs": runs.runs,
    "diff": results.diff,
    "follow": runs.follow,
    "report": results.report,
    "table": results.table,
}
for _name, _verb in (_RUNNERS | _LOOKERS).items():
    app.command(_name, rich_help_panel="Look" if _name in _LOOKERS else "Run")(_verb)
app.add_typer(features.app, name="features", rich_help_panel="Data")
app.add_typer(data.app, name="data", rich_help_panel="Data")
app.add_typer(plugin.app, name="plugin", rich_help_panel="Look")


WAITS = {"GOMP_SPINCOUNT": "1000", "KMP_BLOCKTIME": "0"}
"""How OpenMP's threads (GNU's and LLVM's) wait for one another: they sleep soon. Beside a busy program two threads that
spin took 33 s for what one does in 2.5 s and two that sleep in 3.1 s. OMP_WAIT_POLICY goes before."""


def main() -> None:
    """Runs the command line; the script ``vlcli`` calls it."""
    if "OMP_WAIT_POLICY" not in os.environ:
        for name, value in WAITS.items():
            os.environ.setdefault(name, value)  # read when torch is loaded
    warnings.formatwarning = _format_warning
    end_with(lambda: app(prog_name="vlcli"))


_formatted = warnings.formatwarning


def _format_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    # vlcli's own are for its users, who have no use for a line of its code
    ours = Path(filename).is_relative_to(Path(__file__).parents[1])
    return f"warning: {message}\n" if ours else _formatted(message, category, filename, lineno, line)
