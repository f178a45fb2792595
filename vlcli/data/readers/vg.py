"""Visual Genome's files: region descriptions, questions and answers, and which images are COCO's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from vlcli.data.files import read_json, value
from vlcli.data.reader import Reader
from vlcli.data.sample import Example
from vlcli.data.visual_genome import usual_paths


class _VisualGenome(Reader):
    """What both files share: a list of images, each with a list of rows. Visual Genome has no splits."""

    usual: ClassVar[tuple[str, ...]] = ()
    rows: ClassVar[str] = ""

    def __init__(
        self,
        root: Path,
        *,
        split: str | list[str] = "all",
        file: str | None = None,
        images: str = "images",
        take: str | None = None,
        limit: int | None = None,
    ) -> None:
        super().__init__(root, split=split, images=images, take=take, limit=limit)
        self.file = file

    def files(self) -> list[Path]:
        """The annotation file."""
        return list(dict.fromkeys(self.first_file(self.file, self.usual)))

    def read(self) -> list[Example]:
        """One example a row; images are called by their number."""
        return [example for file in self.files() for example in self._read_file(file)]

    def _read_file(self, file: Path) -> Iterator[Example]:
        for place, image in enumerate(read_json(file, list)):
            where = f"{file}[{place}]"
            name = str(value(image, "id" if "id" in image else "image_id", (int, str), where))
            for number, row in enumerate(value(image, self.rows, list, where)):
                yield self.example(row, name, f"{where}.{self.rows}[{number}]")

    def example(self, row: Any, image: str, where: str) -> Example:
        """One row as an example."""
        raise NotImplementedError(f"{type(self).__name__} does not say what its rows are ({where})")


class VGRegions(_VisualGenome):
    """Visual Genome's region descriptions, each a caption of its whole image.

    Args:
        root: data root.
        split: there is only one.
        file: annotation file under the root; None: ``region_descriptions.json`` in the usual folders.
        images: folder of the pictures, searched by image id.
        take: which images, see :mod:`vlcli.data.holdout`.
        limit: read only so many examples.
    """

    paper: ClassVar[str] = "Krishna et al. 2017, Visual Genome; matched with whole images in LXMERT, section 3.2"
    usual: ClassVar[tuple[str, ...]] = usual_paths("region_descriptions.json")
    rows: ClassVar[str] = "regions"

    def example(self, row: Any, image: str, where: str) -> Example:
        """The phrase."""
        key = str(value(row, "region_id" if "region_id" in row else "id", (int, str), where))
        return Example(key, value(row, "phrase", str, where).strip(), [image], text_key=key)


class Questions(_VisualGenome):
    """Visual Genome's questions with one answer each.

    Targets: ``answers`` (the answer -> 1), ``answer`` and ``question_id``.

    Args:
        root: data root.
        split: there is only one.
        file: annotation file under the root; None: ``question_answers.json`` in the usual folders.
        images: folder of the pictures, searched by image id.
        take: which images, see :mod:`vlcli.data.holdout`.
        limit: read only so many examples.
    """

    paper: ClassVar[str] = "Krishna et al. 2017, Visual Genome; Zhu et al. 2016, Visual7W"
    usual: ClassVar[tuple[str, ...]] = usual_paths("question_answers.json")
    rows: ClassVar[str] = "qas"

    def example(self, row: Any, image: str, where: str) -> Example:
        """The question."""
        key = str(value(row, "qa_id" if "qa_id" in row else "id", (int, str), where))
        answer = value(row, "answer", str, where).strip()
        targets = {"question_id": key, "answers": {answer: 1.0}, "answer": answer}
        return Example(key, value(row, "question", str, where).strip(), [image], targets=targets)
