"""What init says of lists: which is read of several, what is missing, what contradicts, and what is refused."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from tests.starter.layouts import LAYOUTS, answer, photos, rows_of, write
from tests.starter.list_layouts import LISTS
from tests.starter.side_layouts import SIDE
from vlcli.builders.readers import build_reader
from vlcli.data.holdout import select
from vlcli.data.readers.generic import Csv, Pickle
from vlcli.data.sample import Example
from vlcli.errors import DataError
from vlcli.starter.look import look, plan_for
from vlcli.starter.machine import Machine
from vlcli.starter.plan import goals_of

assert {*LISTS, *SIDE} <= set(LAYOUTS)


def seen(root: Path, **columns: str):
    return plan_for(look(root, columns), None, Machine(2, ""))


def test_the_finest_of_several_kinds_of_classes_is_read_and_the_others_are_named(tmp_path):
    LAYOUTS["fgvc_aircraft"].make(tmp_path)
    plan = seen(tmp_path)
    assert plan.source.entry["file"] == "data/images_variant_{split}.txt"
    assert {row.target for row in plan.rows} <= {"707-320", "717-200", "A300B4", "A300 600"}
    for kind in ("family", "manufacturer"):
        assert any(
            f"data/images_{kind}_{{split}}.txt}} in the recipe reads them instead" in line for line in plan.aside
        )
    assert any("trainval.txt: they repeat rows of the parts" in line for line in plan.aside)


def test_of_several_divisions_the_first_is_read_and_the_others_are_named(tmp_path):
    LAYOUTS["sun397"].make(tmp_path)
    plan = seen(tmp_path)
    assert {row.target for row in plan.rows} == {"a/abbey", "a/apse/indoor", "b/bar/indoor"}
    assert "Partitions/Training_02.txt: another list of the parts" in plan.aside


def test_lists_that_contradict_each_other_are_told(tmp_path):
    names = photos(tmp_path, [f"p{n}.jpg" for n in range(40)])
    for who, wrong in (("anna", 0), ("bob", 8)):
        write(
            tmp_path, f"{who}.txt", "".join(f"{name[:-4]} {answer(n + (n < wrong))}\n" for n, name in enumerate(names))
        )
    assert any("contradict each other about 8 pictures" in note for note in seen(tmp_path).notes)


@pytest.mark.parametrize("first", [False, True], ids=["some", "the first"])
def test_pictures_that_a_list_names_and_that_are_missing_are_counted(first, tmp_path):
    names = photos(tmp_path, [f"p{n:02}.jpg" for n in range(40)])
    write(tmp_path, "list.txt", "".join(f"{name[:-4]}|what is it?|{answer(n)}\n" for n, name in enumerate(names)))
    for name in names[:5] if first else names[3:20:4]:
        (tmp_path / name).unlink()
    assert any("5 pictures that the data name are not there" in note for note in seen(tmp_path).notes)


def test_a_line_that_is_cut_is_named(tmp_path):
    names = photos(tmp_path, [f"p{n}.jpg" for n in range(80)])
    lines = [f"{name[:-4]}\tis it {answer(n)}?\t{answer(n)}" for n, name in enumerate(names)]
    write(tmp_path, "questions.txt", "\n".join([*lines[:60], "p60\tis it", *lines[61:]]))
    with pytest.raises(DataError, match="Line 61 does not have the header's 3 cells"):
        look(tmp_path)


def test_a_table_with_a_header_keeps_it_though_names_have_no_ending(tmp_path):
    names = photos(tmp_path, [f"p{n}.jpg" for n in range(40)])
    write(
        tmp_path, "t.csv", "\n".join(["photo,species", *(f"{name[:-4]},{answer(n)}" for n, name in enumerate(names))])
    )
    assert seen(tmp_path).source.columns == {"image": "photo", "label": "species"}


def test_a_header_that_has_digits_is_no_row(tmp_path):
    names = photos(tmp_path, [f"p{n}.jpg" for n in range(40)])
    rows = [f"{name[:-4]},{names[n - 1][:-4]},{answer(n)}" for n, name in enumerate(names)]
    write(tmp_path, "t.csv", "\n".join(["photo1,photo2,says", *rows]))
    assert look(tmp_path).sources[0].columns == {"image": ["photo1", "photo2"], "label": "says"}


def test_minus_one_means_no_where_there_is_no_zero(tmp_path):
    for cells, labels in (("1 -1\n-1 1\n", ["a"]), ("1 -1\n0 1\n", ["a"])):
        lines = cells.split("\n")
        write(tmp_path, "t.txt", f"2\na b\nx.jpg {lines[0]}\ny.jpg {lines[1]}\n")
        reader = Csv(tmp_path, file="t.txt", separator="space", header=["image", "a", "b"], skip=2, label=["a", "b"])
        targets = reader.examples()[0].targets
        assert targets["labels"] == labels
        assert targets.get("unknown_labels", []) == (["b"] if "0" in cells else [])


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("l.txt", "a.jpg 0\nmy b.jpg 0\nc.jpg 1\n"),
        ("l.csv", "name,part\na,0\nmy b,0\nc,1"),
        ("l.json", '{"0": ["a", "my b"]}'),
    ],
)
def test_a_part_of_a_list_is_taken_by_its_word(file, text, tmp_path):
    write(tmp_path, file, text)
    examples = [Example(name, None, [name]) for name in ("a", "my b", "c", "d")]
    assert [one.key for one in select(examples, f"in:{file}=0", tmp_path)] == ["a", "my b"]


@pytest.mark.parametrize("value", [np.ones(3), print, [{"image": np.float32(1)}]], ids=["array", "function", "number"])
def test_a_pickled_table_of_anything_but_plain_values_is_refused(value, tmp_path):
    photos(tmp_path, [f"p{n}.jpg" for n in range(12)])
    (tmp_path / "train.pkl").write_bytes(pickle.dumps(value))
    with pytest.raises(DataError, match="not plain data, and was not opened further"):
        look(tmp_path)
    with pytest.raises(DataError, match="not plain data"):
        Pickle(tmp_path).examples()


def test_classes_beside_sentences_are_named_with_the_option_that_learns_them(tmp_path):
    photos(tmp_path, [f"d/{n}.jpg" for n in range(40)])
    for n in range(40):
        plot = [f"a man number {n} walks into a bar of {answer(n)} light"]
        write(tmp_path, f"d/{n}.json", {"plot": plot, "genres": ["Drama", "War"][: 1 + n % 2]})
    plan = seen(tmp_path)
    assert plan.goal == "retrieval"
    assert any("--label genres learns them instead" in note for note in plan.notes)
    assert seen(tmp_path, label="genres").goal == "multi-label"


@pytest.mark.parametrize(
    "names",
    [
        [f"{word}_{n:04}.jpg" for word in ("IMG", "DSC") for n in range(20)],  # two cameras
        [f"clip{k}_{n:02}.jpg" for k in range(4) for n in range(10)],  # frames of films
        [f"item{n}_{view}.jpg" for n in range(20) for view in ("front", "back")],
        [f"{word}_{n}.jpg" for n, word in enumerate("abcdefghijklmnopqrstuvwxyz")],  # no two alike
    ],
    ids=["cameras", "films", "views", "titles"],
)
def test_words_in_names_that_are_no_classes(tmp_path, names):
    photos(tmp_path, names)
    with pytest.raises(DataError, match="Nothing in this folder"):
        look(tmp_path)


def test_a_picture_of_a_list_for_each_class_has_the_classes_of_the_files(tmp_path):
    LAYOUTS["lists_with_signs"].make(tmp_path)
    plan = seen(tmp_path)
    reader = build_reader({**plan.source.entry, "split": "val"}, tmp_path)
    said = {example.key: example.targets["labels"] for example in reader.examples()}
    lines = {
        kind: dict(line.split() for line in (tmp_path / f"ImageSets/Main/{kind}_val.txt").read_text().splitlines())
        for kind in ("cat", "person", "tvmonitor")
    }
    expected = [[kind for kind, signs in lines.items() if signs[name] != "-1"] for name in lines["cat"]]
    assert list(said.values()) == expected
    assert reader.label_names() == ["cat", "person", "tvmonitor"]
    assert [] in expected


def test_a_picture_of_two_lists_of_single_classes_is_told(tmp_path):
    LAYOUTS["a_list_for_each_class"].make(tmp_path)
    entry = seen(tmp_path).source.entry
    with (tmp_path / "ImageSplits/fishing_train.txt").open("a") as file:
        file.write("cooking_003.jpg\n")
    with pytest.raises(DataError, match="A picture has one class") as caught:
        build_reader({**entry, "split": "train"}, tmp_path).examples()
    assert caught.value.where.endswith("cooking_train.txt:4")
    assert caught.value.got == "cooking, fishing"


def test_boxes_of_pascal_voc_win_over_its_lists_of_classes(tmp_path):
    LAYOUTS["lists_with_signs"].make(tmp_path)
    for path in sorted((tmp_path / "JPEGImages").iterdir()):
        box = "<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>9</xmax><ymax>9</ymax></bndbox>"
        size = "<size><width>24</width><height>18</height><depth>3</depth></size>"
        text = f"<annotation><filename>{path.name}</filename>{size}<object><name>cat</name>{box}</object></annotation>"
        write(tmp_path, f"Annotations/{path.stem}.xml", text)
    goals = list(goals_of(look(tmp_path).sources))
    assert goals[0] == "detection"


def test_of_few_pictures_in_parts_some_are_held_out(tmp_path):
    files = photos(tmp_path, [f"img/p{n}.jpg" for n in range(24)])
    for part, names in (("train", files[:16]), ("test", files[16:])):
        rows_of(tmp_path, f"{part}.csv", ["image", "label"], [[name, answer(n)] for n, name in enumerate(names)])
    parts = seen(tmp_path).parts
    assert sum(part.examples for part in parts.values()) == 24
    assert all(part.examples for part in parts.values())
