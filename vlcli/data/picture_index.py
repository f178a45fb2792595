"""Finds the file of a picture by its name as annotations write it.

The exact path comes first, without a look at the folder. Otherwise the files under the folder are indexed once, and a
file fits a name if their last parts agree but for letter case and ending, and the folders of one are the end of the
folders of the other. Of several files that fit, one is taken only if it is the closest by both measures: the last part
(the same text, another letter case, an ending added, another ending), and how many parts agree. Text in another Unicode
form and with backslashes is the same text. A number that fits no file names the file that ends in it after zeros (42:
COCO_val2014_000000000042.jpg). Anything else is ambiguous, and refused.
"""

import difflib
import os
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path

from vlcli.data.files import IMAGE_SUFFIXES, grouped, inside, picture_stems, prefix
from vlcli.errors import DataError
from vlcli.files import walk
from vlcli.plain import comma_list

# How a name and its file differ, the smallest difference first, in the words of a note.
WAYS = {
    "separator": "with backslashes for slashes",
    "form": "in another Unicode form",
    "case": "in another letter case",
    "ending": "by another ending",
    "path": "by the end of their path",
    "folder": "in a subfolder",
    "number": "by the number that ends their name",
}
_ENDING = re.compile(r"\.[A-Za-z][A-Za-z0-9]{1,4}\Z")
_FOREIGN = re.compile(r"([A-Za-z]:)?/+|~/+|[A-Za-z]:(?=/)")
_ODD = re.compile(r"^[/~.]|//|/\.|/$|[\0\\]|^[A-Za-z]:")
_MOST_COMPARED = 20_000
# The number with leading zeros that ends names such as COCO_val2014_000000000042.
_PADDED = re.compile(r"(?<!\d)0\d{3,}\Z")


@dataclass(frozen=True)
class Match:
    """A file that fits a name.

    Attributes:
        file: relative to the folder of the index, with slashes.
        way: how it differs from the name, a key of :data:`WAYS`; empty: not at all.
        closeness: of the last parts, from 3 for the same text to 0 for another ending.
        agree: how many of their folders agree.
    """

    file: str
    way: str
    closeness: int = 0
    agree: int = 0

    @property
    def distance(self) -> int:
        """Rank of the way in :data:`WAYS`, from 1; 0 without any."""
        return list(WAYS).index(self.way) + 1 if self.way else 0


class AmbiguousNameError(Exception):
    """Several files fit a name; ``files`` are relative to the folder of the index."""

    def __init__(self, files: Sequence[str]) -> None:
        super().__init__(", ".join(files))
        self.files = list(files)


