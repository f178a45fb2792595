"""Layouts whose tables need a second look: rows without pictures, answers by place, official parts beside folders."""

from __future__ import annotations

import json
from pathlib import Path

from tests.starter.layouts import ASKED, LAYOUTS, answer, layout, photos, rows_of, write

BEFORE = set(LAYOUTS)
KINDS = ("Crop", "Forest", "River")


@layout("vqa", "json", counts={"train": 30, "validation": 10, "test": 10}, columns={"choices": "choices"})
def choices_by_place(root: Path) -> None:
    """ScienceQA: an object by key; answers are places of choices; a third of the questions have no picture."""
    document = {}
    for n in range(75):
        part = "train" if n < 45 else "val" if n < 60 else "test"
        document[str(n)] = {
            "question": ASKED[n % 3],
            "choices": ["red", "green", "blue"][: 2 + n % 2],
            "answer": n % 2,
            "image": None if n % 3 == 0 else "image.png",
            "split": part,
        }
        photos(root, [f"{part}/{n}/image.png"] if n % 3 else [])
    write(root, "problems.json", document)


@layout("vqa", "json", total=120, columns={"image": "image_name", "text": "question"})
def a_few_pictures_asked_often(root: Path) -> None:
    """VQA-RAD in little: 24 pictures, of which a hash may hold none out."""
    photos(root, [f"VQA_RAD Image Folder/synpic{n * 7919}.jpg" for n in range(24)])
    rows = [
        {"qid": n, "image_name": f"synpic{n % 24 * 7919}.jpg", "question": ASKED[n % 3], "answer": answer(n)}
        for n in range(120)
    ]
    write(root, "VQA_RAD Dataset Public.json", rows)


@layout("image-classification", "csv", counts={"train": 45, "test": 15}, columns={"image": "Path", "label": "ClassId"})
def tables_beside_class_folders(root: Path) -> None:
    """GTSRB: folders of the training classes, tables of both parts, a table of the classes."""
    train = photos(root, [f"Train/{n % 3}/{n % 3:05}_{n:05}.png" for n in range(45)])
    test = photos(root, [f"Test/{n:05}.png" for n in range(15)])
    photos(root, [f"Meta/{k}.png" for k in range(3)])
    for name, files in (("Train", train), ("Test", test)):
        rows_of(root, f"{name}.csv", ["Width", "ClassId", "Path"], [[24, n % 3, f] for n, f in enumerate(files)])
    rows_of(root, "Meta.csv", ["Path", "ClassId", "ShapeId"], [[f"Meta/{k}.png", k, k] for k in range(3)])


@layout(
    "image-classification", "csv", counts={"train": 30, "validation": 15, "test": 15}, columns={"label": "ClassName"}
)
def numbers_and_names(root: Path) -> None:
    """EuroSAT: each class as a number and as a word."""
    files = photos(root, [f"{KINDS[n % 3]}/{KINDS[n % 3]}_{n}.jpg" for n in range(60)])
    for part, start, end in (("train", 0, 30), ("validation", 30, 45), ("test", 45, 60)):
        rows = [[n, files[n], n % 3, KINDS[n % 3]] for n in range(start, end)]
        rows_of(root, f"{part}.csv", ["", "Filename", "Label", "ClassName"], rows)
    write(root, "label_map.json", {kind: n for n, kind in enumerate(KINDS)})


@layout("vqa", "json", total=120, columns={"text": "questions", "answers": "answers"})
def lists_side_by_side(root: Path) -> None:
    """OCR-VQA: an object by picture, with a list of questions and a list of their answers."""
    document = {}
    for n in range(40):
        photos(root, [f"images/{n:010}.jpg"])
        said = [answer(n), ("yes", "no")[n % 2], KINDS[n % 3]]
        document[f"{n:010}"] = {"title": f"Book {n}", "questions": list(ASKED[:3]), "answers": said}
    write(root, "dataset.json", document)


