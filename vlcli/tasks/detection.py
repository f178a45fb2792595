"""Detection: COCO's average precision of any detector's boxes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image
from torch import Tensor

from vlcli.data.images import load_image
from vlcli.data.truth import Truth
from vlcli.errors import DataError
from vlcli.files import write_json
from vlcli.metrics.detection import INSTALL, average_precision
from vlcli.nn import Batch
from vlcli.registry import Spec
from vlcli.report.drawing import draw_boxes
from vlcli.tasks.base import Examples, Task
from vlcli.tasks.outputs import logits_of

SUBMISSION, SHEET = "detections.json", "detections.png"
SIDE = 300  # Longer side of a picture on the sheet


@dataclass(kw_only=True, eq=False)
class Detection(Task):
    """COCO's average precision of detected boxes, and its results file.

    Any objective is scored whose ``predict`` gives the outputs of ``vlcli.objectives.regions.as_outputs``. Classes are
    matched with those of the annotation file by name where the model knows names, else by order.

    Args:
        objective: which is trained and predicts, unless the recipe names objectives.
        limit: most boxes of a picture, by score.
        min_score: boxes below it are left out.
        pictures: pictures, the first of the data, that are drawn with their boxes; 0 for none.
        draw_score: boxes below it are not drawn.
    """

    paper = "Lin et al. 2014, Microsoft COCO"
    requires = frozenset({"boxes"})
    metric = "AP"
    eval_split = "val"
    usual_data = "coco-instances"
    packages = ("pycocotools",)
    install = INSTALL

    objective: str = "detection"
    limit: int = 100
    min_score: float = 0.0
    pictures: int = 12
    draw_score: float = 0.5

    def __post_init__(self) -> None:
        self.files: dict[str, Path] = {}
        self.truth: Truth | None = None

    def objectives(self) -> list[Spec]:
        return [{"name": self.objective}]

    def judge(self, predictions: list[dict[str, Any]], batch: Batch) -> list[dict[str, Any]]:
        # boxes in pixels, with COCO's numbers of pictures and categories
        numbers = {} if self.truth is None else self.truth.numbers
        rows = zip(batch.keys, predictions, strict=True)
        return [{**row, "key": key, "image": key, "image_id": numbers.get(key, key)} for key, row in rows]

    def read(self, runner: Examples) -> None:
        self.truth = joined([reader.truth() for reader in runner.data.readers])
        self.files = {name: path for reader in runner.data.readers for name, path in reader.image_files().items()}

    def decode(self, outputs: dict[str, dict[str, Tensor]], batch: Batch) -> list[dict[str, Any]]:
        # a row a picture: ``image_id`` and ``categories`` as the file has them (None: not there), boxes in pixels
        images = batch.clean.images
        assert images is not None
        assert images.pixels is not None
        numbers = {} if self.truth is None else self.truth.numbers
        categories, known = self._categories(), self.data_spec.class_names
        found = (logits_of(outputs, self.objective, key).cpu() for key in ("boxes", "labels", "scores"))
        sizes, rows, pictures = images.pixels.sizes.cpu().double(), [], batch.clean.image_rows[:, 0].tolist()
        for key, row, boxes, labels, scores in zip(batch.keys, pictures, *found, strict=True):
            name = images.keys[row]
            kept = (labels >= 0) & (scores >= self.min_score)  # (N,)
            ranked = scores.masked_fill(~kept, -1).argsort(descending=True, stable=True)
            order = ranked[: min(self.limit, int(kept.sum()))]
            corners = boxes[order].double() * sizes[row].flip(0).repeat(2)
            classes = labels[order].tolist()
            rows.append(
                {
                    "key": key,
                    "image": name,
                    "image_id": numbers.get(name, name),
                    "boxes": [[round(value, 2) for value in box] for box in corners.tolist()],
                    "categories": [categories.get(number) for number in classes],
                    "classes": [known[n] if n < len(known) else str(n) for n in classes],
                    "scores": [round(value, 7) for value in scores[order].tolist()],
                }
            )
        return rows

    def _categories(self) -> dict[int, Any]:
        # the file's category id of each class that the model numbers
        rows = self.truth.document["categories"] if self.truth is not None else []
        ids = {str(row.get("name", row["id"])): row["id"] for row in rows}
        known = {number: ids[name] for number, name in enumerate(self.data_spec.class_names) if name in ids}
        return known or {number: row["id"] for number, row in enumerate(rows)}

    def score(self, predictions: list[dict[str, Any]]) -> dict[str, float]:
        if self.truth is None or not self.truth.document["annotations"]:
            return {}
        # pictures that were dropped are not held against the detector
        seen, document = {row["image"] for row in predictions}, self.truth.document
        kept = {number for name, number in self.truth.numbers.items() if name in seen}
        images = [row for row in document["images"] if row["id"] in kept]
        notes = [note for note in document["annotations"] if note["image_id"] in kept]
        part = {"images": images, "annotations": notes, "categories": document["categories"]}
        return average_precision(part, coco_results(predictions))

    def submission(self, predictions: list[dict[str, Any]], folder: Path) -> list[Path]:
        # COCO's results file, and a sheet of pictures in rows of four with the boxes drawn
        files = [write_json(folder / SUBMISSION, coco_results(predictions))]
        if shown := [row for row in predictions if row["image"] in self.files][: self.pictures]:
            page = Image.new("RGB", (min(4, len(shown)) * (SIDE + 4), -(-len(shown) // 4) * (SIDE + 4)), "white")
            for number, row in enumerate(shown):
                picture = load_image(self.files[row["image"]])
                factor = SIDE / max(picture.size)
                width, height = (max(1, round(factor * side)) for side in picture.size)
                small = picture.resize((width, height), Image.Resampling.BICUBIC)
                kept = [rank for rank, score in enumerate(row["scores"]) if score >= self.draw_score]
                boxes = [[factor * side for side in row["boxes"][rank]] for rank in kept]
                drawn = draw_boxes(small, boxes, [f"{row['classes'][i]} {row['scores'][i]:.2f}" for i in kept])
                page.paste(drawn, (number % 4 * (SIDE + 4), number // 4 * (SIDE + 4)))
            page.save(folder / SHEET)
            files.append(folder / SHEET)
        return files


def coco_results(predictions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of :meth:`Detection.decode` as COCO results, a mapping per box."""
    results = []
    for row in predictions:
        for (x1, y1, x2, y2), category, score in zip(row["boxes"], row["categories"], row["scores"], strict=True):
            if category is not None:
                # a file's own digits, without what subtraction adds
                box = [x1, y1, round(x2 - x1, 9), round(y2 - y1, 9)]
                results.append({"image_id": row["image_id"], "category_id": category, "bbox": box, "score": score})
    return results


def joined(truths: list[Truth]) -> Truth:
    """Join the truths of several data sets. Raises DataError: their categories or numbers of pictures differ."""
    categories = truths[0].document["categories"]
    if any(truth.document["categories"] != categories for truth in truths):
        raise DataError("The data sets have different categories.", hint="evaluate them one by one")
    numbers = {name: number for truth in truths for name, number in truth.numbers.items()}
    if len(set(numbers.values())) < len(numbers):
        raise DataError("Two pictures have one number in their files.", hint="evaluate the data sets one by one")
    images = {row["id"]: row for truth in truths for row in truth.document["images"]}
    notes: list[dict[str, Any]] = []
    seen: set[Any] = set()
    for truth in truths:
        notes += [note for note in truth.document["annotations"] if note["image_id"] not in seen]
        seen |= set(truth.numbers.values())
    return Truth({"images": list(images.values()), "annotations": notes, "categories": categories}, numbers)