class PictureIndex:
    """The picture files under a folder, by the last part of their names."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: list[str] = []
        self.by_stem: dict[str, list[str]] = {}
        self._states = {str(folder): _state(str(folder))}  # a folder that is not there may come
        for path, names in walk(folder):
            inner = os.path.relpath(path, folder).replace(os.sep, "/")
            self._states[str(path)] = _state(str(path))
            for stem, name in picture_stems(names):
                file = name if inner == "." else f"{inner}/{name}"
                self.files.append(file)
                self.by_stem.setdefault(_folded(stem.rpartition("\\")[2]), []).append(file)

    @property
    def current(self) -> bool:
        return all(_state(path) == state for path, state in self._states.items())

    def find(self, name: str, by_number: bool = True) -> Match | None:
        """Return the file that fits a name, relative to the folder or a path of another machine; None without any.

        Raises AmbiguousNameError: several files fit.
        """
        fitting = [one for file in self._candidates(name) if (one := _compared(name, file)) is not None]
        same = [one for one in fitting if one.way in ("", "separator", "form")]
        exact = [one for one in same if one.file == name] or same or fitting
        if not exact:
            return self._by_number(_without_ending(name)) if by_number else None
        highest = (max(one.closeness for one in exact), max(one.agree for one in exact))
        best = [one for one in exact if (one.closeness, one.agree) == highest]
        if len(best) != 1:
            raise AmbiguousNameError(sorted(one.file for one in exact))
        return best[0]

    def _by_number(self, name: str) -> Match | None:
        files = self._numbered.get(int(name), []) if name.isdecimal() and name.isascii() else []
        if len(files) > 1:
            raise AmbiguousNameError(sorted(files))
        return Match(files[0], "number") if files else None

    @cached_property
    def _numbered(self) -> dict[int, list[str]]:
        hits = ((_PADDED.search(stem), files) for stem, files in self.by_stem.items())
        return grouped((int(hit[0]), file) for hit, files in hits if hit for file in files)

    def near(self, name: str, most: int = 3) -> list[str]:
        """Return files whose names are nearly ``name``: those of its last part in other folders first."""
        files = self._candidates(name)
        stem = _folded(_without_ending(_slashes(name).rpartition("/")[2]))
        close = difflib.get_close_matches(stem, list(self.by_stem)[:_MOST_COMPARED], n=most, cutoff=0.8)
        files += [file for one in close for file in self.by_stem[one]]
        return list(dict.fromkeys(files))[:most]

    def _candidates(self, name: str) -> list[str]:
        last = _slashes(name).rpartition("/")[2]
        keys = dict.fromkeys((_folded(last), _folded(_without_ending(last))))
        return [file for key in keys for file in self.by_stem.get(key, ())]


def _compared(name: str, file: str) -> Match | None:
    """Return how a file fits a name with the same stem; None where their folders disagree."""
    wanted, text = _composed(_slashes(name)), _composed(_slashes(file))
    *wanted_folders, wanted_last = wanted.split("/")
    *folders, last = text.split("/")
    both = list(zip(folders[::-1], wanted_folders[::-1], strict=False))
    if any(_folded(one) != _folded(other) for one, other in both):
        return None
    if last == wanted_last:
        closeness, way = 3, "case"
    elif _folded(last) == _folded(wanted_last):
        closeness, way = 2, "case"
    else:
        closeness, way = int(_folded(last.rpartition(".")[0]) == _folded(wanted_last)), "ending"
    if len(folders) != len(wanted_folders):
        way = "path" if len(folders) < len(wanted_folders) else "folder"
    elif text == wanted:
        way = "" if file == name else "form" if _slashes(name) != _slashes(file) else "separator"
    return Match(file, way, closeness, len(both))


@lru_cache(8)
def _indexed(folder: Path, working_folder: str) -> PictureIndex:  # noqa: ARG001 (a part of the key)
    return PictureIndex(folder)


def picture_index(folder: Path) -> PictureIndex:
    """Return the index of a folder, kept while its folders stay as they were."""
    where = _working_folder(folder)
    if not _indexed(folder, where).current:
        _indexed.cache_clear()
    return _indexed(folder, where)


def written_path(root: Path, folder: Path, file: str, anywhere: bool = False) -> str:
    """Return the path of ``file`` in ``folder``, in a tenth of the time of :func:`inside` for names without dots.

    An absolute path under the data root or ``folder`` is kept, others only with ``anywhere``; else it is taken below
    ``folder``, where :class:`PictureIndex` looks for the file that its end names: nothing outside is opened. Raises
    DataError: a relative path leaves ``folder``.
    """
    if file and not _ODD.search(file) and os.name != "nt":
        return prefix(str(folder)) + file
    starts = _absolute_starts(_working_folder(root, folder), str(root), str(folder))
    if file.startswith(starts) and ".." not in file:
        return file
    slashed = _slashes(file)
    away = _FOREIGN.match(slashed)
    if away and (anywhere or os.path.normpath(file).startswith(starts)):
        return os.path.normpath(Path(file).expanduser())
    return str(inside(folder, slashed[away.end() :] if away else slashed))


def _working_folder(*paths: Path) -> str:
    return "" if all(path.is_absolute() for path in paths) else str(Path.cwd())


@lru_cache(256)
def _absolute_starts(working_folder: str, *folders: str) -> tuple[str, ...]:  # noqa: ARG001 (a part of the key)
    ways = (os.path.abspath, os.path.realpath)
    return tuple(dict.fromkeys(prefix(way(folder)) for folder in folders for way in ways))


@lru_cache(4096)  # questions about a picture often stand together
def path_id(root: Path, folder: Path, path: str, ending: bool = False) -> str:
    """Return a picture's path (of :func:`written_path`) below the data root, or else ``folder``, without its ending."""
    here = _working_folder(root, folder)
    starts = (one for base in map(str, (root, folder)) for one in (prefix(base), *_absolute_starts(here, base)))
    start = next((one for one in starts if one and path.startswith(one)), "")
    name = path[len(start) :].lstrip("/")
    suffix = Path(name).suffix
    return name[: -len(suffix)] if suffix.lower() in IMAGE_SUFFIXES and not ending else name


