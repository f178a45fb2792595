"""One HTML file with everything inside it: templates, style and script of this package, and a policy for no other.

Everything that comes from data or recipes is escaped by the template engine; scripts and styles run only if their
digest stands in the page's content security policy, so that markup in somebody's sentences stays text.
"""

from __future__ import annotations

import base64
import hashlib
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from vlcli.errors import UsageError
from vlcli.version import __version__

GENERATOR = "vlcli report"
"""What pages name as their generator; a file without it is not replaced."""


def filled(template: str, shown: dict[str, Any]) -> str:
    """A page as text.

    Args:
        template: name of a file in ``templates``; extends ``base.html``.
        shown: what the template reads, among it ``title``, ``about``, ``facts`` and ``sections``.
    """
    css, script = _asset("report.css"), _asset("report.js")
    frame = {
        "thumbnails": [],
        "generator": f"{GENERATOR} {__version__}",
        "footer": f"Written by vlcli {__version__} at {datetime.now(UTC):%Y-%m-%d %H:%M} UTC.",
        "css": _trusted(css),
        "script": _trusted(script),
        "policy": _policy(css, script),
    }
    return str(_environment().get_template(template).render({**frame, **shown}))


def refuse_other(file: Path) -> None:
    """Raise where a file lies that is no report.

    Raises:
        UsageError: a folder, or a file without the mark of vlcli's reports.
    """
    mark = f'name="generator" content="{GENERATOR}'
    if file.is_dir() or (file.is_file() and mark not in _head(file)):
        raise UsageError(
            "This is not a report that vlcli wrote; it is not replaced.",
            where=str(file),
            hint="name another file: -o page.html",
        )


def _head(file: Path) -> str:
    with file.open(encoding="utf-8", errors="replace") as opened:
        return opened.read(4096)


@cache
def _environment() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("vlcli.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _asset(name: str) -> str:
    return (resources.files("vlcli.pages") / "templates" / name).read_text(encoding="utf-8")


def _trusted(text: str) -> Any:
    """The package's own style or script, which is not escaped."""
    from markupsafe import Markup

    return Markup(text)  # noqa: S704 - no data in it


def _policy(css: str, script: str) -> str:
    """Nothing is fetched; pictures are inside; only this script and this style run."""

    def digest(text: str) -> str:
        return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"

    sources = f"img-src data:; style-src {digest(css)}; script-src {digest(script)}"
    return f"default-src 'none'; {sources}; base-uri 'none'; form-action 'none'"
