"""Refuses training data that show images of validation or test splits.

COCO names an image ``COCO_val2014_000000000042``, ``000000000042`` or 42, and Visual Genome gives many of COCO's images
another number: :class:`Identity` maps all of these to one key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from vlcli.data.checks import by_id
from vlcli.data.files import inside, read_json, read_text, text_lines, value
from vlcli.errors import DataError
from vlcli.images.boxes import image_id

FOLDERS = ("vg", "visual_genome", "VG", ".")


def usual_paths(*names: str) -> tuple[str, ...]:
    """Return the usual paths under the data root of a file of Visual Genome."""
    return tuple(f"{folder}/{name}" for folder in FOLDERS for name in names)


def coco_numbers(file: Path) -> dict[str, int]:
    """Read COCO's number of every Visual Genome image that has one from ``image_data.json``."""
    rows = read_json(file, list)
    name = "image_id" if rows and isinstance(rows[0], dict) and "image_id" in rows[0] else "id"
    numbered = by_id(rows, name, str(file))
    return {str(key): int(row["coco_id"]) for key, row in numbered.items() if row.get("coco_id") is not None}


COCO = re.compile(r"^(?:COCO_[a-z]+\d{4}_)?(\d{12})$")
TEST = re.compile(r"^COCO_test\d{4}_\d{12}$")
# Images of LXMERT's minival: the first of `val2014_obj36.tsv`.
MINIVAL = 5000
# Usual files that list the minival images.
LISTS = ("vqa/minival.json", "lxmert/mscoco_minival.json", "lxmert/minival.txt", "mscoco_imgfeat/val2014_obj36.tsv")
# Usual files whose images are for testing.
TESTS = (
    "vqa/test.json",
    "vqa/*mscoco_test*_questions.json",
    "v2_OpenEnded_mscoco_test*_questions.json",
    "gqa/testdev*.json",
    "gqa/test_*questions.json",
    "gqa/challenge_*questions.json",
    "annotations/image_info_test*.json",
    "coco/annotations/captions_test.json",
)


class Identity:
    """Maps image names of COCO and Visual Genome to one key: ``coco:42`` wherever COCO has the image.

    ``numbers`` is COCO's number by Visual Genome's, see :func:`coco_numbers`.
    """

    def __init__(self, numbers: Mapping[str, int] | None = None) -> None:
        self.numbers = numbers or {}

    @classmethod
    def under(cls, root: Path, file: str | None = None) -> Identity:
        """Read Visual Genome's ``image_data.json``: the one named, else the usual one where it exists."""
        paths = [inside(root, name) for name in ([file] if file else usual_paths("image_data.json"))]
        path = next(filter(Path.is_file, paths), paths[0] if file else None)
        return cls(None if path is None else coco_numbers(path))

    def key(self, name: str) -> str:
        """Return the key of an image by any of its names."""
        if match := COCO.match(name):
            return f"coco:{int(match[1])}"
        return f"coco:{self.numbers[name]}" if name in self.numbers else name


def is_coco(name: str) -> bool:
    """Whether a name is one of COCO's."""
    return COCO.match(name) is not None


def listed_images(file: Path, first: int | None = None) -> Iterator[str]:
    """Yield the images of a file of questions, captions or pre-training data, or of a plain list.

    Args:
        file: ``.json``, ``.txt`` (one id or file name a line) or ``.tsv`` (ids in the first column).
        first: only so many of a table's lines.
    """
    if file.suffix == ".tsv":
        yield from (line.split("\t", 1)[0].strip() for line in islice(text_lines(file), first))
    elif file.suffix == ".txt":
        yield from (image_id(line.split()[0]) for line in read_text(file).splitlines() if line.strip())
    else:
        yield from _in_json(read_json(file, (list, dict)), str(file))


def _in_json(content: Any, where: str) -> Iterator[str]:
    if isinstance(content, dict) and isinstance(content.get("images"), list):
        for number, row in enumerate(content["images"]):
            file = row.get("file_name") if isinstance(row, dict) else None
            yield image_id(str(file or str(value(row, "id", (int, str), f"{where}: images[{number}]")).zfill(12)))
        return
    for row in (content.get("questions") or content.values()) if isinstance(content, dict) else content:
        if isinstance(row, str):
            yield image_id(row)
        elif isinstance(row, dict):
            name = row.get("img_id", row.get("imageId", row.get("image_id")))
            if name is not None:
                yield str(name).zfill(12) if isinstance(name, int) else str(name)


def minival(root: Path, file: str | None = None) -> tuple[list[str] | None, Path]:
    """Return the images of minival (None without a list) and the file that lists them. DataError: no ``file``."""
    paths = [inside(root, name) for name in ([file] if file else LISTS)]
    if path := next(filter(Path.is_file, paths), None):
        return list(dict.fromkeys(listed_images(path, MINIVAL))), path
    if file is not None:
        raise DataError("The minival list does not exist.", where=str(paths[0]), hint="see docs/data.md, Pre-training")
    return None, paths[0]


def held_out(root: Path, files: Sequence[str] | None = None) -> dict[str, Path]:
    """Return the images for validation and testing, each with the file that lists it.

    ``files`` are those that list them; None: every usual one that exists. Raises DataError: one named is not there.
    """
    if files is not None:
        chosen = [inside(root, name) for name in files]
        absent = [path for path in chosen if not path.is_file()]
        if absent:
            raise DataError("A list of held-out images is missing.", where=str(absent[0]), hint="check `held_out`")
    else:
        chosen = [path for name in (*LISTS[:3], *TESTS) for path in sorted(root.glob(name)) if path.is_file()]
    listed: dict[str, Path] = {}
    for file in chosen:
        for name in listed_images(file):
            listed.setdefault(name, file)
    return listed


def refuse_held_out(images: Iterable[str], where: Sequence[Path], held: Mapping[str, Path], same: Identity) -> None:
    """Refuse training data that show an image of a validation or test split; DataError names the images and the files.

    Args:
        where: the files that the images come from.
        held: of :func:`held_out`.
    """
    keys = {same.key(name): file for name, file in held.items()}
    listed = {name: "a test image of COCO" if TEST.match(name) else keys.get(same.key(name)) for name in images}
    wrong = {name: file for name, file in listed.items() if file is not None}
    if wrong:
        some = "; ".join(f"{name} ({file})" for name, file in list(wrong.items())[:5])
        count = f"{len(wrong):,} image" + ("" if len(wrong) == 1 else "s")
        what = "Pre-training data show images of a test or minival split."
        got, expected = f"{count}: {some}" + (" ..." if len(wrong) > 5 else ""), "no image that is held out"
        hint = "leave them out, e.g. make the files anew: vlcli data aggregate ROOT"
        raise DataError(what, where=", ".join(map(str, where)), got=got, expected=expected, hint=hint)
