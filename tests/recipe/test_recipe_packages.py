"""An entry point that names a folder: every YAML file is a recipe, found without importing the package."""

from __future__ import annotations

from pathlib import Path

import pytest

from vlcli.registry.packages import Entry, expanded


def test_a_folder_of_recipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "stranger_recipes"
    (folder / "more").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise SystemExit('imported')\n")
    for name in ("my_paper", "table_1", "_part", "more/table_2"):
        (folder / f"{name}.yaml").write_text("about: x\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = {one.name: one.value for one in expanded(Entry("recipes", "my-paper", "stranger_recipes", "stranger"))}
    assert found == {
        "my-paper": "stranger_recipes:my_paper",
        "my-paper/table-1": "stranger_recipes:table_1",
        "my-paper/more/table-2": "stranger_recipes.more:table_2",
    }


def test_a_folder_without_recipes_stays_an_entry() -> None:
    entry = Entry("recipes", "nothing", "no_such_package_anywhere", "stranger")
    assert list(expanded(entry)) == [entry]
