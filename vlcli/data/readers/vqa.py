"""VQA v2 and VQA-CP: questions and annotations as published, and LXMERT's joined form."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from vlcli.data import Example, Folder, Identity, Miniature, minival
from vlcli.data.checks import by_id
from vlcli.data.files import first_object, read_json, value
from vlcli.data.readers.split_file import StreamReader
from vlcli.data.recognition.recognised import Recognised, part_in, split_names
from vlcli.errors import DataError

# Soft score of an answer by how many of the ten people gave it; four or more count as four
SCORES = (0.0, 0.3, 0.6, 0.9, 1.0)


def soft_scores(answers: Iterable[str]) -> dict[str, float]:
    """Return answer -> soft score, most frequent first (Teney et al. 2018; reference counts 0/1/2/3/4+)."""
    return {answer: SCORES[min(count, 4)] for answer, count in Counter(answers).most_common()}


@dataclass(frozen=True)
class _Part:
    """The files of one split."""

    split: str  # minival or nominival, if `listed` divides the questions of the files
    asked: Path
    answered: Path | None = None
    listed: Path | None = None  # images of minival


class VQA(StreamReader):
    """Questions on images with ten answers each (JSON of VQA v2 or VQA-CP, gzip accepted, or LXMERT's list).

    Targets: ``answers`` (answer -> soft score), ``answer`` (the most frequent), ``raw_answers`` (as given),
    ``question_type``, ``answer_type`` and ``question_id``, the only one without annotations. ``minival`` and
    ``nominival`` are LXMERT's division of ``val``: its own lists, else the files of ``val`` and a list of images.

    Args:
        questions: question file under the root; None: the usual places.
        annotations: annotation file under the root; None: the usual places; "" for none.
        images: folder of the pictures, searched by image id.
        image_name: format of image ids, e.g. ``COCO_train2014_{:012d}``; None: by ``data_subtype``, else twelve digits.
        minival: file that lists the images of minival, under the root; None: the usual places (docs/data.md).
    """

    paper: ClassVar[str] = "Goyal et al. 2017, Making the V in VQA Matter"
    splits: ClassVar[tuple[str, ...]] = ("train", "val", "test", "nominival", "minival")
    held_out_splits: ClassVar[tuple[str, ...]] = ("minival", "test", "test-dev")
    asked: ClassVar[tuple[str, ...]] = (
        "vqa/v2_OpenEnded_mscoco_{split}_questions.json",
        "vqa/v2_OpenEnded_mscoco_{split}2014_questions.json",
        "vqa/v2_OpenEnded_mscoco_{split}2015_questions.json",
        "v2_OpenEnded_mscoco_{split}2014_questions.json",
        "v2_OpenEnded_mscoco_{split}2015_questions.json",
        "OpenEnded_mscoco_{split}2014_questions.json",
        "vqa/{split}.json",
    )
    answered: ClassVar[tuple[str, ...]] = (
        "vqa/v2_mscoco_{split}_annotations.json",
        "vqa/v2_mscoco_{split}2014_annotations.json",
        "v2_mscoco_{split}2014_annotations.json",
        "mscoco_{split}2014_annotations.json",
    )

    def __init__(
        self,
        root: Path,
        *,
        questions: str | None = None,
        annotations: str | None = None,
        image_name: str | None = None,
        minival: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(root, **options)
        self.questions, self.annotations, self.image_name = questions, annotations, image_name
        self.minival = minival

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:
        documents = {name: _as_object(content) for name, content in folder.documents()}
        fields = {"question_id", "sent", "img_id"}
        recognised = _recognise_official(folder, documents)
        if files := [name for name, rows in documents.items() if fields <= first_object(rows).keys()]:
            columns = {"image": "img_id", "text": "sent", "answers": "label"}
            joined = Recognised("vqa", {"name": "vqa", "annotations": ""}, files, columns).name_files("questions")
            rows = (row for name in files for row in documents[name] if isinstance(row, dict))
            recognised.insert(0, folder.with_images(joined, [row.get("img_id") for row in rows]))
        return recognised

    def files(self) -> list[Path]:
        files = (file for part in self._parts() for file in (part.asked, part.answered, part.listed))
        return list(dict.fromkeys(file for file in files if file is not None))

    def stream(self) -> Iterator[Example]:
        for part in self._parts():
            yield from self._read_part(part)

    def write_miniature(self, miniature: Miniature) -> None:
        for split in self.split_names:
            part = split if split in ("minival", "nominival") else ""
            year = "test2015" if split.startswith("test") else "val2014" if part else f"{split}2014"
            names = miniature.pictures(f"{year}{part}", self.image_folder / year, f"{image_form(year)}.jpg")
            asked = [{"question_id": 10 * n + i, "image_id": n} for n in names for i in range(2)]
            said = [{**row, "question": miniature.question(row["image_id"], row["question_id"])} for row in asked]
            answers = {} if year == "test2015" else {n: miniature.answer(n) for n in (r["question_id"] for r in asked)}
            if part or "nominival" in self.split_names:  # LXMERT's list
                file = self._file_for(split, self.questions, ("vqa/{split}.json",))
                miniature.write(file, [_listed(row, names, answers) for row in said])
                continue
            file = self._file_for(split, self.questions, self.asked[2:3] if year == "test2015" else self.asked[1:2])
            miniature.write(file, {"data_subtype": year, "questions": said})
            if answers and self.annotations != "":
                people = {key: [{"answer": one}] * 10 for key, one in answers.items()}
                notes = [{**row, **_KINDS, "answers": people[row["question_id"]]} for row in asked]
                miniature.write(self._file_for(split, self.annotations, self.answered[1:2]), {"annotations": notes})

    def _read_part(self, part: _Part) -> Iterator[Example]:
        content = _as_object(read_json(part.asked, (dict, list)))
        joined = isinstance(content, list)
        examples = _joined(content, part.asked) if joined else self._official(content, part.asked, part.answered)
        if part.listed is None:
            yield from examples
            return
        same = Identity()
        listed = {same.key(name) for name in minival(self.root, self.minival)[0] or ()}
        yield from (one for one in examples if (same.key(one.images[0]) in listed) == (part.split == "minival"))

    def _parts(self) -> list[_Part]:
        return list(dict.fromkeys(map(self._part, self.split_names)))

    def _part(self, split: str) -> _Part:
        asked = self._file_for(split, self.questions, self.asked)
        if split in ("minival", "nominival") and not asked.is_file() and self.questions is None:
            official = self._part("val")
            if official.asked.is_file():
                return replace(official, split=split, listed=minival(self.root, self.minival)[1])
        answered = self._file_for(split, self.annotations, self.answered)
        joined = asked.name == f"{split}.json"  # LXMERT's form holds its own answers
        lacking = self.annotations is None and (joined or (split.startswith("test") and not answered.is_file()))
        return _Part("", asked, None if lacking or self.annotations == "" else answered)

    def _official(self, content: dict[str, Any], asked: Path, answered: Path | None) -> Iterator[Example]:
        said = {"annotations": []} if answered is None else _as_object(read_json(answered, (dict, list)))
        notes = by_id(value(said, "annotations", list, str(answered)), "question_id", f"{answered}: annotations")
        for count, row in enumerate(value(content, "questions", list, str(asked))):
            where = f"{asked}: questions[{count}]"
            number = value(row, "question_id", (int, str), where)
            targets = {"question_id": number} | ({} if answered is None else _targets(notes, number, answered))
            form = self.image_name or image_form(str(row.get("coco_split", content.get("data_subtype", ""))))
            image = _image(form, value(row, "image_id", (int, str), where), where)
            yield Example(str(number), value(row, "question", str, where).strip(), [image], targets=targets)


def _as_object(content: Any) -> Any:
    # VQA-CP has lists, whose rows say which part of COCO has the picture
    return {"questions": content, "annotations": content} if "coco_split" in first_object(content) else content


_KINDS = {"question_type": "what color is the", "answer_type": "other"}


def _listed(row: dict[str, Any], names: dict[int, str], answers: dict[int, str]) -> dict[str, Any]:
    # a question of a miniature as LXMERT has it
    label = {"label": {answers[row["question_id"]]: 1.0}, **_KINDS} if answers else {}
    image = names[row["image_id"]].removesuffix(".jpg")
    return {"img_id": image, "question_id": row["question_id"], "sent": row["question"], **label}


def _joined(content: list[Any], file: Path) -> Iterator[Example]:
    for count, row in enumerate(content):
        where = f"{file}[{count}]"
        number = value(row, "question_id", (int, str), where)
        targets: dict[str, Any] = {"question_id": number}
        targets |= {name: row[name] for name in ("question_type", "answer_type") if name in row}
        if "label" in row:
            targets["answers"] = {str(k): float(v) for k, v in value(row, "label", dict, where).items()}
        image = value(row, "img_id", str, where)
        yield Example(str(number), value(row, "sent", str, where).strip(), [image], targets=targets)


def _targets(notes: dict[Any, dict[str, Any]], number: Any, file: Path) -> dict[str, Any]:
    if number not in notes:
        raise DataError("A question has no annotation.", where=str(file), got=f"question_id {number}")
    row, where = notes[number], f"{file}: question_id {number}"
    annotated = value(row, "answers", list, where)
    try:
        answers = [str(answer["answer"]) for answer in annotated]
    except (KeyError, TypeError):
        got, expected = str(annotated)[:100], '{"answer": ...}'
        raise DataError("An answer has no text.", where=where, got=got, expected=expected) from None
    kinds = {name: str(row.get(name, "")) for name in ("question_type", "answer_type")}
    best = {"answer": str(row["multiple_choice_answer"])} if row.get("multiple_choice_answer") is not None else {}
    return {"answers": soft_scores(answers), **best, "raw_answers": answers, **kinds}


def _image(form: str, number: int | str, where: str) -> str:
    if isinstance(number, str) and not number.isdigit():
        return number
    try:
        return form.format(int(number))
    except (ValueError, IndexError, KeyError):
        raise DataError("The image's name cannot be made.", where=where, got=form, expected="such as {:012d}") from None


_SUBTYPE = re.compile(r"^(train|val|test)(?:-dev)?(20\d\d)$")


@lru_cache
def image_form(subtype: str) -> str:
    """Return the format of image ids for the ``data_subtype`` of a question file."""
    match = _SUBTYPE.match(subtype)
    return f"COCO_{match[1]}{match[2]}_{{:012d}}" if match else "{:012d}"


def _lists(documents: dict[str, Any], key: str, fields: set[str]) -> dict[str, list[dict[str, Any]]]:
    lists = {name: content.get(key) or [] for name, content in documents.items() if isinstance(content, dict)}
    lists = {name: rows for name, rows in lists.items() if fields <= first_object(rows).keys()}
    return {name: [row for row in rows if isinstance(row, dict)] for name, rows in lists.items()}


def _recognise_official(folder: Folder, documents: dict[str, Any]) -> list[Recognised]:
    asked = _lists(documents, "questions", {"question", "question_id", "image_id"})
    answered = _lists(documents, "annotations", {"answers", "question_id"})
    keys = {name: [row.get("question_id") for row in rows] for name, rows in (asked | answered).items()}
    ids = {name: {key for key in some if isinstance(key, int | str)} for name, some in keys.items()}
    pairs: dict[str, str] = {}
    for name in asked:
        shared = {one: len(ids[one] & ids[name]) for one in answered}
        fits = max(answered, key=lambda one: (shared[one], part_in(one) == part_in(name)), default="")
        if shared.get(fits):
            pairs[name] = fits
    if not pairs:
        return []
    columns = {"image": "image_id", "text": "question", "answers": "answers[].answer"}
    data = Recognised("vqa", {"name": "vqa"}, list(pairs), columns).name_files("questions")
    pattern, splits = split_names(list(pairs.values()))
    one = len(pairs) == 1
    if not one and splits != split_names(list(pairs))[1]:
        data.question = f"the names of {data.where} and of their annotations do not name the parts alike: rename them"
    data.entry["annotations"] = next(iter(pairs.values())) if one else pattern
    data.files += pairs.values()
    data.unused += [f"{name}: questions without annotations" for name in asked if name not in pairs]
    data.unused += [f"{name}: annotations without questions" for name in answered if name not in pairs.values()]
    types = {name: documents[name].get("data_subtype", "") for name in pairs}
    rows = [(row.get("coco_split", types[name]), row.get("image_id")) for name in pairs for row in asked[name]]
    numbers = [(image_form(str(part)), number) for part, number in rows]
    said = [form.format(number) if isinstance(number, int) else str(number) for form, number in numbers]
    form, share = folder.pictures.number_form([number for _, number in numbers])
    if share > sum(name in folder.pictures.by_id for name in said) / len(said):
        data.entry["image_name"] = form
        said = [form.format(number) for _, number in numbers if isinstance(number, int)]
    return [folder.with_images(data, said)]
