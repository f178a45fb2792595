"""Hook of mkdocs: README, ARCHITECTURE, CONTRIBUTING, CHANGELOG, SECURITY and LICENSE become pages of the site.

The pages of docs/ link to them as ``../CONTRIBUTING.md``, and they link to docs/ as ``docs/recipes.md``. Both forms
work on the host of the code; here they become links within the site, which mkdocs checks.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

PROJECT = Path(__file__).resolve().parents[1]
PAGES = {
    "README.md": "overview.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "LICENSE": "license.md",
}


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that lie beside docs/."""
    for name, page in PAGES.items():
        text = (PROJECT / name).read_text(encoding="utf-8")
        content = f"# License\n\n```text\n{text}```\n" if name == "LICENSE" else text
        files.append(File.generated(config, page, content=content))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Turn links between docs/ and the pages beside it into links within the site."""
    for name, target in PAGES.items():
        markdown = markdown.replace(f"](../{name}", f"]({target}").replace(f"]({name}", f"]({target}")
    return markdown.replace("](docs/", "](")
