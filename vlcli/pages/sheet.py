"""Writes a page of examples of a folder, as ``vlcli init`` understands them."""

from pathlib import Path
from typing import Any

from vlcli.files import write_text
from vlcli.pages.album import Thumbnails
from vlcli.pages.page import filled, refuse_other


def write_sheet(file: Path, facts: dict[str, Any], root: Path) -> None:
    """Write twelve examples with their pictures, and all notes, as one HTML file.

    ``facts`` is the document that ``vlcli init --json`` prints. UsageError: a file that vlcli did not write lies there.
    """
    refuse_other(file)
    album = Thumbnails()
    rows = [
        {**row, "pictures": [{"name": name, "thumbnail": album.of(root / name)} for name in row["pictures"]]}
        for row in facts["rows"]
    ]
    source = next(one for one in facts["data"] if one["file"] == facts["learnt_from"])
    parts = (f"{name}: {part['examples']:,} examples" for name, part in facts["parts"].items())
    options = ", ".join(f"{key}: {value}" for key, value in source["reader"].items())
    shown = {
        "title": f"{root.resolve().name}: {facts['can_learn'][facts['chosen']]}",
        "about": f"Data: {source['file']}",
        "facts": list(parts),
        "sections": [("rows", "Examples"), ("notes", "Notes")],
        "entry": f"Reader: {options}",
        "rows": rows,
        "notes": facts["notes"],
        "aside": facts["left_aside"],
        "thumbnails": album.all,
    }
    write_text(file, filled("sheet.html", shown))
