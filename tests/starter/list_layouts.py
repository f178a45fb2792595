"""Layouts of public sets whose annotations are lists: a picture a line, without a header."""

from __future__ import annotations

from pathlib import Path

from tests.starter.layouts import ASKED, LAYOUTS, answer, layout, photos, write

BEFORE = set(LAYOUTS)


@layout("vqa", "csv", counts={"train": 30, "validation": 10}, columns={"text": "value2", "answers": "value3"})
def vqa_med(root: Path) -> None:
    """VQA-Med 2019: NAME|question|answer, the pictures without their ending."""
    for part, start, count in (("Train", 100, 30), ("Val", 200, 10)):
        names = [f"synpic{n}" for n in range(start, start + count)]
        photos(root, [f"{part}_images/{name}.jpg" for name in names])
        lines = [f"{name}|{ASKED[n % 3]}|{answer(n)}, {answer(n + 1)}" for n, name in enumerate(names)]
        write(root, f"All_QA_Pairs_{part.lower()}.txt", "\n".join(lines) + "\n")


AIRCRAFT = {
    "manufacturer": ["Boeing", "Airbus"],
    "family": ["Boeing 707", "Boeing 717", "A300"],
    "variant": ["707-320", "717-200", "A300B4", "A300 600"],
}


def aircraft(number: int, kind: str) -> str:
    variant = number % 4
    return AIRCRAFT[kind][{"variant": variant, "family": min(variant, 2), "manufacturer": int(variant > 1)}[kind]]


@layout("image-classification", "csv", counts={"train": 32, "validation": 12, "test": 12}, columns={"label": "value"})
def fgvc_aircraft(root: Path) -> None:
    """FGVC-Aircraft: PICTURE LABEL, whose label may hold blanks; three kinds of classes, and boxes beside."""
    bounds = {"train": (0, 32), "val": (32, 44), "trainval": (0, 44), "test": (44, 56)}
    photos(root, [f"data/images/{n:07}.jpg" for n in range(56)])
    for part, (start, end) in bounds.items():
        write(root, f"data/images_{part}.txt", "".join(f"{n:07}\n" for n in range(start, end)))
        for kind in AIRCRAFT:
            lines = [f"{n:07} {aircraft(n, kind)}\n" for n in range(start, end)]
            write(root, f"data/images_{kind}_{part}.txt", "".join(lines))
    write(root, "data/images_box.txt", "".join(f"{n:07} 1 1 {n + 30} 20\n" for n in range(56)))
    write(root, "data/variants.txt", "\n".join(AIRCRAFT["variant"]))


@layout("image-classification", "path-lists", counts={"train": 48, "test": 24}, columns={"label": "folder"})
def sun397(root: Path) -> None:
    """SUN397: lists of /LETTER/CLASS/PICTURE, of some classes with a folder more; the first division is taken."""
    kinds = ("a/abbey", "a/apse/indoor", "b/bar/indoor")
    photos(root, [f"SUN397/{kind}/sun_{n}.jpg" for kind in kinds for n in range(24)])
    for number in (1, 2):
        for part, (start, end) in {"Training": (0, 16), "Testing": (16, 24)}.items():
            lines = [f"/{kind}/sun_{n}.jpg\n" for kind in kinds for n in range(start, end)]
            write(root, f"Partitions/{part}_{number:02}.txt", "".join(lines))
    write(root, "Partitions/ClassName.txt", "".join(f"/{kind}\n" for kind in kinds))


@layout("image-classification", "csv", counts={"train": 40, "validation": 20}, columns={"label": "value"})
def places365(root: Path) -> None:
    """Places365: paths with a leading slash and the number of a class, whose names stand before their numbers."""
    kinds = ("/a/airfield", "/b/bar", "/c/cave/indoor")
    for part, folder, count in (("train_standard", "data_256", 40), ("val", "val_256", 20)):
        names = [f"{kinds[n % 3]}/{n:08}.jpg" if part != "val" else f"Places365_val_{n:08}.jpg" for n in range(count)]
        photos(root, [f"{folder}/{name.lstrip('/')}" for name in names])
        write(root, f"places365_{part}.txt", "".join(f"{name} {n % 3}\n" for n, name in enumerate(names)))
    write(root, "categories_places365.txt", "".join(f"{kind} {n}\n" for n, kind in enumerate(kinds)))


