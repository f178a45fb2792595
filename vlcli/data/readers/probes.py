"""Test sets that probe what models understand: SugarCrepe, POPE, VSR and Winoground."""

import re
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

from vlcli.data.files import read_json, read_lines, read_text, value
from vlcli.data.readers.split_file import SplitFileReader
from vlcli.data.sample import Example
from vlcli.errors import DataError

POPE_LABELS, VSR_LABELS = ("no", "yes"), ("false", "true")


class _File(SplitFileReader):
    """Base of readers of a file of rows; subclasses define :meth:`of_row`."""

    def __init__(self, root: Path, *, split: str | list[str] = "test", **options: Any) -> None:
        super().__init__(root, split=split, **options)

    def read_file(self, file: Path) -> Iterator[Example]:
        for where, row in _rows(file):
            yield from self.of_row(row, where, file)

    def of_row(self, row: dict[str, Any], where: str, file: Path) -> list[Example]:
        """Return the examples of a row; called by :meth:`read_file`."""
        raise NotImplementedError(f"{type(self).__name__} does not define of_row()")


class SugarCrepe(_File):
    """SugarCrepe: a picture with its caption and one made false by a small change, two examples an item.

    Targets: ``item``, ``part`` (0 the caption, 1 the false one) and ``kind`` (the file's name: ``swap_obj``).

    Args:
        split: which file: ``add_att``, ``add_obj``, ``replace_att``, ``replace_obj``, ``replace_rel``, ``swap_att``,
            ``swap_obj``, or a list of these.
        file: another file under the root; None: ``sugarcrepe/{split}.json``, ``data/{split}.json`` or ``{split}.json``.
        images: folder of COCO's pictures of val2017.
    """

    paper: ClassVar[str] = "Hsieh et al. 2023, SugarCrepe: Fixing Hackable Benchmarks for Compositionality"
    splits: ClassVar[tuple[str, ...]] = (
        *("add_att", "add_obj", "replace_att", "replace_obj", "replace_rel", "swap_att", "swap_obj"),
    )
    usual: ClassVar[tuple[str, ...]] = ("sugarcrepe/{split}.json", "data/{split}.json", "{split}.json")

    def of_row(self, row: dict[str, Any], where: str, file: Path) -> list[Example]:
        picture = self.picture(value(row, "filename", str, where))
        texts = [value(row, key, str, where).strip() for key in ("caption", "negative_caption")]
        item = f"{file.stem}-{where.rpartition('[')[2].removesuffix(']')}"
        return _parts(item, file.stem, [(text, picture) for text in texts])


class POPE(_File):
    """POPE: is an object in the picture? Targets ``label`` (0 no, 1 yes; ``classification``), ``answers`` (``vqa``).

    Args:
        split: which file: ``random``, ``popular`` or ``adversarial``.
        file: another file under the root; None: ``pope/coco_pope_{split}.json`` or ``coco_pope_{split}.json``.
        images: folder of COCO's pictures of val2014.
    """

    paper: ClassVar[str] = "Li et al. 2023, Evaluating Object Hallucination in Large Vision-Language Models"
    splits: ClassVar[tuple[str, ...]] = ("random", "popular", "adversarial")
    usual: ClassVar[tuple[str, ...]] = (
        "pope/coco_pope_{split}.json",
        "coco_pope_{split}.json",
        "{split}.json",
        "{split}.jsonl",
    )

    def label_names(self) -> list[str]:
        return list(POPE_LABELS)

    def of_row(self, row: dict[str, Any], where: str, file: Path) -> list[Example]:
        answer = value(row, "label", str, where).strip().lower()
        if answer not in POPE_LABELS:
            raise DataError("The label is unknown.", where=where, got=answer, expected=", ".join(POPE_LABELS))
        targets = {"label": POPE_LABELS.index(answer), "answers": {answer: 1.0}, "raw_answers": [answer]}
        picture = self.picture(value(row, "image", str, where))
        key = str(row.get("question_id", where.rpartition(":")[2]))
        return [Example(key, value(row, "text", str, where).strip(), [picture], targets=targets)]


class VSR(_File):
    """Whether sentences on places are true of pictures; targets ``label`` (1 true) and ``relation`` (``left of``).

    Args:
        split: which file: ``train``, ``dev`` or ``test``.
        file: another file under the root; None: ``vsr/{split}.jsonl`` or ``{split}.jsonl``.
        images: folder of COCO's pictures.
    """

    paper: ClassVar[str] = "Liu, Emerson and Collier 2023, Visual Spatial Reasoning"
    splits: ClassVar[tuple[str, ...]] = ("train", "dev", "test")
    usual: ClassVar[tuple[str, ...]] = ("vsr/{split}.jsonl", "{split}.jsonl")

    def label_names(self) -> list[str]:
        return list(VSR_LABELS)

    def of_row(self, row: dict[str, Any], where: str, file: Path) -> list[Example]:
        label = value(row, "label", int, where)
        if label not in (0, 1):
            raise DataError("The label is neither 0 nor 1.", where=where, got=repr(label), expected="0 or 1")
        targets = {"label": label, "relation": str(row.get("relation", ""))}
        picture = self.picture(value(row, "image", str, where))
        text = value(row, "caption", str, where).strip()
        return [Example(where.rpartition(":")[2], text, [picture], targets=targets)]


class Winoground(_File):
    """Winoground: two pictures and two captions of the same words, each pair an example, four an item.

    Targets: ``item``, ``part`` (0 to 3: first caption with first and second picture, second caption with both), and
    ``kind`` (the row's ``collapsed_tag``). The names of pictures may lack their ending.

    Args:
        split: fills ``{split}`` in ``file``.
        file: JSON lines with ``image_0``, ``image_1``, ``caption_0``, ``caption_1``; None: ``examples.jsonl`` in
            ``winoground``, ``winoground/data``, ``data`` or the root.
        images: folder of the pictures.
    """

    paper: ClassVar[str] = "Thrush et al. 2022, Winoground: Probing Vision and Language Models for Compositionality"
    usual: ClassVar[tuple[str, ...]] = tuple(
        f"{folder}examples.jsonl" for folder in ("winoground/", "winoground/data/", "data/", "")
    )

    def of_row(self, row: dict[str, Any], where: str, file: Path) -> list[Example]:
        item = str(row.get("id", where.rpartition(":")[2]))
        pictures = [self.picture(value(row, f"image_{side}", str, where)) for side in (0, 1)]
        texts = [value(row, f"caption_{side}", str, where).strip() for side in (0, 1)]
        return _parts(item, str(row.get("collapsed_tag", "")), product(texts, pictures))


def _parts(item: str, kind: str, pairs: Iterable[tuple[str, str]]) -> list[Example]:
    return [
        Example(f"{item}-{part}", text, [picture], targets={"item": item, "kind": kind, "part": part})
        for part, (text, picture) in enumerate(pairs)
    ]


def _rows(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    start = read_text(file).lstrip()[:200]
    of_objects = re.match(r"\{[^:]*:\s*\{", start) is not None  # rows in one object, not line by line
    if start[:1] == "[" or (of_objects and file.suffix == ".json"):
        content = read_json(file, (list, dict))
        rows = content.items() if isinstance(content, dict) else enumerate(content)
        yield from ((f"{file}[{key}]", row) for key, row in rows)
    else:
        yield from read_lines(file)
