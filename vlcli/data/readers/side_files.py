"""Data sets whose columns, rows or tables lie in files of their own: a text file a column, a file a picture, RSVQA."""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Literal

from vlcli.data import Example, Folder, Recognised, files
from vlcli.data.checks import by_id
from vlcli.data.readers.box_files import voc_root
from vlcli.data.readers.split_file import StreamReader
from vlcli.data.readers.table import Table
from vlcli.data.recognition.folder import by_folder
from vlcli.data.recognition.generic import as_data_sets
from vlcli.data.recognition.lists import SUFFIXES
from vlcli.data.recognition.recognised import part_in
from vlcli.data.recognition.tables import TableFile, spread
from vlcli.errors import DataError

# Least lines of text files of a folder that ``init`` takes for columns
FEWEST_LINES = 10
# Files of a row each into which ``init`` looks
MOST_READ = 500
# Text files of a folder; more are no columns and are not opened
MOST_COLUMNS = 20


class TextColumns(Table):
    """One's own data: a text file a column, a row a line (COCO-QA: ``questions.txt``, ``answers.txt``).

    The columns are the text files beside ``file`` with as many lines, called by their names without ending.

    Args:
        file: one of the files under the root; None: ``{split}/questions.txt``.
    """

    usual: ClassVar[tuple[str, ...]] = ("{split}/questions.txt",)
    format: ClassVar[str] = "text-columns"
    cells_are_text: ClassVar[bool] = True
    recognise_order: ClassVar[int] = 2

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:
        beside = by_folder(folder.files("*.txt"))
        tables = []
        for names in beside.values():
            columns = {PurePosixPath(one).stem: folder.lines(one) for one in names if 1 < len(names) <= MOST_COLUMNS}
            counts = {len(lines) for lines in columns.values()}
            if len(counts) == 1 and min(counts) >= FEWEST_LINES:
                rows = [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]
                tables.append(TableFile(folder.root / min(names), cls.format, spread(rows)))
        records = [record for record in as_data_sets(folder, tables) if record.kind]
        for record in records:
            others = [name for file in record.files for name in beside[str(PurePosixPath(file).parent)]]
            record.files = list(dict.fromkeys(record.files + others))
        return records

    def files(self) -> list[Path]:
        return [*super().files(), *(file for table in self.tables() for file in _columns(table) if file != table)]

    def rows(self, file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
        columns = {path.stem: list(map(str.strip, files.text_lines(path, self.encoding))) for path in _columns(file)}
        while columns[file.stem] and not columns[file.stem][-1]:
            columns[file.stem].pop()
        count = len(columns[file.stem])
        fitting = {name: lines for name, lines in columns.items() if len(lines) - count in (0, 1)}
        if len(fitting) < 2:
            got = ", ".join(f"{name}.txt {len(lines):,}" for name, lines in columns.items())
            raise DataError("No file beside this one has as many lines.", where=str(file), got=got)
        for number in range(count):
            yield f"{file}:{number + 1}", {name: lines[number] or None for name, lines in fitting.items()}


def _columns(file: Path) -> list[Path]:
    return sorted(path for path in file.parent.glob("*.txt") if path.is_file()) or [file]


class SideFiles(Table):
    """One's own data: for each picture a text, JSON or XML file of its name, beside it or in another folder.

    The lines of a text file are the sentences of the column ``text`` (PASCAL sentences: ``sentence/dog/1.txt`` for
    ``dataset/dog/1.jpg``); the fields of a JSON document are the columns (MM-IMDb), and those of each object of Pascal
    VOC's XML, a row an object (DIOR-RSVG). The column ``image`` is the path of the file below ``file``, without ending.

    Args:
        file: folder of the files under the root.
        ending: ending of their names.
    """

    format: ClassVar[str] = "side-files"
    recognise_order: ClassVar[int] = 0

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:
        records = [one for ending in (".txt", ".json", ".xml") for one in cls._with_ending(folder, ending)]
        # XML without descriptions is Pascal VOC's
        return [one for one in records if one.kind and (one.kind == "referring" or one.entry.get("ending") != ".xml")]

    @classmethod
    def _with_ending(cls, folder: Folder, ending: str) -> list[Recognised]:
        names = [name for name in folder.files(f"*{ending}") if PurePosixPath(name).stem in folder.pictures.by_id]
        if len(names) < FEWEST_LINES:
            return []
        place, rows = folder.root / os.path.commonpath([PurePosixPath(name).parent for name in names]), []
        for name in names[:: max(1, len(names) // MOST_READ)]:
            with suppress(DataError):
                rows += _rows(folder.root / name, place)
        first = PurePosixPath(names[0])
        are_beside = any(str(first.with_suffix(suffix)) in folder.pictures.paths for suffix in files.IMAGE_SUFFIXES)
        say_more = any(isinstance(row.get("text"), list) or not {*row} & {"text", "caption"} for row in rows)
        if are_beside and not say_more:  # the reader webdataset reads a caption beside each picture
            return []
        records = as_data_sets(folder, [TableFile(place, cls.format, rows)])
        for record in records:
            record.fallback = record.kind == "captions" and 2 * len(names) <= len(folder.pictures)  # MMHS150K's words
            lists = [] if record.fallback else record.files[1:]  # else a table's
            record.files, record.title = [*names, *lists], f"{len(names):,} files {ending} in {place.name}"
            record.entry |= {"ending": ending} if ending != ".txt" else {}
        return records

    def __init__(
        self, root: Path, *, file: str = ".", ending: Literal[".txt", ".json", ".xml"] = ".txt", **options: Any
    ) -> None:
        super().__init__(root, file=file, **options)
        self.ending = ending

    def files(self) -> list[Path]:
        return sorted(path for folder in self.tables() for path in folder.rglob(f"*{self.ending}")) or self.tables()

    def listed_folders(self) -> list[Path]:
        return self.tables()

    def tables(self) -> list[Path]:
        return [files.inside(self.root, str(self.file))]

    def rows(self, file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
        pictures = files.index_images(self.root)
        for path in self.files():
            if path.stem in pictures:
                yield from ((str(path), row) for row in _rows(path, file))


_PHRASE = re.compile(r"\[/EN#\d+\S* ([^][]*)\]")  # Flickr30k Entities: [/EN#1/people Two men]


def _rows(path: Path, folder: Path) -> list[dict[str, Any]]:
    if path.suffix == ".xml":
        objects = voc_root(path).findall("object")
        rows: list[dict[str, Any]] = [{at.tag: at.text.strip() for at in item.iter() if at.text} for item in objects]
    elif path.suffix == ".json":
        rows = [files.read_json(path)]
    else:
        lines = [_PHRASE.sub(r"\1", line) for _, line in files.numbered_lines(path)]
        rows = [{"text": lines[0] if len(lines) == 1 else lines}]
    return [{**row, "image": path.relative_to(folder).with_suffix("").as_posix()} for row in rows]


class RSVQA(StreamReader):
    """Questions on satellite and aerial pictures, with the answers in a file beside (RSVQA, low and high resolution).

    Rows that are not ``active`` belong to other splits. Targets: ``answers`` (answer -> 1), ``answer``,
    ``question_type`` and ``question_id``.

    Args:
        split: train, val or test; fills ``{split}``.
        questions: question file under the root.
        answers: answer file under the root.
        images: folder of the pictures, called by number.
    """

    paper: ClassVar[str] = "Lobry et al. 2020, RSVQA: Visual Question Answering for Remote Sensing Data"
    splits: ClassVar[tuple[str, ...]] = ("train", "val", "test")

    def __init__(
        self,
        root: Path,
        *,
        questions: str = "LR_split_{split}_questions.json",
        answers: str = "LR_split_{split}_answers.json",
        **options: Any,
    ) -> None:
        super().__init__(root, **options)
        self.asked, self.answered = questions, answers

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:
        rows = {name: one.get("questions") for name, one in folder.documents("*questions*") if isinstance(one, dict)}
        asked = {name: _active(some) for name, some in rows.items() if isinstance(some, list)}
        fields = {"img_id", "answers_ids"}
        asked = {name: some for name, some in asked.items() if fields <= files.first_object(some).keys()}
        of_parts = list(filter(part_in, asked)) or list(asked)  # another file has the rows of all parts
        pairs = {name: name.replace("questions", "answers") for name in of_parts}
        if not pairs or not set(pairs.values()) <= set(folder.files("*.json")):
            return []
        columns = {"image": "img_id", "text": "question", "answers": "answer"}
        data = Recognised("vqa", {"name": "rsvqa"}, list(pairs), columns).name_files("questions")
        data.entry["answers"] = data.entry["questions"].replace("questions", "answers")
        data.unused += [f"{name}: the questions are read from {data.where}" for name in asked if name not in pairs]
        data.files += [*pairs.values(), *folder.files("*images.json", "*questions.json", "*answers.json")]
        return [folder.with_images(data, [str(row.get("img_id")) for name in pairs for row in asked[name]])]

    def files(self) -> list[Path]:
        texts = [text.replace("{split}", split) for split in self.split_names for text in (self.asked, self.answered)]
        return [files.inside(self.root, text) for text in texts]

    def stream(self) -> Iterator[Example]:
        paths = iter(self.files())
        for asked, answered in zip(paths, paths, strict=True):
            rows = _active(files.value(files.read_json(answered), "answers", list, str(answered)))
            answers = by_id(rows, "id", f"{answered}: answers")
            for number, row in enumerate(_active(files.value(files.read_json(asked), "questions", list, str(asked)))):
                where = f"{asked}: questions[{number}]"
                known = [answers[one] for one in files.value(row, "answers_ids", list, where) if one in answers]
                if not known:
                    raise DataError("A question has no answer.", where=where, got=f"answers_ids {row['answers_ids']}")
                answer = str(files.value(known[0], "answer", (str, int, float), str(answered)))
                key, kind = files.value(row, "id", (int, str), where), str(row.get("type", ""))
                targets = {"answers": {answer: 1.0}, "answer": answer, "question_id": key, "question_type": kind}
                image = str(files.value(row, "img_id", (int, str), where))
                yield Example(str(key), files.value(row, "question", str, where).strip(), [image], targets=targets)


def _active(rows: list[Any]) -> list[dict[str, Any]]:
    return [row for row in rows if isinstance(row, dict) and row.get("active", True)]


class PathLists(Table):
    """Pictures with classes: lists of paths, a picture a line, whose folder is the class (SUN397).

    ``/a/abbey/sun_1.jpg``, relative to ``images``, has the class ``a/abbey``.

    Args:
        file: the list under the root; None: ``{split}.txt``.
    """

    paper: ClassVar[str] = "Xiao et al. 2010, SUN Database: Large-scale Scene Recognition from Abbey to Zoo"
    usual: ClassVar[tuple[str, ...]] = ("{split}.txt",)
    cells_are_text: ClassVar[bool] = True

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:
        parts = ((part_in(PurePosixPath(one).name), one) for one in folder.files(*(f"*{end}" for end in SUFFIXES)))
        lists = files.grouped((part, name) for part, name in parts if part and _lists_paths(folder, name))
        if not {"train"} < set(lists):
            return []
        chosen, columns = [names[0] for names in lists.values()], {"image": "path", "label": "folder"}
        data = Recognised("labels", {"name": "path-lists"}, chosen, columns).name_files()
        others = [name for names in lists.values() for name in names[1:]]
        data.unused = [f"{name}: another list of the parts" for name in others]
        folder.with_images(data, [line.lstrip("/") for name in data.files for line in folder.lines(name)])
        data.files += others
        return [data]

    def rows(self, file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
        for where, line in files.numbered_lines(file, self.encoding):
            if path := line.lstrip("/"):
                yield where, {"image": path, "label": str(PurePosixPath(path).parent)}


def _lists_paths(folder: Folder, name: str) -> bool:
    paths = [line.lstrip("/") for line in folder.lines(name, 200)]
    known = {PurePosixPath(inner).name for inner in folder.pictures.folders}  # "1 1 bicycle/110_0.jpg" is no path
    inner = [path for path in paths if "/" in path and PurePosixPath(path).parent.name in known]
    return 2 * sum(files.is_picture_file(path) or folder.is_picture(path) for path in inner) > len(paths)
