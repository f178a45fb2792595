"""Pairs in the layout of webdataset: what belongs together has one name and different extensions."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from itertools import groupby, islice, product
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Literal

from vlcli.data.files import IMAGE_SUFFIXES, inside, walk
from vlcli.data.reader import Reader
from vlcli.data.recognition.folder import Folder
from vlcli.data.recognition.recognised import Recognised
from vlcli.data.remote import is_remote, local_copy, matching
from vlcli.data.sample import Example
from vlcli.errors import DataError
from vlcli.images.shards import BadShardError, EndMissingError, Member, members

_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}|\{([^{}]*,[^{}]*)\}")
NO_PICTURE, NO_CAPTION = "without a picture", "without a caption"
DOTTED = "with a further dot in the name (here as in webdataset, a name ends at its first dot)"


class WebDataset(Reader):
    """Pictures with captions in tar shards (or unpacked folders) of webdataset's layout, as img2dataset writes them.

    Shards are read where they are; pictures are never unpacked, and only their places are kept. ``000000012.jpg`` goes
    with ``000000012.txt``, or with the caption in ``000000012.json``. Names without picture or caption (failed
    downloads), names with further dots, and further pictures of one name are left out and counted; so is what comes
    behind a damaged place of a shard.

    Args:
        root: data root.
        split: fills ``{split}`` in ``shards``.
        shards: tar files or folders under the root: ``cc3m/{00000..00331}.tar``, ``cc3m/*.tar``, or a list of such.
        field: the key of a .json that holds the caption, or a list of captions.
        unique: picture ids are their names (``name``), or the shard's name, a dash, and theirs (``shard``).
        take: which images, see :mod:`vlcli.data.holdout`.
        limit: read only so many examples.
    """

    paper: ClassVar[str] = "Sharma et al. 2018, Conceptual Captions; Changpinyo et al. 2021, Conceptual 12M"

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
        patterns = [shards] if isinstance(shards, str) else list(shards)
        self.patterns = [text.replace("{split}", name) for name in self.split_names for text in patterns]
        self.field, self.unique = field, unique

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:
        """Tar files with pictures and captions, and folders in which a text file lies beside most pictures."""
        columns = {"image": "the picture", "text": "the .txt or .json beside it"}
        found = []
        if shards := [name for name in folder.files("*.tar") if _has_pairs(folder.root / name)]:
            found.append(Recognised("captions", {"name": "webdataset"}, shards, columns).name_files("shards"))
        if beside := _texts_beside(folder):
            places = sorted({str(PurePosixPath(name).parent) for name in beside})
            entry = {"name": "webdataset", "shards": places[0] if len(places) == 1 else places}
            found.append(
                Recognised(
                    "captions", entry, beside, columns, title=f"a text beside each picture in {', '.join(places)}"
                )
            )
        return found

    def shards(self) -> list[Path]:
        """Every tar file and folder that the patterns name, in their order.

        Raises:
            DataError: a pattern leaves the root.
        """
        return list(dict.fromkeys(path for text in self.patterns for path in expand(self.root, text)))

    def files(self) -> list[Path]:
        """The tar files."""
        return [path for path in self.shards() if not path.is_dir()]

    def read(self) -> list[Example]:
        """One example a caption, in the order of the shards."""
        return list(self.stream())

    def stream(self) -> Iterator[Example]:
        """The examples, a shard's after the other's."""
        for shard in self.shards():
            yield from self._read_shard(shard)

    @property
    def reads_folders(self) -> bool:  # type: ignore[override]
        """Whether a shard is a folder, which :meth:`files` does not name."""
        return any(shard.is_dir() for shard in self.shards())

    def _two_files(self, name: str, first: Path, second: Path) -> DataError:
        """With what keeps them apart."""
        return DataError(
            f"Two pictures have the id {name!r}.",
            where=self.label,
            got=f"{first} and {second}",
            hint="let ids name the shard too: unique=shard",
        )

    def _read_shard(self, shard: Path) -> Iterator[Example]:
        seen = 0
        try:
            for name, parts in groupby(self._members(shard), _key):
                seen += 1
                yield from self._group(shard, name, list(parts))
        except BadShardError as error:
            if not seen:
                hint = "fetch it anew, or leave it out of `shards`"
                raise DataError("A shard cannot be read.", where=str(shard), got=str(error), hint=hint) from None
            self.left_out[f"behind a damaged place of {shard.name} ({error})"] += 1

    def _members(self, shard: Path) -> Iterator[Member]:
        """The files of a tar file in its order, or of a folder by name; an end that is missing is noted."""
        if shard.is_dir():
            for folder, names in walk(shard):
                yield from (_member(folder / name, shard) for name in sorted(names, key=_stem))
            return
        try:
            yield from members(shard)
        except EndMissingError as error:
            self.left_out[f"what should follow in {shard.name}, if anything ({error})"] += 1

    def _group(self, shard: Path, name: str, parts: list[Member]) -> Iterator[Example]:
        pictures = [part for part in parts if _extension(part) in IMAGE_SUFFIXES and part.size]
        texts = self._captions(shard, parts)
        if not pictures or not texts:
            if dotted := {part.name.rpartition(".")[0] for part in parts if _is_dotted(part)}:
                self.left_out[DOTTED] += len(dotted)
            if pictures or any(_extension(part) in (".txt", ".json") for part in parts):
                self.left_out[NO_CAPTION if pictures else NO_PICTURE] += 1
            return
        if len(pictures) > 1:
            self.left_out["further pictures of one name"] += len(pictures) - 1
        picture = pictures[0]
        image = self._note_picture(shard, name, picture)
        for number, text in enumerate(texts):
            key = image if number == 0 else f"{image}#{number}"
            yield Example(key, text, [image], text_key=key)

    def _note_picture(self, shard: Path, name: str, picture: Member) -> str:
        """Note where a picture lies and return its id.

        Raises:
            DataError: its name leaves the shard, or another picture has the id.
        """
        path = inside(shard, str(PurePosixPath(picture.name)))
        if Path(picture.name).is_absolute():
            raise DataError("A member's path leaves its shard.", where=str(shard), got=picture.name)
        stem = name.rsplit("/", 1)[-1]
        image = stem if self.unique == "name" else f"{shard.stem}-{stem}"
        return self.note(image, str(path))

    def _captions(self, shard: Path, parts: list[Member]) -> list[str]:
        """The captions of a group: of its .txt, else of its .json."""
        by_kind = {_extension(part): part for part in reversed(parts)}
        if (plain := by_kind.get(".txt")) is not None:
            text = _text(shard, plain).strip()
            return [text] if text else []
        if (rich := by_kind.get(".json")) is None:
            return []
        try:
            content: Any = json.loads(_text(shard, rich))
        except ValueError:
            return []
        found = content.get(self.field) if isinstance(content, dict) else None
        given = found if isinstance(found, list) else [found]
        return [text.strip() for text in given if isinstance(text, str) and text.strip()]


def _has_pairs(shard: Path) -> bool:
    """Whether a tar file begins with a picture and its caption."""
    try:
        first = [_extension(part) for part in islice(members(shard), 4)]
    except BadShardError:
        return False
    return bool(IMAGE_SUFFIXES & set(first)) and bool({".txt", ".json"} & set(first))


def _texts_beside(folder: Folder) -> list[str]:
    """The text files beside pictures of the same name, where most pictures of their folders have one, of sentences."""
    pictures = Counter(str(PurePosixPath(path).with_suffix("")) for path in folder.pictures.paths)
    texts = [name for name in folder.files("*.txt") if str(PurePosixPath(name).with_suffix("")) in pictures]
    sample = [folder.text(name).split() for name in texts[:20]]
    said = sum(len(words) > 1 and sum(word[:1].isalpha() for word in words) > len(words) / 2 for words in sample)
    places = {str(PurePosixPath(name).parent) for name in texts}
    there = sum(str(PurePosixPath(path).parent) in places for path in folder.pictures.paths)
    return texts if len(texts) > there / 2 and said > len(sample) / 2 else []


def expand(root: Path, pattern: str) -> list[Path]:
    """The paths that a pattern names: braces are written out, then ``*`` is looked for; of remote ones their copies.

    Raises:
        DataError: a path leaves the root.
    """
    found: list[Path] = []
    for text in braces(pattern):
        if is_remote(text):
            found += [local_copy(address) for address in (matching(text) if "*" in text else [text])]
            continue
        path = inside(root, text)
        star = next((place for place, part in enumerate(path.parts) if "*" in part or "?" in part), None)
        if star is None:
            found.append(path)
        else:
            found += sorted(Path(*path.parts[:star]).glob("/".join(path.parts[star:])))
            if not found:
                found.append(path)  # so that the message names it
    return found


def braces(pattern: str) -> list[str]:
    """``a{08..10}.tar`` as three names, zeros kept; ``{x,y}`` as two.

    >>> braces("a{08..10}.tar")
    ['a08.tar', 'a09.tar', 'a10.tar']
    """
    choices: list[list[str]] = []
    end = 0
    for found in _RANGE.finditer(pattern):
        choices += [[pattern[end : found.start()]], _choices(found)]
        end = found.end()
    return ["".join(parts) for parts in product(*choices, [pattern[end:]])]


def _choices(found: re.Match[str]) -> list[str]:
    first, last, listed = found.groups()
    if listed is not None:
        return str(listed).split(",")
    width = len(first) if first.startswith("0") or len(first) == len(last) else 0
    return [f"{number:0{width}d}" for number in range(int(first), int(last) + 1)]


_ENDINGS = re.compile(r"(\.[A-Za-z]\w*)+\Z")
"""``.jpg``, ``.seg.png``; a part that begins with a digit belongs to the name: ``a 2.0.jpg``."""


def _key(member: Member) -> str:
    """The name without its endings, folders included: what belongs together shares it."""
    return member.name.removesuffix(_endings(member))


def _member(path: Path, shard: Path) -> Member:
    return Member(path.relative_to(shard).as_posix(), 0, path.stat().st_size)


def _stem(name: str) -> tuple[str, str]:
    """What sorts the files of a folder so that those of one name are neighbours (``a.jpg``, ``a.txt``, ``a-b.jpg``)."""
    return name.partition(".")[0], name


def _is_dotted(member: Member) -> bool:
    """Whether a picture or a text has more dots in its name than that of its extension."""
    extension = _extension(member)
    return extension.count(".") > 1 and "." + extension.rpartition(".")[2] in IMAGE_SUFFIXES | {".txt", ".json"}


def _extension(member: Member) -> str:
    return _endings(member).lower()


def _endings(member: Member) -> str:
    found = _ENDINGS.search(member.name.rpartition("/")[2])
    return found[0] if found else ""


def _text(shard: Path, member: Member) -> str:
    if shard.is_dir():
        return (shard / member.name).read_text(encoding="utf-8", errors="replace")
    with shard.open("rb") as file:
        file.seek(member.start)
        return file.read(member.size).decode("utf-8", errors="replace")
