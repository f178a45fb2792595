"""Layouts that fell when they were tried first: names, parts, choices and classes that are written in other ways."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.starter.layouts import answer, photos, rows_of, sentence, write
from tests.starter.test_unclear import pictures, seen
from vlcli.data import Folder
from vlcli.data.readers.coco import CocoCaptions
from vlcli.data.readers.image_classes import OxfordPets
from vlcli.data.readers.questions import GQA, VGRegions
from vlcli.data.readers.vqa import VQA
from vlcli.data.recognition.pictures import Pictures
from vlcli.errors import DataError, VlcliError
from vlcli.starter.look import look
from vlcli.starter.seen import box_files
from vlcli.starter.stages import flow


def test_a_list_of_names_to_which_the_files_add_something(tmp_path):
    names = photos(tmp_path, [f"faces/{part}_{n:03}_crop.png" for part in ("train", "test") for n in range(30)])
    lines = [f"{Path(name).stem.removesuffix('_crop')}.png {n % 4 + 1}" for n, name in enumerate(names)]
    write(tmp_path, "labels/list.txt", "\n".join(lines) + "\n")
    plan = seen(tmp_path)
    assert (plan.goal, plan.source.columns["image"]) == ("image-classification", "{image}_crop.png")
    assert [path.is_file() for row in plan.rows for path in row.files] == [True] * 12
    parts = {part: one.examples for part, one in plan.parts.items()}
    assert (parts["test"], parts["train"] + parts["validation"]) == (30, 30)  # the names of the pictures say them


def test_names_that_begin_with_a_part_and_other_words_say_no_parts(tmp_path):
    names = photos(tmp_path, [f"img/{word}_{n}.png" for word in ("train", "test", "tram") for n in range(20)])
    rows_of(tmp_path, "t.csv", ["image", "label"], [[Path(name).name, answer(n)] for n, name in enumerate(names)])
    assert "named" not in str(seen(tmp_path).source.parts)


FINDINGS = ["edema", "fracture", "mass", "nodule", "scar"]


def findings(root: Path, flags: list[str]) -> None:
    rows = [
        [name, "mf"[n % 2], *(flags[(n * 7 + k * k) % len(flags)] for k in range(5))]
        for n, name in enumerate(pictures(root))
    ]
    rows_of(root, "findings.csv", ["image", "sex", *FINDINGS], rows)


def test_many_columns_of_flags_are_the_labels_beside_one_of_classes(tmp_path):
    findings(tmp_path, ["", "1.0", "0.0", "-1.0"])
    plan = seen(tmp_path)
    assert (plan.goal, plan.source.columns["label"]) == ("multi-label", FINDINGS)
    assert any("--label sex" in note for note in plan.notes)
    assert seen(tmp_path, label="sex").goal == "image-classification"


def test_several_columns_of_flags_are_named_by_commas(tmp_path):
    findings(tmp_path, ["1", "0"])
    assert seen(tmp_path, label="mass, scar").source.columns["label"] == ["mass", "scar"]
    with pytest.raises(DataError, match="sex does not"):
        look(tmp_path, {"label": "mass,sex"})
    with pytest.raises(VlcliError, match="No table has such a column"):
        look(tmp_path, {"label": "mass,sca"})


def test_a_table_of_blanks_whose_pictures_come_last(tmp_path):
    names = photos(tmp_path, [f"chairs/{n:03}_{n % 3}.jpg" for n in range(60)])
    for part, chosen in (("train", names[:40]), ("test", names[40:])):
        rows = [f"{n + 1} {n * 7 % 4} {name}" for n, name in enumerate(chosen)]
        write(tmp_path, f"list_{part}.txt", "\n".join(["number kind path", *rows]) + "\n")
    plan = seen(tmp_path)
    assert (plan.source.columns["image"], plan.source.columns["label"]) == ("path", "kind")
    assert plan.parts["test"].examples == 20


def test_folders_named_by_the_first_letters_of_the_pictures_are_no_classes(tmp_path):
    hashes = [f"{n * 7919 % 4096:03x}{n:05x}" for n in range(48)]
    photos(tmp_path, [f"photos/{name[0]}/{name[1]}/{name}.jpg" for name in hashes])
    rows_of(tmp_path, "places.csv", ["id", "place"], [[name, f"{n % 3}00"] for n, name in enumerate(hashes)])
    assert seen(tmp_path).source.columns == {"image": "id", "label": "place"}


@pytest.mark.parametrize(
    "beside", ["4\nname kind\ncoat 1\nhat 1\nshoe 2\nbelt 3", "4\ncoat\nhat\nshoe\nbelt", "a.jpg 1\nb.jpg 2\nc.jpg 3"]
)
def test_a_file_beside_that_is_no_list_of_names_gives_classes_none(tmp_path, beside):
    names = pictures(tmp_path)
    lines = "\n".join(f"img/{name} {n * 7 % 4 + 1}" for n, name in enumerate(names))
    write(tmp_path, "list_category_img.txt", f"{len(names)}\nimage_name category_label\n{lines}\n")
    write(tmp_path, "category_list.txt", beside + "\n")
    assert "labels" not in seen(tmp_path).source.entry


@pytest.mark.parametrize("further", [True, False])
def test_parts_of_which_one_has_a_further_column(tmp_path, further):
    names = pictures(tmp_path, 60)
    rows = [{"image": name, "question": "How many cups are there?", "answer": n % 5} for n, name in enumerate(names)]
    more = [{**row, "simple": n % 2 == 0} for n, row in enumerate(rows[40:])]
    write(tmp_path, "train.json", rows[:40])
    write(tmp_path, "test.json", more if further else [{"image": row["image"]} for row in more])
    plan = seen(tmp_path)
    train = plan.parts["train"].examples + plan.parts["validation"].examples
    assert train + (plan.parts["test"].examples if not further else 0) == 40
    assert further == (plan.parts["test"].examples == 20)


def test_a_test_without_labels_is_no_part(tmp_path):
    names = pictures(tmp_path, 60)
    rows = [
        {"image": name, "text": f"a {answer(n)} thing on the table", "label": n % 2} for n, name in enumerate(names)
    ]
    for part, chosen in (("train", rows[:30]), ("dev", rows[30:45])):
        write(tmp_path, f"{part}.jsonl", chosen)
    write(tmp_path, "test.jsonl", [{key: row[key] for key in ("image", "text")} for row in rows[45:]])
    plan = seen(tmp_path)
    assert (plan.goal, sum(part.examples for part in plan.parts.values())) == ("classification", 45)


def test_pictures_of_a_test_without_rows_are_no_part(tmp_path):
    names = photos(tmp_path, [f"img/{part}_{n}.png" for part in ("Train", "Test") for n in range(30)])
    rows_of(tmp_path, "t.csv", ["image", "label"], [[Path(name).stem, answer(n)] for n, name in enumerate(names[:30])])
    assert sum(part.examples for part in seen(tmp_path).parts.values()) == 30


@pytest.mark.parametrize(("column", "used"), [("split", True), ("fold", False), ("size", False)])
def test_parts_that_are_numbers(tmp_path, column, used):
    rows = [
        [name, ["What is it?", "Which one?"][n % 2], answer(n), 1 if n < 28 else 2 + n % 2]
        for n, name in enumerate(pictures(tmp_path))
    ]
    rows_of(tmp_path, "qa.csv", ["image", "question", "answer", column], rows)
    plan = seen(tmp_path)
    assert (
        {part: one.examples for part, one in plan.parts.items()} == {"train": 28, "validation": 6, "test": 6}
    ) is used


def test_words_of_a_column_that_say_one_part_are_read_together_and_those_of_none_are_told(tmp_path):
    words = ["train", "train_extra", "val", "testA", "testB", "unlabelled"]
    rows = [[name, answer(n // 6), words[n % 6]] for n, name in enumerate(pictures(tmp_path, 60))]
    rows_of(tmp_path, "t.csv", ["image", "label", "split"], rows)
    plan = seen(tmp_path)
    assert {part: one.examples for part, one in plan.parts.items()} == {"train": 20, "validation": 10, "test": 20}
    assert "rows whose split is unlabelled are in none of the parts" in plan.notes


def test_another_test_is_no_part_and_is_named(tmp_path):
    names = pictures(tmp_path, 50)
    for at, part in enumerate(("train", "val", "test", "test_rare", "train_more")):
        rows_of(tmp_path, f"t_{part}.csv", ["image", "label"], [[n, answer(i)] for i, n in enumerate(names[at::5])])
    found = look(tmp_path)
    assert found.sources[0].parts["test"] == {"split": "test"}
    assert any(line.startswith("t_test_rare.csv") for line in found.aside)


def test_corners_in_a_table_without_header_are_boxes(tmp_path):
    lines = [f"img/{n},1,2,9,8,{kind}" for n in pictures(tmp_path) for kind in ("cow", "bird")]
    write(tmp_path, "t.csv", "\n".join([*lines, "img/p0.jpg,,,,,"]))
    plan = seen(tmp_path)
    assert (plan.goal, plan.source.columns["boxes"]) == ("detection", ["value2", "value3", "value4", "value5"])
    assert plan.rows[0].target == "2 boxes: cow, bird"


def test_flags_of_which_each_row_has_one_are_told(tmp_path):
    rows = [[n, *(int(at % 3 == kind) for kind in range(3))] for at, n in enumerate(pictures(tmp_path))]
    rows_of(tmp_path, "t.csv", ["image", "MEL", "NV", "BCC"], rows)
    assert any(note.startswith("each row has one of the classes") for note in seen(tmp_path).notes)


def test_columns_of_pixels_are_not_tried_in_pairs(tmp_path, monkeypatch):
    asked, names = [], pictures(tmp_path)
    monkeypatch.setattr(Pictures, "named_by", lambda self, column, *rest, **more: asked.append(column))
    header = ["label", *(f"pixel{n}" for n in range(200))]
    rows_of(tmp_path, "t.csv", header, [[at % 3, *[at] * 200] for at in range(len(names))])
    with pytest.raises(DataError):
        look(tmp_path)
    assert len(asked) < 2000


def test_keypoints_of_the_pictures_of_coco_are_left_aside(tmp_path):
    names = pictures(tmp_path)
    for at, part in enumerate(("train2017", "val2017")):
        rows = [{"id": 2 * n + at, "file_name": name} for n, name in enumerate(names[at::2])]
        notes = [{"id": row["id"], "image_id": row["id"], "category_id": 1, "bbox": [1, 2, 6, 5]} for row in rows]
        document = {"images": rows, "annotations": notes, "categories": [{"id": 1, "name": "person"}]}
        for kind in ("instances", "person_keypoints"):
            write(tmp_path, f"annotations/{kind}_{part}.json", document)
    plan = seen(tmp_path)
    assert (plan.goal, plan.source.entry["file"]) == ("detection", "annotations/instances_{split}2017.json")
    assert sum(line.startswith("annotations/person_keypoints") for line in plan.aside) == 2


def test_classes_of_the_training_folder_hold_no_further_folders(tmp_path):
    photos(tmp_path, [f"train/{kind}/{kind}{n}.jpg" for kind in ("ants", "bees") for n in range(20)])
    photos(tmp_path, [f"test/{n}.jpg" for n in range(12)])
    assert not any("count for nothing" in note for note in seen(tmp_path).notes)


def test_a_column_of_sources_is_no_class_of_boxes(tmp_path):
    rows = [[n, "[1, 2, 9, 8]", ("usask", "arvalis")[i % 2]] for i, n in enumerate(pictures(tmp_path)) for _ in "ab"]
    rows_of(tmp_path, "t.csv", ["image_id", "bbox", "source"], rows)
    assert "box_labels" not in seen(tmp_path).source.columns


@pytest.mark.parametrize("column", ["label.responses", "accept"])
def test_choices_of_annotators_are_classes_and_their_states_are_none(tmp_path, column):  # Argilla, Prodigy
    state = {"options": [{"id": "CAT", "text": "a cat"}], "label.responses.status": ["submitted"]}
    rows = [{"image": name, column: [answer(n)], **state} for n, name in enumerate(pictures(tmp_path))]
    write(tmp_path, "t.json", rows)
    assert seen(tmp_path).source.entry["label"] == [column]


@pytest.mark.parametrize("answers", ["letters", "words", "places"])
def test_choices_in_columns_of_their_own(tmp_path, answers):
    rows = []
    for n, name in enumerate(pictures(tmp_path)):
        options, right = [answer(n + k) for k in range(3)], n * 7 % 3
        said = {"letters": "ABC"[right], "words": options[right], "places": right}[answers]
        rows.append([name, "What is it?", *options, said])
    names = ["option_0", "option_1", "option_2"] if answers == "places" else ["A", "B", "C"]
    rows_of(tmp_path, "mc.csv", ["image", "question", *names, "answer"], rows)
    plan = seen(tmp_path)
    assert (plan.goal, plan.source.entry["choices"], plan.source.entry["correct"]) == ("vqa", names, "answer")
    assert {row.target for row in plan.rows} == {"red", "green", "blue", "yellow"}


def test_places_of_choices_that_count_from_one_are_not_taken(tmp_path):
    rows = [[name, "What is it?", "cup", "hat", 1 + n % 2] for n, name in enumerate(pictures(tmp_path))]
    rows_of(tmp_path, "mc.csv", ["image", "question", "option1", "option2", "answer"], rows)
    assert "choices" not in seen(tmp_path).source.entry


@pytest.mark.parametrize("form", ["lists", "objects"])
def test_a_document_that_holds_a_table_column_by_column(tmp_path, form):
    columns = {"file": pictures(tmp_path), "kind": [answer(n) for n in range(40)]}
    if form == "objects":
        columns = {name: {str(n): cell for n, cell in enumerate(cells)} for name, cells in columns.items()}
    write(tmp_path, "table.json", columns)
    plan = seen(tmp_path)
    assert plan.source.columns == {"image": "file", "label": "kind"}
    assert {row.target for row in plan.rows} == {"red", "green", "blue", "yellow"}


@pytest.mark.parametrize("several", [True, False])
def test_a_list_of_pictures_with_several_classes_in_words(tmp_path, several):
    words = [f"{answer(n)} {['cup', 'hat', 'shoe'][n % 3]}" for n in range(40)]
    if several:
        words = [" ".join(["bag", "cup", "hat", "shoe"][k] for k in range(4) if n % 15 + 1 >> k & 1) for n in range(40)]
    names = pictures(tmp_path)
    write(tmp_path, "list.txt", "".join(f"{name} {text}\n" for name, text in zip(names, words, strict=True)))
    assert seen(tmp_path).goal == ("multi-label" if several else "image-classification")


def test_short_questions_with_it_are_english(tmp_path):
    rows = [
        [name, ["is it red?", "is it big?"][n % 2], ["yes", "no"][n % 3 > 0]]
        for n, name in enumerate(pictures(tmp_path))
    ]
    rows_of(tmp_path, "qa.csv", ["image", "question", "answer"], rows)
    assert "language" not in seen(tmp_path).source.entry


def test_a_list_that_excel_wrote_as_unicode_text(tmp_path):
    lines = ["Bild\tArt", *(f"{name}\t{['Käfer', 'Öhi'][n % 2]}" for n, name in enumerate(pictures(tmp_path)))]
    (tmp_path / "liste.txt").write_bytes("\r\n".join(lines).encode("utf-16"))
    plan = seen(tmp_path)
    assert (plan.source.columns, plan.source.entry["encoding"]) == ({"image": "Bild", "label": "Art"}, "utf-16")


def test_pictures_that_rows_link_into_one_group_are_not_divided(tmp_path):
    names = pictures(tmp_path)
    rows = [[name, names[(n + 1) % 40], n % 2] for n, name in enumerate(names)]
    rows_of(tmp_path, "pairs.csv", ["left", "right", "same"], rows)
    with pytest.raises(DataError, match="40 pictures; groups: 1"):
        seen(tmp_path)


def test_a_row_that_is_no_object_leaves_a_document_recognised(tmp_path):
    shown = [{"id": n, "image_id": n, "img_id": f"p{n}", "sent": "is it?", "question_id": n} for n in range(40)]
    vg = [{"id": f"p{n}", "regions": [{"region_id": n, "phrase": "a cup"}]} for n in range(40)]
    gqa = {str(n): {"imageId": f"p{n}", "question": "is it?", "answer": "yes"} for n in range(40)}
    found = [{"image_id": f"p{n}", "bbox": [0, 0, 4, 4], "score": 0.5} for n in range(40)]
    pictures(tmp_path)
    write(tmp_path, "vqa.json", [*shown, None])
    write(tmp_path, "regions.json", [*vg, None])
    write(tmp_path, "gqa_balanced.json", {**gqa, "x": None})
    write(tmp_path, "boxes.json", [*found, None])
    write(tmp_path, "coco.json", {"images": [{"width": 3}], "annotations": [{"image_id": 1, "caption": "a cup"}]})
    questions = [{"question_id": key, "question": "is it?", "image_id": 1} for key in (1, [2])]
    answers = [{"question_id": key, "answers": [{"answer": "yes"}]} for key in (1, {})]
    write(tmp_path, "official.json", {"questions": questions})
    write(tmp_path, "annotations.json", {"annotations": answers})
    write(tmp_path, "trainval.txt", "")
    folder = Folder(tmp_path)
    assert box_files(folder) == ["boxes.json"]
    assert OxfordPets.recognise(folder) == []
    names = [one.entry["name"] for reader in (VQA, GQA, VGRegions, CocoCaptions) for one in reader.recognise(folder)]
    assert names == ["vqa", "vqa", "gqa", "vg-regions", "coco-captions"]


def test_words_that_yaml_reads_as_numbers_are_quoted():
    for word in (".5", ".inf", ".NaN", "yes", "./a b", "../x", "a.5"):
        assert yaml.safe_load(flow([word])) == [word]


@pytest.mark.parametrize("end", ["\n", "\r"])  # Excel's "CSV (Macintosh)"
def test_a_table_of_pandas_whose_index_names_the_pictures(tmp_path, end):
    rows = [f"{name},{answer(n)}" for n, name in enumerate(pictures(tmp_path))]
    (tmp_path / "t.csv").write_bytes(end.join([",label", *rows, ""]).encode())
    plan = seen(tmp_path)
    assert (plan.source.columns, plan.source.entry["image"]) == ({"image": "", "label": "label"}, "")
    assert [path.is_file() for row in plan.rows for path in row.files] == [True] * 12


def test_a_column_of_one_value_is_no_answer(tmp_path):
    """CLEVR: the test part has questions and the part's name alone."""
    for part, count in (("train", 30), ("test", 10)):
        names = photos(tmp_path, [f"images/{part}/{part}_{n}.png" for n in range(count)])
        said = [{"split": part, "file": Path(name).name, "question": "How many cups?"} for name in names]
        rows = [row | ({"answer": answer(n)} if part == "train" else {}) for n, row in enumerate(said)]
        write(tmp_path, f"questions/{part}_questions.json", {"questions": rows})
    assert seen(tmp_path).source.files == ["questions/train_questions.json"]


