"""Invents examples for the trial step of a stage whose data do not exist yet."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from vlcli.data import Example, Reader, Tokenizer
from vlcli.data.concepts import REFERENCES
from vlcli.detection.extractor import grid_boxes
from vlcli.features import CONCEPTS, WORDS, FeatureStore, FeatureWriter, Record, concept_record
from vlcli.nn.model import DataSpec

EXAMPLES, REGIONS = 4, 3
ANSWERS = ("yes", "no", "2", "red")
SENTENCES = ("a red circle is left of a blue square", "two green stars", "there is no triangle", "the picture is empty")


def invented_tokenizer(examples: Sequence[Example] = (), size: int = 100) -> Tokenizer:
    """Returns a tokenizer of the sentences of ``examples``, else of the invented ones."""
    return Tokenizer.train([example.text for example in examples if example.text] or SENTENCES, size)


class Invented(Reader):
    """A data set of invented examples."""

    def __init__(
        self, root: Path, invented: list[Example], grid: tuple[int, int] | None, regions: int, real: Reader | None
    ) -> None:
        super().__init__(root, split="train")
        self.invented, self.grid, self.regions, self.real = invented, grid, regions, real
        self.pictures = list(dict.fromkeys(name for example in invented for name in example.images))

    def files(self) -> list[Path]:
        return []

    def read(self) -> list[Example]:
        return self.invented

    def locate(self, name: str) -> Path:
        return self.root / f"{name}.png" if self.real is None else self.real.locate(name)

    def label_maps(self) -> dict[str, Path]:
        return {name: self.root / f"{name}-labels.png" for name in self.pictures}

    def boxes(self) -> dict[str, Any]:
        from vlcli.images.boxes import BoxList

        if self.real is not None and (boxes := self.real.boxes()):
            return {name: rows for name, rows in boxes.items() if name in self.pictures}
        three = np.array([[1.0, 1.0, 20.0, 20.0], [8.0, 8.0, 30.0, 30.0], [2.0, 4.0, 16.0, 31.0]], np.float32)
        corners = np.resize(three, (self.regions, 4)) if self.grid is None else grid_boxes((32, 32), self.grid).boxes
        kinds = np.arange(len(corners)) % REGIONS
        return {name: BoxList(corners, classes=kinds, attributes=kinds) for name in sorted(self.pictures)}

    def class_names(self) -> list[str]:
        names = self.real.class_names() if self.real is not None else []
        return list(names) or ["circle", "square", "star", "triangle", "other"]

    def attribute_names(self) -> list[str]:
        if self.real is not None and self.real.class_names():
            return list(self.real.attribute_names())
        return ["red", "blue", "green", "other"]


def invented_examples(reader: Reader | None, data_spec: DataSpec, pictures: int, count: int) -> list[Example]:
    """Returns the first examples of ``reader``, else invented ones; the names of pictures are invented."""
    examples = [] if reader is None else list(reader.examples()[:count])
    if not examples:
        labels = {"label": 1, "answers": {"yes": 1.0}, "kind": "any", "words": ["red"], "box": [0.1, 0.1, 0.6, 0.6]}
        for i, sentence in enumerate(itertools.islice(itertools.cycle(SENTENCES), count)):
            targets = {REFERENCES: [sentence], **(labels if data_spec.answers else {})}
            examples.append(Example(str(i), sentence, [""] * pictures, targets=targets))
    numbers = itertools.count()
    return [replace(example, images=[f"p{next(numbers)}" for _ in example.images]) for example in examples]


def lengthened(examples: list[Example], words: int) -> list[Example]:
    """Returns the examples with sentences of ``words`` words."""
    return [
        replace(example, text=" ".join(itertools.islice(itertools.cycle((example.text or "a").split()), words)))
        for example in examples
    ]


def invented_store(root: Path, reader: Reader, data_spec: DataSpec) -> FeatureStore:
    """Writes a store of region features and concepts of the reader's pictures."""
    path, draw = root / "features.h5", np.random.default_rng(0)
    with FeatureWriter(path) as writer:
        for name, boxes in reader.boxes().items():
            ids = (np.arange(len(boxes.boxes)) % REGIONS).astype(np.int32)
            width, height = (max(32, int(np.ceil(boxes.boxes[:, i].max(initial=0)))) for i in (2, 3))
            features = draw.random((len(ids), data_spec.region_dim), np.float32)
            record = Record(name, features, boxes.boxes, (height, width), classes=ids, attributes=ids)
            record.class_scores = record.attribute_scores = np.ones(len(ids), np.float32)
            writer.append(record)
    with FeatureWriter(path, {WORDS: list(data_spec.concepts)}, set=CONCEPTS) as writer:
        for name in reader.boxes():
            writer.append(concept_record(name, np.arange(REGIONS), np.full(REGIONS, 0.5), (32, 32)))
    return FeatureStore([path])


def draw_pictures(reader: Invented) -> None:
    """Writes a plain picture for every name, 32 x 32, with its label map."""
    assert reader.real is None
    for name in reader.boxes():
        Image.new("RGB", (32, 32), (90, 120, 150)).save(reader.locate(name))
    for path in reader.label_maps().values():
        Image.new("L", (32, 32), 1).save(path)
