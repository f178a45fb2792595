"""Rows of tables: what a row is as a recipe, grids, defaults of kinds, and every fault with its row and line."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from vlcli.errors import RecipeError, UsageError
from vlcli.recipe import rows as row_keys
from vlcli.recipe.load import load
from vlcli.recipe.locate import Published
from vlcli.recipe.plan import _folder_names
from vlcli.recipe.table import is_table, load_table

BASE = """\
model: {name: lxmert, hidden: 32}
stages:
  pretrain: {data: {name: jsonl, file: a}, objectives: [mlm], epochs: 2}
  test: {kind: evaluate, from: pretrain, task: nlvr2, split: dev}
table: {rows: {dev: test}, metrics: [accuracy, "accuracy/*"]}
published_in: {split: dev, table: 3, page: 7}
"""
ROWS = """\
reference: small
rows:
  small: {model: {hidden: 16}, published: {accuracy: 0.5}}
  large:
    about: more of it
    model: {hidden: 64}
    published: {accuracy: [0.6, 0.01]}
  as-is: {unchanged: true}
"""
GRID = """\
rows:
  width:
    narrow: {model: {hidden: 16}}
    base: {}
  length:
    short: {stages: {pretrain: {epochs: 1}}}
    long: {about: nine epochs, stages: {pretrain: {epochs: 9}}}
