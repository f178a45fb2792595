"""The Karpathy split files: dataset_coco.json, dataset_flickr30k.json, dataset_flickr8k.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal

from vlcli.data.files import first_object, read_json, value
from vlcli.data.reader import Reader
from vlcli.data.recognition.folder import Folder
from vlcli.data.recognition.recognised import Recognised
from vlcli.data.sample import Example
from vlcli.errors import DataError


class Karpathy(Reader):
    """Images with captions from a Karpathy split file, which holds all splits.

    Args:
        root: data root.
        split: train, restval, val or test, or several: ``[train, restval]`` is the usual training set of COCO; with
            ``train`` alone, the pictures of restval are counted as left out.
        file: the split file under the root; None: the only ``dataset_*.json`` in ``karpathy/`` or the root.
        images: folder of the pictures; ``filepath`` (COCO's val2014/) is looked for in it, then plain names.
        captions: ``all`` (one example a caption), ``first``, or ``sample`` (one an image, drawn anew each epoch).
        take: which images, see :mod:`vlcli.data.holdout`.
        limit: read only so many examples.
    """

    paper: ClassVar[str] = "Karpathy and Fei-Fei 2015, Deep Visual-Semantic Alignments"
    splits: ClassVar[tuple[str, ...]] = ("train", "restval", "val", "test")

    def __init__(
        self,
        root: Path,
        *,
        split: str | list[str] = "train",
        file: str | None = None,
        images: str = "images",
        captions: Literal["all", "first", "sample"] = "all",
        take: str | None = None,
        limit: int | None = None,
    ) -> None:
        super().__init__(root, split=split, images=images, take=take, limit=limit)
        self.file, self.captions = file, captions

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:
        """Files with ``images`` that have ``sentences`` and ``filename``; the parts are their ``split``s."""
        found = []
        for name, content in folder.documents():
            rows: Any = content.get("images") if isinstance(content, dict) else None
            if {"sentences", "filename", "split"} <= first_object(rows).keys():
                found.append(_recognised(folder, name, [row for row in rows if isinstance(row, dict)]))
        return found

    def files(self) -> list[Path]:
        """The split file."""
        if self.file is not None:
            return self.first_file(self.file, ())[:1]
        found = [
            path for folder in (self.root / "karpathy", self.root) for path in sorted(folder.glob("dataset_*.json"))
        ]
        if len(found) > 1:
            raise DataError(
                "There are several split files.",
                where=str(self.root),
                got=", ".join(path.name for path in found),
                hint=f"name one: file={found[0].relative_to(self.root)}",
            )
        return found or [self.root / "karpathy/dataset_coco.json"]

    def read(self) -> list[Example]:
        """The examples of the chosen splits; keys are sentence ids (image ids for ``sample``)."""
        file = self.files()[0]
        rows = value(read_json(file), "images", list, str(file))
        known = {value(row, "split", str, f"{file}: images[{place}]") for place, row in enumerate(rows)}
        if unknown := [split for split in self.split_names if split not in known]:
            raise DataError(
                "There is no such split.", where=str(file), got=", ".join(unknown), expected=", ".join(sorted(known))
            )
        spare = sum(row["split"] == "restval" for row in rows)
        if spare and "train" in self.split_names and "restval" not in self.split_names:
            self.left_out["pictures of restval, which COCO's usual training set has: split=[train,restval]"] = spare
        chosen = [(place, row) for split in self.split_names for place, row in enumerate(rows) if row["split"] == split]
        return [example for place, row in chosen for example in self._of_image(row, f"{file}: images[{place}]")]

    def _of_image(self, row: dict[str, Any], where: str) -> list[Example]:
        image = self._picture(row, where)
        found: list[Example] = []
        for sentence in value(row, "sentences", list, where):
            key = str(sentence.get("sentid", f"{image}#{len(found)}"))
            found.append(Example(key, value(sentence, "raw", str, where).strip(), [image], text_key=key))
        if self.captions == "all" or not found:
            return found
        if self.captions == "sample":
            return [Example(image, found[0].text, [image], choices=[str(one.text) for one in found[1:]])]
        return found[:1]

    def _picture(self, row: dict[str, Any], where: str) -> str:
        name, folder = value(row, "filename", str, where), str(row.get("filepath", ""))
        nested = folder and (self.image_folder / folder).is_dir()
        return self.picture(f"{folder}/{name}" if nested else name)


def _recognised(folder: Folder, name: str, rows: list[dict[str, Any]]) -> Recognised:
    files = [f"{row.get('filepath', '')}/{row.get('filename')}".lstrip("/") for row in rows]
    columns = {"image": "filename", "text": "sentences[].raw", "split": "split"}
    found = Recognised("captions", {"name": "karpathy"}, [name], columns)
    found.name_files(splits=sorted({str(row.get("split")) for row in rows}))
    found.reasons["parts"] = f"the field split of {name} names the parts"
    return folder.with_images(found, files, [str(row.get("filename")) for row in rows])
