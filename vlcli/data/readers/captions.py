"""Files of captions: lists by image, Flickr's token files, and the Karpathy split files."""

import json
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, Literal

from vlcli.data import Example, Folder, Recognised
from vlcli.data.concepts import captions_by_image
from vlcli.data.files import first_object, is_picture_file, numbered_lines, read_json, read_text, value
from vlcli.data.miniature import PICTURES, Miniature
from vlcli.data.reader import Reader
from vlcli.data.readers.coco import CocoCaptions
from vlcli.data.readers.split_file import SplitFileReader
from vlcli.errors import DataError
from vlcli.images.boxes import image_id
from vlcli.plain import as_list


class Captions(SplitFileReader):
    """Images with captions: a JSON list of ``{"image", "captions"}``, or an object of file name -> captions.

    Captions are a sentence or a list; an image may have several rows, as in the lists of ALBEF, BLIP and LAVIS
    (``{"image", "caption", "image_id"}``). Captions that are the path of their image (copies of Flickr30k) are skipped.

    Args:
        file: the file under the root; None: ``captions_{split}.json``.
        image: field of the file name.
        text: field of the caption or captions; None: ``captions`` or ``caption``.
        captions: ``all`` (one example a caption), ``first``, or ``sample`` (one an image, drawn anew each epoch).
    """

    paper: ClassVar[str] = "Hodosh et al. 2013, Flickr8k; Young et al. 2014, Flickr30k"
    usual: ClassVar[tuple[str, ...]] = ("captions_{split}.json",)

    def __init__(
        self,
        root: Path,
        *,
        image: str = "image",
        text: str | None = None,
        captions: Literal["all", "first", "sample"] = "all",
        **options: Any,
    ) -> None:
        super().__init__(root, **options)
        self.fields, self.captions = (image, text), captions

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:
        files = [name for name, content in folder.documents() if _is_captions(content, folder)]
        if not files:
            return []
        columns = {"image": "image", "text": _field(first_object(dict(folder.documents())[files[0]]))}
        data = Recognised("captions", {"name": "captions"}, files, columns).name_files()
        images = [image for name in files for image, *_ in _rows(folder.root / name)]
        return [folder.with_images(data, images, [folder.pictures.ending(image) for image in images])]

    def read(self) -> list[Example]:
        captions: dict[str, list[str]] = {}
        for file in self.files():
            for name, texts, where in _rows(file, *self.fields):
                if wrong := [text for text in texts if not isinstance(text, str)]:
                    raise DataError("A caption is no text.", where=where, got=repr(wrong[0]), expected="text")
                captions.setdefault(name, []).extend(texts)
        return [example for name, texts in captions.items() for example in self._of_image(name, texts)]

    def miniature_of(self, split: str, file: Path, miniature: Miniature) -> Any:
        image, text = self.fields
        names = miniature.pictures(str(file), self.image_folder, count=2 * PICTURES)
        said = {name: [miniature.sentence(n, i) for i in range(2)] for n, name in names.items()}
        return [{image: name, text or "captions": texts} for name, texts in said.items()]

    def _of_image(self, file: str, captions: list[str]) -> list[Example]:
        image, examples = self.picture(file), list[Example]()
        for text in map(str.strip, captions):
            if " " in text or "/" not in text or image_id(text) != image_id(file):  # else the path of its own image
                key = f"{image}#{len(examples)}"
                examples.append(Example(key, text, [image], text_key=key))
        return _chosen(examples, self.captions)


def _chosen(examples: list[Example], captions: str) -> list[Example]:
    if captions == "sample" and examples:
        first, *others = examples
        return [Example(first.images[0], first.text, first.images, choices=[str(one.text) for one in others])]
    return examples if captions == "all" else examples[:1]


