"""Options that several verbs share, and completion of names from metadata alone."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from vlcli.errors import UsageError


def complete_recipes(incomplete: str) -> list[str]:
    """Registered recipes."""
    return _names("recipes", incomplete)


def complete_tasks(incomplete: str) -> list[str]:
    """Registered tasks."""
    return _names("tasks", incomplete)


def complete_drawings(incomplete: str) -> list[str]:
    """Registered drawings."""
    return _names("drawings", incomplete)


def complete_kinds(incomplete: str) -> list[str]:
    """Registry kinds."""
    from vlcli.registry import KINDS

    return [kind for kind in KINDS if kind.startswith(incomplete)]


def complete_all(incomplete: str) -> list[str]:
    """Every registered name."""
    from vlcli.registry import entries

    return sorted({entry.name for entry in entries() if entry.name.startswith(incomplete)})


def _names(kind: str, incomplete: str) -> list[str]:
    from vlcli.registry import names

    return [name for name in names(kind) if name.startswith(incomplete)]


class Backend(StrEnum):
    """What looks for the nearest vectors."""

    exact = "exact"
    faiss = "faiss"


_STAGES = "Which stages"
_HOW = "How"
_OUTPUT = "What is shown"

Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Overrides: key=value, ~key, key=@file.yaml.", show_default=False),
]


def _recipes(metavar: str, about: str) -> Any:
    return typer.Argument(metavar=metavar, help=about, autocompletion=complete_recipes, show_default=False)


_MANY = _recipes("RECIPE... [KEY=VALUE]...", "Recipe names or paths, then overrides.")
RecipesAndWords = Annotated[list[str] | None, _MANY]
RecipesToLookAt = Annotated[list[str], _MANY]
RecipeAndWords = Annotated[list[str], _recipes("RECIPE [KEY=VALUE]...", "A recipe's name or path, then overrides.")]
Recipe = Annotated[
    str, typer.Option("--recipe", help="The recipe: a registered name or a path.", autocompletion=complete_recipes)
]
Only = Annotated[str | None, typer.Option("--only", help="This stage alone.", rich_help_panel=_STAGES)]
First = Annotated[str | None, typer.Option("--from", help="From this stage on.", rich_help_panel=_STAGES)]
Until = Annotated[str | None, typer.Option("--until", help="Up to this stage.", rich_help_panel=_STAGES)]
Jobs = Annotated[int | None, typer.Option("--jobs", min=1, help="Independent stages at a time.", rich_help_panel=_HOW)]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and why.", rich_help_panel=_HOW)]
Force = Annotated[bool, typer.Option("--force", help="Make the chosen stages anew.", rich_help_panel=_HOW)]
Resume = Annotated[
    bool, typer.Option("--resume/--no-resume", help="Go on from what a killed run left.", rich_help_panel=_HOW)
]
Output = Annotated[Path, typer.Option("--output", help="Folder of all runs.", rich_help_panel=_HOW)]
Device = Annotated[str | None, typer.Option("--device", help="cpu, cuda, cuda:1, mps or auto.", rich_help_panel=_HOW)]
Seed = Annotated[int | None, typer.Option("--seed", help="The run's seed.", rich_help_panel=_HOW)]
Plugin = Annotated[
    list[str] | None,
    typer.Option("--plugin", help="A Python file that registers components (repeatable).", rich_help_panel=_HOW),
]
Trust = Annotated[
    bool, typer.Option("--trust", help="Run the recipe's own plugin files, this once.", rich_help_panel=_HOW)
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.", rich_help_panel=_OUTPUT)]
"""The option ``--json``."""
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Warnings and errors only.", rich_help_panel=_OUTPUT)]
"""The options ``--quiet`` and ``-q``."""
Verbose = Annotated[
    int, typer.Option("--verbose", "-v", count=True, help="More detail; -vv: tracebacks.", rich_help_panel=_OUTPUT)
]
"""The options ``--verbose`` and ``-v``, counted."""


def load_plugins(files: list[str] | None) -> tuple[str, ...]:
    """Load the files of ``--plugin``; returns their absolute paths."""
    from vlcli.registry import load_file

    for file in files or []:
        load_file(file)
    return tuple(str(Path(file).absolute()) for file in files or [])


def split_words(words: list[str] | None) -> tuple[list[str], list[str]]:
    """Positional words as (names, overrides)."""
    from vlcli.recipe.overrides import is_override

    given = words or []
    return [w for w in given if not is_override(w)], [w for w in given if is_override(w)]


def some_recipes(words: list[str] | None) -> tuple[list[str], list[str]]:
    """The recipes that are named, and the overrides.

    Raises:
        UsageError: none is named.
    """
    names, overrides = split_words(words)
    if not names:
        raise UsageError("Name a recipe.", got="none", hint="list them: vlcli ls recipes")
    return names, overrides


def one_recipe(words: list[str] | None) -> tuple[str, list[str]]:
    """The single recipe that is named, and the overrides.

    Raises:
        UsageError: none or several.
    """
    names, overrides = split_words(words)
    if len(names) != 1:
        raise UsageError("Name one recipe.", got=" ".join(names) or "none", hint="list them: vlcli ls recipes")
    return names[0], overrides


FeaturesFrom = Annotated[
    Path | None, typer.Option("--features-from", help="An extract stage whose extractor reads the pictures.")
]
Extractor = Annotated[
    str | None, typer.Option("--extractor", help="An extractor as in recipes: '{name: NAME, weights: FILE}'.")
]
Trained = Annotated[str, typer.Argument(help="A stage's folder, RECIPE/STAGE under runs/, or an exported model.")]