@pytest.mark.parametrize("inner", ["patient{}", "v_{kind}_g{}"])
def test_folders_in_those_of_classes_that_differ_by_numbers_are_no_classes(tmp_path, inner):
    kinds = [(kind, 10 * i + n) for i, kind in enumerate(("normal", "ill")) for n in range(5)]
    photos(tmp_path, [f"{kind}/{inner.format(n, kind=kind)}/{one}.png" for kind, n in kinds for one in range(4)])
    assert "classes" not in seen(tmp_path).source.entry


def test_of_two_columns_with_one_name_none_is_lost(tmp_path):
    names = pictures(tmp_path)
    rows_of(tmp_path, "t.csv", ["image", "text", "text"], [[name, sentence(1), sentence(2)] for name in names])
    with pytest.raises(DataError, match="Two columns have the same name"):
        look(tmp_path)


def test_blanks_behind_a_class_are_no_other_class(tmp_path):
    rows = [[name, answer(n) + " " * (n % 5 == 0)] for n, name in enumerate(pictures(tmp_path))]
    rows_of(tmp_path, "t.csv", ["image", "label"], rows)
    assert seen(tmp_path).classes == 4


def test_words_of_pictures_are_no_captions(tmp_path):
    write(tmp_path, "tags.json", {name: [answer(n), "wet"] for n, name in enumerate(pictures(tmp_path))})
    with pytest.raises(DataError):
        look(tmp_path)


