"""``vlcli plugin``: writes a package to begin with, and checks components; adds packages' commands to groups."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option
from typer.core import TyperGroup

from vlcli.cli import console, options
from vlcli.cli.guard import RunRequest, guarded, leave, verb
from vlcli.errors import ComponentError
from vlcli.registry import load, names


class PluginGroup(TyperGroup):
    """A group of commands that packages add to: ``data.aggregate`` becomes ``vlcli data aggregate``.

    The names come from metadata; a command is imported when it is run, or when the help of its group is shown.
    """

    # contexts and commands are those of click, which new versions of typer carry inside themselves: they have no type

    def list_commands(self, ctx: Any) -> list[str]:
        return list(dict.fromkeys([*super().list_commands(ctx), *self._added()]))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is not None or cmd_name not in self._added():
            return command
        try:
            function, settings = load("commands", f"{self.name}.{cmd_name}"), {}
        except ComponentError as error:
            function, settings = _failing(error), {"ignore_unknown_options": True, "allow_extra_args": True}
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command(cmd_name, context_settings=settings)(guarded(function))
        return typer.main.get_command(app)

    def _added(self) -> list[str]:
        prefix = f"{self.name}."
        return [name.removeprefix(prefix) for name in names("commands") if name.startswith(prefix)]


def _failing(error: ComponentError) -> Callable[[], None]:
    def broken() -> None:
        raise error

    broken.__doc__ = f"(broken) {error.what}"
    return broken


app = typer.Typer(
    cls=PluginGroup, help="Packages with components: begin one, check one.", no_args_is_help=True, rich_markup_mode=None
)


@verb(app, "new")
def new(
    name: Annotated[str, Argument(help="Name of the package: my-paper.")],
    folder: Annotated[Path | None, Option("--out", "-o", help="Where to; else a folder of that name.")] = None,
    only: Annotated[str, Option("--only", help="Some of model,objective,position,reader,task; else all of them.")] = "",
    json_: options.Json = False,
) -> None:
    """Write a package with a model, an objective, a position encoding, a reader, a task, a recipe and tests.

    vlcli plugin new my-paper
    vlcli plugin new my-paper --only model,objective
    """
    from vlcli.plugin_kit.scaffold import write_package

    folder = folder or Path(name)
    files = [str(file) for file in write_package(name, folder, list(filter(None, options.comma_separated(only))))]
    if json_:
        console.out_json({"folder": str(folder), "files": files})
        return
    console.table(["file"], [[file] for file in files])
    console.err(f"next: pip install -e {folder} && vlcli plugin check {name}, then vlcli run {name}/small")


_CHECKED = "A package, a component, or a package's folder."


@verb(app, "check", "plugin", "json_")
def check(
    request: RunRequest,
    what: Annotated[str | None, Argument(metavar="[NAME|FOLDER]", help=_CHECKED)] = None,
    quick: Annotated[bool, Option("--quick", help="Leave out the checks that trace or train.")] = False,
    against: Annotated[str | None, Option("--against", help="Compare outputs instead: transformers:ViltModel.")] = None,
    tolerance: Annotated[float, Option(min=0, help="Largest difference that --against accepts.")] = 1e-4,
) -> None:
    """Check components: interface, shapes, masks, saving and loading, a training step, export. Without a name: all.

    vlcli plugin check my-paper
    vlcli plugin check vilt --against transformers:ViltModel
    """
    if against is not None:
        _compare(what or "", against, tolerance, request.json_)
        return
    from vlcli.plugin_kit.checks import conform
    from vlcli.plugin_kit.conformance import FAILED, chosen

    results = [result for entry in chosen(what) for result in conform(entry, quick=quick)]
    wrong = [result for result in results if result.state == FAILED]
    if request.json_:
        console.out_json({"checks": [vars(result) for result in results], "failed": len(wrong)})
    else:
        console.table(["kind", "name", "check", "result"], [[r.kind, r.name, r.check, r.state] for r in results])
        console.err_lines(map(str, wrong))
        console.err(f"{len(results) - len(wrong)} of {len(results)} checks passed or do not apply")
    leave(4 if wrong else 0)


def _compare(what: str, against: str, tolerance: float, json_: bool) -> None:
    from vlcli.plugin_kit.against import compare

    differences = compare(what, against)
    largest = max(differences.values())
    wrong = not largest <= tolerance  # so that NaN is wrong
    if json_:
        facts = {"outputs": differences, "largest": largest, "tolerance": tolerance, "failed": wrong}
        console.out_json({"against": against, **facts})
    else:
        rows = [[name, f"{value:.3g}"] for name, value in differences.items()]
        console.table(["output", "largest difference"], rows)
        console.err(f"{what} {'differs from' if wrong else 'equals'} {against} within {tolerance:g}"[:200])
    leave(4 if wrong else 0)