def _is_captions(content: Any, folder: Folder) -> bool:
    if isinstance(content, list):
        rows = [row for row in content[:20] if isinstance(row, dict) and isinstance(row.get("image"), str)]
        several = any(isinstance(row.get(field), list) for row in rows for field in ("captions", "caption"))
        return several or any("caption" in row and "image_id" in row for row in rows)
    lists = list(content.values())[:20] if isinstance(content, dict) else []
    named = any(is_picture_file(name) or folder.is_picture(name) for name in list(content)[:20]) if lists else False
    texts = all(isinstance(one, list) and all(isinstance(text, str) for text in one) for one in lists)
    return named and texts and any(" " in text.strip() for one in lists for text in one)  # else classes


def _rows(file: Path, image: str = "image", text: str | None = None) -> Iterator[tuple[str, list[Any], str]]:
    content = read_json(file, (list, dict))
    if isinstance(content, dict):
        for name in content:
            yield name, as_list(value(content, name, (list, str), str(file))), f"{file}: {name}"
        return
    for number, row in enumerate(content):
        where = f"{file}[{number}]"
        yield value(row, image, str, where), as_list(value(row, text or _field(row), (list, str), where)), where


def _field(row: Any) -> str:
    return "caption" if isinstance(row, dict) and "captions" not in row and "caption" in row else "captions"


_LABEL = re.compile(r"(.+?)(?:#[a-z]+)?#(\d+)")  # of other languages `NAME.jpg#zhc#0`


class Flickr(SplitFileReader):
    """Images with captions in the token files of Flickr8k and Flickr30k: ``NAME.jpg#0<tab>caption`` a line.

    Args:
        take: which images; ``in:Flickr_8k.trainImages.txt`` chooses a part by its list.
        file: the token file under the root; None: ``results_20130124.token``.
    """

    paper: ClassVar[str] = "Hodosh et al. 2013, Flickr8k; Young et al. 2014, Flickr30k"
    usual: ClassVar[tuple[str, ...]] = ("results_20130124.token",)

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:
        starts = {name: folder.lines(name, 5) for name in folder.files("*.token", "*.tsv", "*.txt")}
        tokens = [name for name, lines in starts.items() if lines and all(map(_token, lines))]
        if not tokens:
            return []
        best, *others = sorted(tokens, key=lambda name: ("lemma" in name.lower(), name))
        data = Recognised("captions", {"name": "flickr"}, [best], {"image": "name", "text": "caption"}).name_files()
        data.unused += [f"{name}: the captions are read from {best}" for name in others]
        data.files += others
        return [folder.with_lists(folder.with_images(data, [name for _, name, _ in _token_lines(folder.root / best)]))]

    def read_file(self, file: Path) -> Iterator[Example]:
        for key, name, text in _token_lines(file):
            yield Example(key, text, [self.picture(name)], text_key=key)


def _token(line: str) -> tuple[str, str, str] | None:
    # name, number and caption, behind a tabulator or, in other languages' files, a blank
    label, _, text = line.partition("\t" if "\t" in line else " ")
    hit = _LABEL.fullmatch(label)
    return (hit[1], hit[2], text.strip()) if hit and text.strip() else None


def _token_lines(file: Path) -> Iterator[tuple[str, str, str]]:
    for where, line in numbered_lines(file):
        if (token := _token(line)) is None:
            expected = "NAME.jpg#NUMBER, a tabulator, the caption"
            raise DataError("The line holds no caption.", where=where, got=line[:80], expected=expected)
        name, number, text = token
        yield f"{image_id(name)}#{number}", name, text