def test_thumbnails_of_a_file_server_are_no_pictures(tmp_path):
    photos(tmp_path, [f"{kind}/{n}.jpg" for kind in ("cat", "dog") for n in range(10)] + ["cat/@eaDir/1.jpg/THUMB.jpg"])
    assert seen(tmp_path).pictures == 20


def test_verdicts_of_annotators_are_no_answers_and_a_constant_class_is_no_reason_to_ask(tmp_path):
    rows = [[n, f"a cat and {n}", ("accept", "reject")[i % 3 == 0], "memes"] for i, n in enumerate(pictures(tmp_path))]
    rows_of(tmp_path, "t.csv", ["image", "caption", "answer", "category"], rows)
    assert seen(tmp_path).source.kind == "captions"


def test_marks_of_phrases_are_no_words(tmp_path):
    for n in range(40):
        photos(tmp_path, [f"images/{n}.jpg"])
        write(
            tmp_path, f"Sentences/{n}.txt", f"[/EN#1/people Two men] see [/EN#2/other/scene {n} dogs] .\nThey sit .\n"
        )
    texts = [row.text for row in seen(tmp_path).rows]
    assert texts[0] == "Two men see 0 dogs ."
    assert not [text for text in texts if "[" in text]


def test_folders_that_begin_the_names_of_pictures_are_no_classes(tmp_path):
    names = [f"{n:02x}{7 * n:04x}" for n in range(40)]
    photos(tmp_path, [f"{('train', 'val')[n > 29]}/{one[0]}/{one[1]}/{one}.jpg" for n, one in enumerate(names)])
    with pytest.raises(DataError, match="Nothing in this folder says"):
        look(tmp_path)


