"""SNLI-VE: three-way entailment between a picture and a hypothesis, over the shared pictures.

Two families in equal numbers. In `either`, one hypothesis meets three pictures and gets all three labels ("there is a
red circle or a square made of wood": a red circle entails it; without one, a square leaves it open; without both it is
contradicted), so the hypothesis alone is exactly at chance. In `plain`, existence is entailed or contradicted, and
the invisible ("the red circle is made of wood") is open or contradicted: easier, and partly
guessable from the words, as the real set is.
"""

from collections.abc import Callable, Iterator
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
        rng = stream(config, "snli-ve", split)
        wanted = len(pictures[split]) * config.entailments // 12 + 1
        rows = [
            row
            for _ in range(wanted)
            for row in (*_either(rng, config, pictures[split], 2), *_plain(rng, config, pictures[split]))
        ]
        rng.shuffle(rows)
        write_lines(root / f"snli_ve/snli_ve_{NAMES[split]}.jsonl", list(_documents(rng, rows)))
        count += len(rows)
    return {"snli-ve hypotheses": count}


def _find(rng: Random, pictures: list[Picture], wanted: Callable[[Picture], bool]) -> Picture | None:
    for _ in range(200):
        picture = rng.choice(pictures)
        if wanted(picture):
            return picture
    return next((picture for picture in pictures if wanted(picture)), None)


def _judge(
    rng: Random, pictures: list[Picture], text: str, family: str, cases: list[tuple[str, Callable[[Picture], bool]]]
) -> list[Judged]:
    pairs = [(label, _find(rng, pictures, wanted)) for label, wanted in cases]
    rows = [Judged(picture, sentence(text), label, family) for label, picture in pairs if picture is not None]
    return rows if len(rows) == len(cases) else []


def _either(rng: Random, config: ShapesConfig, pictures: list[Picture], count: int) -> Iterator[Judged]:
    groups = 0
    for _ in range(TRIES):
        seen = concrete(rng, config, Noun())
        first = Noun("", seen.colour, seen.kind)
        second = Noun(kind=rng.choice([kind for kind in config.kinds if kind != first.kind]))
        stuff = rng.choice(STUFFS)
        frame = rng.choice(("there is {} or {} that is {}", "the picture has {} or else {} that is {}"))
        text = frame.format(first.a, second.a, stuff)
        rows = _judge(rng, pictures, text, "either", _either_cases(first, second))
        yield from rows
        groups += bool(rows)
        if groups == count:
            return


def _either_cases(first: Noun, second: Noun) -> list[tuple[str, Callable[[Picture], bool]]]:
    def holds(picture: Picture) -> tuple[bool, bool]:
        looks = picture.scene.looks
        return first.count(looks) > 0, second.count(looks) > 0

    return [
        ("entailment", lambda picture: holds(picture)[0]),
        ("neutral", lambda picture: holds(picture) == (False, True)),
        ("contradiction", lambda picture: holds(picture) == (False, False)),
    ]


def _plain(rng: Random, config: ShapesConfig, pictures: list[Picture]) -> list[Judged]:
    yes, no = "entailment", "contradiction"
    plan = (("there is {}", yes), ("there is {}", yes), ("there is {}", no), ("{} is {stuff}", "neutral"))
    rows: list[Judged] = []
    for frame, label in (*plan, ("{} is {stuff}", "neutral"), ("{} is {stuff}", no)):
        for _ in range(TRIES):
            look = concrete(rng, config, Noun())
            noun = Noun("", look.colour, look.kind)
            text = frame.format(noun.a, stuff=rng.choice(STUFFS))
            if judged := _judge(rng, pictures, text, "plain", [(label, _presence(noun, label != no))]):
                rows += judged
                break
    return rows if len(rows) == 6 else []


def _presence(noun: Noun, wanted: bool) -> Callable[[Picture], bool]:
    return lambda picture: (noun.count(picture.scene.looks) > 0) == wanted


def _documents(rng: Random, rows: list[Judged]) -> Iterator[dict[str, object]]:
    used: dict[str, int] = {}
    for row in rows:
        name = f"{row.picture.id:012d}"
        caption = f"{name}.png#0"
        pair = f"{caption}r{used.setdefault(name, 0)}{row.label[0]}"
        used[name] += 1
        yield {
            "annotator_labels": [row.label],
            "captionID": caption,
            "gold_label": row.label,
            "pairID": pair,
            "sentence1": full_description(row.picture.scene, rng),
            "sentence2": row.text,
            "Flickr30K_ID": name,
            "family": row.family,
        }