@layout("multi-label", "csv", counts={"train": 30, "test": 15}, columns={"label": ["labels"]})
def lists_of_numbers(root: Path) -> None:
    """PICTURE and the numbers of its classes, one or several."""
    for part, (start, end) in {"train": (0, 30), "test": (30, 45)}.items():
        photos(root, [f"pics/{n:05}.png" for n in range(start, end)])
        lines = [" ".join([f"{n:05}.png", *(str(k) for k in (1, 2, 3) if n % k == 0)]) for n in range(start, end)]
        write(root, f"{part}_labels.txt", "\n".join(lines) + "\n")


@layout("multi-label", "csv", total=30, columns={"label": ["value2", "value3", "value4"]})
def lists_of_flags(root: Path) -> None:
    """PICTURE 0 1 0: a column for each class."""
    photos(root, [f"pics/{n:05}.png" for n in range(30)])
    write(root, "list.txt", "".join(f"{n:05} {n % 2} {int(n % 3 == 0)} {int(n % 5 == 0)}\n" for n in range(30)))


@layout("retrieval", "csv", total=60, columns={"text": "value"})
def captions_by_blanks(root: Path) -> None:
    """PICTURE.jpg and a sentence, divided by blanks."""
    photos(root, [f"pics/{n:05}.jpg" for n in range(30)])
    lines = [f"{n // 2:05}.jpg a {answer(n)} thing number {n} stands on the table" for n in range(60)]
    write(root, "captions.txt", "\n".join(lines))


@layout("image-classification", "csv", counts={"train": 20, "validation": 10, "test": 10}, columns={"label": "species"})
def table_with_lists(root: Path) -> None:
    """A table with lists of the pictures of each part beside it."""
    photos(root, [f"img/p{n}.jpg" for n in range(40)])
    write(root, "labels.csv", "\n".join(["file,species", *(f"p{n}.jpg,{answer(n)}" for n in range(40))]))
    for part, (start, end) in {"train": (0, 20), "val": (20, 30), "test": (30, 40)}.items():
        write(root, f"splits/{part}.txt", "\n".join(f"p{n}" for n in range(start, end)))


@layout("multi-label", "csv", counts={"train": 30, "validation": 10, "test": 10}, columns={"label": ["Bald", "Male"]})
def celeba(root: Path) -> None:
    """CelebA: a number and the names of the attributes before the rows; a list of 0, 1 and 2 for the parts."""
    names = [f"{n:06}.jpg" for n in range(1, 51)]
    photos(root, [f"img_align_celeba/{name}" for name in names])
    flags = "".join(f"{name} {1 - 2 * (n % 2):2} {1 - 2 * (n % 3 == 0):2}\n" for n, name in enumerate(names))
    write(root, "list_attr_celeba.txt", f"{len(names)}\nBald Male \n{flags}")
    boxes = "".join(f"{name} {n:4} 71 22 {n + 30}\n" for n, name in enumerate(names))
    write(root, "list_bbox_celeba.txt", f"{len(names)}\nimage_id x_1 y_1 width height\n{boxes}")
    write(root, "list_eval_partition.txt", "".join(f"{name} {max(0, n // 10 - 2)}\n" for n, name in enumerate(names)))


@layout("multi-label", "csv", counts={"train": 30, "validation": 10, "test": 10}, columns={"label": ["Bald", "Male"]})
def celeba_tables(root: Path) -> None:
    """The same as tables with headers."""
    names = [f"{n:06}.jpg" for n in range(1, 51)]
    photos(root, [f"img_align_celeba/{name}" for name in names])
    flags = [f"{name},{1 - 2 * (n % 2)},{1 - 2 * (n % 3 == 0)}" for n, name in enumerate(names)]
    write(root, "list_attr_celeba.csv", "\n".join(["image_id,Bald,Male", *flags]))
    parts = [f"{name},{max(0, n // 10 - 2)}" for n, name in enumerate(names)]
    write(root, "list_eval_partition.csv", "\n".join(["image_id,partition", *parts]))


@layout("retrieval", "csv", counts={"train": 20, "validation": 10, "test": 10}, columns={"text": "caption"})
def parts_in_json(root: Path) -> None:
    """A table of captions, and a JSON document with a list of pictures for each part."""
    photos(root, [f"img/p{n}.jpg" for n in range(40)])
    write(
        root,
        "captions.csv",
        "\n".join(["file,caption", *(f"p{n}.jpg,a {answer(n)} cat on mat {n}" for n in range(40))]),
    )
    parts = {"train": (0, 20), "dev": (20, 30), "test": (30, 40)}
    write(root, "split.json", {part: [f"p{n}" for n in range(*bounds)] for part, bounds in parts.items()})