@layout("detection", "csv", total=40, columns={"boxes": ["bbox"]})
def one_list_a_row(root: Path) -> None:
    """Wheat heads: a row a box, as text: corner, width and height."""
    photos(root, [f"train/{n:09x}.jpg" for n in range(40)])
    rows = [[f"{n // 3:09x}", 24, 18, f"[{9 + n % 4}.0, {8 + n % 3}.0, 5.0, 4.0]", "field"] for n in range(120)]
    rows_of(root, "train.csv", ["image_id", "width", "height", "bbox", "source"], rows)


@layout("image-classification", "folder", counts={"train": 45, "test": 15}, columns={"label": "folder"})
def parts_twice(root: Path) -> None:
    """Intel's scenes: seg_train/seg_train/forest, and pictures to predict that lie in no folder of a class."""
    for part, count in (("seg_train", 45), ("seg_test", 15)):
        photos(root, [f"{part}/{part}/{KINDS[n % 3]}/{n}.jpg" for n in range(count)])
    photos(root, [f"seg_pred/seg_pred/{n}.jpg" for n in range(9)])


@layout("image-classification", "folder", counts={"train": 45, "validation": 15}, columns={"label": "folder"})
def a_test_part_without_classes(root: Path) -> None:
    """Flowers as a competition has them: the pictures of the test lie in no folder of a class."""
    for part, count in (("train", 45), ("valid", 15)):
        photos(root, [f"{part}/{n % 3}/{n}.jpg" for n in range(count)])
    photos(root, [f"test/{n}.jpg" for n in range(9)])


@layout("retrieval", "csv", counts={"train": 30, "validation": 12, "test": 12}, columns={"text": "value"})
def captions_beside_codes(root: Path) -> None:
    """ROCO: lists of captions, of codes and of licences in the folder of each part, all of two columns."""
    for part, start, end in (("train", 0, 30), ("validation", 30, 42), ("test", 42, 54)):
        home, numbers = f"data/{part}/radiology", range(start, end)
        photos(root, [f"{home}/images/ROCO_{n:05}.jpg" for n in numbers])
        for file, said in (
            ("captions", "Axial scan {} of the chest."),
            ("cuis", "C{:07}"),
            ("licences", "PMC{}.tar.gz"),
        ):
            write(root, f"{home}/{file}.txt", "".join(f"ROCO_{n:05}\t{said.format(n)}\n" for n in numbers))


@layout("multi-label", "csv", total=60, columns={"label": ["MEL", "NV", "BCC"]})
def flags_beside_measurements(root: Path) -> None:
    """ISIC 2019: a column of flags for each class; a second table says sex and age of the same pictures."""
    names = [Path(name).stem for name in photos(root, [f"Input/ISIC_{n:07}.jpg" for n in range(60)])]
    flags = [[name, *(f"{float(n % 3 == k)}" for k in range(3))] for n, name in enumerate(names)]
    rows_of(root, "GroundTruth.csv", ["image", "MEL", "NV", "BCC"], flags)
    facts = [[name, "55.0", ("male", "female")[n % 2]] for n, name in enumerate(names)]
    rows_of(root, "Metadata.csv", ["image", "age_approx", "sex"], facts)


