"""``vlcli data where``: which data sets and checkpoints a recipe wants, and where they come from."""

from __future__ import annotations

from typing import Any

from vlcli.cli import options as o
from vlcli.cli.guard import guarded
from vlcli.tools.published import NOT_VERIFIED

_UNSURE = f"{NOT_VERIFIED}: not found on an official page; look at the source before you rely on it"


@guarded
def where(
    words: o.RecipesAndWords = None,
    trust: o.Trust = False,
    json_: o.Json = False,
    verbose: o.Verbose = 0,
) -> None:
    """Say of every data set and checkpoint of a recipe whether it is there, and how you get it where it is not.

    Nothing is downloaded: the commands are for you to run. Without a recipe: every data set that vlcli knows.
    """
    from vlcli.cli import console
    from vlcli.recipe.load import load
    from vlcli.tools.published import SOURCES
    from vlcli.tools.whereabouts import wanted_by

    if not words:
        if json_:
            console.out_json({"sources": {name: found._asdict() for name, found in SOURCES.items()}})
            return
        rows = [[name, one.title, one.size, one.licence, one.url] for name, one in sorted(SOURCES.items())]
        console.table(["reader", "data set", "size", "licence", "source"], rows)
        console.out(_UNSURE)
        return
    name, overrides = o.one_recipe(words)
    found = wanted_by(load(name, overrides, trust=trust))
    if json_:
        console.out_json({"recipe": name, "wanted": [one.as_dict() for one in found]})
        return
    rows = [[one.what, one.name, one.state, ", ".join(one.stages)] for one in found]
    console.table(["what", "name", "state", "stages"], rows)
    for one in found:
        if one.missing:
            _tell(one)


def _tell(one: Any) -> None:
    """What is missing of one data set, and how a person gets it."""
    from vlcli.cli import console

    console.out("")
    console.out(f"{one.name} ({', '.join(one.stages)}) is missing:")
    for path in one.missing[:6]:
        console.out(f"  {path}")
    source = one.source
    if source is None:
        console.out("  these are files of your own: check the recipe's `root`, e.g. root=FOLDER")
        return
    facts = {"source": source.url, "licence": source.licence, "size": source.size, "layout under root": source.layout}
    for label, text in facts.items():
        if text:
            console.out(f"  {label}: {text}")
    by_hand = "  to get it: follow the page (a form, or pictures by address)"
    console.out("  to get it, in the data root:" if source.commands else by_hand)
    for line in source.commands:
        console.out(f"    {line}")
    if NOT_VERIFIED in f"{source.licence} {source.size}":
        console.out(f"  {_UNSURE}")