def test_lists_divide_the_questions_of_daquar(tmp_path):
    photos(tmp_path, [f"images/image{n}.png" for n in range(40)])
    write(tmp_path, "all_qa_pairs.txt", "".join(f"what is in the image{n} ?\n{answer(n)}\n" for n in range(40)))
    for part, start, end in (("train", 0, 30), ("test", 30, 40)):
        write(tmp_path, f"{part}_images_list.txt", "".join(f"image{n}\n" for n in range(start, end)))
    assert seen(tmp_path).parts["test"].examples == 10


def test_numbers_of_pictures_are_no_answers_to_questions_without_any(tmp_path):  # CLEVR's test
    for part in ("test", "train", "val"):
        names = photos(tmp_path, [f"images/{part}/CLEVR_{part}_{n:06}.png" for n in range(24)] * 2)
        rows = [
            {"image_index": n % 24, "image_filename": Path(x).name, "question": "Is it?"} for n, x in enumerate(names)
        ]
        rows = [row | ({} if part == "test" else {"answer": answer(n)}) for n, row in enumerate(rows)]
        write(tmp_path, f"CLEVR_{part}_questions.json", {"questions": rows})
    assert seen(tmp_path).source.files == ["CLEVR_train_questions.json", "CLEVR_val_questions.json"]
