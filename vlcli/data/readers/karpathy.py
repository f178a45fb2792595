"""The Karpathy split files: dataset_coco.json, dataset_flickr30k.json, dataset_flickr8k.json."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal

from vlcli.data.files import first_object, read_json, value
from vlcli.data.readers.split_file import SplitFileReader
from vlcli.data.recognition.folder import Folder
from vlcli.data.recognition.recognised import Recognised
from vlcli.data.sample import Example
from vlcli.errors import DataError


class Karpathy(SplitFileReader):
    """Images with captions from a Karpathy split file, which holds all splits.

    Args:
        split: train, restval, val or test, or several: ``[train, restval]`` is the usual training set of COCO; with
            ``train`` alone, the pictures of restval are counted as left out.
        file: the split file under the root; None: the only ``dataset_*.json`` in ``karpathy/`` or the root.
        images: folder of the pictures; ``filepath`` (COCO's val2014/) is looked for in it, then plain names.
        captions: ``all`` (one example a caption), ``first``, or ``sample`` (one an image, drawn anew each epoch).
    """

    paper: ClassVar[str] = "Karpathy and Fei-Fei 2015, Deep Visual-Semantic Alignments"
    splits: ClassVar[tuple[str, ...]] = ("train", "restval", "val", "test")

    def __init__(self, root: Path, *, captions: Literal["all", "first", "sample"] = "all", **options: Any) -> None:
        super().__init__(root, **options)
        self.captions = captions

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:
        contents = [(name, content.get("images")) for name, content in folder.documents() if isinstance(content, dict)]
        fields = {"sentences", "filename", "split"}
        return [_recognised(folder, name, rows) for name, rows in contents if fields <= first_object(rows).keys()]

    def files(self) -> list[Path]:
        if self.file is not None:
            return self.first_file(self.file, ())[:1]
        paths = [path for home in (self.root / "karpathy", self.root) for path in sorted(home.glob("dataset_*.json"))]
        if len(paths) > 1:
            got, hint = ", ".join(path.name for path in paths), f"name one: file={paths[0].relative_to(self.root)}"
            raise DataError("There are several split files.", where=str(self.root), got=got, hint=hint)
        return paths or [self.root / "karpathy/dataset_coco.json"]

    def read_file(self, file: Path) -> Iterator[Example]:
        rows = value(read_json(file), "images", list, str(file))
        known = {value(row, "split", str, f"{file}: images[{number}]") for number, row in enumerate(rows)}
        if unknown := [split for split in self.split_names if split not in known]:
            got, expected = ", ".join(unknown), ", ".join(sorted(known))
            raise DataError("There is no such split.", where=str(file), got=got, expected=expected)
        spare = sum(row["split"] == "restval" for row in rows)
        if spare and "train" in self.split_names and "restval" not in self.split_names:
            self.left_out["pictures of restval, which COCO's usual training set has: split=[train,restval]"] = spare
        for split in self.split_names:
            for number, row in enumerate(rows):
                if row["split"] == split:
                    yield from self._of_image(row, f"{file}: images[{number}]")

    def _of_image(self, row: dict[str, Any], where: str) -> list[Example]:
        name, folder = value(row, "filename", str, where), str(row.get("filepath", ""))
        image = self.picture(f"{folder}/{name}" if folder and (self.image_folder / folder).is_dir() else name)
        examples: list[Example] = []
        for sentence in value(row, "sentences", list, where):
            key = str(sentence.get("sentid", f"{image}#{len(examples)}"))
            examples.append(Example(key, value(sentence, "raw", str, where).strip(), [image], text_key=key))
        if self.captions == "sample" and examples:
            return [Example(image, examples[0].text, [image], choices=[str(one.text) for one in examples[1:]])]
        return examples if self.captions == "all" else examples[:1]


def _recognised(folder: Folder, name: str, content: Any) -> Recognised:
    rows = [row for row in content if isinstance(row, dict)]
    files = [f"{row.get('filepath', '')}/{row.get('filename')}".lstrip("/") for row in rows]
    columns = {"image": "filename", "text": "sentences[].raw", "split": "split"}
    data = Recognised("captions", {"name": "karpathy"}, [name], columns)
    data.name_files(splits=sorted({str(row.get("split")) for row in rows}))
    data.reasons["parts"] = f"the field split of {name} names the parts"
    return folder.with_images(data, files, [str(row.get("filename")) for row in rows])
