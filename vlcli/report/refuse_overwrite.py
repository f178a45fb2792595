"""Refuses to replace pictures of something else."""

from collections.abc import Mapping
from pathlib import Path

from vlcli.errors import UsageError
from vlcli.plain import comma_list


def refuse_others(pictures: Mapping[Path, bytes]) -> None:
    """Refuses to write ``pictures`` (content by path) where files with another content lie."""
    lost = [path for path, content in pictures.items() if path.is_file() and path.read_bytes() != content]
    if lost:
        what, where = "Other pictures lie here under these names.", str(lost[0].parent)
        got, hint = comma_list((path.name for path in lost), 3), "name another: --out FOLDER; or replace them: --force"
        raise UsageError(what, where=where, got=got, expected="a folder without them", hint=hint)
