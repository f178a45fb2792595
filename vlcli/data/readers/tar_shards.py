"""Pairs in the layout of webdataset: what belongs together has one name and different extensions."""

import io
import re
import tarfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby, islice
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Literal

from vlcli.data import Example, Folder, Miniature, Recognised
from vlcli.data.files import IMAGE_SUFFIXES, inside, parsed, read_text
from vlcli.data.readers.split_file import StreamReader
from vlcli.errors import DataError
from vlcli.files import walk
from vlcli.images.remote import is_remote, local_copy, matching
from vlcli.images.shards import BadShardError, EndMissingError, Member, members
from vlcli.plain import as_list

_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}|\{([^{}]*,[^{}]*)\}")
NO_PICTURE, NO_CAPTION = "without a picture", "without a caption"
APART = "whose files do not follow one another (pack the shard sorted by name: tar --sort=name)"
DOTTED = "with a further dot in the name (here as in webdataset, a name ends at its first dot)"


class WebDataset(StreamReader):
    """Pictures with captions in tar shards (or unpacked folders) of webdataset's layout, as img2dataset writes them.

    Pictures are read in place, never unpacked. ``000000012.jpg`` goes with ``000000012.txt``, or with the caption in
    ``000000012.json``. Names without picture or caption (failed downloads), names with further dots, further pictures
    of a name, and what follows a damaged place of a shard are left out and counted.

    Args:
        split: fills ``{split}`` in ``shards``.
        shards: tar files or folders under the root: ``cc3m/{00000..00331}.tar``, ``cc3m/*.tar``, or a list.
        field: key of the caption or captions in a .json.
        unique: picture ids: file names (``name``), or shard paths and file names with a dash between (``shard``).
    """

    paper: ClassVar[str] = "Sharma et al. 2018, Conceptual Captions; Changpinyo et al. 2021, Conceptual 12M"
    beside: ClassVar[tuple[str, ...]] = (".txt", ".json")
    lacking: ClassVar[str] = NO_CAPTION

    def __init__(
        self,
        root: Path,
        *,
        split: str | list[str] = "train",
        shards: str | list[str] = "{split}/*.tar",
        field: str = "caption",
        unique: Literal["name", "shard"] = "name",
        take: str | None = None,
        limit: int | None = None,
    ) -> None:
        super().__init__(root, split=split, images=".", take=take, limit=limit)
        self.patterns = [text.replace("{split}", name) for name in self.split_names for text in as_list(shards)]
        self.field, self.unique = field, unique

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:
        columns = {"image": "the picture", "text": "the .txt or .json beside it"}
        record = Recognised("captions", {"name": "webdataset"}, [], columns)
        recognised = _in_shards(folder, record, cls.beside, ClassShards.beside)
        if beside := _texts_beside(folder):
            folders = sorted({str(PurePosixPath(name).parent) for name in beside})
            entry = {"name": "webdataset", "shards": folders[0] if len(folders) == 1 else folders}
            title = f"a text beside each picture in {', '.join(folders)}"
            recognised.append(Recognised("captions", entry, beside, columns, title=title))
        return recognised

    def shards(self) -> list[Path]:
        """Return every tar file and folder that the patterns name, in their order."""
        return list(dict.fromkeys(path for text in self.patterns for path in expand(self.root, text)))

    def write_miniature(self, miniature: Miniature) -> None:
        for number, pattern in enumerate(self.patterns):
            packed = io.BytesIO()
            with tarfile.open(fileobj=packed, mode="w") as shard:
                for n in miniature.numbers(f"shard-{pattern}"):
                    image = Path("shards", f"{n:09d}.jpg")
                    miniature.picture(image)
                    shard.add(miniature.folder / image, image.name)
                    text = miniature.sentence(n).encode()
                    member = tarfile.TarInfo(f"{n:09d}.txt")
                    member.size = len(text)
                    shard.addfile(member, io.BytesIO(text))
            miniature.write(self.root / braces(pattern)[0].replace("*", f"{number:05d}"), packed.getvalue())

    def files(self) -> list[Path]:
        below = (folder / name for shard in self.listed_folders() for folder, names in walk(shard) for name in names)
        texts = [file for file in below if file.suffix in self.beside]
        return [path for path in self.shards() if not path.is_dir()] + texts

    def listed_folders(self) -> list[Path]:
        return [shard for shard in self.shards() if shard.is_dir()]

    def stream(self) -> Iterator[Example]:
        for shard in self.shards():
            yield from self._read_shard(shard)

    @property
    def reads_folders(self) -> bool:  # type: ignore[override]  # `files` names no folder
        return any(shard.is_dir() for shard in self.shards())

    def _two_files(self, name: str, first: Path, second: Path) -> DataError:
        what, hint = f"Two pictures have the id {name!r}.", "let ids name the shard too: unique=shard"
        return DataError(what, where=self.label, got=f"{first} and {second}", hint=hint)

    def _read_shard(self, shard: Path) -> Iterator[Example]:
        seen, pair = set[str](), (IMAGE_SUFFIXES, self.beside)
        try:
            # by name and folders, which what belongs together shares
            for name, group in groupby(self._members(shard), lambda member: _ENDINGS.sub("", member.name)):
                parts = list(group)
                if name in seen and not all(any(_extension(part) in some for part in parts) for some in pair):
                    self.left_out[APART] += 1  # a pair of that name is refused as a double id
                else:
                    seen.add(name)
                    yield from self._group(shard, name, parts)
        except BadShardError as error:
            if not seen:
                hint = "fetch it anew, or leave it out of `shards`"
                raise DataError("A shard cannot be read.", where=str(shard), got=str(error), hint=hint) from None
            self.left_out[f"behind a damaged place of {shard.name} ({error})"] += 1

    def _members(self, shard: Path) -> Iterator[Member]:
        if shard.is_dir():
            for folder, names in walk(shard):
                for name in sorted(names, key=lambda one: (one.partition(".")[0], one)):  # a.jpg, a.txt, a-b.jpg
                    path = folder / name
                    yield Member(path.relative_to(shard).as_posix(), 0, path.stat().st_size)
            return
        try:
            yield from members(shard)
        except EndMissingError as error:
            self.left_out[f"what should follow in {shard.name}, if anything ({error})"] += 1

    def _group(self, shard: Path, name: str, parts: list[Member]) -> Iterator[Example]:
        pictures = [part for part in parts if _extension(part) in IMAGE_SUFFIXES and part.size]
        texts = self._captions(shard, parts)
        if not pictures or not texts:
            known = IMAGE_SUFFIXES | {".txt", ".json"}
            further = [part.name for part in parts if _extension(part).count(".") > 1]
            if dotted := {PurePosixPath(name).stem for name in further if PurePosixPath(name).suffix.lower() in known}:
                self.left_out[DOTTED] += len(dotted)
            if pictures or any(_extension(part) in self.beside for part in parts):
                self.left_out[self.lacking if pictures else NO_PICTURE] += 1
            return
        if len(pictures) > 1:
            self.left_out["further pictures of one name"] += len(pictures) - 1
        path = inside(shard, str(PurePosixPath(pictures[0].name)))
        if Path(pictures[0].name).is_absolute():
            raise DataError("A member's path leaves its shard.", where=str(shard), got=pictures[0].name)
        stem = name.rsplit("/", 1)[-1]
        if self.unique == "shard":
            below = shard.relative_to(self.root) if shard.is_relative_to(self.root) else Path(shard.name)
            stem = f"{below.with_suffix('').as_posix()}-{stem}"
        yield from self._examples_of(self.note(stem, str(path)), texts)

    def _examples_of(self, image: str, texts: list[str]) -> Iterator[Example]:
        for number, text in enumerate(texts):
            key = image if number == 0 else f"{image}#{number}"
            yield Example(key, text, [image], text_key=key)

    def _captions(self, shard: Path, parts: list[Member]) -> list[str]:
        texts: Any = _text(shard, parts, self.beside[0])
        if texts is None and ".json" in self.beside:
            content = parsed(_text(shard, parts, ".json") or "")
            texts = content.get(self.field) if isinstance(content, dict) else None
        return [text.strip() for text in as_list(texts) if isinstance(text, str) and text.strip()]


