"""Referring expressions in the layout of the refer toolkit: refs(unc).p, the same as JSON, and instances.json."""

import pickle
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from random import Random

from vlcli.data.shapes.captions import PHRASES
from vlcli.data.shapes.coco import Pictures, tokens, write_instances, write_json
from vlcli.data.shapes.config import SPLITS, ShapesConfig
from vlcli.data.shapes.world import RELATIONS, Noun, Scene, stream

EXTREMES = {
    "left": ("leftmost {}", "{} farthest to the left"),
    "right": ("rightmost {}", "{} farthest to the right"),
    "above": ("topmost {}", "{} nearest to the top"),
    "below": ("lowest {}", "{} nearest to the bottom"),
}


def write_refcoco(root: Path, config: ShapesConfig, pictures: Pictures) -> dict[str, int]:
    """Write refcoco/: one ref for every shape that an expression picks out; ``place`` flags place words."""
    everything = [(split, picture) for split in SPLITS for picture in pictures[split]]
    write_instances(root / "refcoco/instances.json", config, [picture for _, picture in everything])
    streams = {split: stream(config, "refcoco", split) for split in SPLITS}
    rows = [(split, picture, index) for split, picture in everything for index in range(len(picture.scene.shapes))]
    refs: list[dict[str, object]] = []
    first = 0
    for annotation, (split, picture, index) in enumerate(rows, 1):
        texts = expressions(picture.scene, index, streams[split], config.expressions, config.place_words)
        if not texts:
            continue
        test = "testA" if picture.scene.having(Noun(kind=config.kinds[0])) else "testB"
        sentences = [
            {"tokens": tokens(text), "raw": text, "sent_id": number, "sent": " ".join(tokens(text)), "place": placed}
            for number, (text, placed) in enumerate(texts, first)
        ]
        row = {"sent_ids": list(range(first, first + len(texts))), "file_name": picture.file, "ann_id": annotation}
        row |= {"ref_id": len(refs), "image_id": picture.id, "split": test if split == "test" else split}
        kind = config.kinds.index(picture.scene.shapes[index].look.kind) + 1
        refs.append({**row, "sentences": sentences, "category_id": kind})
        first += len(texts)
    write_json(root / "refcoco/refs(unc).json", refs)
    (root / "refcoco/refs(unc).p").write_bytes(pickle.dumps(refs, protocol=2))
    return {"refcoco expressions": first}


def expressions(scene: Scene, index: int, rng: Random, most: int, places: bool = True) -> list[tuple[str, bool]]:
    """Return expressions that hold of one shape only, each with whether it uses place words; without first."""
    look = scene.shapes[index].look
    nouns = [Noun(*words) for words in product(("", look.size), ("", look.colour), ("", look.kind))]
    plain = [(noun.one, False) for noun in nouns[1:] if scene.having(noun) == [index]]
    placed = [(text, True) for text in dict.fromkeys(_placed(scene, index, rng))] if places else []
    rng.shuffle(plain)
    rng.shuffle(placed)
    return (plain[: max(1, most - 1) if places else most] + placed)[:most]


def _placed(scene: Scene, index: int, rng: Random) -> Iterator[str]:
    look = scene.shapes[index].look
    for noun in (Noun(), Noun(kind=look.kind), Noun(colour=look.colour), scene.shapes[index].noun):
        rivals = [other for other in scene.having(noun) if other != index]
        for word in RELATIONS:
            if rivals and all(scene.stands(index, word, other) for other in rivals):
                yield rng.choice(EXTREMES[word]).format(noun.one)
            for anchor, shape in enumerate(scene.shapes):
                if anchor == index or len(scene.having(shape.noun)) != 1 or not scene.stands(index, word, anchor):
                    continue
                if all(other == anchor or scene.clearly_not(other, word, anchor) for other in rivals):
                    yield f"{noun.one} {PHRASES[word]} the {shape.noun.one}"
