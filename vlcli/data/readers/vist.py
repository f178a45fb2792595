"""VIST: albums of photographs, stories of five sentences on five of them, and descriptions of single ones."""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal

from vlcli.data import Example, Miniature
from vlcli.data.files import grouped, index_images, read_json, value
from vlcli.data.readers.coco import BoxesBeside
from vlcli.errors import DataError

FOLDERS = ("vist", "VIST", ".")
FILES = {
    "stories": ("{split}.story-in-sequence.json", "sis/{split}.story-in-sequence.json", "story_line.json"),
    "descriptions": ("{split}.description-in-isolation.json", "dii/{split}.description-in-isolation.json"),
}
ALBUM, PHOTOS, SENTENCES, NAMED = "album", "photos", "sentences", "named"
"""Targets of a story: album, photographs in order, sentences, and what each sentence must name."""
ABSENT, SHORT = "stories whose photographs are not all there", "stories of fewer sentences or photographs than five"


class VIST(BoxesBeside):
    """Stories in sequence (SIS), five photographs an example, or descriptions in isolation (DII), one photograph.

    Reads the official files and AREL's list of all splits (``story_line.json``). As in AREL, stories that lack a
    photograph or a sentence are left out and counted; photographs are checked if their folder exists. Targets of a
    story: ``album``, ``photos``, ``sentences``, and ``named`` if the file says what each sentence is about.

    Args:
        split: train, val or test.
        tier: ``stories`` or ``descriptions``.
        file: the file under the root; None: under its usual names in ``vist/`` or the root.
        text: ``normalised``: lower case, names as [male] and the like; ``original``: as written.
        images: folder of the pictures; None: ``vist/images``, else ``images``.
        boxes: COCO instances file, for regions at given boxes; None: ``vist/instances_{split}.json`` if it exists.
    """

    paper: ClassVar[str] = "Huang et al. 2016, Visual Storytelling; Wang et al. 2018 (AREL), for its list"
    splits: ClassVar[tuple[str, ...]] = ("train", "val", "test")
    held_out_splits: ClassVar[tuple[str, ...]] = ("val", "test")
    usual_boxes: ClassVar[str] = "vist/instances_{split}.json"
    length: ClassVar[int] = 5

    def __init__(
        self,
        root: Path,
        *,
        tier: Literal["stories", "descriptions"] = "stories",
        text: Literal["normalised", "original"] = "normalised",
        images: str | None = None,
        **options: Any,
    ) -> None:
        usual = (name for name in ("vist/images", "VIST/images") if (Path(root) / name).is_dir())
        super().__init__(root, images=images if images is not None else next(usual, "images"), **options)
        self.tier, self.text = tier, "text" if text == "normalised" else "original_text"
        self._there: set[str] | None = None

    def files(self) -> list[Path]:
        usual = tuple(f"{folder}/{name}" for name in FILES[self.tier] for folder in FOLDERS)
        return list(dict.fromkeys(self.first_file(self.file, usual)))

    def listed_folders(self) -> list[Path]:
        return [self.image_folder]

    def miniature_of(self, split: str, file: Path, miniature: Miniature) -> Any:
        rows = []
        for n in miniature.pictures(f"vist-{split}", self.image_folder, count=3 * self.length):
            story, place = divmod(n, self.length)
            told = {"story_id": str(story), "album_id": str(story), "worker_arranged_photo_order": place}
            rows.append([{"photo_flickr_id": str(n), self.text: miniature.sentence(n), **told}])
        return {"annotations": rows}

    def stream(self) -> Iterator[Example]:
        self._there = set(index_images(self.image_folder)) if self.image_folder.is_dir() else None
        yield from super().stream()

    def read_file(self, file: Path) -> Iterator[Example]:
        content = read_json(file)
        if "annotations" not in content and any(split in content for split in self.splits):
            yield from self._arel(content, str(file))
            return
        rows = _rows(content, str(file))
        yield from self._descriptions(rows) if self.tier == "descriptions" else self._stories(rows)

    def _stories(self, rows: Iterable[tuple[dict[str, Any], str]]) -> Iterator[Example]:
        stories = grouped((str(value(row, "story_id", (str, int), where)), (row, where)) for row, where in rows)
        for key, parts in stories.items():
            parts.sort(key=lambda part: int(part[0].get("worker_arranged_photo_order", 0)))
            photos = [str(value(row, "photo_flickr_id", (str, int), where)) for row, where in parts]
            sentences = [value(row, self.text, str, where).strip() for row, where in parts]
            album = str(value(parts[0][0], "album_id", (str, int), parts[0][1]))
            named = [row["named"] for row, _ in parts if isinstance(row.get("named"), list)]
            if self._complete(photos, sum(map(bool, sentences))):
                yield _story(key, album, photos, sentences, named)

    def _arel(self, content: dict[str, Any], where: str) -> Iterator[Example]:
        if self.tier == "descriptions" or self.text != "text":
            raise DataError("This list holds normalised stories only.", where=where, hint="name the official file")
        for split in self.split_names:
            for key, row in value(content, split, dict, where).items():
                spot = f"{where}: {split}.{key}"
                photos = [str(name) for name in value(row, "flickr_id", list, spot)]
                if self._complete(photos, int(row.get("length", len(photos)))):
                    text, album = value(row, "origin_text", str, spot), str(value(row, "album_id", (str, int), spot))
                    yield _story(str(key), album, photos, [text.strip()], [])

    def _complete(self, photos: list[str], sentences: int) -> bool:
        short = len(photos) != self.length or sentences != self.length
        absent = self._there is not None and not self._there.issuperset(photos)
        if short or absent:
            self.left_out[SHORT if short else ABSENT] += 1
        return not short and not absent

    def _descriptions(self, rows: Iterable[tuple[dict[str, Any], str]]) -> Iterator[Example]:
        counts: Counter[str] = Counter()
        for row, where in rows:
            photo = str(value(row, "photo_flickr_id", (str, int), where))
            text = value(row, self.text, str, where).strip()
            if self._there is not None and photo not in self._there:
                self.left_out["descriptions whose photograph is not there"] += 1
                continue
            key = f"{photo}#{counts[photo]}"
            counts[photo] += 1
            yield Example(key, text, [photo], text_key=key, targets={ALBUM: str(row.get("album_id", ""))})


def _story(key: str, album: str, photos: list[str], sentences: list[str], named: list[list[str]]) -> Example:
    targets: dict[str, Any] = {ALBUM: album, PHOTOS: photos, SENTENCES: sentences}
    targets |= {NAMED: named} if len(named) == len(photos) else {}
    return Example(key, " ".join(sentences), list(photos), text_key=key, targets=targets)


def _rows(content: dict[str, Any], where: str) -> Iterator[tuple[dict[str, Any], str]]:
    for number, wrapped in enumerate(value(content, "annotations", list, where)):  # each row in a list of its own
        spot = f"{where}: annotations[{number}]"
        for row in wrapped if isinstance(wrapped, list) else [wrapped]:
            if not isinstance(row, dict):
                raise DataError("An annotation is not a JSON object.", where=spot, got=type(row).__name__)
            yield row, spot