class ClassShards(WebDataset):
    """Pictures with classes in tar shards (or unpacked folders) of webdataset's layout: ``12.jpg`` beside ``12.cls``.

    If every .cls holds a number, these are the labels, and ``names`` has their names; else the sorted words.

    Args:
        names: file with the name of a class a line, under the root; it may be absent.
    """

    paper: ClassVar[str] = ""
    beside: ClassVar[tuple[str, ...]] = (".cls",)
    lacking: ClassVar[str] = "without a class"

    def __init__(
        self, root: Path, *, names: str = "classnames.txt", unique: Literal["name", "shard"] = "shard", **options: Any
    ) -> None:
        super().__init__(root, unique=unique, **options)
        self.names = inside(self.root, names)
        self._words: list[str] = []

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:
        columns = {"image": "the picture", "label": "the .cls beside it"}
        record = Recognised("labels", {"name": "class-shards"}, [], columns)
        records = _in_shards(folder, record, cls.beside)
        if records and (names := folder.files("classnames.txt")):
            record.entry["names"] = names[0]
            record.files.append(names[0])
        return records

    def files(self) -> list[Path]:
        return super().files() + ([self.names] if self.names.is_file() else [])

    def read(self) -> list[Example]:
        examples = list(super().stream())
        classes = {example.targets["label"] for example in examples}
        if all(map(str.isdecimal, classes)):
            self._words = read_text(self.names).splitlines() if self.names.is_file() else []
            number_of = {name: int(name) for name in classes}
        else:
            self._words = sorted(classes)
            number_of = {name: number for number, name in enumerate(self._words)}
        if self._words and (most := max(number_of.values(), default=-1)) >= len(self._words):
            got, hint = f"class {most} of {len(self._words)} names", "give every class, from 0, a line"
            raise DataError("A class has no name.", where=str(self.names), got=got, hint=hint)
        return [replace(one, targets={"label": number_of[one.targets["label"]]}) for one in examples]

    def label_names(self) -> list[str]:
        self.examples()
        return self._words

    def _examples_of(self, image: str, texts: list[str]) -> Iterator[Example]:
        yield Example(image, images=[image], targets={"label": texts[0]})


