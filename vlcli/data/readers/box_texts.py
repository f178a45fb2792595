"""Labelled boxes in text files of public data sets: a file for each picture, or one that names the pictures."""

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Literal

from vlcli.data.files import grouped, inside, is_picture_file, numbered_lines, parse_json, value
from vlcli.data.readers.box_columns import corners
from vlcli.data.readers.split_file import Labelled, LabelledBoxes
from vlcli.data.recognition.folder import Folder, by_folder
from vlcli.data.recognition.recognised import Recognised, split_names
from vlcli.errors import DataError, shown

Form = Literal["kitti", "visdrone", "dota", "wider-face", "crowdhuman"]
"""Data sets whose lines are known."""
_Row = tuple[str, list[float], bool]  # class, box, and whether detections there are neither right nor wrong
_N = r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?"
_LINES = {  # corners, or a corner, width and height ("wide"); what is to be ignored ("hard")
    "kitti": rf"(?P<name>(?P<hard>DontCare)|[A-Za-z_]+)(?: {_N}){{3}}(?P<box>(?: {_N}){{4}})(?: {_N}){{7,8}}",
    "visdrone": rf"(?P<wide>(?:{_N},){{4}})(?:(?P<hard>0)|1),(?P<name>\d|1[01]),{_N},{_N},?",
    "dota": rf"(?P<box>(?:{_N} ){{8}})(?P<name>[A-Za-z][\w-]*)(?: (?:0|(?P<hard>[12])))?",
    "wider-face": rf"(?P<wide>(?:{_N} ){{4}})(?:\d+ ){{3}}(?:(?P<hard>1)|(?P<name>0)) \d+ \d+",
}
_OBJECTS = ["pedestrian", "people", "bicycle", "car", "van", "truck", "tricycle", "awning-tricycle", "bus", "motor"]
_NAMES = {"visdrone": ["", *_OBJECTS, ""], "wider-face": ["face"]}
# Lines before DOTA's boxes, and the numbers of WIDER FACE's.
_HEADINGS = re.compile(r"(imagesource|gsd|acquisition dates)\b.*|\d+", re.IGNORECASE)


class BoxTexts(LabelledBoxes):
    """Images with labelled boxes in the text files of KITTI, VisDrone, DOTA, WIDER FACE and CrowdHuman.

    Of oriented boxes, the upright ones around them are read. In boxes that are marked as difficult or to be ignored,
    detections are neither right nor wrong.

    Args:
        form: the data set whose lines these are.
        file: folder of the text files, or the file that names the pictures; ``{split}`` is filled in.
    """

    recognise_order: ClassVar[int] = -1

    def __init__(self, root: Path, *, form: Form, file: str, **options: Any) -> None:
        super().__init__(root, **options)
        self.form, self.file = form, file

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:
        homes, places = by_folder(folder.files("*.txt", "*.odgt")), dict[str, list[str]]()
        for home, names in homes.items():
            listing = any(is_picture_file(line) or line[:1] == "{" for line in folder.lines(names[0], 1))
            places |= {name: [name] for name in names} if listing else {home: names}
        first = {at: [line for name in names[:20] for line in folder.lines(name, 4)] for at, names in places.items()}
        forms = (((_form_of(lines), split_names([Path(place).name])[0]), place) for place, lines in first.items())
        records = []
        for form, some in ((form, some) for (form, _), some in grouped(forms).items() if form):
            record = Recognised("boxes", {"name": "box-texts", "form": form}, some, {"boxes": form}).name_files()
            record.files = list(chain.from_iterable(map(places.__getitem__, some)))
            record.title = f"{len(record.files):,} files of boxes ({', '.join(some)})"
            reader = cls(folder.root, form=form, file=record.entry["file"], split="*")
            named = (name for text in reader.files()[:1000] for name in reader._rows(text))
            paths = [Path(folder.pictures.by_id.get(name, [name])[0]) for name in named]
            records.append(folder.with_images(record, [path.name for path in paths]))
        return sorted(records, key=lambda record: (-len(record.parts), -len(record.files)))

    def files(self) -> list[Path]:
        return list(chain.from_iterable(map(self._texts, self.split_names)))

    def names(self) -> list[str]:
        rows = chain.from_iterable(self._rows(text).values() for text in self._texts("*"))
        found = sorted({name for name, _, hard in chain.from_iterable(rows) if not hard})
        return list(filter(None, _NAMES.get(self.form, found)))

    def annotated(self) -> Iterator[tuple[str, Labelled]]:
        for name, rows in chain.from_iterable(self._rows(text).items() for text in self.files()):
            image = self.picture(name)
            self.ignored[image] = [(kind, box) for kind, box, hard in rows if hard]
            yield image, [(kind, box) for kind, box, hard in rows if not hard]

    def _texts(self, split: str) -> list[Path]:
        name = self.file.replace("{split}", split)
        texts = (sorted(one.glob("*.txt")) if one.is_dir() else [one] for one in sorted(self.root.glob(name)))
        return list(chain.from_iterable(texts)) or [inside(self.root, name)]

    def _rows(self, text: Path) -> dict[str, list[_Row]]:
        """Return the boxes of each picture that a text names, or of the picture of its own name."""
        rows, image = dict[str, list[_Row]](), text.stem
        for where, line in numbered_lines(text):
            if self.form == "crowdhuman":
                row = parse_json(line, where)
                boxes = value(row, "gtboxes", list, where)
                rows[value(row, "ID", str, where)] = [_person(box, where) for box in boxes]
            elif is_picture_file(line):
                rows[image := line] = []
            elif not _HEADINGS.fullmatch(line):
                rows.setdefault(image, []).append(_row(self.form, line, where))
        return rows or {image: []}


def _row(form: str, line: str, where: str) -> _Row:
    if (hit := re.fullmatch(_LINES[form], line)) is None:
        raise DataError("The line is no box.", where=where, got=shown(line), expected=f"a line as {form} writes it")
    found, names = hit.groupdict(), _NAMES.get(form)
    name = names[int(found["name"] or 0)] if names else found["name"]
    numbers = list(map(float, re.findall(_N, found.get("box") or found["wide"])))
    box = [min(numbers[::2]), min(numbers[1::2]), max(numbers[::2]), max(numbers[1::2])]
    return name, _corners(numbers) if "wide" in found else box, bool(found["hard"]) or not name


def _corners(numbers: list[float]) -> list[float]:
    return [*numbers[:2], numbers[0] + numbers[2], numbers[1] + numbers[3]]


def _person(row: Any, where: str) -> _Row:
    tag, sides, extra = value(row, "tag", str, where), value(row, "fbox", list, where), row.get("extra")
    hard = tag != "person" or (isinstance(extra, dict) and extra.get("ignore") == 1)
    return tag, corners({"fbox": sides}, ["fbox"], "xywh", where) or [0.0] * 4, hard


def _form_of(lines: list[str]) -> Form | None:
    """Return the form of the first lines of texts."""
    if lines and all(line[:1] == "{" and '"gtboxes"' in line for line in lines):
        return "crowdhuman"
    rows = [line for line in lines if not is_picture_file(line) and not _HEADINGS.fullmatch(line)]
    fitting = (name for name, form in _LINES.items() if rows and all(re.fullmatch(form, row) for row in rows))
    return next(fitting, None)  # type: ignore[arg-type]
