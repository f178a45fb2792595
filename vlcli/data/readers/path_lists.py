"""Pictures that lie in the folder of their class, with lists of the paths of each part."""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from vlcli.data.files import text_lines
from vlcli.data.readers.table import Table
from vlcli.data.recognition.folder import Folder
from vlcli.data.recognition.lists import SUFFIXES, is_picture_file
from vlcli.data.recognition.recognised import Recognised, part_in


class PathLists(Table):
    """Pictures with classes: lists of paths, a picture a line, of which the folder is the class (SUN397).

    ``/a/abbey/sun_1.jpg`` has the class ``a/abbey``; a leading slash is that of ``images``.

    Args:
        file: the list under the root; None: ``{split}.txt``.
    """

    paper: ClassVar[str] = "Xiao et al. 2010, SUN Database: Large-scale Scene Recognition from Abbey to Zoo"
    usual: ClassVar[tuple[str, ...]] = ("{split}.txt",)
    cells_are_text: ClassVar[bool] = True

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:
        lists: dict[str, list[str]] = {}
        for name in folder.files(*(f"*{suffix}" for suffix in SUFFIXES)):
            if (part := part_in(PurePosixPath(name).name)) and _lists_paths(folder, name):
                lists.setdefault(part, []).append(name)
        if "train" not in lists or len(lists) < 2:
            return []
        columns = {"image": "path", "label": "folder"}
        data = Recognised("labels", {"name": "path-lists"}, [names[0] for names in lists.values()], columns)
        data.name_files()
        others = [name for names in lists.values() for name in names[1:]]
        data.unused = [f"{name}: another list of the parts" for name in others]
        folder.with_images(data, [_path(line) for name in data.files for line in folder.lines(name)])
        data.files += others
        return [data]

    def rows(self, file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
        for number, line in enumerate(text_lines(file, self.encoding), 1):
            if path := _path(line):
                yield f"{file}:{number}", {"image": path, "label": str(PurePosixPath(path).parent)}


def _path(line: str) -> str:
    return line.strip().lstrip("/")


def _lists_paths(folder: Folder, name: str) -> bool:
    paths = [_path(line) for line in folder.lines(name, 200)]
    there = sum("/" in path and (is_picture_file(path) or folder.is_picture(path)) for path in paths)
    return 2 * there > len(paths)