@layout("image-classification", "folder", total=36, columns={"label": "folder"})
def tiny_imagenet(root: Path) -> None:
    """Tiny ImageNet: a folder for each class of train, with boxes beside; a list for val."""
    kinds = ("n01", "n02", "n03")
    photos(root, [f"train/{kind}/images/{kind}_{n}.JPEG" for kind in kinds for n in range(12)])
    for kind in kinds:
        boxes = [f"{kind}_{n}.JPEG\t0\t{n}\t20\t{n + 15}" for n in range(12)]
        write(root, f"train/{kind}/{kind}_boxes.txt", "\n".join(boxes))
    photos(root, [f"val/images/val_{n}.JPEG" for n in range(12)])
    lines = [f"val_{n}.JPEG\t{kinds[n % 3]}\t0\t{n}\t20\t{n + 15}" for n in range(12)]
    write(root, "val/val_annotations.txt", "\n".join(lines) + "\n")
    write(root, "wnids.txt", "\n".join(kinds))


@layout("image-classification", "class-lists", counts={"train": 24, "test": 12}, columns={"label": "file"})
def a_list_for_each_class(root: Path) -> None:
    """Stanford 40 Actions: a list for each class and part, and a table of the classes beside."""
    kinds = ("cooking", "fishing", "taking_photos")
    photos(root, [f"JPEGImages/{kind}_{n:03}.jpg" for kind in kinds for n in range(12)])
    for kind in kinds:
        for part, numbers in (("train", range(8)), ("test", range(8, 12))):
            write(root, f"ImageSplits/{kind}_{part}.txt", "".join(f"{kind}_{n:03}.jpg\n" for n in numbers))
    write(root, "ImageSplits/actions.txt", "action_name\tnumber\n" + "".join(f"{kind}\t12\n" for kind in kinds))


@layout("multi-label", "class-lists", counts={"train": 40, "test": 20}, columns={"label": "file"})
def lists_with_signs(root: Path) -> None:
    """PASCAL VOC's ImageSets/Main without the boxes: 1, -1 and 0 for each class, and lists of the parts."""
    names = [f"2008_{n:06}" for n in range(60)]
    photos(root, [f"JPEGImages/{name}.jpg" for name in names])
    for part, some in (("train", names[:40]), ("val", names[40:]), ("trainval", names)):
        for k, kind in enumerate(("cat", "person", "tvmonitor")):
            signs = [f"{name} {(' 1', '-1', ' 0', *4 * ['-1'])[(n + k) % 7]}\n" for n, name in enumerate(some)]
            write(root, f"ImageSets/Main/{kind}_{part}.txt", "".join(signs))
        write(root, f"ImageSets/Main/{part}.txt", "\n".join(some) + "\n")


@layout("multi-label", "class-lists", total=45, columns={"label": "file"})
def lists_of_numbers_for_each_class(root: Path) -> None:
    """MIRFLICKR: lists of numbers, in a folder with a README; a quarter of the pictures are in none."""
    photos(root, [f"mirflickr/im{n}.jpg" for n in range(1, 61)])
    write(root, "annotations/README.txt", "Annotations of the collection.\nOne file for each topic.\n")
    for k, kind in enumerate(("animals", "plant_life", "sky")):
        write(root, f"annotations/{kind}.txt", "".join(f"{n}\n" for n in range(1, 61) if n % 4 in (k, 2)))


@layout("image-classification", "folder", total=60, columns={"label": "name"})
def classes_in_names(root: Path) -> None:
    """Dogs vs. Cats: the class is in the names of train; those of test1 are numbers."""
    photos(root, [f"train/{('cat', 'dog')[n % 2]}.{n // 2}.jpg" for n in range(60)])
    photos(root, [f"test1/{n}.jpg" for n in range(10)])


@layout("image-classification", "folder", counts={"train": 40, "test": 20}, columns={"label": "name"})
def classes_in_names_of_parts(root: Path) -> None:
    """Chest X-rays: words with blanks and hyphens, numbers with zeros or in brackets, in folders of two parts."""
    kinds = ("COVID-19 viral", "normal", "bacterial")
    for part, count in (("train", 40), ("test", 20)):
        photos(root, [f"{part}/{kinds[n % 3]}{(f'_{n:03}', f' ({n})')[n % 2]}.png" for n in range(count)])


LISTS = sorted(set(LAYOUTS) - BEFORE)
