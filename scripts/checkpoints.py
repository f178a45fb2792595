"""Write the table of docs/checkpoints.md: what becomes of every published file.

python scripts/checkpoints.py            # write the page
python scripts/checkpoints.py --check    # say whether it is up to date
"""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path

from vlcli.checkpoints.load import Checkpoint, every
from vlcli.checkpoints.trial import Trial, checked, score, trial_row

PAGE = Path(__file__).parents[1] / "docs" / "checkpoints.md"
MARK = "<!-- table: scripts/checkpoints.py -->"
HEAD = ("file", "layout", "tensors", "numbers", "read", "excused", "new in the model", "published", "licence")


def table() -> str:
    """One table for each family: its files and what becomes of their tensors."""
    parts = []
    for _, group in groupby(every(), key=lambda one: one.family.family):
        files = list(group)
        parts += [f"### {files[0].family.family}", "", f"{files[0].family.title}.", ""]
        parts += [_line(HEAD), _line(["---"] * len(HEAD))]
        parts += [_line([_link(one), *row(one, checked(one))[1:], score(one), one.file.licence]) for one in files]
        parts.append("")
    return "\n".join(parts).rstrip() + "\n"


def row(one: Checkpoint, trial: Trial) -> list[str]:
    """The columns up to what is new in the model."""
    return trial_row(one, trial)


def _link(one: Checkpoint) -> str:
    return f"[{one.name}]({one.file.url})"


def _line(cells: list[str] | tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


def page() -> str:
    """The page with its table."""
    text = PAGE.read_text(encoding="utf-8")
    return f"{text.split(MARK)[0]}{MARK}\n\n{table()}"


if __name__ == "__main__":
    made = page()
    if "--check" in sys.argv:
        sys.exit(PAGE.read_text(encoding="utf-8") != made)
    PAGE.write_text(made, encoding="utf-8")
