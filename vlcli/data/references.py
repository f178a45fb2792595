"""Data sets whose examples have all captions of their pictures as references."""

from dataclasses import replace

from vlcli.data.concepts import ByImage
from vlcli.data.reader import Reader
from vlcli.data.sample import Example

# Target: every caption of the example's pictures; empty where the data have none.
REFERENCES = "references"


class WithReferences(ByImage):
    """A caption data set whose examples have all captions of their pictures.

    Args:
        inner: the data set; several pictures an example are one group.
        by_picture: one example a picture (or group), its caption drawn anew each epoch; else every example.
    """

    def __init__(self, inner: Reader, *, by_picture: bool) -> None:
        super().__init__(inner)
        self.by_picture = by_picture

    def read(self) -> list[Example]:
        groups: dict[tuple[str, ...], list[Example]] = {}
        for example in self.inner.examples():
            groups.setdefault(tuple(example.images), []).append(example)
        known = {images: _texts(group) for images, group in groups.items()}
        if not self.by_picture:
            return [_with_texts(example, known[tuple(example.images)]) for example in self.inner.examples()]
        examples = []
        for images, texts in known.items():
            first = groups[images][0]
            key = images[0] if len(images) == 1 else first.key
            text, targets = (texts[0] if texts else None), {**first.targets, REFERENCES: texts}
            examples.append(Example(key, text, list(images), key, targets, texts[1:]))
        return examples


class OfAlbum(ByImage):
    """A data set of stories whose examples have all stories of their album.

    Args:
        inner: the data set.
        album: the target that names an example's album.
        first: only the first story of each album; else every example.
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
            return [_with_texts(group[0], known[name]) for name, group in albums.items()]
        return [_with_texts(example, known[str(example.targets[self.album])]) for example in self.inner.examples()]


def _texts(group: list[Example]) -> list[str]:
    return [text for example in group if example.text is not None for text in (example.text, *example.choices)]


def _with_texts(example: Example, texts: list[str]) -> Example:
    return replace(example, targets={**example.targets, REFERENCES: texts})
