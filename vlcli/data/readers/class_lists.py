"""Reads pictures whose classes come from a text file for each class (Stanford 40 Actions, PASCAL VOC, MIRFLICKR)."""

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from vlcli.data import Folder, Recognised
from vlcli.data.files import inside, numbered_lines
from vlcli.data.readers.table import Table
from vlcli.data.recognition.folder import SAMPLED, by_folder
from vlcli.data.recognition.pictures import Naming
from vlcli.data.recognition.recognised import part_in, part_of, parts_of
from vlcli.errors import DataError
from vlcli.plain import comma_list

_LINE = re.compile(r"(\S.*?)(?:\s+([+-]?[01]))?")
_ABOUT = re.compile(r"readme|licen[sc]e", re.IGNORECASE)
_PART = re.compile(r"(.+)_([a-z]+)\.txt", re.IGNORECASE)
_TRIED, _NAMED = 50, 0.9
"""Lines of a file at which ``init`` looks, and their share that must name pictures of the folder."""
# Lists of the parts themselves beside those of their classes.
_MOST_PARTS = 4


class ClassLists(Table):
    """Pictures with classes: for each class a text file that lists its pictures, one a line.

    -1 after a picture: it lacks the class (PASCAL VOC's ``ImageSets/Main``; 0, difficult, has it). The columns are
    ``image`` and ``label``; with ``label: [label]`` a picture has all its classes, or none (task ``multi-label``).

    Args:
        file: the files under the root; ``{class}`` in their names is the class.
    """

    usual: ClassVar[tuple[str, ...]] = ("{class}_{split}.txt",)
    format: ClassVar[str] = "class-lists"
    recognise_order: ClassVar[int] = -1

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:
        homes = by_folder(folder.files("*.txt"))
        records = [_in_folder(folder, PurePosixPath(home), names) for home, names in homes.items() if len(names) > 1]
        return [record for record in records if record is not None]

    def files(self) -> list[Path]:
        return [path for template in self.tables() for path in _lists(template) or [template]]

    def tables(self) -> list[Path]:
        template = self.file or self.usual[0]
        return list(dict.fromkeys(inside(self.root, template.replace("{split}", name)) for name in self.split_names))

    def rows(self, file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
        for where, image, classes in _pictures(_lists(file), self.encoding):
            if len(classes) != 1 and not self.several_columns:
                got, hint = comma_list(classes, 4) or "none", "read several classes of a picture by label=[label]"
                raise DataError("A picture has one class.", where=where, got=got, hint=hint)
            yield where, {"image": image, "label": classes if self.several_columns else classes[0]}


def _in_folder(folder: Folder, home: PurePosixPath, names: list[str]) -> Recognised | None:
    hits = {name: map(_LINE.fullmatch, folder.lines(name, _TRIED)) for name in names}
    lists = [name for name in names if _naming(folder, name, [hit[1] for hit in hits[name] if hit]) is not None]
    of_parts = [hit for name in lists if (hit := _PART.fullmatch(PurePosixPath(name).name)) and part_of(hit[2])]
    if not lists or (of_parts and len(of_parts) < len(lists) - _MOST_PARTS):
        return None
    file, splits = ("{class}_{split}.txt", sorted({hit[2] for hit in of_parts})) if of_parts else ("{class}.txt", [])
    templates = [folder.root / home / file.replace("{split}", split) for split in splits or [""]]
    rows = [(image, classes) for template in templates for _, image, classes in _pictures(_lists(template))]
    naming = _naming(folder, lists[0], [image for image, _ in rows][:SAMPLED])
    if len({one for _, classes in rows for one in classes}) < 2 or naming is None:
        return None
    kind = "labels" if all(len(classes) == 1 for _, classes in rows) else "multilabel"
    entry: dict[str, Any] = {"name": ClassLists.format, "file": (home / file).as_posix()}
    entry |= {"label": ["label"]} if kind == "multilabel" else {}
    entry |= {"image": naming.sources[0]} if naming.sources != ("image",) else {}
    entry |= {"images": naming.folder} if naming.folder != "images" else {}
    record = Recognised(kind, entry, names, {"image": "picture", "label": "file"}, parts_of(splits))
    record.title = f"{len(of_parts or lists):,} lists of classes in {home}"
    record.unused = [f"{name}: it lists no pictures of the folder" for name in names if name not in lists]
    record.fallback = True  # boxes of the same pictures say more (PASCAL VOC)
    if record.parts:
        record.reasons["parts"] = "the lists are named after the parts"
    elif splits:
        entry["split"] = splits
    return record


def _lists(template: Path) -> dict[Path, str]:
    front, _, back = template.name.partition("{class}")
    files = sorted(template.parent.glob(f"{front}*{back}"))
    names = {file: file.name[len(front) : len(file.name) - len(back)] for file in files}
    no_class = _ABOUT.match if back != ".txt" else lambda name: _ABOUT.match(name) or part_in(name)
    return {file: name for file, name in names.items() if name and not no_class(name)}


def _pictures(lists: dict[Path, str], encoding: str = "utf-8") -> Iterator[tuple[str, str, list[str]]]:
    """Yield each picture's first place, name and classes."""
    pictures: dict[str, tuple[str, str, list[str]]] = {}
    for file, name in lists.items():
        for where, line in numbered_lines(file, encoding):
            hit = _LINE.fullmatch(line)
            image, has = (line, True) if hit is None else (hit[1], hit[2] != "-1")
            _, _, classes = pictures.setdefault(image, (where, image, []))
            classes += [name] if has and name not in classes else []
    yield from pictures.values()


def _naming(folder: Folder, list_file: str, names: list[str]) -> Naming | None:
    beside = (folder.root / list_file).parent
    if any(" " in name or "\t" in name for name in names) and not all(map(folder.is_picture, names)):
        return None  # a table of two columns
    naming = folder.pictures.named_by("image", names, beside) or folder.pictures.by_template("image", names)
    return naming if naming is not None and naming.share > _NAMED else None
