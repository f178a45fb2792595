"""SNLI-VE: three-way entailment between a picture and a hypothesis, over the shared pictures.

Two families in equal numbers. In `either`, one hypothesis meets three pictures and gets all three labels ("there is a
red circle or a square made of wood": a red circle entails it; without one, a square leaves it open; without both it is
contradicted), so the hypothesis alone is exactly at chance. In `plain`, existence is entailed or contradicted, and
the invisible ("the red circle is made of wood") is open or contradicted: partly guessable from the words, as the real
set is.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

from vlcli.data.shapes.captions import full_description, sentence
from vlcli.data.shapes.coco import Pictures, write_lines
from vlcli.data.shapes.config import SPLITS, ShapesConfig
from vlcli.data.shapes.world import Noun, Picture, concrete, stream

STUFFS = ("made of wood", "made of paper", "made of glass", "very heavy", "as old as the picture")
TRIES = 200  # a handful of pictures may not hold all that a group of hypotheses needs: then there are fewer
NAMES = {"train": "train", "val": "dev", "test": "test"}
Held = dict[Noun, bool]
"""Whether a picture has a shape that a noun describes."""


class Judged(NamedTuple):
    """A hypothesis on a picture with its label."""

    picture: Picture
    text: str
    label: str
    family: str


def write_snli_ve(root: Path, config: ShapesConfig, pictures: Pictures) -> dict[str, int]:
    """Write snli_ve/snli_ve_{train,dev,test}.jsonl."""
    count = 0
    for split in SPLITS:
        rng, shown = stream(config, "snli-ve", split), pictures[split]
        rows = []
        for _ in range(len(shown) * config.entailments // 12 + 1):
            rows += [*_either(rng, config, shown, 2), *_plain(rng, config, shown)]
        rng.shuffle(rows)
        write_lines(root / f"snli_ve/snli_ve_{NAMES[split]}.jsonl", _documents(rng, rows))
        count += len(rows)
    return {"snli-ve hypotheses": count}


def _find(rng: Random, pictures: list[Picture], held: Held) -> Picture | None:
    def fits(picture: Picture) -> bool:
        return all((noun.count(picture.scene.looks) > 0) == there for noun, there in held.items())

    for _ in range(TRIES):
        if fits(picture := rng.choice(pictures)):
            return picture
    return next(filter(fits, pictures), None)


def _judge(rng: Random, pictures: list[Picture], text: str, family: str, cases: list[tuple[str, Held]]) -> list[Judged]:
    pairs = [(label, _find(rng, pictures, held)) for label, held in cases]
    rows = [Judged(picture, sentence(text), label, family) for label, picture in pairs if picture is not None]
    return rows if len(rows) == len(cases) else []


def _either(rng: Random, config: ShapesConfig, pictures: list[Picture], count: int) -> Iterator[Judged]:
    for _ in range(TRIES):
        seen = concrete(rng, config, Noun())
        first = Noun("", seen.colour, seen.kind)
        second = Noun(kind=rng.choice([kind for kind in config.kinds if kind != first.kind]))
        stuff = rng.choice(STUFFS)
        frame = rng.choice(("there is {} or {} that is {}", "the picture has {} or else {} that is {}"))
        cases: list[tuple[str, Held]] = [
            ("entailment", {first: True}),
            ("neutral", {first: False, second: True}),
            ("contradiction", {first: False, second: False}),
        ]
        rows = _judge(rng, pictures, frame.format(first.a, second.a, stuff), "either", cases)
        yield from rows
        count -= bool(rows)
        if not count:
            return


def _plain(rng: Random, config: ShapesConfig, pictures: list[Picture]) -> list[Judged]:
    yes, no = "entailment", "contradiction"
    plan = (("there is {}", yes), ("there is {}", yes), ("there is {}", no), ("{} is {stuff}", "neutral"))
    rows: list[Judged] = []
    for frame, label in (*plan, ("{} is {stuff}", "neutral"), ("{} is {stuff}", no)):
        for _ in range(TRIES):
            look = concrete(rng, config, Noun())
            noun = Noun("", look.colour, look.kind)
            text = frame.format(noun.a, stuff=rng.choice(STUFFS))
            if judged := _judge(rng, pictures, text, "plain", [(label, {noun: label != no})]):
                rows += judged
                break
    return rows if len(rows) == 6 else []


def _documents(rng: Random, rows: list[Judged]) -> Iterator[dict[str, object]]:
    used: Counter[int] = Counter()
    for row in rows:
        name = f"{row.picture.id:012d}"
        caption = f"{name}.png#0"
        yield {
            "annotator_labels": [row.label],
            "captionID": caption,
            "gold_label": row.label,
            "pairID": f"{caption}r{used[row.picture.id]}{row.label[0]}",
            "sentence1": full_description(row.picture.scene, rng),
            "sentence2": row.text,
            "Flickr30K_ID": name,
            "family": row.family,
        }
        used[row.picture.id] += 1
