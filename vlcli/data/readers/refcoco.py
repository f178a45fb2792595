"""Referring expressions in the layout of the refer toolkit: RefCOCO, RefCOCO+, RefCOCOg."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Literal

import numpy as np

from vlcli.data.files import inside, read_json, value
from vlcli.data.plain_pickle import load_plain
from vlcli.data.reader import Reader
from vlcli.data.recognition.folder import Folder
from vlcli.data.recognition.recognised import Recognised
from vlcli.data.sample import Example
from vlcli.data.unique import by_id
from vlcli.errors import DataError
from vlcli.images.boxes import NO_AREA, BoxList, boxes_for, read_boxes


class RefCOCO(Reader):
    """One expression and its picture an example; the target is the box it speaks of.

    ``refs(unc).p`` is a pickled file: it is read without unpickling, and anything but plain data in it is refused.
    Targets: ``box`` (x1, y1, x2, y2, divided by the picture's width and height), ``ann_id``, ``ref_id``, and ``kind``
    where the file flags expressions with place words.

    Args:
        root: data root.
        split: ``train``, ``val``, ``testA``, ``testB`` (RefCOCOg: ``test``).
        folder: what holds the two files, under the root.
        refs: the expressions: ``refs(unc).p``, ``refs(umd).p``, or the same as JSON.
        instances: COCO's boxes of the pictures.
        images: folder of the pictures.
        candidates: the boxes that an expression may speak of, for an extract stage: all annotated ones (``truth``),
            those of ``detections`` (``detected``), or annotated ones with detected ones behind (``both``: training in
            the detected setting).
        detections: a file of boxes under the root, MAttNet's or COCO's.
        whole: also the whole picture, before the others (VL-BERT); it stands alone where nothing was detected.
        take: which images, see :mod:`vlcli.data.holdout`.
        limit: read only so many examples.
    """

    paper: ClassVar[str] = "RefCOCO+, Yu et al. 2016, Modeling Context in Referring Expressions"
    splits: ClassVar[tuple[str, ...]] = ("train", "val", "testA", "testB")

    def __init__(
        self,
        root: Path,
        *,
        split: str | list[str] = "train",
        folder: str = "refcoco+",
        refs: str = "refs(unc).p",
        instances: str = "instances.json",
        images: str = "images",
        candidates: Literal["truth", "detected", "both"] = "truth",
        detections: str | None = None,
        whole: bool = False,
        take: str | None = None,
        limit: int | None = None,
    ) -> None:
        super().__init__(root, split=split, images=images, take=take, limit=limit)
        place = self.root / folder
        if not place.is_dir() and folder == "refcoco+" and (self.root / "refcoco").is_dir():
            place = self.root / "refcoco"
        self.refs_file, self.instances_file = place / refs, place / instances
        self.candidates, self.whole = candidates, whole
        self.detections = None if detections is None else inside(self.root, detections)
        if candidates != "truth" and detections is None:
            hint = "name MAttNet's file: detections=res101_coco_minus_refer_notime_dets.json"
            raise DataError("Detected boxes are asked for, and no file of them is named.", where="refcoco", hint=hint)
        self._instances: dict[str, Any] | None = None

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:
        """Folders with ``refs(...).p`` and ``instances.json``; of several files of references, unc's or umd's."""
        found = []
        for place in dict.fromkeys(str(PurePosixPath(name).parent) for name in folder.files("refs(*).p")):
            names = [name for name in folder.files("refs(*).p") if str(PurePosixPath(name).parent) == place]
            best = min(names, key=lambda name: (not any(by in name for by in ("unc", "umd")), name))
            content = folder.document(str(PurePosixPath(place, "instances.json")))
            if isinstance(content, dict) and isinstance(content.get("images"), list):
                one = _recognised(folder, best, content["images"])
                one.unused = [f"{name}: the references are read from {best}" for name in names if name != best]
                found.append(one)
        return found

    def files(self) -> list[Path]:
        """Expressions and boxes."""
        detected = [] if self.candidates == "truth" or self.detections is None else [self.detections]
        return [self.refs_file, self.instances_file, *detected]

    def read(self) -> list[Example]:
        """Every expression of the split, in the file's order."""
        refs = load_plain(self.refs_file) if self.refs_file.suffix == ".p" else read_json(self.refs_file, list)
        where = str(self.refs_file)
        if not isinstance(refs, list):
            raise DataError("There is no list of references.", where=where, got=type(refs).__name__)
        images, boxes = self._pictures(), self._boxes()
        found: list[Example] = []
        for number, ref in enumerate(refs):
            if value(ref, "split", str, f"{where}: [{number}]") in self.split_names:
                found += self._expressions(ref, images, boxes, f"{where}: [{number}]")
        return found

    def _expressions(
        self, ref: dict[str, Any], images: dict[int, dict[str, Any]], boxes: dict[int, list[float]], where: str
    ) -> list[Example]:
        number, annotation = value(ref, "image_id", int, where), value(ref, "ann_id", int, where)
        if number not in images or annotation not in boxes:
            got = f"image_id {number}, ann_id {annotation}"
            raise DataError("A reference speaks of what the boxes' file does not list.", where=where, got=got)
        image = images[number]
        name = self.picture(str(image["file_name"]))
        left, top, wide, high = boxes[annotation]
        if min(wide, high) <= 0:
            self.left_out[f"references to {NO_AREA}"] += 1
            return []
        sides = np.array([image["width"], image["height"]] * 2, np.float32)
        box = (np.array([left, top, left + wide, top + high], np.float32) / sides).tolist()
        found = []
        for sentence in value(ref, "sentences", list, where):
            key = str(value(sentence, "sent_id", int, where))
            targets = {"box": box, "ann_id": annotation, "ref_id": ref.get("ref_id", -1)}
            if "place" in sentence:
                targets["kind"] = "place" if sentence["place"] else "other"
            text = value(sentence, "sent", str, where)
            found.append(Example(key, text, [name], text_key=key, targets=targets))
        return found

    def boxes(self) -> dict[str, BoxList]:
        """The candidates of the split's pictures; without scores, which would tell annotated from detected ones."""
        truth = self._annotated()
        detected = read_boxes(self.detections) if self.candidates != "truth" and self.detections is not None else {}
        made: dict[str, BoxList] = {}
        for name in dict.fromkeys(name for example in self.examples() for name in example.images):
            found = [truth[name]] if self.candidates != "detected" else []
            if self.candidates != "truth" and (more := boxes_for(detected, name)) is not None and len(more):
                found.append(self._detected(more.top(None), truth[name]))
            if self.whole or not found:  # where nothing was detected there is still a picture, and nothing to hit
                found.insert(0, _whole(truth[name]))
            made[name] = found[0] if len(found) == 1 else _joined(found)
        return made

    def _detected(self, boxes: BoxList, annotated: BoxList) -> BoxList:
        """Best first, classes numbered as ours, inside the picture."""
        assert annotated.size is not None
        place = {kind: number for number, kind in enumerate(self.class_ids())}
        classes = [-1] * len(boxes) if boxes.classes is None else [place.get(int(kind), -1) for kind in boxes.classes]
        names = [f"detected-{row}" for row in range(len(boxes))]
        cut = boxes.clipped(annotated.size).boxes
        return BoxList(cut, classes=np.array(classes, np.int32), box_ids=np.array(names), size=annotated.size)

    def _annotated(self) -> dict[str, BoxList]:
        """All annotated boxes of every picture, with their ids."""
        images = self._pictures()
        rows: dict[int, list[dict[str, Any]]] = {}
        kinds = {kind: place for place, kind in enumerate(sorted(self._kinds()))}
        for note in self._content()["annotations"]:
            rows.setdefault(int(note["image_id"]), []).append(note)
        made: dict[str, BoxList] = {}
        for number, notes in rows.items():
            if number not in images:
                continue
            image = images[number]
            corners = [[x, y, x + w, y + h] for x, y, w, h in (note["bbox"] for note in notes)]
            boxes = BoxList(
                np.array(corners, np.float32).reshape(-1, 4),
                classes=np.array([kinds[note["category_id"]] for note in notes], np.int32),
                box_ids=np.array([str(note["id"]) for note in notes]),
                size=(int(image["height"]), int(image["width"])),
            )
            made[self.picture(str(image["file_name"]))] = boxes.with_area()
        return made

    def class_names(self) -> list[str]:
        """Names of the categories, in order of their number."""
        return [name for _, name in sorted(self._kinds().items())]

    def class_ids(self) -> list[int]:
        """The file's own numbers of the categories."""
        return sorted(self._kinds())

    def _kinds(self) -> dict[int, str]:
        rows = by_id(self._content().get("categories", []), "id", f"{self.instances_file}: categories")
        return {int(key): str(row["name"]) for key, row in rows.items()}

    def _content(self) -> dict[str, Any]:
        if self._instances is None:
            content = read_json(self.instances_file)
            where = str(self.instances_file)
            for name in ("images", "annotations"):
                value(content, name, list, where)
            self._instances = content
        return self._instances

    def _pictures(self) -> dict[int, dict[str, Any]]:
        rows = by_id(self._content()["images"], "id", f"{self.instances_file}: images")
        return {int(key): row for key, row in rows.items()}

    def _boxes(self) -> dict[int, list[float]]:
        rows = by_id(self._content()["annotations"], "id", f"{self.instances_file}: annotations")
        return {int(key): row["bbox"] for key, row in rows.items()}


def _recognised(folder: Folder, refs: str, images: list[Any]) -> Recognised:
    place = str(PurePosixPath(refs).parent)
    rows = load_plain(folder.root / refs)
    splits = sorted({str(row.get("split")) for row in rows if isinstance(row, dict)}) if isinstance(rows, list) else []
    files = [refs, str(PurePosixPath(place, "instances.json"))]
    columns = {"image": "image_id", "text": "sentences[].sent", "boxes": "ann_id"}
    entry = {"name": "refcoco", "folder": place}
    found = Recognised("referring", entry, files, columns).name_files("refs", splits)
    found.entry["refs"] = PurePosixPath(refs).name
    found.reasons["parts"] = f"the field split of {refs} names the parts"
    return folder.with_images(found, [str(row.get("file_name")) for row in images if isinstance(row, dict)])


def _whole(like: BoxList) -> BoxList:
    """The whole picture as a box of no class."""
    height, width = like.size or (1, 1)
    box = np.array([[0, 0, width, height]], np.float32)
    return BoxList(box, classes=np.array([-1], np.int32), box_ids=np.array(["picture"]), size=like.size)


def _joined(parts: list[BoxList]) -> BoxList:
    """Boxes one after another."""
    boxes, classes, names = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("boxes", "classes", "box_ids")
    )
    return BoxList(boxes, classes=classes, box_ids=names, size=parts[0].size)
