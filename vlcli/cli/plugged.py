"""Adds the commands of packages (entry points ``vlcli.commands``) to a group of the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperGroup

from vlcli.cli.guard import guarded
from vlcli.errors import ComponentError

ANYTHING = {"ignore_unknown_options": True, "allow_extra_args": True}


class PluginGroup(TyperGroup):
    """A group of commands that packages add to: ``data.aggregate`` becomes ``vlcli data aggregate``.

    The names come from metadata; a command is imported when it is run, or when the help of its group is shown.
    """

    # contexts and commands are those of click, which new versions of typer carry inside themselves: they have no type

    def list_commands(self, ctx: Any) -> list[str]:
        """Returns the built-in commands, then those of packages."""
        return list(dict.fromkeys([*super().list_commands(ctx), *self._added()]))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Returns a built-in command, or one of a package; a broken one ends in its cause when it is run."""
        from vlcli.registry import load

        command = super().get_command(ctx, cmd_name)
        if command is not None or cmd_name not in self._added():
            return command
        options = {}
        try:
            function = load("commands", f"{self.name}.{cmd_name}")
        except ComponentError as error:
            function, options = _failing(error), ANYTHING
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command(cmd_name, context_settings=options)(guarded(function))
        return typer.main.get_command(app)

    def _added(self) -> list[str]:
        from vlcli.registry import names

        prefix = f"{self.name}."
        return [name.removeprefix(prefix) for name in names("commands") if name.startswith(prefix)]


def _failing(error: ComponentError) -> Callable[[], None]:
    def broken() -> None:
        raise error

    broken.__doc__ = f"(broken) {error.what}"
    return broken