@layout("retrieval", "coco-captions", counts={"train": 60, "validation": 30}, columns={"text": "caption"})
def ids_that_begin_anew(root: Path) -> None:
    """COCO's format as tools export it: the ids of captions begin at 0 in each part."""
    for part, start, end in (("train", 0, 30), ("val", 30, 45)):
        files = photos(root, [f"{part}2017/{n:012}.jpg" for n in range(start, end)])
        images = [{"id": n, "file_name": Path(name).name} for n, name in zip(range(start, end), files, strict=True)]
        notes = [
            {"id": n, "image_id": start + n // 2, "caption": f"A dog and {n} cats."} for n in range(2 * len(files))
        ]
        write(root, f"annotations/captions_{part}2017.json", {"images": images, "annotations": notes})


@layout("image-classification", "coco-classes", counts={"train": 40, "validation": 15})
def categories_without_boxes(root: Path) -> None:
    """iNaturalist: COCO's format with a category for each picture; the files lie in folders of orders and species."""
    kinds = [{"id": 7 * k, "name": kind, "supercategory": "Plants"} for k, kind in enumerate(KINDS)]
    for part, start, end in (("train", 0, 40), ("val", 40, 55)):
        homes = [f"train_val2019/{('Birds', 'Plants')[n % 2]}/{n % 3}" for n in range(start, end)]
        files = photos(root, [f"{home}/{n:032x}.jpg" for n, home in enumerate(homes, start)])
        images = [{"id": n, "file_name": name} for n, name in zip(range(start, end), files, strict=True)]
        notes = [{"id": n, "image_id": n, "category_id": 7 * (n % 3)} for n in range(start, end)]
        write(root, f"{part}2019.json", {"images": images, "annotations": notes, "categories": kinds})


@layout("multi-label", "csv", total=36, columns={"label": ["LabelName"]})
def a_row_for_each_class_of_a_picture(root: Path) -> None:
    """Open Images: several rows a picture, each with a class and whether people saw it."""
    photos(root, [f"validation/{n:016x}.jpg" for n in range(45)])
    rows = [[f"{n:016x}", "verification", kind, int(n % 5 > k)] for n in range(45) for k, kind in enumerate(KINDS)]
    rows_of(root, "annotations.csv", ["ImageID", "Source", "LabelName", "Confidence"], rows)


@layout("multi-label", "csv", counts={"train": 30, "test": 15}, columns={"label": ["tag"]})
def a_row_for_each_tag_in_parts(root: Path) -> None:
    """A table of pictures and tags out of a data base, with a column of the parts."""
    names = photos(root, [f"img/{n}.jpg" for n in range(45)])
    rows = [
        [name, KINDS[(n + k) % 3], ("train", "test")[n >= 30]] for n, name in enumerate(names) for k in range(1 + n % 2)
    ]
    rows_of(root, "tags.csv", ["file", "tag", "part"], rows)


PARTS = (("train", 0, 30), ("val", 30, 40))


@layout("vqa", "vqa", counts={"train": 30, "test": 10}, columns={"text": "question", "answers": "answers[].answer"})
def vqa_cp(root: Path) -> None:
    """VQA-CP: lists, whose rows say which part of COCO has the picture; questions and answers in files of their own."""
    photos(root, [f"{where}2014/COCO_{where}2014_{n:012}.jpg" for where, a, b in PARTS for n in range(a, b)])
    for part in ("train", "test"):
        rows = [
            {"image_id": n, "question_id": 10 * n, "coco_split": "train2014" if n < 30 else "val2014"}
            for n in range(40)
            if (n % 4 > 0) == (part == "train")
        ]
        write(root, f"vqacp_v2_{part}_questions.json", [{**row, "question": ASKED[0]} for row in rows])
        said = [{**row, "answer_type": "other", "answers": [{"answer": answer(row["image_id"])}] * 10} for row in rows]
        write(root, f"vqacp_v2_{part}_annotations.json", said)


@layout("vqa", "json", counts={"train": 30, "validation": 10}, columns={"image": "filename", "answers": "answer"})
def questions_and_names_by_id(root: Path) -> None:
    """OpenViVQA: an object of file names and one of questions."""
    for part, start, end in (("train", 0, 30), ("dev", 30, 40)):
        photos(root, [f"{part}-images/{n:011}.jpg" for n in range(start, end)])
        said = {
            str(900 + n): {"image_id": n, "question": "màu gì?", "answer": ("đỏ", "vàng")[n % 2]}
            for n in range(start, end)
        }
        names = {str(n): f"{n:011}.jpg" for n in range(start, end)}
        write(root, f"vlsp2023_{part}_data.json", {"images": names, "annotations": said})


@layout("vqa", "json", counts={"train": 30, "validation": 10}, columns={"text": "question", "answers": "answers"})
def types_of_answers_first(root: Path) -> None:
    """VQA-E: the type of the answer stands before the answers."""
    for part, start, end in PARTS:
        photos(root, [f"{part}2014/COCO_{part}2014_{n:012}.jpg" for n in range(start, end)])
        rows = [
            {
                "answer_type": "other",
                "img_id": n,
                "question": ASKED[0],
                "question_type": "a",
                "answers": [answer(n)] * 10,
            }
            for n in range(start, end)
        ]
        write(root, f"VQA-E_{part}_set.json", rows)


@layout("vqa", "rsvqa", counts={"train": 30, "validation": 10, "test": 10})
def rsvqa_hr(root: Path) -> None:
    """RSVQA, high resolution: two tests, of which ``test`` is the part, and a file of the questions of all parts."""
    photos(root, [f"Data/{n}.png" for n in range(60)])
    named = (
        ("_split_train_", 0, 30),
        ("_split_val_", 30, 40),
        ("_split_test_", 40, 50),
        ("_split_test_phili_", 50, 60),
    )
    for part, start, end in (*named, ("", 0, 60)):
        asked = [{"id": n, "img_id": n, "question": ASKED[0], "answers_ids": [n]} for n in range(start, end)]
        write(root, f"USGS{part}questions.json", {"questions": asked})
        said = [{"id": n, "question_id": n, "answer": answer(n)} for n in range(start, end)]
        write(root, f"USGS{part}answers.json", {"answers": said})


@layout("retrieval", "json", counts={"train": 30, "validation": 10, "test": 10}, columns={"text": "report"})
def reports_of_two_views(root: Path) -> None:
    """R2Gen's IU X-ray: a list of reports for each part; the pictures of a report lie in a folder of its own."""
    document = {}
    for part, start, end in (*PARTS, ("test", 40, 50)):
        views = {n: [f"CXR{n}/{view}.png" for view in range(2)] for n in range(start, end)}
        photos(root, [f"images/{name}" for names in views.values() for name in names])
        document[part] = [
            {"id": f"CXR{n}", "report": f"The heart is {answer(n)} in {n} views.", "image_path": names, "split": part}
            for n, names in views.items()
        ]
    write(root, "annotation.json", document)


@layout("retrieval", "jsonl", counts={"train": 30, "test": 10}, columns={"image": "image_file", "text": "description"})
def lines_of_another_ending(root: Path) -> None:
    """DOCCI: JSON lines that end in .jsonlines; the pictures are called by the parts."""
    names = [f"{part}_{n:05}" for part, count in (("train", 30), ("test", 10)) for n in range(count)]
    photos(root, [f"images/{name}.jpg" for name in names])
    rows = [
        {"image_file": f"{one}.jpg", "split": one[:-6], "description": f"A view of {n} trees."}
        for n, one in enumerate(names)
    ]
    write(root, "docci_descriptions.jsonlines", "\n".join(map(json.dumps, rows)))


@layout("retrieval", "flickr", counts={"train": 60, "validation": 20, "test": 20})
def flickr8k_cn(root: Path) -> None:
    """Flickr8k-CN: the language in the names of the sentences, a blank before them."""
    names = photos(root, [f"{n}_a.jpg" for n in range(50)])
    write(
        root,
        "flickr8kzhc.caption.txt",
        "".join(f"{name}#zhc#{k} 一个人站在桌子旁{k}\n" for name in names for k in (0, 1)),
    )
    for part, start, end in (("train", 0, 30), ("dev", 30, 40), ("test", 40, 50)):
        write(root, f"Flickr_8k.{part}Images.txt", "\n".join(names[start:end]))


@layout("vqa", "csv", counts={"train": 30, "validation": 10}, columns={"text": "question", "answers": "answer"})
def metadata_of_parts(root: Path) -> None:
    """Hugging Face's imagefolder: a table in each part's folder, equal paths below."""
    for part, start, end in PARTS:
        names = [f"{answer(n)}/{n}.jpg" for n in range(end - start)]
        photos(root, [f"data/{part}/{name}" for name in names])
        rows = [[name, ASKED[n % 3], answer(n)] for n, name in enumerate(names)]
        rows_of(root, f"data/{part}/metadata.csv", ["file_name", "question", "answer"], rows)


@layout("vqa", "jsonl", total=80, columns={"image": "image"})
def pictures_in_turns(root: Path) -> None:
    """Chat templates whose first turn names its picture, which the second question is about too."""
    photos(root, [f"images/{n}.png" for n in range(40)])
    rows = []
    for n in range(40):
        shown = [{"type": "image", "image": f"images/{n}.png"}, {"type": "text", "text": ASKED[0]}]
        said = [("user", shown), ("assistant", answer(n)), ("user", ASKED[1]), ("assistant", ("yes", "no")[n % 2])]
        rows.append({"messages": [{"role": who, "content": content} for who, content in said]})
    write(root, "train.jsonl", rows)


@layout("multi-label", "jsonl", total=40, columns={"label": ["label"]})
def one_class_in_a_list(root: Path) -> None:
    """doccano's classes of pictures."""
    photos(root, [f"uploads/{n}.jpg" for n in range(40)])
    write(
        root, "all.jsonl", [{"id": n, "filename": f"{n}.jpg", "label": [answer(n)], "Comments": []} for n in range(40)]
    )


@layout("image-classification", "csv", total=40, columns={"label": "label"})
def folders_named_by_the_label(root: Path) -> None:
    """A table of files and classes; the files lie in folders of the classes and have the same names there."""
    photos(root, [f"pics/{answer(k)}/{n:04}.jpg" for k in range(4) for n in range(10)])
    rows_of(root, "t.csv", ["file", "label"], [[f"{n:04}.jpg", answer(k)] for k in range(4) for n in range(10)])


@layout("retrieval", "json", counts={"train": 30, "validation": 10}, columns={"text": "tweet_text"})
def words_in_some_pictures(root: Path) -> None:
    """MMHS150K: tweets in one file; the words that stand in some of the pictures in files of their names."""
    photos(root, [f"img_resized/{n}77.jpg" for n in range(40)])
    write(
        root,
        "MMHS150K_GT.json",
        {f"{n}77": {"tweet_text": f"look at {n} cats", "labels": [0, n % 3]} for n in range(40)},
    )
    for part, start, end in PARTS:
        write(root, f"splits/{part}_ids.txt", "\n".join(f"{n}77" for n in range(start, end)))
    for n in range(15):
        write(root, f"img_txt/{n}77.json", {"img_text": f"words {n} of it"})


@layout("retrieval", "webdataset", total=32)
def captions_in_text_and_table(root: Path) -> None:
    """img2dataset's files: a caption beside each picture, and again in a Parquet table, which has rows without any."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for n in range(40):
        photos(root, [f"00000/{n:09}.jpg"] if n % 5 else [])
        write(root, f"00000/{n:09}.txt", f"a cat and {n} dogs") if n % 5 else None
    table = {"caption": [f"a cat and {n} dogs" for n in range(40)], "key": [f"{n:09}" for n in range(40)]}
    pq.write_table(pa.table(table), root / "00000.parquet")


@layout("vqa", "json", total=80, columns={"text": "Questions", "answers": "Answers"})
def questions_and_paraphrases(root: Path) -> None:
    """KVQA: an object by picture with lists of paraphrases, of questions and of answers."""
    photos(root, [f"KVQAimgs/{n}.jpg" for n in range(40)])
    document = {
        str(n): {
            "imgPath": f"KVQAimgs/{n}.jpg",
            "ParaQuestions": [f"who may be seen in {n} ?", f"where does {n} stand ?"],
            "Questions": [f"who is in {n} ?", f"where is {n} ?"],
            "Answers": [answer(n), answer(n + 1)],
        }
        for n in range(40)
    }
    write(root, "dataset.json", document)


JOINED = sorted(set(LAYOUTS) - BEFORE)
