"""Writes the shared pictures with COCO's captions and instances, and the Karpathy split file."""

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from vlcli.data.shapes.captions import captions, full_descriptions, signature
from vlcli.data.shapes.config import SIZES, SPLITS, ShapesConfig
from vlcli.data.shapes.world import Picture, compose, random_looks, stream

Pictures = dict[str, list[Picture]]


def shared_pictures(config: ShapesConfig) -> Pictures:
    """Return scenes of images/{train,val,test}; held-out pictures of a split differ in their colours and kinds."""
    pictures: Pictures = {}
    number = 0
    for split, count in config.split_sizes().items():
        rng = stream(config, "images", split)
        seen: set[tuple[tuple[str, str], ...]] = set()
        pictures[split] = []
        while len(pictures[split]) < count:
            total, tries = rng.randint(*config.objects), 0
            scene = compose(rng, config, random_looks(rng, config, total))
            while split != "train" and signature(scene) in seen:  # few shapes, many pictures: go on with more shapes
                tries += 1
                total = min(config.objects[1], total + (tries % 5 == 0))
                scene = compose(rng, config, random_looks(rng, config, total))
                if tries == 400:
                    break
            seen.add(signature(scene))
            number += 1
            pictures[split].append(Picture(number, f"{split}/{number:012d}.png", scene))
    return pictures


def image_rows(pictures: Sequence[Picture]) -> list[dict[str, object]]:
    """Return the ``images`` list of a COCO file."""
    return [
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


def instances(config: ShapesConfig, pictures: Sequence[Picture], first: int = 1) -> dict[str, object]:
    """Return a COCO instances document; ``attributes`` of an annotation are ids in ``attribute_categories``."""
    attributes = [*config.colours, *SIZES]
    rows: list[dict[str, object]] = []
    for picture in pictures:
        for shape, drawn in zip(picture.scene.shapes, picture.drawn, strict=True):
            rows.append(
                {
                    "segmentation": {"counts": drawn.counts, "size": [picture.scene.side, picture.scene.side]},
                    "area": drawn.area,
                    "iscrowd": 0,
                    "image_id": picture.id,
                    "bbox": list(drawn.box),
                    "category_id": config.kinds.index(shape.look.kind) + 1,
                    "id": first + len(rows),
                    "attributes": [attributes.index(word) + 1 for word in (shape.look.colour, shape.look.size)],
                }
            )
    kinds = [{"supercategory": "shape", "id": number, "name": name} for number, name in enumerate(config.kinds, 1)]
    words = [
        {"supercategory": "size" if name in SIZES else "colour", "id": number, "name": name}
        for number, name in enumerate(attributes, 1)
    ]
    return {
        "info": INFO,
        "licenses": LICENSES,
        "images": image_rows(pictures),
        "annotations": rows,
        "categories": kinds,
        "attribute_categories": words,
    }


LICENSES = [{"url": "", "id": 1, "name": "generated; no rights reserved"}]


def write_coco(root: Path, config: ShapesConfig, pictures: Pictures) -> dict[str, int]:
    """Write coco/annotations: captions and instances of each split."""
    counts = {"captions": 0, "instances": 0}
    for split in SPLITS:
        document = instances(config, pictures[split], first=counts["instances"] + 1)
        write_json(root / f"coco/annotations/instances_{split}.json", document)
        counts["instances"] += sum(len(picture.drawn) for picture in pictures[split])
        rows = _caption_rows(config, split, pictures[split], counts["captions"] + 1)
        counts["captions"] += len(rows)
        head = {"info": INFO, "licenses": LICENSES, "images": image_rows(pictures[split])}
        write_json(root / f"coco/annotations/captions_{split}.json", {**head, "annotations": rows})
    return counts


def _caption_rows(config: ShapesConfig, split: str, pictures: list[Picture], first: int) -> list[dict[str, object]]:
    rng = stream(config, "captions", split)
    texts = [(picture.id, text) for picture in pictures for text in captions(picture.scene, rng, config)]
    return [{"image_id": image, "id": number, "caption": text} for number, (image, text) in enumerate(texts, first)]


def write_karpathy(root: Path, config: ShapesConfig, pictures: Pictures) -> dict[str, int]:
    """Write karpathy/dataset_shapes.json: five full descriptions a picture, true of no other of its split."""
    images: list[dict[str, object]] = []
    sentid = 0
    for split in SPLITS:
        rng = stream(config, "karpathy", split)
        for picture in pictures[split]:
            texts = full_descriptions(picture.scene, rng, 5)
            sentences = [
                {"tokens": tokens(text), "raw": text, "imgid": len(images), "sentid": sentid + step}
                for step, text in enumerate(texts)
            ]
            folder, name = picture.file.split("/")
            images.append(
                {
                    "filepath": folder,
                    "sentids": list(range(sentid, sentid + len(texts))),
                    "filename": name,
                    "imgid": len(images),
                    "split": split,
                    "sentences": sentences,
                    "cocoid": picture.id,
                }
            )
            sentid += len(texts)
    write_json(root / "karpathy/dataset_shapes.json", {"images": images, "dataset": "shapes"})
    return {"karpathy sentences": sentid}


def tokens(text: str) -> list[str]:
    """Return lower-cased words without punctuation, as the Karpathy files list them."""
    return re.findall(r"[a-z0-9]+", text.lower())


INFO = {"description": "shapes: a generated world", "version": "1", "year": 2026, "contributor": "vlcli", "url": ""}


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
