"""GQA: questions as published (an object by question id) and LXMERT's list."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from vlcli.data.files import first_object, inside, read_json, value
from vlcli.data.reader import Reader
from vlcli.data.recognition.folder import Folder
from vlcli.data.recognition.recognised import Recognised
from vlcli.data.sample import Example
from vlcli.errors import DataError

ALSO = {"val": "valid", "valid": "val", "submit": "submission", "submission": "submit"}
"""The same split by LXMERT's name and by the official one."""


class GQA(Reader):
    """Questions on images with one answer each (GQA's JSON by question id, or LXMERT's list).

    Targets: ``answers`` (the answer -> 1), ``answer``, ``question_id``, and of the official file ``structural``,
    ``semantic`` and ``detailed`` type, ``group``, ``balanced`` and ``entailed`` (ids of the questions that the answer
    settles). A split without answers has the id alone.

    Args:
        root: data root.
        split: which file(s); fills ``{split}``. ``val`` and ``valid`` are the same.
        questions: question file under the root, or a folder of files that are joined (``train_all_questions``); None:
            the usual places.
        choices: file of valid and plausible answers under the root; None: the usual places, where it is there.
        images: folder of the pictures, searched by image id.
        take: which images, see :mod:`vlcli.data.holdout`.
        limit: read only so many examples.
    """

    paper: ClassVar[str] = "Hudson and Manning 2019, GQA"
    splits: ClassVar[tuple[str, ...]] = ("train", "val", "valid", "testdev", "test", "challenge", "submission")
    held_out_splits: ClassVar[tuple[str, ...]] = ("testdev", "test", "challenge", "submission", "submit")
    usual: ClassVar[tuple[str, ...]] = (
        "gqa/{split}_balanced_questions.json",
        "gqa/questions/{split}_balanced_questions.json",
        "gqa/{split}.json",
        "gqa/{split}_all_questions.json",
        "gqa/questions/{split}_all_questions.json",
        "{split}_balanced_questions.json",
    )
    usual_choices: ClassVar[tuple[str, ...]] = (
        "gqa/{split}_choices.json",
        "gqa/eval/{split}_choices.json",
        "{split}_choices.json",
    )

    def __init__(
        self,
        root: Path,
        *,
        split: str | list[str] = "train",
        questions: str | None = None,
        choices: str | None = None,
        images: str = "images",
        take: str | None = None,
        limit: int | None = None,
    ) -> None:
        super().__init__(root, split=split, images=images, take=take, limit=limit)
        self.questions, self.choice_file = questions, choices

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:
        """Objects of questions by id; the balanced ones where there are both, those with answers."""
        files: dict[str, list[dict[str, Any]]] = {}
        for name, content in folder.documents():
            rows = list(content.values()) if isinstance(content, dict) else []
            if {"question", "imageId"} <= first_object(rows).keys():
                files[name] = rows
        answered = [name for name, rows in files.items() if "answer" in first_object(rows)]
        chosen = [name for name in answered if "balanced" in name] or answered
        if not chosen:
            return []
        columns = {"image": "imageId", "text": "question", "answers": "answer"}
        found = Recognised("vqa", {"name": "gqa"}, chosen, columns).name_files("questions")
        left = [name for name in files if name not in chosen]
        found.unused = [
            f"{name}: {'the balanced questions are read' if name in answered else 'questions without answers'}"
            for name in left
        ]
        found.files = [*chosen, *left]
        return [folder.with_images(found, [row.get("imageId") for name in chosen for row in files[name]])]

    def files(self) -> list[Path]:
        """The question files; the chunks of a folder each."""
        return [file for given in self._question_files() for file in _chunks(given)]

    def read(self) -> list[Example]:
        """One example a question, key = question id."""
        found = []
        for file in self.files():
            content = read_json(file, (dict, list))
            found += list(_joined(content, file) if isinstance(content, list) else _official(content, file))
        return found

    def choices(self) -> dict[str, dict[str, list[str]]]:
        """``valid`` and ``plausible`` answers by question id; empty where there is no such file.

        Raises:
            DataError: the file named is not there.
        """
        found: dict[str, dict[str, list[str]]] = {}
        for file in self._first(self.choice_file, self.usual_choices):
            if self.choice_file is not None or file.is_file():
                found |= read_json(file)
        return found

    def _question_files(self) -> list[Path]:
        return list(dict.fromkeys(self._first(self.questions, self.usual)))

    def _first(self, named: str | None, candidates: tuple[str, ...]) -> list[Path]:
        """The first candidate of each split that is there, by either of the split's names; else the first."""
        found = []
        for split in self.split_names:
            names = [split, ALSO[split]] if split in ALSO else [split]
            texts = [text.replace("{split}", name) for name in names for text in ([named] if named else candidates)]
            paths = [inside(self.root, text) for text in texts]
            found.append(next((path for path in paths if _is_there(path)), paths[0]))
        return found


def _is_there(path: Path) -> bool:
    return path.exists() or path.with_suffix("").is_dir()


def _chunks(file: Path) -> list[Path]:
    folder = file if file.is_dir() else file.with_suffix("")
    return sorted(folder.glob("*.json")) if not file.is_file() and folder.is_dir() else [file]


def _official(content: dict[str, Any], file: Path) -> Iterator[Example]:
    for number, row in content.items():
        where = f"{file}: {number}"
        targets: dict[str, Any] = {"question_id": number}
        if "answer" in row:
            targets |= _targets(row, where)
        yield Example(
            number, value(row, "question", str, where).strip(), [_image(row, "imageId", where)], targets=targets
        )


def _targets(row: dict[str, Any], where: str) -> dict[str, Any]:
    answer = value(row, "answer", str, where)
    types, groups = row.get("types") or {}, row.get("groups") or {}
    found: dict[str, Any] = {"answers": {answer: 1.0}, "answer": answer}
    found |= {name: str(types[name]) for name in ("structural", "semantic", "detailed") if types.get(name)}
    if groups.get("global"):
        found["group"] = str(groups["global"])
    found["balanced"] = bool(row.get("isBalanced", True))
    found["entailed"] = [str(other) for other in row.get("entailed") or ()]
    return found


def _joined(content: list[Any], file: Path) -> Iterator[Example]:
    for place, row in enumerate(content):
        where = f"{file}[{place}]"
        number = str(value(row, "question_id", (str, int), where))
        targets: dict[str, Any] = {"question_id": number}
        if "label" in row:
            answers = {str(k): float(v) for k, v in value(row, "label", dict, where).items()}
            targets["answers"] = answers
            targets |= {"answer": max(answers, key=lambda name: answers[name])} if answers else {}
        yield Example(number, value(row, "sent", str, where).strip(), [_image(row, "img_id", where)], targets=targets)


def _image(row: dict[str, Any], key: str, where: str) -> str:
    name = str(value(row, key, (str, int), where))
    if not name:
        raise DataError("The question names no image.", where=where)
    return name
