"""Detection: the labelled boxes of pictures, found by any detector."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from PIL import Image
from torch import Tensor

from vlcli.data.images import load_image
from vlcli.data.truth import Truth
from vlcli.errors import DataError
from vlcli.files import write_json
from vlcli.metrics.detection import INSTALL, average_precision
from vlcli.nn import Batch, DataSpec
from vlcli.registry import Spec
from vlcli.report.drawing import draw_boxes
from vlcli.tasks.base import Examples, Find, Result, Runner, Task
from vlcli.tasks.outputs import logits_of

SUBMISSION, SHEET = "detections.json", "detections.png"
SIDE = 300  # Longer side of a picture on the sheet


class Detection(Task):
    """COCO's average precision of detected boxes, and its results file.

    Any objective is scored whose ``predict`` gives ``boxes``, ``labels`` and ``scores``, as
    ``vlcli.objectives.detection.as_outputs`` tells. Classes are matched with those of the annotation file by name where
    the model knows names, else by order.

    Args:
        objective: what is trained and predicts, unless the recipe names objectives.
        limit: most boxes a picture, by score.
        min_score: boxes below it are left out.
        pictures: how many pictures, the first of the data, are drawn with what was found in them; 0 for none.
        draw_score: boxes below it are not drawn.
    """

    paper = "Lin et al. 2014, Microsoft COCO"
    requires = frozenset({"boxes"})
    metric = "AP"
    joint = True
    eval_split = "val"
    packages = ("pycocotools",)
    install = INSTALL

    def __init__(
        self,
        *,
        objective: str = "detection",
        limit: int = 100,
        min_score: float = 0.0,
        pictures: int = 12,
        draw_score: float = 0.5,
    ) -> None:
        self.objective, self.limit, self.min_score = objective, limit, min_score
        self.pictures, self.draw_score = pictures, draw_score
        self.files: dict[str, Path] = {}
        self.names: tuple[str, ...] = ()
        self.truth: Truth | None = None

    def objectives(self) -> list[Spec]:
        return [{"name": self.objective}]

    def dataset(self) -> Spec:
        return {"name": "coco-instances"}

    def attach(self, data_spec: DataSpec) -> None:
        self.names = tuple(data_spec.class_names)

    def evaluate(self, runner: Runner) -> Result:
        self._read_truth(runner)
        return super().evaluate(runner)

    def rescore(self, find: Find, runner: Examples) -> Result:
        self._read_truth(runner)
        return super().rescore(find, runner)

    def judge(self, predictions: list[dict[str, Any]], batch: Batch) -> list[dict[str, Any]]:
        numbers = {} if self.truth is None else self.truth.numbers
        rows = zip(batch.keys, predictions, strict=True)
        return [{**row, "key": key, "image": key, "image_id": numbers.get(key, key)} for key, row in rows]

    def _read_truth(self, runner: Examples) -> None:
        self.truth = joined([reader.truth() for reader in runner.data.readers])
        self.files = {name: path for reader in runner.data.readers for name, path in reader.image_files().items()}

    def decode(self, outputs: dict[str, dict[str, Tensor]], batch: Batch) -> list[dict[str, Any]]:
        # A row a picture: ``image_id`` and ``categories`` as the file has them (None: not there), boxes in pixels
        images = batch.clean.images
        assert images is not None
        assert images.pixels is not None
        rows = batch.clean.image_rows[:, 0].tolist()
        boxes, labels, scores = (
            logits_of(outputs, self.objective, key).cpu() for key in ("boxes", "labels", "scores")
        )  # (B, N, 4), (B, N), (B, N)
        sizes = images.pixels.sizes.tolist()
        return [
            self._row(key, images.keys[row], sizes[row], boxes[place], labels[place], scores[place])
            for place, (key, row) in enumerate(zip(batch.keys, rows, strict=True))
        ]

    def _row(
        self, key: str, image: str, size: list[int], boxes: Tensor, labels: Tensor, scores: Tensor
    ) -> dict[str, Any]:
        height, width = size
        kept = (labels >= 0) & (scores >= self.min_score)
        order = scores.masked_fill(~kept, -1).argsort(descending=True, stable=True)[: min(self.limit, int(kept.sum()))]
        corners = boxes[order].double() * boxes.new_tensor([width, height, width, height]).double()
        numbers = labels[order].tolist()
        truth = self.truth or Truth({"images": [], "annotations": [], "categories": []})
        categories = self._categories(truth)
        return {
            "key": key,
            "image": image,
            "image_id": truth.numbers.get(image, image),
            "boxes": [[round(value, 2) for value in box] for box in corners.tolist()],
            "categories": [categories.get(number) for number in numbers],
            "classes": [self._name(number) for number in numbers],
            "scores": [round(value, 7) for value in scores[order].tolist()],
        }

    def _name(self, number: int) -> str:
        return self.names[number] if number < len(self.names) else str(number)

    def _categories(self, truth: Truth) -> dict[int, Any]:
        rows = truth.document["categories"]
        ids = {str(row.get("name", row["id"])): row["id"] for row in rows}
        if self.names and set(self.names) & set(ids):
            return {number: ids[name] for number, name in enumerate(self.names) if name in ids}
        return {number: row["id"] for number, row in enumerate(rows)}

    def score(self, predictions: list[dict[str, Any]]) -> dict[str, float]:
        if self.truth is None or not self.truth.document["annotations"]:
            return {}
        return average_precision(only(self.truth, {row["image"] for row in predictions}), coco_results(predictions))

    def submission(self, predictions: list[dict[str, Any]], folder: Path) -> list[Path]:
        written = [write_json(folder / SUBMISSION, coco_results(predictions))]
        shown = [row for row in predictions if row["image"] in self.files][: self.pictures]
        if shown:
            drawn = [draw_row(row, self.files[row["image"]], self.draw_score) for row in shown]
            sheet(drawn).save(folder / SHEET)
            written.append(folder / SHEET)
        return written


def draw_row(row: dict[str, Any], file: Path, score: float) -> Image.Image:
    """A picture with its boxes of at least ``score``, each with class and score, as large as :data:`SIDE`."""
    picture = load_image(file)
    factor = SIDE / max(picture.size)
    picture = picture.resize((round(picture.width * factor), round(picture.height * factor)), Image.Resampling.BICUBIC)
    kept = [place for place, value in enumerate(row["scores"]) if value >= score]
    boxes = [[factor * value for value in row["boxes"][place]] for place in kept]
    return draw_boxes(picture, boxes, [f"{row['classes'][place]} {row['scores'][place]:.2f}" for place in kept])


def sheet(pictures: list[Image.Image]) -> Image.Image:
    """Pictures in rows of four."""
    columns = min(4, len(pictures))
    rows = -(-len(pictures) // columns)
    page = Image.new("RGB", (columns * (SIDE + 4), rows * (SIDE + 4)), "white")
    for place, picture in enumerate(pictures):
        page.paste(picture, (place % columns * (SIDE + 4), place // columns * (SIDE + 4)))
    return page


def coco_results(predictions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of :meth:`Detection.decode` as COCO results, one mapping a box."""
    return [
        {"image_id": row["image_id"], "category_id": category, "bbox": _sides(box), "score": score}
        for row in predictions
        for box, category, score in zip(row["boxes"], row["categories"], row["scores"], strict=True)
        if category is not None
    ]


