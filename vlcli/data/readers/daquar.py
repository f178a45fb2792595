"""DAQUAR: questions about indoor scenes, two lines each (Malinowski and Fritz 2014)."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal

from vlcli.data import Example, Folder, Recognised
from vlcli.data.files import text_lines
from vlcli.data.miniature import PICTURES, Miniature
from vlcli.data.readers.cells import PLAIN
from vlcli.data.readers.split_file import SplitFileReader
from vlcli.errors import DataError
from vlcli.metrics.vqa import set_form

_PICTURE = re.compile(r"(image\d+)\s*\?*\s*$")
_IN_PICTURE = re.compile(r"\s*\bin\s+(?:th\s*e\s*)?image\d+\s*\?*\s*$")  # one official line has "th eimage999"
_FOLDERS = ("", "daquar/", "annotations/", "daquar/annotations/")


class DAQUAR(SplitFileReader):
    """Questions on indoor photographs with one answer or a set of answers (text files of two lines a question).

    A question names its picture: ``what is on the desk in the image3 ?``. Answers of one question are separated by
    ", ", and their order does not count. Targets: ``answers`` (the sorted set, spelt as answer tables are, -> 1) and
    ``answer_type``, ``single`` or ``set``, by which the task ``vqa`` prints the accuracy on questions with one answer.
    Where the published list of the split's pictures (``train.txt``, ``test.txt``) lies beside, pictures that it lacks
    are an error.

    Args:
        split: train or test; fills ``{split}``.
        file: the file under the root; None: ``qa.894.raw.{split}.txt``, or the file of ``version``.
        version: ``full`` (894 categories) or ``reduced`` (37 categories, ``qa.37.raw.train.txt`` and
            ``qa.37.raw.reduced.test.txt``).
        images: folder of the pictures, searched by name (``image3.png``).
        whole: keep the words "in the image3" at the end of each question.
        take: which images, see :mod:`vlcli.data.holdout`; ``first:0.9`` of train and ``after:0.9`` make a
            validation part.
    """

    paper: ClassVar[str] = "Malinowski and Fritz 2014, A Multi-World Approach to Question Answering"
    splits: ClassVar[tuple[str, ...]] = ("train", "test")
    held_out_splits: ClassVar[tuple[str, ...]] = ("test",)
    names: ClassVar[dict[str, tuple[str, ...]]] = {
        "full": ("qa.894.raw.{split}.txt",),
        "reduced": ("qa.37.raw.{split}.txt", "qa.37.raw.reduced.{split}.txt"),
    }

    def __init__(
        self,
        root: Path,
        *,
        version: Literal["full", "reduced"] = "full",
        whole: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(root, **options)
        self.version, self.whole = version, whole

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:
        groups: dict[str, list[str]] = {}
        lists = []
        for name in folder.files("*.txt"):
            first = folder.lines(name, 4)
            if len(first) > 1 and all(map(_PICTURE.search, first[::2])) and not any(map(_PICTURE.search, first[1::2])):
                groups.setdefault(re.sub(r"[a-z.]+", "", Path(name).name), []).append(name)
            elif first and all(re.fullmatch(r"image\d+", line) for line in first):
                lists.append(name)
        if not groups:
            return []
        best = max(groups, key=lambda key: (key.isdigit(), int(key) if key.isdigit() else 0))
        columns = {"image": "the name that ends the question", "text": "first line", "answers": "second line"}
        data = Recognised("vqa", {"name": "daquar"}, groups.pop(best), columns).name_files()
        rest = sorted(name for names in groups.values() for name in names)
        data.reasons["parts"] = "the files are named after the parts"
        data.unused = [f"{name}: questions of another version of the data set" for name in rest]
        data.unused += [f"{name}: a list of pictures, which the questions name themselves" for name in lists]
        names = [hit[1] for name in data.files for line in folder.lines(name) if (hit := _PICTURE.search(line))]
        data.title = ", ".join(data.files)
        data.files += rest + lists
        return [folder.with_images(data, names)]

    def files(self) -> list[Path]:
        return self.first_file(self.file, [folder + name for name in self.names[self.version] for folder in _FOLDERS])

    def write_miniature(self, miniature: Miniature) -> None:
        for split, file in zip(self.split_names, self.files(), strict=True):
            lines = []
            for number in miniature.numbers(f"daquar-{split}", 4 * PICTURES):
                miniature.picture(self.image_folder / f"image{number}.png")
                lines += [f"{miniature.question(number)[:-1]} in the image{number} ?", miniature.answer(number)]
            miniature.write(file, "\n".join(lines))

    def read(self) -> list[Example]:
        examples = []
        for split, file in zip(self.split_names, self.files(), strict=True):
            part = list(self._read_part(split, file))
            _compare(file, file.with_name(f"{split}.txt"), {example.images[0] for example in part})
            examples += part
        return examples

    def _read_part(self, split: str, file: Path) -> Iterator[Example]:
        lines = [line.strip() for line in text_lines(file)]
        while lines and not lines[-1]:
            lines.pop()
        for start in range(0, len(lines), 2):
            question, answer = lines[start], lines[start + 1] if start + 1 < len(lines) else ""
            picture, where = _PICTURE.search(question), f"{file}:{start + 1}"
            if picture is None:
                expected = "a question that ends in the name of its picture, such as: ... in the image3 ?"
                raise DataError("The question names no picture.", where=where, got=question, expected=expected)
            if not answer or _PICTURE.search(answer):
                got, expected = answer or "nothing", "the answer on the line below its question"
                where, hint = f"{file}:{start + 2}", "is a line missing?"
                raise DataError("The question has no answer.", where=where, got=got, expected=expected, hint=hint)
            kind = "set" if "," in answer else "single"
            targets = {"answers": {set_form(answer): 1.0}, "answer_type": kind, **PLAIN}
            text = question
            if not self.whole:  # "on the left of the image3" keeps "the image"
                cut = _IN_PICTURE.sub("", question)
                text = (cut if cut != question else _PICTURE.sub("image", question)).strip() + " ?"
            yield Example(f"{split}-{start // 2 + 1}", text, [picture[1]], targets=targets)


def _compare(file: Path, listed: Path, pictures: set[str]) -> None:
    names = {line.strip() for line in text_lines(listed)} - {""} if listed.is_file() and listed != file else set()
    absent = sorted(pictures - names)
    if names and all(map(_PICTURE.fullmatch, names)) and absent:
        what = f"{len(absent)} of {len(pictures)} pictures are not in the published list of this split."
        hint = "take the file of questions and the list of the same split and edition, or move the list away"
        raise DataError(what, where=str(file), got=", ".join(absent[:3]), expected=f"pictures of {listed}", hint=hint)
