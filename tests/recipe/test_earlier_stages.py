"""An earlier stage is found by the recipe's name and by the name of its run folder."""

from __future__ import annotations

from vlcli.recipe.stage_record import earlier


def test_a_recipe_with_a_slash_in_its_name_is_found_in_its_dashed_folder(tmp_path):
    stage = tmp_path / "runs/tiny-lxmert/vqa"
    stage.mkdir(parents=True)
    runs = tmp_path / "runs"
    for name in ("tiny/lxmert/vqa", "tiny-lxmert/vqa", str(stage)):
        assert earlier(runs, name) == stage
    assert earlier(runs, "tiny/lxmert") == stage.parent
    assert earlier(runs, "tiny/lxmert/gqa") is None
    (runs / "tiny/lxmert/vqa").mkdir(parents=True)
    assert earlier(runs, "tiny/lxmert/vqa") == runs / "tiny/lxmert/vqa", "the literal folder comes first"
