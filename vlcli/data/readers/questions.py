"""Questions on pictures, as published: GQA (also LXMERT's list), Visual Genome's files, and DAQUAR."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal

from vlcli.data import Example, Folder, Miniature, Recognised
from vlcli.data.files import first_object, inside, read_json, text_lines, value
from vlcli.data.leakage import usual_paths
from vlcli.data.miniature import PICTURES
from vlcli.data.readers.cells import PLAIN
from vlcli.data.readers.split_file import SplitFileReader, StreamReader, list_rows
from vlcli.errors import DataError
from vlcli.metrics.vqa import set_form

# LXMERT's names of splits by the official ones, and the other way round
ALSO = {"val": "valid", "valid": "val", "submit": "submission", "submission": "submit"}


class GQA(StreamReader):
    """Questions on images with one answer each (GQA's JSON by question id, or LXMERT's list).

    Targets: ``answers`` (answer -> 1), ``answer``, ``question_id``, and of the official file the types ``structural``,
    ``semantic`` and ``detailed``, ``group``, ``balanced`` and ``entailed`` (ids of the questions that the answer
    settles). A split without answers has the id alone.

    Args:
        split: fills ``{split}``; ``val`` and ``valid`` are the same.
        questions: question file under the root, or a folder of them (``train_all_questions``); None: the usual places.
        choices: file of valid and plausible answers under the root; None: the usual places, if it exists.
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
    usual_choices: ClassVar[tuple[str, ...]] = tuple(f"{at}{{split}}_choices.json" for at in ("gqa/", "gqa/eval/", ""))

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
        why = {name: "the balanced questions are read" for name in answered if name not in chosen}
        why |= {name: "questions without answers" for name in files if name not in answered}
        data.unused, data.files = [f"{name}: {why[name]}" for name in files if name in why], [*chosen, *why]
        rows = (row for name in chosen for row in files[name] if isinstance(row, dict))
        return [folder.with_images(data, [row.get("imageId") for row in rows])]

    def files(self) -> list[Path]:
        files: list[Path] = []
        for file in dict.fromkeys(self._first(self.questions, self.usual)):
            folder = file if file.is_dir() else file.with_suffix("")
            files += sorted(folder.glob("*.json")) if not file.is_file() and folder.is_dir() else [file]
        return files

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

    def stream(self) -> Iterator[Example]:
        for file in self.files():
            content = read_json(file, (dict, list))
            yield from _joined(content, file) if isinstance(content, list) else _official(content, file)

    def choices(self) -> dict[str, dict[str, list[str]]]:
        """Return ``valid`` and ``plausible`` answers by question id; empty where there is no such file."""
        files = self._first(self.choice_file, self.usual_choices)
        known = (file for file in files if self.choice_file is not None or file.is_file())
        return {number: answers for file in known for number, answers in read_json(file).items()}

    def _first(self, named: str | None, candidates: tuple[str, ...]) -> list[Path]:
        chosen = []
        for split in self.split_names:
            names = dict.fromkeys((split, ALSO.get(split, split)))
            texts = [text.replace("{split}", name) for name in names for text in ([named] if named else candidates)]
            paths = [inside(self.root, text) for text in texts]
            there = (path for path in paths if path.exists() or path.with_suffix("").is_dir())
            chosen.append(next(there, paths[0]))
        return chosen


def _official(content: dict[str, Any], file: Path) -> Iterator[Example]:
    for number, row in content.items():
        where = f"{file}: {number}"
        targets: dict[str, Any] = {"question_id": number}
        if "answer" in row:
            answer = value(row, "answer", str, where)
            types, group = row.get("types") or {}, (row.get("groups") or {}).get("global")
            targets |= {"answers": {answer: 1.0}, "answer": answer}
            targets |= {name: str(types[name]) for name in ("structural", "semantic", "detailed") if types.get(name)}
            targets |= {"group": str(group)} if group else {}
            targets["balanced"] = bool(row.get("isBalanced", True))
            targets["entailed"] = list(map(str, row.get("entailed") or ()))
        text = value(row, "question", str, where).strip()
        yield Example(number, text, [_image(row, "imageId", where)], targets=targets)


def _joined(content: list[Any], file: Path) -> Iterator[Example]:
    for count, row in enumerate(content):
        where = f"{file}[{count}]"
        number = str(value(row, "question_id", (str, int), where))
        targets: dict[str, Any] = {"question_id": number}
        if "label" in row:
            answers = {str(k): float(v) for k, v in value(row, "label", dict, where).items()}
            best = {"answer": max(answers, key=lambda name: answers[name])} if answers else {}
            targets |= {"answers": answers, **best}
        yield Example(number, value(row, "sent", str, where).strip(), [_image(row, "img_id", where)], targets=targets)