skip: {narrow/short: learns nothing}
published: {base/long: {accuracy: 0.7}}
reference: base/short
"""


DEV_NUMBER = Published(0.6, 0.01, "dev", "share", "3", "7", measures="dev")


def write(folder: Path, text: str, name: str = "t.yaml") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def faults(file: str, **options: object) -> list[str]:
    with pytest.raises(RecipeError) as error:
        load_table(file, **options)
    assert error.value.exit_code == 3
    return [f"{one.where.rpartition(':')[2]} {one.key}: {one.what}" for one in error.value.problems]


class TestRows:
    def test_a_row_is_a_recipe_merged_over_the_table(self, tmp_path):
        file = write(tmp_path, BASE + ROWS)
        table = load_table(file)
        assert list(table.rows) == ["small", "large", "as-is"]
        assert table.written.references == ["small"]
        assert [table.member(label).recipe.model["hidden"] for label in table.rows] == [16, 64, 32]
        assert table.rows["large"].published == {"accuracy": DEV_NUMBER}
        assert (table.rows["large"].about, table.member("large").recipe.about) == ("more of it",) * 2

    def test_one_row_is_named_behind_a_colon(self, tmp_path):
        file = write(tmp_path, BASE + ROWS)
        one = load(f"{file}:large", ["stages.pretrain.epochs=5"])
        assert (one.name, one.recipe.model["hidden"], one.stages["pretrain"].epochs) == ("t-large", 64, 5)
        assert one.row is not None
        assert not is_table(f"{file}:large")
        assert is_table(f"{file}:small,large")
        assert is_table(file)

    def test_a_row_is_exactly_the_recipe_that_extends(self, tmp_path):
        row = load(f"{write(tmp_path, BASE + ROWS)}:small")
        write(tmp_path, TestPublishedNumbers.BASE, "base.yaml")
        child = load(write(tmp_path, "extends: base.yaml\nmodel: {hidden: 16}\n", "child.yaml"))
        assert row.recipe.model_copy(update={"extends": None}) == child.recipe.model_copy(update={"extends": None})

    def test_some_rows(self, tmp_path):
        file = write(tmp_path, BASE + ROWS)
        assert load_table(f"{file}:large,small").chosen == ["small", "large"]
        assert load_table(file, rows=["*a*"]).chosen == ["small", "large", "as-is"]

    def test_a_row_stands_on_another_recipe_or_row(self, tmp_path):
        write(tmp_path, BASE.replace("epochs: 2", "epochs: 7"), "other.yaml")
        more = '  far: {extends: other.yaml, model: {hidden: 8}}\n  twice: {extends: ":small", seed: 3}\n'
        text = "extends: base.yaml\nseed: 4\n" + ROWS + more
        write(tmp_path, BASE, "base.yaml")
        table = load_table(write(tmp_path, text))
        far, twice = table.member("far"), table.member("twice")
        assert (far.stages["pretrain"].epochs, far.recipe.seed, far.recipe.model["hidden"]) == (7, 4, 8)
        assert (twice.recipe.seed, twice.recipe.model["hidden"]) == (3, 16)

    def test_what_a_row_takes_out_stays_out_of_the_row_that_extends_it(self, tmp_path):
        below = "rows:\n  less: {stages: {extra: ~}}\n  least: {extends: ':less', seed: 3}\n"
        child = "extends: base.yaml\nstages: {extra: {kind: evaluate, from: pretrain, task: nlvr2}}\n" + below
        write(tmp_path, BASE, "base.yaml")
        table = write(tmp_path, child)
        assert [list(load(f"{table}:{row}").stages) for row in ("less", "least")] == [["pretrain", "test"]] * 2

    def test_a_recipe_extends_a_row_and_a_table_extends_a_table(self, tmp_path):
        write(tmp_path, BASE + ROWS)
        child = load(write(tmp_path, "extends: 't.yaml:large'\nseed: 7\n", "child.yaml"))
        assert (child.recipe.model["hidden"], child.recipe.seed) == (64, 7)
        heir = load_table(write(tmp_path, "extends: t.yaml\nrows: {huge: {model: {hidden: 96}}}\n", "heir.yaml"))
        assert list(heir.rows) == ["small", "large", "as-is", "huge"]

    def test_a_table_is_no_single_recipe(self, tmp_path):
        file = write(tmp_path, BASE + ROWS)
        with pytest.raises(UsageError, match="table of 3 rows") as error:
            load(file)
        assert f"{file}:small" in error.value.expected
        with pytest.raises(UsageError, match="no such row") as error:
            load(f"{file}:smal")
        assert error.value.hint == f"did you mean {file}:small?"

    def test_rows_extend_one_another_in_a_circle(self, tmp_path):
        text = BASE + 'rows:\n  a: {extends: ":b", seed: 1}\n  b: {extends: ":a", seed: 2}\n'
        with pytest.raises(RecipeError, match="circle"):
            load(f"{write(tmp_path, text)}:a")


class TestGrids:
    def test_cells(self, tmp_path):
        table = load_table(write(tmp_path, BASE + GRID))
        assert list(table.rows) == ["narrow/long", "base/short", "base/long"]
        assert table.written.axes == {"width": ("narrow", "base"), "length": ("short", "long")}
        assert table.written.skipped == {"narrow/short": "learns nothing"}
        cell = table.member("narrow/long")
        assert (cell.recipe.model["hidden"], cell.stages["pretrain"].epochs, cell.name) == (16, 9, "t-narrow-long")
        assert table.rows["base/long"].published == {"accuracy": replace(DEV_NUMBER, value=0.7, spread=None)}
        assert table.rows["narrow/long"].about == "nine epochs"
        with pytest.raises(UsageError, match="left out"):
            load(f"{tmp_path / 't.yaml'}:narrow/short")

    def test_a_whole_row_of_the_grid(self, tmp_path):
        assert load_table(write(tmp_path, BASE + GRID), rows=["*/long"]).chosen == ["narrow/long", "base/long"]

    def test_a_huge_grid_needs_a_yes(self, tmp_path):
        axes = "".join(f"  {axis}: {{{', '.join(f'x{n}: {{seed: {n}}}' for n in range(40))}}}\n" for axis in "ab")
        file = write(tmp_path, BASE + "rows:\n" + axes)
        assert faults(file) == ["7 rows: the grid is very large"]
        assert load_table(file, rows=["x1/x2"]).chosen == ["x1/x2"]


BAD = [
    ("  a: {model: {hidden: 32}}", "8 rows.a: this row changes nothing"),
    ("  a: {}", "8 rows.a: this row changes nothing"),
    ("  a: {seed: 3}\n  b: {seed: 3, about: the same}", "9 rows.b: this row is like the row 'a'"),
    ("  a: {seed: 3, unchanged: true}", "8 rows.a: this row says `unchanged: true`, and it changes something"),
    ("  a: {seed: 3, published: {top1: 0.5}}", "8 rows.a.published.top1: the table has no such metric"),
    ("  a: {seed: 3, published: {accuracy: high}}", "8 rows.a.published.accuracy: a published number is a number"),
    ("  a: {seed: 3, published: 0.5}", "8 rows.a.published: published numbers are a mapping"),
    ("  a: {seed: 3}\nreference: b", "9 reference: no row has this label"),
    ("  a: {seed: 3}\npublished: {b: {accuracy: 1}}", "9 published.b: no row has this label"),
    ('  a: {seed: 3, published: {"accuracy on dev": 1, accuracy: 2}}', "8 rows.a.published.accuracy: two published"),
    (
        "  a: {seed: 3, published: {accuracy: 1}}\npublished: {a: {accuracy: 2}}",
        "9 published.a.accuracy: two published",
    ),
    ("  a: {seed: 3}\nreference: other:b", "9 reference: no row has this label"),
    ("  a: {seed: 3}\nseeds: '3'", "9 seeds: this value does not fit"),
    ("  a: {seed: 3}\nseeds: [1, 2]", "9 seeds: this value does not fit"),
    ("  a: {seed: 3}\nseeds: 1000000000", "9 seeds: this value does not fit"),
    ("  a: 7", "8 rows.a: a row is a mapping"),
    ("  a: {seed: 3, rows: {}}", "8 rows.a.rows: this key belongs to the table"),
    ("  'a:b': {seed: 3}", "8 rows.a:b: this cannot be the label"),
    ("  a b: {seed: 3}\n  a-b: {seed: 4}", "9 rows.a-b: this label differs from 'a b' only in signs"),
    ("  a: {seed: 3}\n  b: {modle: {hidden: 4}}", "9 rows.b.modle: 'modle' is no key of a recipe"),
    ("  x: {a: {seed: 1}}\n  y: {b: {seed: 2}}\nskip: [b/a]", "10 skip[0]: no cell of the grid"),
    ("  x: {a: {seed: 1}}\n  y: {b: {seed: 2}, c: {seed: 2}}", "9 rows.y.c: this row is like the row"),
    ("  x: {a: {seed: 1, published: {accuracy: 1}}}\n  y: {b: {seed: 2}}", "8 rows.x.a.published: a published number"),
]


@pytest.mark.parametrize(("rows", "told"), BAD)
def test_a_fault_is_told_with_row_and_line(tmp_path, rows, told):
    found = faults(write(tmp_path, f"{BASE}rows:\n{rows}\n"))
    assert any(one.startswith(told) for one in found), found


@pytest.mark.parametrize("metrics", ["3", "[[accuracy]]", "{a: b}"])
def test_metrics_of_a_table_that_are_no_texts_are_told(tmp_path, metrics):
    file = write(tmp_path, BASE.replace('[accuracy, "accuracy/*"]', metrics) + ROWS)
    with pytest.raises(RecipeError, match=r"table\.metrics"):
        load_table(file).member("small")


class TestPublishedNumbers:
    BASE = BASE.replace("published_in: {split: dev, table: 3, page: 7}\n", "")

    def test_a_number_without_its_split_is_refused(self, tmp_path):
        rows = "rows:\n  a: {seed: 3, published: {accuracy: 1}}\n"
        assert faults(write(tmp_path, self.BASE + rows)) == [
            "7 rows.a.published.accuracy: a published number needs the split that it is of"
        ]
        table = load_table(write(tmp_path, self.BASE + rows.replace("accuracy:", '"accuracy on test-U":')))
        assert table.rows["a"].published == {"accuracy on test-U": Published(1.0, None, "test-U", measures="dev")}

    def test_split_and_table_may_differ_by_label_and_metric(self, tmp_path):
        base = self.BASE.replace("test:", "other: {kind: evaluate, from: pretrain, task: vqa, split: val}\n  test:")
        base = base.replace("{dev: test}", "{VQA: other, NLVR2: test}")
        source = "published_in: {split: {VQA: test-standard, accuracy: dev}, table: {NLVR2: 2, VQA: 1}}\n"
        numbers = "{VQA/accuracy: 0.7, NLVR2/accuracy: 0.6, NLVR2/accuracy on test-P: 0.5}"
        rows = f"rows:\n  a: {{seed: 3, published: {numbers}}}\n"
        published = load_table(write(tmp_path, base + source + rows)).rows["a"].published
        assert {key: (one.split, one.measures, one.table) for key, one in published.items()} == {
            "VQA/accuracy": ("test-standard", "val", "1"),
            "NLVR2/accuracy": ("dev", "dev", "2"),
            "NLVR2/accuracy on test-P": ("test-P", "dev", "2"),
        }
        told = published["VQA/accuracy"].told("VQA/accuracy")
        assert told == "published VQA/accuracy on test-standard: 0.7; this stage measures val"

    @pytest.mark.parametrize(
        ("others", "told"),
        [
            ("{Human: {accuracy: 1}}", "7 others.Human.accuracy: a published number needs the split"),
            ("{Human: {accuracy on dev: high}}", "7 others.Human.accuracy on dev: a published number is a number"),
            ("{Human: {acuracy on dev: 1}}", "7 others.Human.acuracy on dev: the table has no such metric"),
            (
                "{Human: {accuracy on dev: 1, dev/accuracy on dev: 1}}",
                "7 others.Human.dev/accuracy on dev: two published",
            ),
            ("{Human: {}}", "7 others.Human: published numbers are a mapping"),
            ("{Human/2: {accuracy on dev: 1}}", "7 others.Human/2: this cannot be the label of a row"),
            ("{a: {accuracy on dev: 1}}", "7 others.a: a row of the table has this label"),
            ("[Human]", "7 others: this value does not fit"),
        ],
    )
    def test_numbers_of_other_systems_are_checked_like_those_of_rows(self, tmp_path, others, told):
        found = faults(write(tmp_path, f"{self.BASE}rows: {{a: {{seed: 3}}}}\nothers: {others}\n"))
        assert any(one.startswith(told) for one in found), found

    @pytest.mark.parametrize("rows", [["a"], ["b"]])
    def test_chosen_rows_need_not_measure_what_other_systems_published(self, tmp_path, rows):
        text = self.BASE.replace("table: {rows: {dev: test}", "table: {rows: {dev: test, late: test}")
        late = "{seed: 3}, b: {seed: 4, table: {rows: {late: ~, dev: test}}}"
        file = write(tmp_path, f"{text}rows: {{a: {late}}}\nothers: {{Human: {{late/accuracy on dev: 1}}}}\n")
        assert load_table(file, rows=rows).chosen == rows
        assert load_table("dimbert/table2", rows=["coco", "vlp"]).chosen == ["coco", "vlp"]

    @pytest.mark.parametrize(
        ("source", "told"),
        [
            ("test", "6 published_in: this value does not fit"),
            ("{split: dev, tabel: 3}", "6 published_in.tabel: unknown key 'tabel'"),
        ],
    )
    def test_what_is_said_of_the_numbers_is_checked(self, tmp_path, source, told):
        rows = 'rows:\n  a: {seed: 3, published: {"accuracy on dev": 1}}\n'
        assert any(
            one.startswith(told) for one in faults(write(tmp_path, f"{self.BASE}published_in: {source}\n{rows}"))
        )

    def test_a_misspelt_metric_of_another_split_is_refused(self, tmp_path):
        rows = 'rows:\n  a: {seed: 3, published: {"acuracy on test-U": 1}}\n'
        assert (
            "7 rows.a.published.acuracy on test-U: the table has no such metric"
            in faults(write(tmp_path, self.BASE + rows))[0]
        )


def test_a_fault_in_a_row_has_the_line_in_the_row(tmp_path):
    file = write(tmp_path, f"{BASE}rows:\n  a:\n    stages:\n      pretrain: {{epochs: 0}}\n")
    with pytest.raises(RecipeError) as error:
        load(f"{file}:a")
    assert (error.value.problems[0].where, error.value.what) == (f"{file}:10", f"1 problem in recipe {file}:a")


class TestDefaults:
    def test_stages_of_a_kind_share_them_and_their_own_keys_win(self, tmp_path):
        text = "defaults: {pretrain: {batch_size: 8, optimizer: {lr: 1e-3, weight_decay: 0.5}}}\n" + BASE.replace(
            "epochs: 2}", "epochs: 2, optimizer: {lr: 2e-3}}"
        )
        stage = load(write(tmp_path, text)).stages["pretrain"]
        assert (stage.batch_size, stage.optimizer.lr, stage.optimizer.weight_decay) == (8, 2e-3, 0.5)

    def test_overrides_reach_stages_and_defaults(self, tmp_path):
        more = "  two: {kind: pretrain, from: pretrain, data: {name: jsonl, file: a}}\n  test:"
        text = BASE.replace("  test:", more).replace("objectives: [mlm], ", "")
        text = "defaults: {pretrain: {objectives: [{name: mlm, probability: 0.5}]}}\n" + text
        words = ["stages.two.objectives.mlm.probability=0.2", "defaults.pretrain.batch_size=5"]
        stages = load(write(tmp_path, text), words).stages
        assert [stages[name].objectives[0]["probability"] for name in ("pretrain", "two")] == [0.5, 0.2]
        assert [stages[name].batch_size for name in ("pretrain", "two")] == [5, 5]

    def test_a_resolved_recipe_and_its_folder_do_not_know_them(self, tmp_path):
        plain = load(write(tmp_path, BASE), ["seed=3"])
        shared = BASE.replace("epochs: 2", "").replace(", }", "}") + "defaults: {pretrain: {epochs: 2}}\n"
        assert _folder_names(load(write(tmp_path, shared), ["seed=3"])) == _folder_names(plain)

    @pytest.mark.parametrize(
        ("written", "told"),
        [
            ("{pretain: {}}", "there is no stage kind 'pretain'"),
            ("{pretrain: {epoch: 3}}", "unknown key 'epoch'"),
            ("{pretrain: 3}", "a mapping"),
            ("3", "a mapping"),
        ],
    )
    def test_faults(self, tmp_path, written, told):
        with pytest.raises(RecipeError, match=re.escape(told)):
            load(write(tmp_path, f"defaults: {written}\n{BASE}"))

    def test_a_wrong_value_is_told_at_its_line(self, tmp_path):
        file = write(tmp_path, f"defaults:\n  pretrain: {{batch_size: 0}}\n{BASE}")
        with pytest.raises(RecipeError) as error:
            load(file)
        assert error.value.problems[0].where == f"{file}:2"


def test_every_key_of_tables_is_known_to_the_schema():
    from vlcli.recipe.schema import Recipe

    assert set(row_keys.OF_TABLES) <= set(Recipe.model_fields)
