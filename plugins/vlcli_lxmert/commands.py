"""Defines the commands ``vlcli data aggregate``, ``composition`` and ``answers``."""

from pathlib import Path
from typing import Annotated, Any

import typer

from vlcli import commands

Sources = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SET.KEY=VALUE]...",
        help="What differs from a set's usual reader: vqa.split=train; ~gqa leaves it out.",
        show_default=False,
    ),
]


def aggregate(
    root: Annotated[Path, typer.Argument(help="The data root, with the official files.")],
    words: Sources = None,
    out: Annotated[Path | None, typer.Option("--out", help="Folder to write into; ROOT/lxmert.")] = None,
    minival: Annotated[str | None, typer.Option("--minival", help="File under ROOT that lists minival.")] = None,
    json_: commands.Json = False,
    quiet: commands.Quiet = False,
    verbose: commands.Verbose = 0,
) -> None:
    """Group captions and questions of COCO, Visual Genome, VQA and GQA by picture, in the layout of LXMERT's files.

    vlcli data aggregate DATA
    """
    from vlcli_lxmert.pretraining import write_pretraining

    progress = commands.progress(verbose, quiet)
    result = write_pretraining(root, out or root / "lxmert", progress, changes(words), minival)
    _show(result["composition"], json_, {"files": result["files"]})
    if not json_:
        for file in result["files"]:
            commands.out(file)


def composition(
    root: Annotated[Path, typer.Argument(help="The data root, with LXMERT's files or the official ones.")],
    words: Sources = None,
    json_: commands.Json = False,
    verbose: commands.Verbose = 0,
) -> None:
    """Count pictures and sentences of LXMERT's five data sets, as far as they are there: its Table 1.

    vlcli data composition DATA
    """
    from vlcli_lxmert.pretraining import table_one

    _show(table_one(root, commands.progress(verbose), changes(words)), json_, {"root": str(root)})


def answers(
    root: Annotated[Path, typer.Argument(help="The data root, with the official files.")],
    words: Sources = None,
    out: Annotated[Path | None, typer.Option("--out", help="File to write; ROOT/lxmert/all_ans.json.")] = None,
    size: Annotated[int, typer.Option("--size", min=1, help="How many answers.")] = 9500,
    json_: commands.Json = False,
    quiet: commands.Quiet = False,
    verbose: commands.Verbose = 0,
) -> None:
    """Build the answer table that image question answering is pre-trained on.

    vlcli data answers DATA --size 9500
    """
    from vlcli_lxmert.pretraining import write_answers

    file = out or root / "lxmert" / "all_ans.json"
    table = write_answers(root, file, commands.progress(verbose, quiet), changes(words), size)
    if json_:
        commands.out_json(table)
        return
    rows = [[name, f"{table['sets'].get(name, 0):,}", f"{share:.1%}"] for name, share in table["questions"].items()]
    commands.table(["data set", "answers", "questions answered"], rows, title=f"{table['answers']:,} answers")
    commands.out(table["file"])


def changes(words: list[str] | None) -> dict[str, dict[str, Any] | None]:
    """Parses ``vqa.split=train`` and ``~gqa`` as changes of the usual sources. Raises UsageError: it is neither."""
    from vlcli.errors import UsageError

    parsed: dict[str, dict[str, Any] | None] = {}
    for override in map(commands.parse, words or []):
        name, *keys = override.keys
        if override.remove and not keys:
            parsed[name] = None
        elif len(keys) == 1 and not override.remove:
            parsed[name] = {**(parsed.get(name) or {}), keys[0]: override.value}
        else:
            raise UsageError("This override changes no source.", got=override.text, expected="vqa.split=train, or ~vqa")
    return parsed


def _show(rows: list[dict[str, Any]], json_: bool, facts: dict[str, Any]) -> None:
    from vlcli_lxmert.readers import TITLES

    if json_:
        commands.out_json({**facts, "composition": rows})
    else:
        commands.counts(rows, TITLES)
