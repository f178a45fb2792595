"""Writes the shared pictures with COCO's captions and instances, and the Karpathy split file."""

import json
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from vlcli.data.shapes.captions import captions, full_descriptions, neighbours, signature
from vlcli.data.shapes.config import SIZES, SPLITS, ShapesConfig
from vlcli.data.shapes.world import Picture, apart, compose, random_looks, stream

INFO = {"description": "shapes: a generated world", "version": "1", "year": 2026, "contributor": "vlcli", "url": ""}
NO_RIGHTS = "generated; no rights reserved"
Pictures = dict[str, list[Picture]]


def shared_pictures(config: ShapesConfig) -> Pictures:
    """Return scenes of images/{train,val,test}; held-out pictures of a split differ in colours and kinds.

    Boards may differ in the distance of their shapes instead.
    """
    pictures: Pictures = {}
    number, held = 0, max(1, config.images // 10)
    if config.board:  # no two held-out boards have the same captions
        held = min(held, 2 * math.comb(len(config.colours) * len(config.kinds), 2))
    for split, count in zip(SPLITS, (config.images - 2 * held, held, held), strict=True):
        rng = stream(config, "images", split)
        seen: set[object] = set()
        pictures[split] = []
        for _ in range(count):
            total = rng.randint(*config.objects)
            for tries in range(401):  # few shapes, many pictures: go on with more shapes
                total = min(config.objects[1], total + (tries > 0 and tries % 5 == 0))
                scene = apart(rng, config) if config.board else compose(rng, config, random_looks(rng, config, total))
                told = (signature(scene), bool(config.board) and neighbours(scene, config))
                if split == "train" or told not in seen:
                    break
            seen.add(told)
            number += 1
            pictures[split].append(Picture(number, f"{split}/{number:012d}.png", scene))
    return pictures


def _head(pictures: Sequence[Picture]) -> dict[str, object]:
    images = [
        {
            "license": 1,
            "file_name": picture.file,
            "coco_url": "",
            "height": picture.scene.side,
            "width": picture.scene.side,
            "date_captured": "2026-01-01 00:00:00",
            "flickr_url": "",
            "id": picture.id,
        }
        for picture in pictures
    ]
    return {"info": INFO, "licenses": [{"url": "", "id": 1, "name": NO_RIGHTS}], "images": images}


def write_instances(path: Path, config: ShapesConfig, pictures: Sequence[Picture], first: int = 1) -> int:
    """Write COCO instances, ``attributes`` being ids in ``attribute_categories``; return the next annotation's id."""
    attributes = [*config.colours, *SIZES]
    rows: list[dict[str, object]] = []
    for picture in pictures:
        for shape, drawn in zip(picture.scene.shapes, picture.drawn, strict=True):
            mask = {"counts": drawn.counts, "size": [picture.scene.side, picture.scene.side]}
            row = {"segmentation": mask, "area": drawn.area, "iscrowd": 0, "image_id": picture.id}
            row |= {"bbox": list(drawn.box), "category_id": config.kinds.index(shape.look.kind) + 1}
            words = [attributes.index(word) + 1 for word in (shape.look.colour, shape.look.size)]
            rows.append({**row, "id": first + len(rows), "attributes": words})
    kinds = _categories([(kind, "shape") for kind in config.kinds])
    named = _categories([(word, "size" if word in SIZES else "colour") for word in attributes])
    write_json(path, {**_head(pictures), "annotations": rows, "categories": kinds, "attribute_categories": named})
    return first + len(rows)


def _categories(names: list[tuple[str, str]]) -> list[dict[str, object]]:
    return [{"supercategory": above, "id": number, "name": name} for number, (name, above) in enumerate(names, 1)]


def write_coco(root: Path, config: ShapesConfig, pictures: Pictures) -> dict[str, int]:
    """Write coco/annotations: captions and instances of each split."""
    folder, caption, instance = root / "coco/annotations", 1, 1
    for split in SPLITS:
        instance = write_instances(folder / f"instances_{split}.json", config, pictures[split], instance)
        rng = stream(config, "captions", split)
        texts = [(picture.id, text) for picture in pictures[split] for text in captions(picture.scene, rng, config)]
        rows = [{"image_id": image, "id": n, "caption": text} for n, (image, text) in enumerate(texts, caption)]
        caption += len(rows)
        write_json(folder / f"captions_{split}.json", {**_head(pictures[split]), "annotations": rows})
    return {"captions": caption - 1, "instances": instance - 1}


def write_karpathy(root: Path, config: ShapesConfig, pictures: Pictures) -> dict[str, int]:
    """Write karpathy/dataset_shapes.json: five full descriptions a picture, true of no other of its split."""
    images: list[dict[str, object]] = []
    sentid = 0
    for split in SPLITS:
        rng = stream(config, "karpathy", split)
        for picture in pictures[split]:
            sentences = [
                {"tokens": tokens(text), "raw": text, "imgid": len(images), "sentid": number}
                for number, text in enumerate(full_descriptions(picture.scene, rng, 5), sentid)
            ]
            row: dict[str, object] = {"filepath": split, "sentids": [one["sentid"] for one in sentences]}
            row |= {"filename": Path(picture.file).name, "imgid": len(images), "split": split}
            images.append({**row, "sentences": sentences, "cocoid": picture.id})
            sentid += len(sentences)
    write_json(root / "karpathy/dataset_shapes.json", {"images": images, "dataset": "shapes"})
    return {"karpathy sentences": sentid}


def tokens(text: str) -> list[str]:
    """Return lower-cased words without punctuation, as the Karpathy files list them."""
    return re.findall(r"[a-z0-9]+", text.lower())


def write_json(path: Path, document: object) -> None:
    """Write one compact JSON document."""
    write_text(path, json.dumps(document, separators=(",", ":")))


def write_lines(path: Path, rows: Iterable[object]) -> None:
    """Write one JSON document a line."""
    write_text(path, "".join(f"{json.dumps(row)}\n" for row in rows))


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 with bare newlines on every platform."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
