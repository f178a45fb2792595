"""A folder of pictures: for extraction, or with classes by the names of subfolders or of the pictures."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import product, repeat
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Literal

from vlcli.data import Example, Folder
from vlcli.data.files import grouped, index_images, inside
from vlcli.data.miniature import PICTURES, Miniature
from vlcli.data.readers.split_file import StreamReader, require_folders
from vlcli.data.recognition.recognised import Recognised, part_in, part_of, parts_of
from vlcli.errors import DataError
from vlcli.plain import as_list, comma_list

# Folders of pictures that label the pixels of other pictures.
_LABEL_MAPS = {"annotations", "annotation", "masks", "labels", "SegmentationClass", "gtFine"}


class ImageFolder(StreamReader):
    """A folder of pictures and its subfolders, without text: for extraction, or classes by subfolder or name.

    Args:
        split: fills ``{split}`` in ``images``.
        images: the folder under the root.
        label: number the classes (subfolders: ``ImageNet``'s layout), sorted by name.
        classes: the ``first`` subfolder; ``all``: the path of the picture's folder; or ``name``: the words before the
            number that ends the picture's name (``cat.0.jpg``).
    """

    recognise_order: ClassVar[int] = -1  # lists of CLASS/PICTURE look like captions

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:
        pictures = folder.pictures
        base = pictures.folder
        if base in pictures.folders or _is_divided(pictures.paths, base):
            return _classes_by_name(folder)
        paths = [Path(one).relative_to(base).parts for one in pictures.folders]
        twice = all(len(path) > 1 and path[0] == path[1] for path in paths)  # seg_train/seg_train/forest
        paths = [path[:1] + path[2:] for path in paths] if twice else paths
        names = sorted({path[0] for path in paths})
        parts = parts_of(names)
        inner = {name: {path[1] if len(path) > 1 else "" for path in paths if path[0] == name} for name in names}
        train = as_list(parts["train"]["split"])[0] if parts else ""
        unlike = [name for name in names if parts and not inner[name] & inner[train]]
        if unlike and (known := parts_of([name for name in names if name not in unlike])):
            parts, inner = known, {name: inner[name] for name in names if name not in unlike}
        elif unlike:
            base, names, parts = str(PurePosixPath(base, train)), sorted(inner[train]), {}
        classes = set().union(*inner.values()) if parts else set(names)
        if len(classes) < 2 or "" in classes or _LABEL_MAPS & classes:
            return _classes_by_name(folder)
        images = str(PurePosixPath(base, *["{split}"] * (1 + twice))) if parts else base
        entry = {"name": "folder", "images": images, "label": True}
        title = f"folders of pictures in {base}" if parts else f"{len(names)} folders of pictures in {base}"
        columns, reasons = {"image": "file", "label": "folder"}, {"parts": "the folders are named after the parts"}
        record = Recognised("labels", entry, [], columns, parts, reasons, title=title, fallback=True)
        record.notes += [f"the pictures in {', '.join(unlike)} lie in no folder of a class"] if unlike else []
        shared = [] if parts or unlike else sorted(inner[names[0]])
        if len(shared) >= max(2, len(names)) and all(sorted(one) == shared for one in inner.values()):
            what = f"{comma_list(names, 4)} hold folders of the same names, such as {comma_list(shared, 3)}"
            return [Recognised("", {}, [], question=f"{what}: call init on one of them", fallback=True)]
        of_classes = [path[bool(parts or unlike) :] for path in paths if path[0] not in unlike]
        innermost = [path[-1] for path in of_classes if not parts or len(path) > 1]
        if all(len(path) > 1 for path in of_classes):
            words = {re.sub(r"\d+", "", name) for name in innermost}  # patient001, patient002 are no classes
            several = "" in words or len(words) > len(classes)
            if not parts and several and len(set(innermost)) == len(innermost) > len(classes):
                entry["classes"], record.title = "all", f"{len(innermost)} folders of pictures in {base}"
                record.reasons["classes"] = "the folders of pictures lie in further folders"
            elif len(set(innermost)) > 1:
                what = f"folders in those of the classes, such as {comma_list(sorted(set(innermost)), 3)}"
                record.notes.append(f"{what}, count for nothing: classes=all")
        return [record if parts else _with_lists(folder, record, classes)]

    def __init__(
        self,
        root: Path,
        *,
        images: str = "images",
        label: bool = False,
        classes: Literal["first", "all", "name"] = "first",
        **options: Any,
    ) -> None:
        super().__init__(root, images=images, **options)
        self.classes, self.with_label = classes, label
        folders = (inside(self.root, images.replace("{split}", name)) for name in self.split_names)
        self.folders = list(dict.fromkeys(folders))
        self._names: list[str] = []

    def files(self) -> list[Path]:
        return []

    def listed_folders(self) -> list[Path]:
        return self.folders

    def write_miniature(self, miniature: Miniature) -> None:  # two classes where subfolders are numbered
        for folder, kind in product(self.folders, ("one", "two") if self.with_label else ("",)):
            miniature.pictures(f"{folder}/{kind}", folder / kind, count=6 * PICTURES)

    def require(self) -> None:
        require_folders(self.folders, "point `root` at the folder that holds it, or name it: images=FOLDER")

    def stream(self) -> Iterator[Example]:
        paths = [(folder, path) for folder in self.folders for some in index_images(folder).values() for path in some]
        paths.sort(key=lambda pair: str(pair[1]))
        kinds = [self._class_of(*pair) for pair in paths] if self.with_label else []
        self._names = sorted(set(kinds))
        numbers = {kind: number for number, kind in enumerate(self._names)}
        for (_, path), kind in zip(paths, kinds or repeat(""), strict=False):
            yield self.labelled(path, numbers.get(kind))

    def label_names(self) -> list[str]:
        self.examples()
        return self._names

    def _class_of(self, folder: Path, path: Path) -> str:
        if self.classes == "name":
            if not (word := word_before_number(path.stem)):
                raise DataError("The name of a picture says no class.", where=str(path), expected="CLASS_NUMBER")
            return word
        parts = path.relative_to(folder).parts[:-1]
        if not parts:
            what = "A picture lies in no subfolder, so it has no class."
            raise DataError(what, where=str(path), expected=f"{folder}/CLASS/FILE")
        return parts[0] if self.classes == "first" else "/".join(parts)


_WORD = re.compile(r"(.*[^\W\d_])[\s._-]*\(?\d+\)?")
# Words before numbers that cameras and programs write.
_CAMERAS = re.compile(
    r"(img|image|dsc[nf]?|picture|pic|photo|foto|bild|frame|scan|screenshot|file|page|sample|pxl|gopr|dji|mvi|p)s?",
    re.I,
)


def word_before_number(stem: str) -> str:
    """Return the words before the number that ends a name; empty for other names."""
    return hit[1] if (hit := _WORD.fullmatch(stem)) else ""


def _classes_by_name(folder: Folder) -> list[Recognised]:
    """Return pictures called by classes and numbers (``cat.0.jpg``), in one folder or in folders of the parts."""
    paths = map(PurePosixPath, folder.pictures.paths)
    words = grouped((str(path.parent), word_before_number(path.stem)) for path in paths)
    homes = sorted(home for home, some in words.items() if all(some))
    parts = parts_of([PurePosixPath(home).name for home in homes]) if len(homes) > 1 else {}
    counts = Counter(word for home in homes for word in words[home])
    apart = len({re.sub(r"\d+", "", word).casefold() for word in counts}) == len(counts)  # not clip1_3, clip2_3
    wrong = any(_CAMERAS.fullmatch(one) or part_in(one) for one in counts)  # words of cameras and parts
    if wrong or not apart or not 1 < len(counts) <= counts.total() / 5:
        return []
    if not (parts or len(homes) == 1) or len({PurePosixPath(home).parent for home in homes}) > 1:
        return []
    images = str(PurePosixPath(homes[0]).parent / "{split}") if parts else homes[0]
    entry = {"name": "folder", "images": images, "label": True, "classes": "name"}
    reasons = {"classes": f"the pictures are called by words and a number: {comma_list(sorted(counts), 4)}"}
    reasons |= {"parts": "the folders are named after the parts"} if parts else {}
    others = sorted(home for home in words if home not in homes)
    notes = [f"the names of the pictures in {comma_list(others, 4)} say no class: not used"] if others else []
    title, columns = f"{counts.total():,} pictures called by {len(counts)} words", {"image": "file", "label": "name"}
    return [Recognised("labels", entry, [], columns, parts, reasons, notes, title=title, fallback=True)]


def _is_divided(paths: Iterable[str], base: str) -> bool:
    """Return whether the names of pictures begin with those of their folders (``train/0/2/f/02f6f33d.jpg``)."""
    inner = (PurePosixPath(path).relative_to(base).parts for path in paths)
    return all(
        len(folders) > 1 and max(map(len, folders)) <= 2 and name.startswith("".join(folders))
        for *folders, name in (path[bool(part_of(path[0])) :] for path in inner)
    )


def _with_lists(folder: Folder, record: Recognised, classes: set[str]) -> Recognised:
    """Choose the parts by lists of CLASS/PICTURE, if files named after the parts hold such lists."""
    lists: dict[str, str] = {}
    others: list[str] = []
    names = folder.files("*.txt", "*.lst", "*.list", "*.json")
    for name in sorted(names, key=lambda one: (one.endswith(".json"), one)):
        part, document = part_in(PurePosixPath(name).name), folder.document(name)
        lines = folder.lines(name, 200) if document is None else list(document) if isinstance(document, dict) else []
        named = sum(line.split("/")[0] in classes and ("/" in line or document is not None) for line in map(str, lines))
        if not part or named <= len(lines) / 2:
            continue
        if document is None and part not in lists:
            lists[part] = name
        else:
            others.append(name)
    if {"train"} < set(lists):
        record.fallback, record.files = False, others
        record.unused = [f"{name}: another list of the parts" for name in others]
        record.take_lists(lists)
    return record
