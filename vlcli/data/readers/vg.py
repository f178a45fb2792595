"""Visual Genome's files: region descriptions, questions and answers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from vlcli.data import Example, Folder, Miniature, Recognised
from vlcli.data.files import first_object, value
from vlcli.data.leakage import usual_paths
from vlcli.data.readers.split_file import SplitFileReader, list_rows


class _VisualGenome(SplitFileReader):
    """A list of images, each with a list of rows; images are called by their number.

    Args:
        split: there is only one.
        images: folder of the pictures, searched by image id.
    """

    rows: ClassVar[str] = ""
    kind: ClassVar[tuple[str, str, str]] = ("", "", "")  # of the data, the reader's name, the field of the sentence

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:
        kind, name, text = cls.kind
        data = []
        for file, images in folder.documents():
            if cls.rows and {cls.rows} <= first_object(images).keys() and any(image.get(cls.rows) for image in images):
                columns = {"image": "id", "text": text} | ({"answers": "answer"} if kind == "vqa" else {})
                record = Recognised(kind, {"name": name, "file": file}, [file], columns)
                data.append(folder.with_images(record, [image.get("id", image.get("image_id")) for image in images]))
        return data

    def __init__(self, root: Path, *, split: str | list[str] = "all", **options: Any) -> None:
        super().__init__(root, split=split, **options)

    def write_miniature(self, miniature: Miniature) -> None:
        for file in self.files():
            images = []
            for n in miniature.pictures("vg", self.image_folder):
                said = {"question": miniature.question(n), "answer": miniature.answer(n)}
                said["phrase"] = miniature.sentence(n)
                rows = [{"region_id": 10 * n + i, "qa_id": 10 * n + i, **said} for i in range(2)]
                images.append({"id": n, self.rows: rows})
            miniature.write(file, images)

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
    kind: ClassVar[tuple[str, str, str]] = ("captions", "vg-regions", "phrase")

    def example(self, row: Any, image: str, where: str) -> Example:
        key = str(value(row, "region_id" if "region_id" in row else "id", (int, str), where))
        return Example(key, value(row, "phrase", str, where).strip(), [image], text_key=key)


class Questions(_VisualGenome):
    """Visual Genome's questions with one answer each.

    Targets: ``answers`` (the answer -> 1), ``answer`` and ``question_id``.

    Args:
        file: annotation file under the root; None: ``question_answers.json`` in the usual folders.
    """

    paper: ClassVar[str] = "Krishna et al. 2017, Visual Genome; Zhu et al. 2016, Visual7W"
    usual: ClassVar[tuple[str, ...]] = usual_paths("question_answers.json")
    rows: ClassVar[str] = "qas"
    kind: ClassVar[tuple[str, str, str]] = ("vqa", "vg-qa", "question")

    def example(self, row: Any, image: str, where: str) -> Example:
        key = str(value(row, "qa_id" if "qa_id" in row else "id", (int, str), where))
        answer = value(row, "answer", str, where).strip()
        targets = {"question_id": key, "answers": {answer: 1.0}, "answer": answer}
        return Example(key, value(row, "question", str, where).strip(), [image], targets=targets)