class Karpathy(SplitFileReader):
    """Images with captions from a Karpathy split file, which holds all splits.

    Args:
        split: train, restval, val or test, or several; the usual training set of COCO is ``[train, restval]``.
        file: the split file under the root; None: the only ``dataset_*.json`` in ``karpathy/`` or the root.
        images: folder of the pictures, with subfolders ``filepath`` (COCO's val2014/) or without.
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

    def miniature_of(self, split: str, file: Path, miniature: Miniature) -> Any:
        name, rows = file.stem.removeprefix("dataset_"), []
        for named in self.splits if name == "coco" else ("train", "val", "test"):
            year = "" if name != "coco" else "train2014" if named == "train" else "val2014"
            part = year if year == "train2014" else f"{year or name}-{named}"
            form = f"COCO_{year}_{{:012d}}.jpg" if year else "{}.jpg"
            for n, picture in miniature.pictures(part, self.image_folder / year, form).items():
                said = [{"raw": miniature.sentence(n, i), "sentid": 10 * n + i} for i in range(2)]
                rows.append({"filename": picture, "filepath": year, "split": named, "sentences": said})
        return {"images": rows, "dataset": name}

    def read_file(self, file: Path) -> Iterator[Example]:
        rows = value(read_json(file), "images", list, str(file))
        known = {value(row, "split", str, f"{file}: images[{number}]") for number, row in enumerate(rows)}
        if unknown := [split for split in self.split_names if split not in known]:
            got, expected = ", ".join(unknown), ", ".join(sorted(known))
            raise DataError("There is no such split.", where=str(file), got=got, expected=expected)
        spare = sum(row["split"] == "restval" for row in rows)
        if spare and "train" in self.split_names and "restval" not in self.split_names:
            self.left_out["pictures of restval, which COCO's usual training set has: split=[train,restval]"] = spare
        for split, (number, row) in product(self.split_names, enumerate(rows)):
            if row["split"] == split:
                yield from self._of_image(row, f"{file}: images[{number}]")

    def _of_image(self, row: dict[str, Any], where: str) -> list[Example]:
        name, folder = value(row, "filename", str, where), str(row.get("filepath", ""))
        image = self.picture(f"{folder}/{name}" if folder and (self.image_folder / folder).is_dir() else name)
        examples: list[Example] = []
        for sentence in value(row, "sentences", list, where):
            key = str(sentence.get("sentid", f"{image}#{len(examples)}"))
            examples.append(Example(key, value(sentence, "raw", str, where).strip(), [image], text_key=key))
        return _chosen(examples, self.captions)


def _recognised(folder: Folder, name: str, content: Any) -> Recognised:
    rows = [row for row in content if isinstance(row, dict)]
    files = [f"{row.get('filepath', '')}/{row.get('filename')}".lstrip("/") for row in rows]
    columns = {"image": "filename", "text": "sentences[].raw", "split": "split"}
    splits = sorted({str(row.get("split")) for row in rows})
    data = Recognised("captions", {"name": "karpathy"}, [name], columns).name_files(splits=splits)
    data.reasons["parts"] = f"the field split of {name} names the parts"
    return folder.with_images(data, files, [str(row.get("filename")) for row in rows])


def read_captions(path: Path, split: str | list[str] = "train") -> list[list[str]]:
    """Read the captions of every picture of a file: COCO's annotations, Karpathy's split files, lists or objects as
    :class:`Captions` reads them, or plain text with a picture's caption a line.
    """
    path = path.expanduser().absolute()
    if _is_json(path):
        captions = list(captions_by_image([_reader(path, split)]).values())
    else:
        captions = [[line.strip()] for line in read_text(path).splitlines() if line.strip()]
    if not captions:
        raise DataError("The file holds no captions.", where=str(path))
    return captions


def _is_json(path: Path) -> bool:
    text = read_text(path).lstrip()
    if not text.startswith(("[", "{")):
        return False
    try:  # a sentence may begin with a bracket
        json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return path.suffix == ".json"
    return True


def _reader(path: Path, split: str | list[str]) -> Reader:
    content = read_json(path, (list, dict))
    if isinstance(content, dict) and isinstance(content.get("annotations"), list):
        return CocoCaptions(path.parent, file=str(path))
    if isinstance(content, dict) and isinstance(content.get("images"), list):
        return Karpathy(path.parent, file=str(path), split=split)
    return Captions(path.parent, file=str(path))