@dataclass
class PictureFiles:
    """Finds the files of a reader's pictures.

    ``ways`` has, by way of differing, the count of names, and the first with its file.
    """

    folder: Path
    label: str
    ways: dict[str, tuple[int, str, str]] = field(default_factory=dict)
    _known: dict[str, Path | None] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)

    def find(self, name: str, noted: Mapping[str, Path], is_id: bool) -> Path | None:
        """Return the file of a picture that is not where its name, relative to the folder, says; None without any.

        Args:
            noted: where annotations say that pictures lie, by id.
            is_id: whether the name is an image id without a file in the annotations.

        Raises:
            DataError: several files fit the name, or two names find one file.
        """
        if name not in self._known:
            try:
                match = picture_index(self.folder).find(name)
            except AmbiguousNameError as error:
                files = error.files
                what = f"Several files fit the picture name {visible(name)}."
                got = comma_list((visible(file, *files) for file in files), 4 if len(files) > 5 else 5)
                hint = "write the path that is meant, rename the others, or point `images` at one of the folders"
                raise DataError(what, where=self.label, got=got, expected="one file", hint=hint) from None
            if match is not None and not is_id:
                self._note(name, match, noted)
            self._known[name] = None if match is None else self.folder / match.file
        return self._known[name]

    def _note(self, name: str, match: Match, noted: Mapping[str, Path]) -> None:
        if not self._names and isinstance(noted, dict):  # names of files that are there
            start = prefix(str(self.folder))
            self._names = {file: file for path in noted.values() if (file := str(path).removeprefix(start))}
        other = self._names.setdefault(match.file, name)
        if _folded(other) != _folded(name):
            what = "Two picture names find the same file."
            got = f"{visible(other)} and {visible(name)}: {visible(match.file)}"
            hint = "point `images` at the folder that the names are relative to, or correct the names"
            raise DataError(what, where=self.label, got=got, expected="a file for each name", hint=hint)
        if match.way != "ending" or _ENDING.search(name):  # without an ending, none differs
            count, first, file = self.ways.get(match.way, (0, name, match.file))
            self.ways[match.way] = (count + 1, first, file)

    def notes(self) -> list[str]:
        return [
            f"{self.label}: {count:,} picture {'name' if count == 1 else 'names'} found {WAYS[way]}: "
            f"{visible(name, file)} -> {visible(file, name)}"
            for way, (count, name, file) in sorted(self.ways.items(), key=lambda item: list(WAYS).index(item[0]))
        ]


def near_misses(path: Path) -> str:
    """Return, in words, the files beside an absent picture with nearly its name; empty without any."""
    try:
        names = [one.name for one in path.parent.iterdir() if one.suffix.lower() in IMAGE_SUFFIXES]
    except OSError:
        return ""
    folded = {_folded(name): name for name in names[:_MOST_COMPARED]}
    close = difflib.get_close_matches(_folded(path.name), list(folded), n=3, cutoff=0.8)
    near = ", ".join(visible(folded[one], path.name) for one in close)
    return f"{visible(path.name, *(folded[one] for one in close))}; close to it: {near}" if near else ""


def visible(name: str, *others: str) -> str:
    """Return a name for a message: with escapes where one beside it would look the same, or nothing could be seen."""
    return ascii(name) if not name.isprintable() or any(_look_alike(name, other) for other in others) else name


def _look_alike(name: str, other: str) -> bool:
    if name == other or (name + other).isascii():
        return False
    one, two = (_base_letters(_without_ending(text.rpartition("/")[2])) for text in (name, other))
    return len(one) == len(two) and all(a == b or not (a + b).isascii() for a, b in zip(one, two, strict=True))


def _base_letters(text: str) -> str:  # without accents and what cannot be seen
    letters = unicodedata.normalize("NFKD", text).casefold()
    return "".join(letter for letter in letters if unicodedata.category(letter) not in ("Mn", "Cf"))


def _slashes(name: str) -> str:
    return name.replace("\\", "/") if "\\" in name else name


def _composed(text: str) -> str:
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def _folded(text: str) -> str:
    return text.lower() if text.isascii() else _composed(_composed(text).casefold())


def _without_ending(last: str) -> str:
    match = _ENDING.search(last)
    return last[: match.start()] if match and match.start() else last


def _state(folder: str) -> tuple[int, int]:
    try:
        stat = Path(folder).stat()
        return stat.st_mtime_ns, stat.st_ino
    except OSError:
        return 0, 0
