"""Test sets that probe what models understand: SugarCrepe, POPE, VSR and Winoground."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from vlcli.data.files import read_json, read_lines, read_text, value
from vlcli.data.reader import Reader
from vlcli.data.sample import Example
from vlcli.errors import DataError

POPE_LABELS, VSR_LABELS = ("no", "yes"), ("false", "true")


class _File(Reader):
    """One annotation file, whose rows become examples. Subclasses define ``usual`` and :meth:`of_row`."""

    usual: ClassVar[tuple[str, ...]] = ()
    usual_images: ClassVar[str] = "images"

    def __init__(
        self,
        root: Path,
        *,
        split: str | list[str] = "test",
        file: str | None = None,
        images: str | None = None,
        take: str | None = None,
        limit: int | None = None,
    ) -> None:
        super().__init__(root, split=split, images=images or self.usual_images, take=take, limit=limit)
        self.file = file

    def files(self) -> list[Path]:
        """The annotation file of each split."""
        return list(dict.fromkeys(self.first_file(self.file, self.usual)))

    def read(self) -> list[Example]:
        """The examples of every row."""
        return [one for file in self.files() for where, row in _rows(file) for one in self.of_row(row, where, file)]

    def of_row(self, row: dict[str, Any], where: str, file: Path) -> list[Example]:
        """The examples of one row."""
        raise NotImplementedError(f"{type(self).__name__} reads no rows")


class SugarCrepe(_File):
    """SugarCrepe: a picture with its caption and one that a small change makes false, two examples an item.

    Targets: ``item``, ``part`` (0 the caption, 1 the false one) and ``kind`` (the file's name: ``swap_obj``).

    Args:
        root: data root.
        split: which file: ``add_att``, ``add_obj``, ``replace_att``, ``replace_obj``, ``replace_rel``, ``swap_att``,
            ``swap_obj``, or a list of these.
        file: another file under the root; None: ``sugarcrepe/{split}.json``, ``data/{split}.json`` or ``{split}.json``.
        images: folder of COCO's pictures of val2017.
        take: which pictures, see :mod:`vlcli.data.holdout`.
        limit: read only so many examples.
    """

    paper: ClassVar[str] = "Hsieh et al. 2023, SugarCrepe: Fixing Hackable Benchmarks for Compositionality"
    splits: ClassVar[tuple[str, ...]] = (
        *("add_att", "add_obj", "replace_att", "replace_obj", "replace_rel", "swap_att", "swap_obj"),
    )
    usual: ClassVar[tuple[str, ...]] = ("sugarcrepe/{split}.json", "data/{split}.json", "{split}.json")

    def of_row(self, row: dict[str, Any], where: str, file: Path) -> list[Example]:
        """The caption and the false one."""
        picture = self.picture(value(row, "filename", str, where))
        texts = [value(row, key, str, where).strip() for key in ("caption", "negative_caption")]
        item = f"{file.stem}-{where.rpartition('[')[2].removesuffix(']')}"
        facts = {"item": item, "kind": file.stem}
        return [
            Example(f"{item}-{part}", text, [picture], targets={**facts, "part": part})
            for part, text in enumerate(texts)
        ]


class POPE(_File):
    """POPE: whether an object is in the picture, asked of objects that are and of objects that are not.

    Targets: ``label`` (0 no, 1 yes) for the task ``classification``, ``answers`` for ``vqa``.

    Args:
        root: data root.
        split: which file: ``random``, ``popular`` or ``adversarial``.
        file: another file under the root; None: ``pope/coco_pope_{split}.json`` or ``coco_pope_{split}.json``.
        images: folder of COCO's pictures of val2014.
        take: which pictures, see :mod:`vlcli.data.holdout`.
        limit: read only so many examples.
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
        """No and yes."""
        return list(POPE_LABELS)

    def of_row(self, row: dict[str, Any], where: str, file: Path) -> list[Example]:
        """One question."""
        answer = _among(row, "label", POPE_LABELS, where)
        targets = {"label": POPE_LABELS.index(answer), "answers": {answer: 1.0}, "raw_answers": [answer]}
        picture = self.picture(value(row, "image", str, where))
        key = str(row.get("question_id", where.rpartition(":")[2]))
        return [Example(key, value(row, "text", str, where).strip(), [picture], targets=targets)]


class VSR(_File):
    """Visual spatial reasoning: whether a sentence about where things are is true of the picture.

    Targets: ``label`` (0 false, 1 true) and ``relation`` (``left of``).

    Args:
        root: data root.
        split: which file: ``train``, ``dev`` or ``test``.
        file: another file under the root; None: ``vsr/{split}.jsonl`` or ``{split}.jsonl``.
        images: folder of COCO's pictures.
        take: which pictures, see :mod:`vlcli.data.holdout`.
        limit: read only so many examples.
    """

    paper: ClassVar[str] = "Liu, Emerson and Collier 2023, Visual Spatial Reasoning"
    splits: ClassVar[tuple[str, ...]] = ("train", "dev", "test")
    usual: ClassVar[tuple[str, ...]] = ("vsr/{split}.jsonl", "{split}.jsonl")

    def label_names(self) -> list[str]:
        """False and true."""
        return list(VSR_LABELS)

    def of_row(self, row: dict[str, Any], where: str, file: Path) -> list[Example]:
        """One sentence."""
        given = value(row, "label", int, where)
        if given not in (0, 1):
            raise DataError("The label is neither 0 nor 1.", where=where, got=repr(given), expected="0 or 1")
        targets = {"label": given, "relation": str(row.get("relation", ""))}
        picture = self.picture(value(row, "image", str, where))
        text = value(row, "caption", str, where).strip()
        return [Example(where.rpartition(":")[2], text, [picture], targets=targets)]


class Winoground(_File):
    """Winoground: two pictures and two captions of the same words, every pair of them an example, four an item.

    Targets: ``item``, ``part`` (0 to 3: first caption with first and second picture, second caption with both), and
    ``kind`` (the row's ``collapsed_tag`` where it has one). The names of a row's pictures may lack their ending.

    Args:
        root: data root.
        split: fills ``{split}`` in ``file``.
        file: JSON lines with ``image_0``, ``image_1``, ``caption_0``, ``caption_1``; None:
            ``winoground/examples.jsonl`` or ``examples.jsonl``.
        images: folder of the pictures.
        take: which pictures, see :mod:`vlcli.data.holdout`.
        limit: read only so many examples.
    """

    paper: ClassVar[str] = "Thrush et al. 2022, Winoground: Probing Vision and Language Models for Compositionality"
    usual: ClassVar[tuple[str, ...]] = (
        "winoground/examples.jsonl",
        "winoground/data/examples.jsonl",
        "data/examples.jsonl",
        "examples.jsonl",
    )

    def of_row(self, row: dict[str, Any], where: str, file: Path) -> list[Example]:
        """Both captions with both pictures."""
        item = str(row.get("id", where.rpartition(":")[2]))
        pictures = [self.picture(value(row, f"image_{side}", str, where)) for side in (0, 1)]
        texts = [value(row, f"caption_{side}", str, where).strip() for side in (0, 1)]
        facts = {"item": item, "kind": str(row.get("collapsed_tag", ""))}
        pairs = [(text, picture) for text in texts for picture in pictures]
        return [
            Example(f"{item}-{part}", text, [picture], targets={**facts, "part": part})
            for part, (text, picture) in enumerate(pairs)
        ]


def _rows(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of JSON lines, of a JSON list, or of an object by index."""
    start = read_text(file).lstrip()[:200]
    if start[:1] == "[" or (start[:1] == "{" and file.suffix == ".json" and not _is_row(start)):
        content = read_json(file, (list, dict))
        rows = content.items() if isinstance(content, dict) else enumerate(content)
        for place, row in rows:
            yield f"{file}[{place}]", row
        return
    yield from read_lines(file)


def _is_row(start: str) -> bool:
    """Whether a file that begins so has rows line by line, not one object of rows."""
    return not start[1:].lstrip().split(":", 1)[-1].lstrip().startswith("{")


def _among(row: dict[str, Any], key: str, known: tuple[str, ...], where: str) -> str:
    given: str = value(row, key, str, where).strip().lower()
    if given not in known:
        raise DataError("The label is unknown.", where=where, got=given, expected=", ".join(known))
    return given
