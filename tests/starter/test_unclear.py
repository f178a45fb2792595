"""Folders that people have: what init understands of their tables, what it says, and what it asks."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from tests.starter.layouts import answer, photos, rows_of, write
from vlcli.cli import app
from vlcli.data.vocabulary import Tokenizer
from vlcli.errors import DataError
from vlcli.starter.look import look, plan_for
from vlcli.starter.machine import Machine
from vlcli.starter.times import Times

HERE = Machine(2, "")


def seen(root: Path, **columns: str):
    return plan_for(look(root, columns), None, HERE)


def asked(root: Path) -> str:
    with pytest.raises(DataError) as met:
        look(root)
    assert met.value.what == "It is not clear what the pictures' table says."
    return str(met.value.got)


def pictures(root: Path, count: int = 40, folder: str = "img") -> list[str]:
    return [Path(name).name for name in photos(root, [f"{folder}/p{n}.jpg" for n in range(count)])]


def test_a_german_table_with_row_numbers_and_windows_paths(tmp_path):
    names = photos(tmp_path, [f"Fotos/Büro/IMG_{n:04}.JPG" for n in range(40)])
    rows = [[n + 1, name.replace("/", "\\"), "Welche Farbe hat der Stuhl?", answer(n)] for n, name in enumerate(names)]
    rows_of(tmp_path, "Fragen.csv", ["Lfd. Nr.", "Bilddatei", "Frage", "Antwort"], rows, ";")
    plan = seen(tmp_path)
    assert plan.source.columns == {"image": "Bilddatei", "text": "Frage", "answers": "Antwort"}
    assert plan.source.entry["language"] == "other"
    assert [path.is_file() for row in plan.rows for path in row.files] == [True] * 12


def test_answers_of_other_languages_lose_no_words(tmp_path):
    names = pictures(tmp_path)
    words = ["an der Wand", "DER Tisch", "six", "die_Tür"]
    rows_of(
        tmp_path, "q.csv", ["bild", "frage", "antwort"], [[n, "Wo ist es?", words[i % 4]] for i, n in enumerate(names)]
    )
    plan = seen(tmp_path)
    assert {row.target for row in plan.rows} == {"an der wand", "der tisch", "six", "die tür"}


def test_a_vocabulary_keeps_the_accents_of_a_language_that_has_them():
    german = Tokenizer.train(["das schöne Mädchen", "das schon"] * 20, 200)
    assert german.pieces("schöne") != german.pieces("schone")
    english = Tokenizer.train(["a café"] + ["a dog on the grass of a park"] * 50, 200)
    assert english.pieces("café") == english.pieces("cafe")


def test_several_captions_become_examples_whether_in_columns_a_list_or_a_cell(tmp_path):
    said = ["a red chair stands here", "there is one chair", "a photograph of a chair"]
    for kind in ("columns", "list", "cell"):
        root = tmp_path / kind
        names = pictures(root)
        if kind == "columns":
            rows_of(root, "c.csv", ["image", "caption_1", "caption_2", "caption_3"], [[n, *said] for n in names])
        elif kind == "list":
            write(root, "c.json", [{"file": n, "captions_of": said} for n in names])
        else:
            rows_of(root, "c.csv", ["image", "captions"], [[n, "|".join(said)] for n in names])
        plan = seen(root)
        assert (plan.goal, sum(part.examples for part in plan.parts.values())) == ("retrieval", 120), kind
        assert {row.text for row in plan.rows} <= set(said)


def test_folders_in_a_column_of_their_own(tmp_path):
    for year in ("2019", "2020"):
        pictures(tmp_path, 20, year)
    rows = [[year, f"p{n}.jpg", f"a dog number {n} on grass"] for year in ("2019", "2020") for n in range(20)]
    rows_of(tmp_path, "t.csv", ["folder", "name", "caption"], rows)
    plan = seen(tmp_path)
    assert plan.source.entry["image"] == "{folder}/{name}"
    assert sum(part.pictures for part in plan.parts.values()) == 40


def test_tables_in_folders_with_pictures_of_equal_names(tmp_path):
    for year in ("2019", "2020"):
        names = pictures(tmp_path, 20, f"{year}/pics")
        rows_of(tmp_path, f"{year}/labels.csv", ["file", "species"], [[n, answer(i)] for i, n in enumerate(names)])
    plan = seen(tmp_path)
    assert plan.source.entry["image"] == "{split}/pics/{file}"
    assert sum(part.pictures for part in plan.parts.values()) == 40
    assert any("nothing in the names" in note for note in plan.notes)


def test_rows_that_contradict_each_other_in_two_tables_are_told(tmp_path):
    names = pictures(tmp_path)
    for who, wrong in (("anna", 0), ("bob", 8)):
        rows = [[n, answer(i + (i < wrong))] for i, n in enumerate(names)]
        rows_of(tmp_path, f"{who}.csv", ["image", "label"], rows)
    assert any("contradict each other about 8 pictures" in note for note in seen(tmp_path).notes)


def test_parts_that_share_pictures_are_told_with_the_count(tmp_path):
    names = pictures(tmp_path)
    for part in ("train", "test"):
        rows = [[n, f"what is the {part} thing?", answer(i)] for i, n in enumerate(names)]
        rows_of(tmp_path, f"{part}_questions.csv", ["image", "question", "answer"], rows)
    notes = " ".join(seen(tmp_path).notes)
    assert "of the 40 pictures of the test part are also in the train part" in notes


def test_a_picture_with_two_names_and_classes_that_occur_once_are_told(tmp_path):
    names = pictures(tmp_path)
    rows = [*([n, answer(i) if i else "rare"] for i, n in enumerate(names)), ["P3.JPG", "red"]]
    rows_of(tmp_path, "l.csv", ["image", "label"], rows)
    notes = " ".join(seen(tmp_path).notes)
    assert "1 pictures have two names in the data, such as p3 and P3" in notes
    assert "1 of 5 classes occurs once" in notes


def test_every_damaged_picture_is_named_and_left_out(tmp_path):
    names = pictures(tmp_path)
    path = tmp_path / "img" / names[7]
    path.write_bytes(path.read_bytes()[:-300])
    rows_of(tmp_path, "c.csv", ["image", "caption"], [[n, f"a photo of a thing {n}"] for n in names])
    plan = seen(tmp_path)
    assert any("pictures that cannot be read: 1: img/p7.jpg" in note for note in plan.notes)
    assert plan.drop


def test_files_left_aside_stand_in_the_recipe_with_the_reason(tmp_path):
    names = pictures(tmp_path)
    rows_of(tmp_path, "c.csv", ["image", "caption"], [[n, f"a photo of a thing {n}"] for n in names])
    rows_of(tmp_path, "weather.csv", ["day", "wind"], [[n, n / 3] for n in range(40)])
    rows_of(tmp_path, "sample_submission.csv", ["image", "caption"], [[n, "nothing at all"] for n in names])
    write(tmp_path, "words.txt", "red\n")
    aside = seen(tmp_path).aside
    assert any(line.startswith("weather.csv: no column") for line in aside)
    assert any(line.startswith("sample_submission.csv: a submission") for line in aside)
    assert "words.txt: no reader recognises it" in aside


def _several(root: Path, names: list[str]) -> None:
    rows = [[n, answer(i), answer(i // 2), "SML"[i % 3]] for i, n in enumerate(names)]
    rows_of(root, "t.csv", ["image", "species", "colour", "size"], rows)


def _once(root: Path, names: list[str]) -> None:
    rows_of(root, "t.csv", ["image", "label"], [[n, f"thing {n}"] for n in names])


def _empty(root: Path, names: list[str]) -> None:
    rows_of(root, "t.csv", ["image", "question", "answer"], [[n, "what is it?", ""] for n in names])


def _list(root: Path, names: list[str]) -> None:
    for part in (0, 1):
        rows_of(root, f"{['cats', 'dogs'][part]}.csv", ["file"], [[n] for n in names[part::2]])


def _elsewhere(root: Path, names: list[str]) -> None:
    rows_of(root, "t.csv", ["image", "label"], [[f"x{n}", answer(i)] for i, n in enumerate(names)])


def _edits(root: Path, names: list[str]) -> None:  # FashionIQ
    stems = [Path(name).stem for name in names]
    pairs = zip(stems, reversed(stems), strict=True)
    rows = [{"target": one, "candidate": other, "captions": ["is longer", "has red sleeves"]} for one, other in pairs]
    write(root, "cap.dress.train.json", rows)


def _kinds(root: Path, names: list[str]) -> None:
    rows = [[n, "what is it?", ("open", "closed")[i % 2], "val2014"] for i, n in enumerate(names)]
    rows_of(root, "t.csv", ["image", "question", "question_type", "coco_split"], rows)


def _long(root: Path, names: list[str]) -> None:
    rows_of(root, "t.csv", ["image", "question", "answer"], [[n, "what is it?", f"It shows {n} on it."] for n in names])


def _uploads(root: Path, names: list[str]) -> None:  # Label Studio's numbers of tasks, which are names of pictures too
    photos(root, [f"other/{n}.jpg" for n in range(len(names))])
    rows = [[i, f"/data/upload/1/0a1b-{n}", "what is it?", answer(i)] for i, n in enumerate(names)]
    rows_of(root, "t.csv", ["id", "image", "question", "answer"], rows)


def _phrases(root: Path, names: list[str]) -> None:  # PhraseCut
    texts = {"walking people": [[2, 3, 9, 8]], "black shirt": [[1, 1, 9, 9], [4, 4, 9, 9]]}
    rows = [{"image": n, "phrase": text, "instance_boxes": boxes} for n in names for text, boxes in texts.items()]
    write(root, "refer.json", rows)


def _shares(root: Path, names: list[str]) -> None:
    rows = [[name, kind, 0.1, 0.2, 0.5, 0.6] for name in names for kind in ("cat", "dog")]
    rows_of(root, "boxes.csv", ["file", "class", "x", "y", "w", "h"], rows)


UNCLEAR = [
    (_phrases, "instance_boxes are other boxes in each row of a picture, and an expression has one box"),
    (_shares, "x, y, w, h hold boxes as shares of the picture: write them in pixels"),
    (_edits, "a sentence about two pictures (target and candidate) needs a column of labels"),
    (_kinds, "question holds questions, and no column their answers"),
    (_long, "nothing can be learnt from it; as captions they can be: --text answer"),
    (_uploads, "the column image names pictures such as '/data/upload/1/0a1b-"),
    (_several, "the columns species, colour and size could each be the label: choose with --label COLUMN"),
    (_once, "the column label has another value in every row"),
    (_empty, "the column answer is empty"),
    (_list, "it lists pictures and says nothing of them"),
    (_elsewhere, "the column image names pictures such as 'xp0.jpg'"),
]


@pytest.mark.parametrize(("make", "says"), UNCLEAR, ids=[make.__name__[1:] for make, _ in UNCLEAR])
@pytest.mark.parametrize("folders", [False, True], ids=["one folder", "folders"])
def test_a_table_that_is_not_understood_is_asked_about_whatever_the_folders_are_called(make, says, folders, tmp_path):
    names = pictures(tmp_path)
    if folders:
        names = photos(tmp_path, [f"{kind}/{kind}{n}.jpg" for kind in ("cat", "dog") for n in range(20)])
    make(tmp_path, names)
    assert says in asked(tmp_path).replace("xcat/cat0", "xp0")


def test_init_says_how_pictures_come_out_of_tables_and_archives(tmp_path, monkeypatch):
    (tmp_path / "hub/data").mkdir(parents=True)
    cells = pa.table({"image": [{"bytes": b"x", "path": None}], "text": ["a dog"]})
    pq.write_table(cells, tmp_path / "hub/data/train-00000-of-00001.parquet")
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed/train2014.zip").write_bytes(b"PK")
    monkeypatch.chdir(tmp_path)
    says = {
        "hub": "vlcli data unpack hub --out hub-unpacked, then vlcli init hub-unpacked",
        "packed": "unpack train2014.zip here, and call init again",
    }
    for folder, line in says.items():
        ended = CliRunner().invoke(app, ["init", folder])
        assert ended.exit_code == 5
        assert line in ended.stderr
    photos(tmp_path / "hub", ["logo.png"])
    assert "Its pictures lie inside the table" in CliRunner().invoke(app, ["init", "hub"]).stderr


def test_folders_of_variants_that_hold_the_same_classes_are_asked_about(tmp_path):
    kinds = ("apple", "corn", "pear", "rice")
    photos(tmp_path, [f"{variant}/{kind}/{n}.jpg" for variant in ("color", "grey") for kind in kinds for n in range(6)])
    assert "color, grey hold folders of the same names" in asked(tmp_path)
    assert seen(tmp_path / "color").goal == "image-classification"


def test_boxes_of_expressions_as_shares_of_the_picture_are_asked_about(tmp_path):
    rows = [
        [name, f"the {kind} on the left", 0.1, 0.2, 0.5, 0.6] for name in pictures(tmp_path) for kind in ("cat", "dog")
    ]
    rows_of(tmp_path, "boxes.csv", ["file", "text", "xmin", "ymin", "xmax", "ymax"], rows)
    assert "write them in pixels" in asked(tmp_path)


def test_boxes_of_a_single_class_are_detection(tmp_path):
    rows = [[name, 24, 18, "raccoon", 1, 2, 9 + n, 12] for name in pictures(tmp_path) for n in range(2)]
    rows_of(tmp_path, "labels.csv", ["filename", "width", "height", "class", "xmin", "ymin", "xmax", "ymax"], rows)
    plan = seen(tmp_path)
    assert (plan.goal, plan.source.columns["box_labels"]) == ("detection", "class")


def test_classes_in_turn_are_no_row_numbers(tmp_path):
    rows_of(
        tmp_path, "digits.csv", ["image", "label"], [[name, n % 10] for n, name in enumerate(pictures(tmp_path, 60))]
    )
    plan = seen(tmp_path)
    assert (plan.goal, plan.source.columns["label"]) == ("image-classification", "label")


def test_reports_in_a_table_of_their_own_are_no_reason_to_learn_the_views(tmp_path):
    files = photos(tmp_path, [f"images/{n // 2}_IM-{n * 31:04}-{n % 2 + 1}001.png" for n in range(48)])
    views = [[n // 2, Path(name).name, ("Frontal", "Lateral")[n % 2]] for n, name in enumerate(files)]
    rows_of(tmp_path, "projections.csv", ["uid", "filename", "projection"], views)
    reports = [[n, "normal", f"The heart is of normal size in {n} views."] for n in range(24)]
    rows_of(tmp_path, "reports.csv", ["uid", "Problems", "findings"], reports)
    line = asked(tmp_path)
    assert "reports.csv" in line
    assert "its column uid holds the keys of projections.csv: write one table that joins them" in line
    plan = plan_for(look(tmp_path, fallback=True), "image-classification", HERE)
    assert plan.source.columns["label"] == "projection"


def test_a_sentence_about_two_pictures_needs_a_label(tmp_path):
    photos(tmp_path, [f"images/{n // 2}_{n % 2}.png" for n in range(48)])
    rows_of(tmp_path, "reports.csv", ["uid", "findings"], [[n, f"Both show {n} dogs on grass."] for n in range(24)])
    assert "a sentence about two pictures ({uid}_0.png and {uid}_1.png) needs a column of labels" in asked(tmp_path)


def test_a_part_that_cannot_be_read_is_not_left_aside(tmp_path):
    names = pictures(tmp_path)
    for part, some in (("train", names[:30]), ("val", names[30:])):
        rows_of(tmp_path, f"{part}.csv", ["image", "label"], [[n, ("cat", "dog")[i % 2]] for i, n in enumerate(some)])
    assert {part: one.examples for part, one in seen(tmp_path).parts.items()}.keys() == {"train", "validation", "test"}
    file = tmp_path / "train.csv"
    file.write_text(file.read_text().replace("p3.jpg,dog", "p3.jpg,dog, sitting"))
    with pytest.raises(DataError, match="The train part of the data cannot be read") as met:
        look(tmp_path)
    assert met.value.where == "train.csv"
    assert "Line 5 does not have the header's 2 cells. 3: p3.jpg dog sitting" in str(met.value.got)


def test_the_only_table_that_cannot_be_read_is_to_be_corrected(tmp_path):
    names = pictures(tmp_path)
    write(tmp_path, "styles.csv", "image,label\n" + "\n".join(f"{name},shirt, blue" for name in names))
    with pytest.raises(DataError, match="Nothing in this folder says") as met:
        look(tmp_path)
    assert met.value.hint == "correct styles.csv, and call init again"


def test_rows_without_a_picture_are_counted(tmp_path):
    rows = [[name if n % 4 else "", "What is it?", ("cat", "dog")[n % 2]] for n, name in enumerate(pictures(tmp_path))]
    rows_of(tmp_path, "q.csv", ["image", "question", "answer"], rows)
    plan = seen(tmp_path)
    assert sum(part.examples for part in plan.parts.values()) == 30
    assert "left out 10 rows of which 'image' is empty: they name no picture" in plan.notes


def test_versions_of_the_same_classes_are_asked_about(tmp_path):
    kinds = ("Apple___healthy", "Corn___rust", "Tomato___blight")
    for version in ("color", "grayscale", "segmented"):
        photos(tmp_path, [f"raw/{version}/{kind}/{n}.jpg" for kind in kinds for n in range(6)])
    assert "color, grayscale, segmented hold folders of the same names" in asked(tmp_path)


def test_columns_of_classes_beside_captions_are_named(tmp_path):
    moods = [[name, f"A dog looks at {n} cats.", ("funny", "dull")[n % 2], ("mild", "harsh")[n % 2]]
             for n, name in enumerate(pictures(tmp_path))]  # fmt: skip
    rows_of(tmp_path, "memes.csv", ["image", "text", "humour", "tone"], moods)
    plan = seen(tmp_path)
    assert plan.goal == "retrieval"
    assert "humour, tone hold classes of the pictures: --label humour learns one instead" in plan.notes


@pytest.mark.parametrize(
    ("times", "text"),
    [
        (Times(0, 2400, 60, stops=True), "at most 41 min (training at most 40 min, evaluation 60 s)"),
        (Times(300, 2400, 0), "about 45 min (extraction 5 min, training 40 min)"),
        (Times(0, 5, 1, stops=True), "about 10 s"),
    ],
)
def test_a_time_is_a_bound_where_validation_may_end_a_training(times, text):
    assert times.text == text


def test_one_box_a_picture_is_a_box(tmp_path):
    kinds = ("cat", "dog")
    write(tmp_path, "boxes.jsonl", [
        {"image": name, "bbox": [2, 3, 10, 12], "label": kinds[n % 2]} for n, name in enumerate(pictures(tmp_path))
    ])  # fmt: skip
    plan = seen(tmp_path)
    assert plan.goal == "detection"
    assert {row.target for row in plan.rows} == {"1 boxes: cat", "1 boxes: dog"}


def test_parts_of_different_categories_are_refused(tmp_path):
    for part, kinds in (("train", ("cat", "dog")), ("val", ("dog",))):
        names = pictures(tmp_path, 20, part)
        images = [{"id": n, "file_name": f"{part}/{name}"} for n, name in enumerate(names)]
        notes = [{"id": n, "image_id": n, "category_id": 0} for n in range(20)]
        listed = [{"id": n, "name": kind} for n, kind in enumerate(kinds)]
        write(tmp_path, f"{part}2019.json", {"images": images, "annotations": notes, "categories": listed})
    with pytest.raises(DataError, match="The files list different categories"):
        seen(tmp_path)


def test_a_folder_and_a_number_in_two_columns_name_pictures_of_equal_names(tmp_path):
    names = photos(tmp_path, [f"serie{n % 4}/{n // 4:02}.png" for n in range(60)])
    rows = [[f"serie{n % 4}", f"{n // 4:02}", answer(n)] for n in range(60)]
    rows_of(tmp_path, "etichette.csv", ["cartella", "numero", "colore"], rows)
    plan = seen(tmp_path)
    assert plan.source.entry["image"] == "{cartella}/{numero}"
    assert plan.source.columns["label"] == "colore"
    shown = {path.relative_to(tmp_path).as_posix(): row.target for row in plan.rows for path in row.files}
    assert shown == {name: answer(n) for n, name in enumerate(names) if name in shown}


def test_a_question_about_several_pictures_is_refused(tmp_path):
    names = pictures(tmp_path)
    rows = [
        {"pages": [one, other], "question": "what is it?", "answer": "red"}
        for one, other in zip(names[::2], names[1::2], strict=True)
    ]
    write(tmp_path, "t.json", rows)
    with pytest.raises(DataError, match="No model of vqa reads several pictures") as met:
        seen(tmp_path)
    assert (met.value.where, met.value.got) == ("t.json", "2 in one row")