def _image(row: dict[str, Any], key: str, where: str) -> str:
    name = str(value(row, key, (str, int), where))
    if not name:
        raise DataError("The question names no image.", where=where)
    return name


class _VisualGenome(SplitFileReader):
    """Base of readers of a list of images, each with a list of rows; images are called by number.

    Args:
        split: there is only one.
        images: folder of the pictures, searched by image id.
    """

    rows: ClassVar[str] = ""
    kind: ClassVar[tuple[str, str, dict[str, str]]] = ("", "", {})  # of the data, the reader's name, fields by role

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:
        kind, name, columns = cls.kind
        data = []
        for file, content in folder.documents():
            images = [one for one in content if isinstance(one, dict)] if cls.rows in first_object(content) else []
            if any(image.get(cls.rows) for image in images):
                record = Recognised(kind, {"name": name, "file": file}, [file], {"image": "id", **columns})
                data.append(folder.with_images(record, [image.get("id", image.get("image_id")) for image in images]))
        return data

    def __init__(self, root: Path, *, split: str | list[str] = "all", **options: Any) -> None:
        super().__init__(root, split=split, **options)

    def miniature_of(self, split: str, file: Path, miniature: Miniature) -> Any:
        images = []
        for n in miniature.pictures("vg", self.image_folder):
            said = {"question": miniature.question(n), "answer": miniature.answer(n), "phrase": miniature.sentence(n)}
            rows = [{"region_id": 10 * n + i, "qa_id": 10 * n + i, **said} for i in range(2)]
            images.append({"id": n, self.rows: rows})
        return images

    def read_file(self, file: Path) -> Iterator[Example]:
        for where, image in list_rows(file):
            name = str(value(image, "id" if "id" in image else "image_id", (int, str), where))
            for number, row in enumerate(value(image, self.rows, list, where)):
                yield self.example(row, name, f"{where}.{self.rows}[{number}]")

    def example(self, row: Any, image: str, where: str) -> Example:
        """Return one row as an example; called by :meth:`read_file`."""
        raise NotImplementedError(f"{type(self).__name__} does not say what its rows are ({where})")


class VGRegions(_VisualGenome):
    """Visual Genome's region descriptions, each a caption of its whole image.

    Args:
        file: annotation file under the root; None: ``region_descriptions.json`` in the usual folders.
    """

    paper: ClassVar[str] = "Krishna et al. 2017, Visual Genome; matched with whole images in LXMERT, section 3.2"
    usual: ClassVar[tuple[str, ...]] = usual_paths("region_descriptions.json")
    rows: ClassVar[str] = "regions"
    kind: ClassVar[tuple[str, str, dict[str, str]]] = ("captions", "vg-regions", {"text": "phrase"})

    def example(self, row: Any, image: str, where: str) -> Example:
        key = str(value(row, "region_id" if "region_id" in row else "id", (int, str), where))
        return Example(key, value(row, "phrase", str, where).strip(), [image], text_key=key)


class Questions(_VisualGenome):
    """Visual Genome's questions with an answer each; targets ``answers`` (answer -> 1), ``answer``, ``question_id``.

    Args:
        file: annotation file under the root; None: ``question_answers.json`` in the usual folders.
    """

    paper: ClassVar[str] = "Krishna et al. 2017, Visual Genome; Zhu et al. 2016, Visual7W"
    usual: ClassVar[tuple[str, ...]] = usual_paths("question_answers.json")
    rows: ClassVar[str] = "qas"
    kind: ClassVar[tuple[str, str, dict[str, str]]] = ("vqa", "vg-qa", {"text": "question", "answers": "answer"})

    def example(self, row: Any, image: str, where: str) -> Example:
        key = str(value(row, "qa_id" if "qa_id" in row else "id", (int, str), where))
        answer = value(row, "answer", str, where).strip()
        targets = {"question_id": key, "answers": {answer: 1.0}, "answer": answer}
        return Example(key, value(row, "question", str, where).strip(), [image], targets=targets)


_PICTURE = re.compile(r"(image\d+)\s*\?*\s*$")
_IN_PICTURE = re.compile(r"\s*\bin\s+(?:th\s*e\s*)?image\d+\s*\?*\s*$")  # one official line has "th eimage999"
_FOLDERS = ("", "daquar/", "annotations/", "daquar/annotations/")


