"""Referring expressions in the layout of the refer toolkit: RefCOCO, RefCOCO+, RefCOCOg."""

import pickle
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from itertools import product
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Literal

import numpy as np

from vlcli.data import Example, Folder, Recognised
from vlcli.data.checks import by_id
from vlcli.data.files import inside, read_json, value
from vlcli.data.miniature import BOXES, Miniature
from vlcli.data.plain_pickle import load_plain
from vlcli.data.readers.split_file import StreamReader
from vlcli.data.recognition.folder import by_folder
from vlcli.errors import DataError
from vlcli.images.boxes import NO_AREA, BoxList, boxes_for, from_instances, read_boxes
from vlcli.images.labels import Labels, numbered
from vlcli.plain import as_list


class RefCOCO(StreamReader):
    """Referring expressions with their pictures; the target is the box of the expression.

    ``refs(unc).p`` is read without unpickling, and refused if it holds anything but plain data. Targets: ``box`` (x1,
    y1, x2, y2 divided by the picture's width and height), ``ann_id``, ``ref_id``, and ``kind`` where the file flags
    place words.

    Args:
        split: ``train``, ``val``, ``testA``, ``testB`` (RefCOCOg: ``test``).
        folder: folder of the two files under the root.
        refs: the expressions: ``refs(unc).p``, ``refs(umd).p``, or the same as JSON.
        instances: COCO's boxes of the pictures.
        candidates: boxes of an extract stage among which an expression chooses: annotated (``truth``), those of
            ``detections`` (``detected``), or both, annotated first (``both``: training in the detected setting).
        detections: a file of boxes under the root, MAttNet's or COCO's.
        whole: put the whole picture before the other boxes (VL-BERT); without detections it is the only one.
    """

    paper: ClassVar[str] = "RefCOCO+, Yu et al. 2016, Modeling Context in Referring Expressions"
    splits: ClassVar[tuple[str, ...]] = ("train", "val", "testA", "testB")

    def __init__(
        self,
        root: Path,
        *,
        folder: str = "refcoco+",
        refs: str = "refs(unc).p",
        instances: str = "instances.json",
        candidates: Literal["truth", "detected", "both"] = "truth",
        detections: str | None = None,
        whole: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(root, **options)
        home = self.root / folder
        if not home.is_dir() and folder == "refcoco+" and (self.root / "refcoco").is_dir():
            home = self.root / "refcoco"
        self.refs_file, self.instances_file = home / refs, home / instances
        self.candidates, self.whole = candidates, whole
        self.detections = None if detections is None else inside(self.root, detections)
        if candidates != "truth" and detections is None:
            hint = "name MAttNet's file: detections=res101_coco_minus_refer_notime_dets.json"
            raise DataError("Detected boxes are asked for, and no file of them is named.", where="refcoco", hint=hint)

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:
        recognised = []
        for home, names in by_folder(folder.files("refs(*).p")).items():
            best, *others = sorted(names, key=lambda name: (not any(by in name for by in ("unc", "umd")), name))
            content = folder.document(str(PurePosixPath(home, "instances.json")))
            if isinstance(content, dict) and isinstance(content.get("images"), list):
                data = _recognised(folder, best, content["images"])
                data.unused += [f"{name}: the references are read from {best}" for name in others]
                recognised.append(data)
        return recognised

    def files(self) -> list[Path]:
        detected = [self.detections] if self.candidates != "truth" and self.detections is not None else []
        return [self.refs_file, self.instances_file, *detected]

    def write_miniature(self, miniature: Miniature) -> None:
        refs: list[dict[str, Any]] = []
        names: dict[int, str] = {}
        for split in self.splits:
            part = "train2014" if split == "train" else f"train2014-{split}"
            drawn = miniature.pictures(part, self.image_folder / "train2014", "COCO_train2014_{:012d}.jpg")
            names |= drawn
            for n, i in product(drawn, range(2)):
                said = {"sentences": [{"sent_id": 10 * n + i, "sent": miniature.sentence(n, i)}], "split": split}
                refs.append({"ref_id": 10 * n + i, "ann_id": 10 * n + i, "image_id": n, **said})
        miniature.write(self.refs_file, refs if self.refs_file.suffix == ".json" else pickle.dumps(refs, protocol=2))
        miniature.write(self.instances_file, miniature.instances(names))
        if self.detections is not None:
            boxes = [{"image_id": n, "box": box, "category_id": 1, "score": 0.9} for n in names for box in BOXES[:2]]
            miniature.write(self.detections, boxes)

    def stream(self) -> Iterator[Example]:
        refs = load_plain(self.refs_file) if self.refs_file.suffix == ".p" else read_json(self.refs_file, list)
        if not isinstance(refs, list):
            raise DataError("The references are not a list.", where=str(self.refs_file), got=type(refs).__name__)
        images, notes = self._by_id("images"), self._by_id("annotations")
        for row, ref in enumerate(refs):
            where = f"{self.refs_file}: [{row}]"
            if value(ref, "split", str, where) not in self.split_names:
                continue
            number, annotation = value(ref, "image_id", int, where), value(ref, "ann_id", int, where)
            if number not in images or annotation not in notes:
                got = f"image_id {number}, ann_id {annotation}"
                raise DataError("A reference speaks of what the boxes' file does not list.", where=where, got=got)
            image = images[number]
            name = self.picture(str(image["file_name"]))
            left, top, wide, high = notes[annotation]["bbox"]
            if min(wide, high) <= 0:
                self.left_out[f"references to {NO_AREA}"] += 1
                continue
            sides = np.array([image["width"], image["height"]] * 2, np.float32)
            box = (np.array([left, top, left + wide, top + high], np.float32) / sides).tolist()
            for sentence in value(ref, "sentences", list, where):
                key = str(value(sentence, "sent_id", int, where))
                targets = {"box": box, "ann_id": annotation, "ref_id": ref.get("ref_id", -1)}
                if "place" in sentence:
                    targets["kind"] = "place" if sentence["place"] else "other"
                yield Example(key, value(sentence, "sent", str, where), [name], text_key=key, targets=targets)

    def boxes(self) -> dict[str, BoxList]:
        instances = from_instances(self._content, crowds=True).with_area()
        of_file = numbered(instances, Labels((), tuple(self.class_ids()))).values()
        truth = {self.picture(one.name): replace(one, attributes=None) for one in of_file}
        detected = read_boxes(self.detections) if self.candidates != "truth" and self.detections is not None else {}
        candidates = {}  # without scores, which would tell annotated from detected boxes
        for name in dict.fromkeys(name for example in self.examples() for name in example.images):
            lists = [truth[name]] if self.candidates != "detected" else []
            if self.candidates != "truth" and (more := boxes_for(detected, name)) is not None and len(more):
                lists.append(self._detected(more.top(None), truth[name]))
            if self.whole or not lists:  # where nothing was detected there is still a picture, and nothing to hit
                height, width = truth[name].size or (1, 1)
                lists.insert(0, _box_list([[0, 0, width, height]], [-1], ["picture"], truth[name].size))
            candidates[name] = lists[0] if len(lists) == 1 else _joined(lists)
        return candidates

    def _detected(self, boxes: BoxList, annotated: BoxList) -> BoxList:
        assert annotated.size is not None
        numbers = {kind: number for number, kind in enumerate(self.class_ids())}
        kinds = [-1] * len(boxes) if boxes.classes is None else [numbers.get(int(kind), -1) for kind in boxes.classes]
        names = [f"detected-{row}" for row in range(len(boxes))]
        return _box_list(boxes.clipped(annotated.size).boxes, kinds, names, annotated.size)

    def class_names(self) -> list[str]:
        return [str(row["name"]) for _, row in sorted(self._by_id("categories").items())]

    def class_ids(self) -> list[int]:
        return sorted(self._by_id("categories"))

    @cached_property
    def _content(self) -> dict[str, Any]:
        content = read_json(self.instances_file)
        for name in ("images", "annotations"):
            value(content, name, list, str(self.instances_file))
        return content  # type: ignore[no-any-return]

    def _by_id(self, name: str) -> dict[int, dict[str, Any]]:
        rows = by_id(self._content.get(name, []), "id", f"{self.instances_file}: {name}")
        return {int(key): row for key, row in rows.items()}


def _recognised(folder: Folder, refs: str, images: list[Any]) -> Recognised:
    home = str(PurePosixPath(refs).parent)
    splits = sorted({str(row.get("split")) for row in as_list(load_plain(folder.root / refs)) if isinstance(row, dict)})
    files = [refs, str(PurePosixPath(home, "instances.json"))]
    columns = {"image": "image_id", "text": "sentences[].sent", "boxes": "ann_id"}
    data = Recognised("referring", {"name": "refcoco", "folder": home}, files, columns).name_files("refs", splits)
    data.entry["refs"] = PurePosixPath(refs).name
    data.reasons["parts"] = f"the field split of {refs} names the parts"
    return folder.with_images(data, [str(row.get("file_name")) for row in images if isinstance(row, dict)])


def _box_list(boxes: Any, classes: list[int], names: list[str], size: tuple[int, int] | None) -> BoxList:
    corners = np.asarray(boxes, np.float32).reshape(-1, 4)
    return BoxList(corners, classes=np.array(classes, np.int64), box_ids=np.array(names), size=size)


def _joined(parts: list[BoxList]) -> BoxList:
    fields = ("boxes", "classes", "box_ids")
    boxes, classes, names = (np.concatenate([getattr(part, name) for part in parts]) for name in fields)
    return BoxList(boxes, classes=classes, box_ids=names, size=parts[0].size)
