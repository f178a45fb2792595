"""Draws the packages of vlcli and their imports, and counts what a reader of the code has to know.

    python scripts/architecture.py            # writes docs/architecture.svg
    python scripts/architecture.py --check    # ends with 1 where the file is not what would be drawn
    python scripts/architecture.py --figures  # prints circles, upward imports, and the names that plugins import

The rows of the picture are the layers of the first contract under ``[tool.importlinter]``. An arrow means that some
module of one package imports some module of the other; arrows that follow from two others are left out.
"""

from __future__ import annotations

import argparse
import ast
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import grimp
import networkx

PROJECT = Path(__file__).resolve().parents[1]
PICTURE = PROJECT / "docs" / "architecture.svg"
PLUGINS = "plugins"
WIDTH, ROW, BOX, HEIGHT = 960, 74, 132, 36
STYLE = (
    "text{font:13px sans-serif;text-anchor:middle}.note{font-size:11px;fill:#555}rect{fill:#eef3fb;stroke:#4a6fa5;rx:6}"
    ".down{stroke:#8aa;fill:none;marker-end:url(#head)}.up{stroke:#c33;fill:none;stroke-width:2;marker-end:url(#head)}"
)

Edges = set[tuple[str, str]]
Place = dict[str, tuple[float, float]]


def layers() -> list[list[str]]:
    """Packages of each layer, the highest first; plugins stand above all."""
    contracts = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    rows = next(contract for contract in contracts["contracts"] if contract["type"] == "layers")["layers"]
    split = [row.replace(":", "|").split("|") for row in rows]
    return [[PLUGINS], *([name.strip(" ()") for name in row] for row in split)]


def plugin_packages() -> list[str]:
    """Import names of the packages under plugins/."""
    return sorted(path.parent.name for path in (PROJECT / PLUGINS).glob("*/__init__.py"))


def modules() -> networkx.DiGraph:
    """The import graph of modules, type-checking imports left out."""
    sys.path[:0] = [str(PROJECT), str(PROJECT / PLUGINS)]
    graph = grimp.build_graph("vlcli", *plugin_packages(), exclude_type_checking_imports=True, cache_dir=None)
    found = networkx.DiGraph()
    found.add_nodes_from(graph.modules)
    pairs = ((module, other) for module in graph.modules for other in graph.find_modules_directly_imported_by(module))
    found.add_edges_from(pairs)
    return found


def package_of(module: str) -> str:
    """The drawn package of a module: ``vlcli.nn.mask`` is ``nn``'s, every plugin's module is ``plugins``'."""
    parts = module.split(".")
    if parts[0] != "vlcli":
        return PLUGINS
    return parts[1] if len(parts) > 1 else ""


def packages(graph: networkx.DiGraph, drawn: set[str]) -> Edges:
    """Imports between drawn packages."""
    pairs = {(package_of(a), package_of(b)) for a, b in graph.edges}
    return {(a, b) for a, b in pairs if a != b and {a, b} <= drawn}


def reduced(edges: Edges, rows: list[list[str]]) -> tuple[Edges, Edges]:
    """Downward arrows that do not follow from two others, and all upward arrows."""
    level = {name: number for number, row in enumerate(rows) for name in row}
    up = {(a, b) for a, b in edges if level[a] > level[b]}
    down = networkx.DiGraph(edges - up)
    return set(networkx.transitive_reduction(down).edges), up


def places(rows: list[list[str]]) -> Place:
    """Centre of each box; single boxes alternate between three columns so that arrows stay apart."""
    columns = (0.5, 0.25, 0.75)
    found = {}
    for number, row in enumerate(rows):
        for index, name in enumerate(row):
            share = columns[number % 3] if len(row) == 1 else (index + 0.5) / len(row)
            found[name] = (WIDTH * share, 40 + ROW * number)
    return found


def arrow(start: tuple[float, float], end: tuple[float, float], style: str) -> str:
    """A curved line from one box to another."""
    sign = 1 if end[1] > start[1] else -1
    y1, y2 = start[1] + sign * HEIGHT / 2, end[1] - sign * (HEIGHT / 2 + 6)
    middle = (y1 + y2) / 2
    path = f"M{start[0]:.0f},{y1:.0f} C{start[0]:.0f},{middle:.0f} {end[0]:.0f},{middle:.0f} {end[0]:.0f},{y2:.0f}"
    return f'<path class="{style}" d="{path}"/>'


def boxes(at: Place) -> Iterator[str]:
    """A rectangle with its name for every package; that of plugins lists them below its name."""
    for name, (x, y) in at.items():
        corner = f'x="{x - BOX / 2:.0f}" y="{y - HEIGHT / 2:.0f}" width="{BOX}" height="{HEIGHT}"'
        yield f'<rect {corner}/><text x="{x:.0f}" y="{y + 5:.0f}">{name}</text>'


def svg() -> str:
    """The picture."""
    rows = layers()
    down, up = reduced(packages(modules(), {name for row in rows for name in row}), rows)
    at = places(rows)
    lines = [arrow(at[a], at[b], style) for style, edges in (("down", down), ("up", up)) for a, b in sorted(edges)]
    height = 40 + ROW * len(rows)
    names = ", ".join(name.removeprefix("vlcli_") for name in plugin_packages())
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"><style>{STYLE}</style>'
        '<defs><marker id="head" markerWidth="8" markerHeight="8" refX="6" refY="3" orient="auto">'
        '<path d="M0,0 L6,3 L0,6 z" fill="#678"/></marker></defs>'
    )
    note = f'<text class="note" x="{WIDTH / 2:.0f}" y="14">plugins: {names}</text>'
    return "\n".join([head, note, *lines, *boxes(at), "</svg>"]) + "\n"


def imported_names() -> set[tuple[str, str]]:
    """(module, name) of everything that plugins import from vlcli."""
    found = set()
    for file in (PROJECT / PLUGINS).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "vlcli":
                found |= {(str(node.module), alias.name) for alias in node.names}
    return found


def figures() -> str:
    """Numbers that say how much of the code a reader has to know."""
    graph, rows = modules(), layers()
    circles = [sorted(group) for group in networkx.strongly_connected_components(graph) if len(group) > 1]
    _, up = reduced(packages(graph, {name for row in rows for name in row}), rows)
    names = imported_names()
    lines = [
        f"modules: {graph.number_of_nodes()}, imports between them: {graph.number_of_edges()}",
        f"circles of modules: {len(circles)}",
        *(f"  {', '.join(group)}" for group in circles),
        f"upward imports between packages: {len(up)}",
        *(f"  {a} -> {b}" for a, b in sorted(up)),
        f"names that plugins import: {len(names)} from {len({module for module, _ in names})} modules",
    ]
    return "\n".join(lines)


def main() -> int:
    """Draw, compare or count."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare with the file, write nothing")
    parser.add_argument("--figures", action="store_true", help="print numbers, write nothing")
    chosen = parser.parse_args()
    if chosen.figures:
        print(figures())
    elif not chosen.check:
        PICTURE.write_text(svg(), encoding="utf-8")
    elif not PICTURE.is_file() or PICTURE.read_text(encoding="utf-8") != svg():
        print(
            "docs/architecture.svg is not the picture of this code: run python scripts/architecture.py", file=sys.stderr
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
