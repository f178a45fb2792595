"""Fills templates: one HTML file with style and script inside, whose policy allows no other.

The template engine escapes text of data and recipes, so that markup in somebody's sentences stays text.
"""

import base64
import hashlib
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from vlcli.errors import UsageError
from vlcli.version import __version__

_GENERATOR = "vlcli report"  # what pages name as their generator; a file without it is not replaced


def filled(template: str, shown: dict[str, Any]) -> str:
    """Return a page as text; a template's values have ``title``, ``about``, ``facts`` and ``sections``."""
    from markupsafe import Markup

    assets = resources.files("vlcli.pages") / "templates"
    css, script = ((assets / name).read_text(encoding="utf-8") for name in ("report.css", "report.js"))
    styles, scripts = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (css, script))
    sources = f"img-src data:; style-src 'sha256-{styles}'; script-src 'sha256-{scripts}'"
    frame = {
        "thumbnails": [],
        "generator": f"{_GENERATOR} {__version__}",
        "footer": f"Written by vlcli {__version__} at {datetime.now(UTC):%Y-%m-%d %H:%M} UTC.",
        "css": Markup(css),  # noqa: S704 - the package's own, no data in it
        "script": Markup(script),  # noqa: S704
        "policy": f"default-src 'none'; {sources}; base-uri 'none'; form-action 'none'",
    }
    return str(_environment().get_template(template).render({**frame, **shown}))


def refuse_other(file: Path) -> None:
    """Raise UsageError where a page would replace a folder, or a file without the mark of vlcli's pages."""
    head, mark = "", f'name="generator" content="{_GENERATOR}'
    if file.is_file():
        with file.open(encoding="utf-8", errors="replace") as opened:
            head = opened.read(4096)
    if file.is_dir() or (file.is_file() and mark not in head):
        what = "This is not a report that vlcli wrote; it is not replaced."
        raise UsageError(what, where=str(file), hint="name another file: -o page.html")


@cache
def _environment() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    options: dict[str, Any] = {"undefined": StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
    return Environment(loader=PackageLoader("vlcli.pages"), autoescape=True, **options)
