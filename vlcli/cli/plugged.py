"""Commands of packages: entry points of the group ``vlcli.commands`` in a group of the command line."""

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

    The names come from metadata. A command is imported when it is run, or when the help of its group is shown. Contexts
    and commands are those of click, which new versions of typer carry inside themselves, and so have no type here.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        """Built-in commands, then those of packages."""
        own = super().list_commands(ctx)
        return [*own, *(name for name in self._added() if name not in own)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A built-in command, or one of a package."""
        own = super().get_command(ctx, cmd_name)
        return own or (_command(f"{self.name}.{cmd_name}", cmd_name) if cmd_name in self._added() else None)

    def _added(self) -> list[str]:
        from vlcli.registry import names

        prefix = f"{self.name}."
        return [name.removeprefix(prefix) for name in names("commands") if name.startswith(prefix)]


def _command(name: str, word: str) -> Any:
    """A registered function as a command; a broken one ends in its cause when it is run."""
    from vlcli.registry import load

    options = {}
    try:
        function = load("commands", name)
    except ComponentError as error:
        function, options = _failing(error), ANYTHING
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(word, context_settings=options)(guarded(function))
    return typer.main.get_command(app)


def _failing(error: ComponentError) -> Callable[[], None]:
    def broken() -> None:
        raise error

    broken.__doc__ = f"(broken) {error.what}"
    return broken
