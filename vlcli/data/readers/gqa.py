"""GQA: questions as published (an object by question id) and LXMERT's list."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from vlcli.data import Example, Folder, Miniature, Reader, Recognised
from vlcli.data.files import first_object, inside, read_json, value
from vlcli.errors import DataError

ALSO = {"val": "valid", "valid": "val", "submit": "submission", "submission": "submit"}
"""The same split by LXMERT's name and by the official one."""


class GQA(Reader):
    """Questions on images with one answer each (GQA's JSON by question id, or LXMERT's list).

    Targets: ``answers`` (the answer -> 1), ``answer``, ``question_id``, and of the official file ``structural``,
    ``semantic`` and ``detailed`` type, ``group``, ``balanced`` and ``entailed`` (ids of the questions that the answer
    settles). A split without answers has the id alone.

    Args:
        split: which file(s); fills ``{split}``. ``val`` and ``valid`` are the same.
        questions: question file under the root, or a folder of files that are joined (``train_all_questions``); None:
            the usual places.
        choices: file of valid and plausible answers under the root; None: the usual places, where it is there.
        images: folder of the pictures, searched by image id.
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

    def __init__(self, root: Path, *, questions: str | None = None, choices: str | None = None, **options: Any) -> None:
        super().__init__(root, **options)
        self.questions, self.choice_file = questions, choices

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:
        contents = {name: list(one.values()) for name, one in folder.documents() if isinstance(one, dict)}
        files = {n: rows for n, rows in contents.items() if {"question", "imageId"} <= first_object(rows).keys()}
        answered = [name for name, rows in files.items() if "answer" in first_object(rows)]
        chosen = [name for name in answered if "balanced" in name] or answered
        if not chosen:
            return []
        columns = {"image": "imageId", "text": "question", "answers": "answer"}
        data = Recognised("vqa", {"name": "gqa"}, chosen, columns).name_files("questions")
        left = [name for name in files if name not in chosen]
        data.unused = [
            f"{name}: {'the balanced questions are read' if name in answered else 'questions without answers'}"
            for name in left
        ]
        data.files = [*chosen, *left]
        return [folder.with_images(data, [row.get("imageId") for name in chosen for row in files[name]])]

    def files(self) -> list[Path]:
        files = dict.fromkeys(self._first(self.questions, self.usual))
        return [chunk for file in files for chunk in _chunks(file)]

    def write_miniature(self, miniature: Miniature) -> None:
        for split, file in zip(self.split_names, self._first(self.questions, self.usual), strict=True):
            part = {"train": "vg", "val": "vg-val", "valid": "vg-val", "testdev": "testdev"}.get(split)
            form = "n{}.jpg" if split == "testdev" else "{}.jpg"
            rows = {}
            for n, name in miniature.pictures(part or "vg", self.image_folder, form).items():
                said = {"answer": miniature.answer(n), "types": {"structural": "query", "semantic": "attr"}}
                for i in range(2):
                    asked = {"imageId": name.removesuffix(".jpg"), "question": miniature.question(n, i)}
                    rows[f"{n:05d}{i}"] = asked | (said if part else {})
            miniature.write(file, rows)

    def read(self) -> list[Example]:
        examples: list[Example] = []
        for file in self.files():
            content = read_json(file, (dict, list))
            examples += _joined(content, file) if isinstance(content, list) else _official(content, file)
        return examples

    def choices(self) -> dict[str, dict[str, list[str]]]:
        """Return ``valid`` and ``plausible`` answers by question id; empty where there is no such file."""
        choices: dict[str, dict[str, list[str]]] = {}
        for file in self._first(self.choice_file, self.usual_choices):
            if self.choice_file is not None or file.is_file():
                choices |= read_json(file)
        return choices

    def _first(self, named: str | None, candidates: tuple[str, ...]) -> list[Path]:
        chosen = []
        for split in self.split_names:
            names = [split, ALSO[split]] if split in ALSO else [split]
            texts = [text.replace("{split}", name) for name in names for text in ([named] if named else candidates)]
            paths = [inside(self.root, text) for text in texts]
            there = (path for path in paths if path.exists() or path.with_suffix("").is_dir())
            chosen.append(next(there, paths[0]))
        return chosen


def _chunks(file: Path) -> list[Path]:
    folder = file if file.is_dir() else file.with_suffix("")
    return sorted(folder.glob("*.json")) if not file.is_file() and folder.is_dir() else [file]


def _official(content: dict[str, Any], file: Path) -> Iterator[Example]:
    for number, row in content.items():
        where = f"{file}: {number}"
        targets: dict[str, Any] = {"question_id": number}
        if "answer" in row:
            answer = value(row, "answer", str, where)
            types, groups = row.get("types") or {}, row.get("groups") or {}
            targets |= {"answers": {answer: 1.0}, "answer": answer}
            targets |= {name: str(types[name]) for name in ("structural", "semantic", "detailed") if types.get(name)}
            if groups.get("global"):
                targets["group"] = str(groups["global"])
            targets["balanced"] = bool(row.get("isBalanced", True))
            targets["entailed"] = [str(other) for other in row.get("entailed") or ()]
        text = value(row, "question", str, where).strip()
        yield Example(number, text, [_image(row, "imageId", where)], targets=targets)


def _joined(content: list[Any], file: Path) -> Iterator[Example]:
    for count, row in enumerate(content):
        where = f"{file}[{count}]"
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
