"""Pair corpora of the web: Conceptual Captions (3M, 12M) and SBU, with what of their pictures could be fetched."""

import os
import zlib
from collections.abc import Callable, Iterator
from hashlib import md5
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

from vlcli.data import Example, Miniature
from vlcli.data.files import prefix, read_json, text_lines, value
from vlcli.data.readers.split_file import SplitFileReader
from vlcli.errors import DataError
from vlcli.files import walk
from vlcli.images.boxes import image_id

_SAMPLE = 2000  # rows by which the naming of the picture files is recognised
Naming = Literal["auto", "column", "row", "url", "crc32", "md5"]


class Row(NamedTuple):
    """One pair of a list."""

    number: int
    text: str
    url: str
    file: str  # empty where the list names none


class _Pairs(SplitFileReader):
    """A list of sentences and addresses, and a folder of the pictures that could be fetched.

    Args:
        images: folder of the pictures.
        names: names of their files: ``column`` (the list's third column), ``row`` (row number, zeros in front or not),
            ``url`` (last part of the address), ``crc32`` or ``md5`` of the address; ``auto``: what fits most rows.

    Attributes:
        published: usual paths of the list under the root, by split.
    """

    published: ClassVar[dict[str, tuple[str, ...]]] = {}

    def __init__(self, root: Path, *, names: Naming = "auto", **options: Any) -> None:
        super().__init__(root, **options)
        self.names = names
        self._listed: dict[str, str] = {}
        self._twice: dict[str, str] = {}

    def files(self) -> list[Path]:
        return self.lists()

    def lists(self) -> list[Path]:
        if self.file is not None:
            return super().files()
        if unknown := [name for name in self.split_names if name not in self.published]:
            got, expected = ", ".join(unknown), ", ".join(self.published)
            raise DataError("There is no such split.", where=self.label, got=got, expected=expected)
        return [self._file_for(name, None, self.published[name]) for name in self.split_names]

    def miniature_pairs(self, file: Path, miniature: Miniature) -> Iterator[tuple[str, str]]:
        """Yield addresses and sentences, and draw their pictures, called by the checksums of the addresses."""
        for n in miniature.numbers(file.stem):
            url = f"http://example.org/{n}.jpg"
            miniature.picture(self.image_folder / f"{zlib.crc32(url.encode())}.jpg")
            yield url, miniature.sentence(n)

    def rows(self, file: Path) -> Iterator[Row]:
        """Read the pairs of a list; called by :meth:`stream`."""
        raise NotImplementedError(f"{type(self).__name__} does not say how {file} is read")

    def listed_folders(self) -> list[Path]:
        return [self.image_folder]

    def stream(self) -> Iterator[Example]:
        self._listed, self._twice = listing(self.image_folder)
        for file in self.lists():
            yield from self.read_file(file)
        self._listed, self._twice = {}, {}  # the files of the examples' pictures are noted

    def read_file(self, file: Path) -> Iterator[Example]:
        counted = self.left_out.copy()
        stem_of = self._naming(file)
        self.left_out = counted  # what a first look at the rows counted comes again
        for row in self.rows(file):
            stem = stem_of(row)
            if stem in self._twice:
                what, hint = f"Two files answer to the image id {stem!r}.", "point `images` at one of the folders"
                got = f"{self._listed[stem]} and {self._twice[stem]}"
                raise DataError(what, where=str(self.image_folder), got=got, hint=hint)
            if self._listed and stem not in self._listed:
                self.left_out["pairs whose picture is not there"] += 1
            elif not row.text:
                self.left_out["pairs without a caption"] += 1
            else:
                if stem in self._listed:
                    self.note(stem, prefix(str(self.image_folder)) + self._listed[stem])
                yield Example(f"{file.stem}:{row.number}", row.text, [stem], text_key=f"{file.stem}:{row.number}")

    def _naming(self, file: Path) -> Callable[[Row], str]:
        ways = namings(self._listed)
        if self.names != "auto":
            return ways[self.names]
        sample = list(islice(self.rows(file), _SAMPLE))
        hits = {key: sum(way(row) in self._listed for row in sample) for key, way in ways.items()}
        best = max(hits, key=lambda key: hits[key])
        if self._listed and sample and not hits[best]:
            what, where = "None of the pictures belongs to the list's first rows.", f"{self.image_folder} and {file}"
            got = f"files such as {next(iter(self._listed.values()))}"
            expected = "names made of the row's number, its address, or a checksum of it"
            hint = "say how files are named: names=row (url, crc32, md5, column)"
            raise DataError(what, where=where, got=got, expected=expected, hint=hint)
        return ways[best if hits[best] else "column" if sample and sample[0].file else "row"]

    def locate(self, name: str) -> Path:
        return self._paths.get(name) or self.image_folder / f"{name}.jpg"


