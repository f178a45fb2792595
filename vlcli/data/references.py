"""Captions with all the captions of their pictures: what captioning is trained and scored with."""

from __future__ import annotations

from vlcli.data.concepts import ByImage
from vlcli.data.reader import Reader
from vlcli.data.sample import Example

REFERENCES = "references"
"""Target: every caption of the example's pictures; empty where the data have none."""


class WithReferences(ByImage):
    """A caption data set whose examples know all captions of their pictures.

    Args:
        inner: the data set; several pictures an example are one group.
        by_picture: one example a picture (or group), its caption drawn anew each epoch; else the examples as they are.
    """

    def __init__(self, inner: Reader, *, by_picture: bool) -> None:
        super().__init__(inner)
        self.by_picture = by_picture

    def read(self) -> list[Example]:
        groups: dict[tuple[str, ...], list[Example]] = {}
        for example in self.inner.examples():
            groups.setdefault(tuple(example.images), []).append(example)
        known = {images: _texts(group) for images, group in groups.items()}
        if self.by_picture:
            return [_of_pictures(images, groups[images][0], texts) for images, texts in known.items()]
        return [_knowing(example, known[tuple(example.images)]) for example in self.inner.examples()]


class OfAlbum(ByImage):
    """Stories that know all stories of their album.

    Args:
        inner: the data set; its examples say their album (a target).
        album: that target's name.
        first: only the first story of each album; else the examples as they are.
    """

    def __init__(self, inner: Reader, album: str, *, first: bool) -> None:
        super().__init__(inner)
        self.album, self.first = album, first

    def read(self) -> list[Example]:
        albums: dict[str, list[Example]] = {}
        for example in self.inner.examples():
            albums.setdefault(str(example.targets[self.album]), []).append(example)
        known = {name: _texts(group) for name, group in albums.items()}
        if self.first:
            return [_knowing(group[0], known[name]) for name, group in albums.items()]
        return [_knowing(example, known[str(example.targets[self.album])]) for example in self.inner.examples()]


def _texts(group: list[Example]) -> list[str]:
    return [text for example in group if example.text is not None for text in (example.text, *example.choices)]


def _of_pictures(images: tuple[str, ...], first: Example, texts: list[str]) -> Example:
    key = images[0] if len(images) == 1 else first.key
    targets = {**first.targets, REFERENCES: texts}
    return Example(key, texts[0] if texts else None, list(images), key, targets, texts[1:])


def _knowing(example: Example, texts: list[str]) -> Example:
    targets = {**example.targets, REFERENCES: texts}
    return Example(example.key, example.text, example.images, example.text_key, targets, example.choices)
