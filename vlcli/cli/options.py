"""Options that several verbs share, and completion of names from metadata alone."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from vlcli import registry
from vlcli.errors import UsageError


def _completion(known: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    return lambda incomplete: [name for name in known() if name.startswith(incomplete)]


complete_recipes = _completion(lambda: registry.names("recipes"))
complete_tasks = _completion(lambda: registry.names("tasks"))
complete_drawings = _completion(lambda: registry.names("drawings"))
complete_kinds = _completion(lambda: registry.KINDS)
complete_all = _completion(lambda: sorted({entry.name for entry in registry.entries()}))


_STAGES = "Which stages"
_HOW = "How"
_OUTPUT = "What is shown"

_OVERRIDES = "Overrides: key=value, ~key, key=@file.yaml."
Words = Annotated[list[str] | None, Argument(metavar="[KEY=VALUE]...", help=_OVERRIDES, show_default=False)]


def names(metavar: str, about: str, complete: Any = complete_recipes) -> Any:
    """Returns the argument of names (of recipes) and overrides."""
    return Argument(metavar=metavar, help=about, autocompletion=complete, show_default=False)


_MANY = names("RECIPE... [KEY=VALUE]...", "Recipe names or paths, then overrides.")
RecipesAndWords = Annotated[list[str] | None, _MANY]
RecipesToLookAt = Annotated[list[str], _MANY]
RecipeAndWords = Annotated[list[str], names("RECIPE [KEY=VALUE]...", "A recipe's name or path, then overrides.")]
_DEFAULT = "A registered name or a path; default: quickstart."
Recipe = Annotated[str | None, Option("--recipe", help=_DEFAULT, autocompletion=complete_recipes)]
_OF_KIND = "Run this recipe's stages of the kind."
RunRecipe = Annotated[str | None, Option("--recipe", help=_OF_KIND, autocompletion=complete_recipes)]
Only = Annotated[str | None, Option(help="This stage alone.", rich_help_panel=_STAGES)]
First = Annotated[str | None, Option("--from", help="From this stage on.", rich_help_panel=_STAGES)]
Until = Annotated[str | None, Option(help="Up to this stage.", rich_help_panel=_STAGES)]
Jobs = Annotated[int | None, Option(min=1, help="Independent stages at a time.", rich_help_panel=_HOW)]
_TOGETHER = "Processes that train together on this machine."
Processes = Annotated[int | None, Option(min=1, help=_TOGETHER, rich_help_panel=_HOW)]
DryRun = Annotated[bool, Option("--dry-run", help="Say what would be done, and why.", rich_help_panel=_HOW)]
Force = Annotated[bool, Option("--force", help="Make the chosen stages anew.", rich_help_panel=_HOW)]
Replace = Annotated[bool, Option("--force", help="Replace a file that is there.")]
Resume = Annotated[bool, Option(help="Go on from what a killed run left.", rich_help_panel=_HOW)]
Output = Annotated[Path, Option(help="Folder of all runs.", rich_help_panel=_HOW)]
Device = Annotated[str | None, Option(help="cpu, cuda, cuda:1, mps or auto.", rich_help_panel=_HOW)]
Seed = Annotated[int | None, Option(help="The run's seed.", rich_help_panel=_HOW)]
_PLUGIN = "A Python file that registers components (repeatable)."
Plugin = Annotated[list[str] | None, Option("--plugin", help=_PLUGIN, rich_help_panel=_HOW)]
"""The option ``--plugin``; the guard around a verb loads the files where the parameter is called ``plugin``."""
Trust = Annotated[bool, Option("--trust", help="Run the recipe's own plugin files, this once.", rich_help_panel=_HOW)]
Yes = Annotated[bool, Option("--yes", "-y", help="Accept a grid of more than 1,000 cells.")]
Json = Annotated[bool, Option("--json", help="One JSON document on stdout.", rich_help_panel=_OUTPUT)]
"""The option ``--json``."""
Quiet = Annotated[bool, Option("--quiet", "-q", help="Warnings and errors only.", rich_help_panel=_OUTPUT)]
"""The options ``--quiet`` and ``-q``."""
_DETAIL = "More detail; -vv: tracebacks."
Verbose = Annotated[int, Option("--verbose", "-v", count=True, help=_DETAIL, rich_help_panel=_OUTPUT)]
"""The options ``--verbose`` and ``-v``, counted; a verb that does not name them has them from its guard."""
_TRAINED = "A stage's folder, RECIPE/STAGE under runs/, or an exported model"
Trained = Annotated[str, Argument(help=f"{_TRAINED}.")]
TrainedOrSmall = Annotated[str, Argument(help=f"{_TRAINED}; else a small one of shapes.")]
Features = Annotated[Path | None, Option(help="For models that read regions: a store or its stage's folder.")]
FeaturesFrom = Annotated[Path | None, Option(help="An extract stage whose extractor reads the pictures.")]
Extractor = Annotated[str | None, Option(help="An extractor as in recipes: '{name: NAME, weights: FILE}'.")]
Root = Annotated[Path | None, Option(help="The data root; default: that of the trained model.")]
Stage = Annotated[str | None, Option(help="A training stage; default: the first.")]
MaxPixels = Annotated[int, Option(min=1, max=178, help="Largest picture, in millions of pixels.")]


def load_plugins(files: list[str] | None) -> tuple[str, ...]:
    """Loads the files of ``--plugin`` and returns their absolute paths."""
    for file in files or []:
        registry.load_file(file)
    return tuple(str(Path(file).absolute()) for file in files or [])


def split_words(words: list[str] | None) -> tuple[list[str], list[str]]:
    """Splits positional words into names and overrides."""
    from vlcli.recipe.overrides import is_override

    words = words or []
    return [word for word in words if not is_override(word)], [word for word in words if is_override(word)]


def one_name(words: list[str] | None, kind: str = "recipe") -> tuple[str, list[str]]:
    """Returns the single recipe (task, drawing) that is named, and the overrides."""
    named, overrides = split_words(words)
    if len(named) != 1:
        raise UsageError(f"Name one {kind}.", got=" ".join(named) or "none", hint=f"list them: vlcli ls {kind}s")
    return named[0], overrides


def comma_separated(text: str | None) -> list[str]:
    """Returns the parts of an option such as ``--rows``; none where it is not given."""
    return [] if text is None else [part.strip() for part in text.split(",")]


def refuse_existing(path: Path, force: bool) -> None:
    """Refuses to replace a file without ``--force``."""
    if path.exists() and not force:
        raise UsageError("There is a file already.", where=str(path), hint="choose another name, or --force")


def refuse_bytes(text: str | None) -> None:
    """Refuses a text of the command line that is not UTF-8."""
    if text is not None and any("\ud800" <= letter <= "\udfff" for letter in text):
        got = text.encode("utf-8", "backslashreplace").decode()
        raise UsageError("The text is not UTF-8.", got=got, hint="set the terminal to UTF-8 (LANG=C.UTF-8)")
