"""Referring expressions in the layout of the refer toolkit: refs(unc).p, the same as JSON, and instances.json."""

import io
import pickle
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from random import Random

from vlcli.data.shapes.captions import PHRASES
from vlcli.data.shapes.coco import Pictures, instances, tokens, write_json
from vlcli.data.shapes.config import SPLITS, ShapesConfig
from vlcli.data.shapes.world import RELATIONS, Noun, Picture, Scene, stream

EXTREMES = {
    "left": ("leftmost {}", "{} farthest to the left"),
    "right": ("rightmost {}", "{} farthest to the right"),
    "above": ("topmost {}", "{} nearest to the top"),
    "below": ("lowest {}", "{} nearest to the bottom"),
}


def write_refcoco(root: Path, config: ShapesConfig, pictures: Pictures) -> dict[str, int]:
    """Write refcoco/: one ref for every shape that an expression picks out; ``place`` flags place words."""
    everything = [picture for split in SPLITS for picture in pictures[split]]
    document = instances(config, everything)
    write_json(root / "refcoco/instances.json", document)
    refs: list[dict[str, object]] = []
    sentences, annotation = 0, 0
    for split in SPLITS:
        rng = stream(config, "refcoco", split)
        for picture in pictures[split]:
            for index in range(len(picture.scene.shapes)):
                annotation += 1
                texts = expressions(picture.scene, index, rng, config.expressions, config.place_words)
                if texts:
                    part = split if split != "test" else _test_part(picture, config)
                    numbers = (len(refs), annotation, sentences)
                    refs.append(_ref(config, picture, index, numbers=numbers, split=part, texts=texts))
                    sentences += len(texts)
    write_json(root / "refcoco/refs(unc).json", refs)
    buffer = io.BytesIO()
    pickle.dump(refs, buffer, protocol=2)
    (root / "refcoco/refs(unc).p").write_bytes(buffer.getvalue())
    return {"refcoco expressions": sentences}


def _test_part(picture: Picture, config: ShapesConfig) -> str:
    return "testA" if picture.scene.having(Noun(kind=config.kinds[0])) else "testB"


def _ref(
    config: ShapesConfig,
    picture: Picture,
    index: int,
    *,
    numbers: tuple[int, int, int],
    split: str,
    texts: list[tuple[str, bool]],
) -> dict[str, object]:
    ref_id, ann_id, sent = numbers
    return {
        "sent_ids": list(range(sent, sent + len(texts))),
        "file_name": picture.file,
        "ann_id": ann_id,
        "ref_id": ref_id,
        "image_id": picture.id,
        "split": split,
        "sentences": [
            {
                "tokens": tokens(text),
                "raw": text,
                "sent_id": sent + step,
                "sent": " ".join(tokens(text)),
                "place": placed,
            }
            for step, (text, placed) in enumerate(texts)
        ],
        "category_id": config.kinds.index(picture.scene.shapes[index].look.kind) + 1,
    }


def expressions(scene: Scene, index: int, rng: Random, most: int, places: bool = True) -> list[tuple[str, bool]]:
    """Return expressions that hold of one shape only, each with whether it uses place words; without first."""
    plain = [(noun.one, False) for noun in _nouns(scene, index) if scene.having(noun) == [index]]
    if not places:
        rng.shuffle(plain)
        return plain[:most]
    placed = [(text, True) for text in dict.fromkeys(_placed(scene, index, rng))]
    rng.shuffle(plain)
    rng.shuffle(placed)
    kept = plain[: max(1, most - 1)]
    return (kept + placed)[:most]


def _nouns(scene: Scene, index: int) -> Iterator[Noun]:
    look = scene.shapes[index].look
    for size, colour, kind in product(("", look.size), ("", look.colour), ("", look.kind)):
        if size or colour or kind:
            yield Noun(size, colour, kind)


def _placed(scene: Scene, index: int, rng: Random) -> Iterator[str]:
    look = scene.shapes[index].look
    for noun in (
        Noun(),
        Noun(kind=look.kind),
        Noun(colour=look.colour),
        Noun("", look.colour, look.kind),
    ):
        rivals = [other for other in scene.having(noun) if other != index]
        for word in RELATIONS:
            if rivals and all(scene.stands(index, word, other) for other in rivals):
                yield rng.choice(EXTREMES[word]).format(noun.one)
            yield from _beside(scene, index, noun, word)


def _beside(scene: Scene, index: int, noun: Noun, word: str) -> Iterator[str]:
    rivals = [other for other in scene.having(noun) if other != index]
    for anchor, shape in enumerate(scene.shapes):
        if anchor == index or len(scene.having(shape.noun)) != 1 or not scene.stands(index, word, anchor):
            continue
        if all(other == anchor or scene.clearly_not(other, word, anchor) for other in rivals):
            yield f"{noun.one} {PHRASES[word]} the {shape.noun.one}"