def _sides(box: list[float]) -> list[float]:
    left, top, right, bottom = box
    return [left, top, round(right - left, 2), round(bottom - top, 2)]


def joined(truths: list[Truth]) -> Truth:
    """The truths of several data sets as one.

    Raises:
        DataError: they name other categories, or give one number to two pictures.
    """
    first = truths[0]
    for other in truths[1:]:
        if other.document["categories"] != first.document["categories"]:
            raise DataError("The data sets have different categories.", hint="evaluate them one by one")
    numbers = {name: number for truth in truths for name, number in truth.numbers.items()}
    listed = {row["id"]: row for truth in truths for row in truth.document["images"]}
    if len(set(numbers.values())) < len(numbers):
        raise DataError("Two pictures have one number in their files.", hint="evaluate the data sets one by one")
    seen: set[Any] = set()
    notes: list[dict[str, Any]] = []
    for truth in truths:
        notes += [note for note in truth.document["annotations"] if note["image_id"] not in seen]
        seen |= set(truth.numbers.values())
    categories = first.document["categories"]
    return Truth({"images": list(listed.values()), "annotations": notes, "categories": categories}, numbers)


def only(truth: Truth, images: set[str]) -> dict[str, list[dict[str, Any]]]:
    """The document of some pictures: those that were dropped are not held against the detector."""
    kept = {number for name, number in truth.numbers.items() if name in images}
    return {
        "images": [row for row in truth.document["images"] if row["id"] in kept],
        "annotations": [note for note in truth.document["annotations"] if note["image_id"] in kept],
        "categories": truth.document["categories"],
    }
