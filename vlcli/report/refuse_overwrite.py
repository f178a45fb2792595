"""Pictures that lie where new ones go."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from vlcli.errors import UsageError
from vlcli.plain import comma_list


def refuse_others(pictures: Mapping[Path, bytes]) -> None:
    """Refuse to put pictures where others lie: of another model, of other data, of an earlier state.

    Args:
        pictures: the new files' content by path; a file that holds just this is no other.

    Raises:
        UsageError: which would be lost.
    """
    lost = [path for path, content in pictures.items() if path.is_file() and path.read_bytes() != content]
    if lost:
        raise UsageError(
            "Other pictures lie here under these names.",
            where=str(lost[0].parent),
            got=comma_list((path.name for path in lost), 3),
            expected="a folder without them",
            hint="name another: --out FOLDER; or replace them: --force",
        )