class ConceptualCaptions(_Pairs):
    """Conceptual Captions 3M and 12M: a .tsv of captions and addresses, and a folder of fetched pictures.

    Columns may stand in either order. Pairs without a picture in the folder are left out and counted; without a folder,
    the feature store decides.

    Args:
        split: ``train`` and ``val`` (3M), ``12m``.
        file: the .tsv under the root; None: its published name.
    """

    paper: ClassVar[str] = "Sharma et al. 2018, Conceptual Captions; Changpinyo et al. 2021, Conceptual 12M"
    published: ClassVar[dict[str, tuple[str, ...]]] = {
        "train": ("Train_GCC-training.tsv", "conceptual_captions/Train_GCC-training.tsv", "Train-GCC-training.tsv"),
        "val": ("Validation_GCC-1.1.0-Validation.tsv", "conceptual_captions/Validation_GCC-1.1.0-Validation.tsv"),
        "12m": ("cc12m.tsv", "conceptual_captions/cc12m.tsv"),
    }
    splits: ClassVar[tuple[str, ...]] = tuple(published)
    held_out_splits: ClassVar[tuple[str, ...]] = ("val",)

    def miniature_of(self, split: str, file: Path, miniature: Miniature) -> Any:
        pairs = self.miniature_pairs(file, miniature)
        columns = ((url, text) if file.name.startswith("cc12m") else (text, url) for url, text in pairs)
        return "".join(f"{a}\t{b}\n" for a, b in columns)

    def rows(self, file: Path) -> Iterator[Row]:
        number = 0
        for count, line in enumerate(text_lines(file, errors="replace")):
            cells = [cell.strip() for cell in line.split("\t")]
            addresses = [i for i, cell in enumerate(cells[:2]) if cell.lower().startswith(("http://", "https://"))]
            if addresses and len(cells) > 1:
                at = addresses[0]
                yield Row(number, cells[1 - at], cells[at], cells[2] if len(cells) > 2 else "")
            elif line.strip() and (count or not {"url", "caption"} & {cell.lower() for cell in cells}):  # no header
                self.left_out["lines that are no pair"] += 1
            else:
                continue
            number += 1


class SBU(_Pairs):
    """SBU Captioned Photos: the list of addresses and captions, and a folder of fetched pictures.

    Reads the two published text files, or ``sbu-captions-all.json``. Pairs without a picture in the folder are left out
    and counted; without a folder, the feature store decides.

    Args:
        split: there is only one.
        file: the list of addresses, with that of captions beside it, or the .json; None: the published names.
    """

    paper: ClassVar[str] = "Ordonez et al. 2011, Im2Text: Describing Images Using 1 Million Captioned Photographs"
    published: ClassVar[dict[str, tuple[str, ...]]] = {
        "train": tuple(
            f"{folder}{name}"
            for folder in ("", "sbu/", "SBU/", "dataset/")
            for name in ("SBU_captioned_photo_dataset_urls.txt", "sbu-captions-all.json")
        )
    }
    splits: ClassVar[tuple[str, ...]] = ("train",)

    def files(self) -> list[Path]:
        captions = {file: [] if file.suffix == ".json" else [_captions(file)] for file in self.lists()}
        return [path for file, beside in captions.items() for path in (file, *beside)]

    def write_miniature(self, miniature: Miniature) -> None:
        for file in self.lists():
            urls, texts = zip(*self.miniature_pairs(file, miniature), strict=True)
            if file.suffix == ".json":
                miniature.write(file, {"image_urls": urls, "captions": texts})
                continue
            for path, lines in ((file, urls), (_captions(file), texts)):
                miniature.write(path, "".join(f"{line}\n" for line in lines))

    def rows(self, file: Path) -> Iterator[Row]:
        if file.suffix == ".json":
            content = read_json(file)
            pairs = zip_longest(*(map(str, value(content, key, list, str(file))) for key in ("image_urls", "captions")))
        else:
            pairs = zip_longest(*(text_lines(path, errors="replace") for path in (file, _captions(file))))
        for number, (url, text) in enumerate(pairs):
            if url is None or text is None:
                got = f"{number + (url is not None)} addresses, {number + (text is not None)} captions"
                what, hint = "Addresses and captions do not go together.", "is it complete?"
                raise DataError(what, where=str(file), got=got, hint=hint)
            yield Row(number, text.strip(), url.strip(), "")


def namings(listed: dict[str, str]) -> dict[str, Callable[[Row], str]]:
    """Return the functions from a row to its picture's id by the option ``names``, the likeliest first."""
    widths = sorted({len(stem) for stem in islice(listed, _SAMPLE) if stem.isdigit()}, reverse=True)

    def by_row(row: Row) -> str:
        padded = (f"{row.number:0{width}d}" for width in widths)
        return next((stem for stem in padded if stem in listed), str(row.number))

    return {
        "column": lambda row: image_id(row.file),
        "row": by_row,
        "url": lambda row: image_id(row.url.split("?", 1)[0]),
        "crc32": lambda row: str(zlib.crc32(row.url.encode()) & 0xFFFFFFFF),
        "md5": lambda row: md5(row.url.encode(), usedforsecurity=False).hexdigest(),
    }


def listing(folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Return the path from a folder of every file below it by name without extension (if any), and of second files."""
    paths: dict[str, str] = {}
    twice: dict[str, str] = {}
    for home, names in walk(folder):
        inner = os.path.relpath(home, folder)
        for name in names:
            stem, dot, suffix = name.rpartition(".")
            if not dot or suffix.lower() not in _NO_PICTURES:
                path = name if inner == "." else f"{inner}/{name}"
                if paths.setdefault(stem or name, path) != path:
                    twice[stem or name] = path
    return paths, twice


_NO_PICTURES = frozenset({"txt", "json", "tsv", "csv", "parquet", "tar", "gz", "md", "h5"})


def _captions(urls: Path) -> Path:
    return urls.with_name(urls.name.replace("urls", "captions"))