def _in_shards(
    folder: Folder, record: Recognised, beside: Sequence[str], without: Sequence[str] = ()
) -> list[Recognised]:
    """Return the record with its shards, a pattern for each part (``train-*.tar``); nothing without shards."""
    shards = []
    for name in folder.files("*.tar"):
        with suppress(BadShardError):
            has = {_extension(part) for part in islice(members(folder.root / name), 4)}
            shards += [name] if has & IMAGE_SUFFIXES and has & {*beside} and not has & {*without} else []
    record.files = list(dict.fromkeys(re.sub(r"\d+(?=\.tar$)", "*", name) for name in shards))
    if shards:
        record.name_files("shards").files = shards
    return [record] if shards else []


def _texts_beside(folder: Folder) -> list[str]:
    pictures = Counter(str(PurePosixPath(path).with_suffix("")) for path in folder.pictures.paths)
    texts = [name for name in folder.files("*.txt") if str(PurePosixPath(name).with_suffix("")) in pictures]
    sample = [folder.text(name).split() for name in texts[:20]]
    sentences = sum(len(words) > 1 and sum(word[:1].isalpha() for word in words) > len(words) / 2 for words in sample)
    folders = {str(PurePosixPath(name).parent) for name in texts}
    beside = sum(str(PurePosixPath(path).parent) in folders for path in folder.pictures.paths)
    return texts if len(texts) > beside / 2 and sentences > len(sample) / 2 else []


def expand(root: Path, pattern: str) -> list[Path]:
    """Return the paths that a pattern with braces and ``*`` names; remote files are copied."""
    paths: list[Path] = []
    for text in braces(pattern):
        if is_remote(text):
            paths += [local_copy(address) for address in (matching(text) if "*" in text else [text])]
            continue
        path = inside(root, text)
        star = next((number for number, part in enumerate(path.parts) if "*" in part or "?" in part), None)
        if star is not None:
            paths += sorted(Path(*path.parts[:star]).glob("/".join(path.parts[star:])))
        if star is None or not paths:
            paths.append(path)  # so that a message names it
    return paths


def braces(pattern: str) -> list[str]:
    """Return ``a{08..10}.tar`` as a08.tar, a09.tar and a10.tar; ``{x,y}`` as two names."""
    match = _RANGE.search(pattern)
    if match is None:
        return [pattern]
    first, last, names = match.groups()
    if names is None:
        width = len(first) if first.startswith("0") or len(first) == len(last) else 0
        options = [f"{number:0{width}d}" for number in range(int(first), int(last) + 1)]
    else:
        options = names.split(",")
    return [pattern[: match.start()] + one + rest for one in options for rest in braces(pattern[match.end() :])]


# `.jpg`, `.seg.png`; a part that begins with a digit belongs to the name: `a 2.0.jpg`.
_ENDINGS = re.compile(r"(\.[A-Za-z]\w*)+\Z")


def _extension(member: Member) -> str:
    return match[0].lower() if (match := _ENDINGS.search(member.name)) else ""


def _text(shard: Path, members: list[Member], extension: str) -> str | None:
    member = next((one for one in members if _extension(one) == extension), None)
    if member is None:
        return None
    with (shard / member.name if shard.is_dir() else shard).open("rb") as file:
        file.seek(member.start)
        return file.read(member.size).decode("utf-8", errors="replace")