class DAQUAR(SplitFileReader):
    """Questions on indoor photographs with one answer or a set of answers (text files of two lines a question).

    A question names its picture: ``what is on the desk in the image3 ?``; ", " separates its answers, whose order does
    not count. Targets: ``answers`` (the sorted set, spelt as in answer tables, -> 1) and ``answer_type`` (``single`` or
    ``set``), by which the task ``vqa`` prints accuracies. Pictures that the published list of the split (``train.txt``,
    ``test.txt``) beside the file lacks are an error.

    Args:
        split: train or test; fills ``{split}``.
        file: the file under the root; None: ``qa.894.raw.{split}.txt``, or the file of ``version``.
        version: ``full`` (894 categories) or ``reduced`` (37; ``qa.37.raw.train.txt``, ``qa.37.raw.reduced.test.txt``).
        images: folder of the pictures, searched by name (``image3.png``).
        whole: keep the words "in the image3" at the end of each question.
        take: images, see :mod:`vlcli.data.holdout`; ``first:0.9`` and ``after:0.9`` of train make a validation part.
    """

    paper: ClassVar[str] = "Malinowski and Fritz 2014, A Multi-World Approach to Question Answering"
    splits: ClassVar[tuple[str, ...]] = ("train", "test")
    held_out_splits: ClassVar[tuple[str, ...]] = ("test",)
    names: ClassVar[dict[str, tuple[str, ...]]] = {
        "full": ("qa.894.raw.{split}.txt",),
        "reduced": ("qa.37.raw.{split}.txt", "qa.37.raw.reduced.{split}.txt"),
    }

    def __init__(
        self, root: Path, *, version: Literal["full", "reduced"] = "full", whole: bool = False, **options: Any
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
        best = max(groups, key=lambda key: int(key) if key.isdigit() else -1)
        columns = {"image": "the name that ends the question", "text": "first line", "answers": "second line"}
        data = Recognised("vqa", {"name": "daquar"}, groups.pop(best), columns).name_files()
        rest = sorted(name for names in groups.values() for name in names)
        data.reasons["parts"] = "the files are named after the parts"
        data.unused = [f"{name}: questions of another version of the data set" for name in rest]
        names = [hit[1] for name in data.files for line in folder.lines(name) if (hit := _PICTURE.search(line))]
        data.title = ", ".join(data.files)
        data = data if data.parts else folder.with_lists(data)  # Kaggle's all_qa_pairs.txt
        lists = [name for name in lists if name not in data.files]
        data.unused += [f"{name}: a list of pictures, which the questions name themselves" for name in lists]
        data.files += rest + lists
        return [folder.with_images(data, names)]

    def files(self) -> list[Path]:
        return self.first_file(self.file, [folder + name for name in self.names[self.version] for folder in _FOLDERS])

    def miniature_of(self, split: str, file: Path, miniature: Miniature) -> Any:
        lines = []
        for number in miniature.numbers(f"daquar-{split}", 4 * PICTURES):
            miniature.picture(self.image_folder / f"image{number}.png")
            lines += [f"{miniature.question(number)[:-1]} in the image{number} ?", miniature.answer(number)]
        return "\n".join(lines)

    def stream(self) -> Iterator[Example]:
        for split, file in zip(self.split_names, self.files(), strict=True):
            part = list(self._read_part(split, file))
            _compare(file, file.with_name(f"{split}.txt"), {example.images[0] for example in part})
            yield from part

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
            targets = {"answers": {set_form(answer): 1.0}, "answer_type": "set" if "," in answer else "single", **PLAIN}
            if not self.whole:  # "on the left of the image3" keeps "the image"
                cut = _IN_PICTURE.sub("", question)
                question = (cut if cut != question else _PICTURE.sub("image", question)).strip() + " ?"
            yield Example(f"{split}-{start // 2 + 1}", question, [picture[1]], targets=targets)


def _compare(file: Path, listed: Path, pictures: set[str]) -> None:
    names = {line.strip() for line in text_lines(listed)} - {""} if listed.is_file() and listed != file else set()
    absent = sorted(pictures - names)
    if names and all(map(_PICTURE.fullmatch, names)) and absent:
        what = f"{len(absent)} of {len(pictures)} pictures are not in the published list of this split."
        hint = "take the file of questions and the list of the same split and edition, or move the list away"
        raise DataError(what, where=str(file), got=", ".join(absent[:3]), expected=f"pictures of {listed}", hint=hint)
