"""Groups captions and questions of five data sets by image (LXMERT's pre-training data)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vlcli import registry
from vlcli.data import Example, Identity, Reader, is_coco, minival
from vlcli.errors import DataError
from vlcli.progress import Progress, Silent
from vlcli.registry import Spec

_SETS = ("mscoco", "vg", "vqa", "gqa", "visual7w")  # the data sets by their names in LXMERT's files
OF_COCO, OF_VG = ("mscoco", "vqa"), ("vg", "gqa", "visual7w")
ALL = "all"
# The rows of LXMERT's Table 1
PARTS = ("COCO - VG", "COCO and VG", "VG - COCO")
SPLITS = ("mscoco_train", "mscoco_nominival", "mscoco_minival", "vgnococo")
# The readers that are tried for each set, with the splits that are for training and validation
USUAL: Mapping[str, tuple[tuple[Spec, tuple[str, ...]], ...]] = {
    "mscoco": (
        ({"name": "coco-captions", "file": "annotations/captions_{split}2014.json"}, ("train", "val")),
        ({"name": "coco-captions", "file": "coco/annotations/captions_{split}2014.json"}, ("train", "val")),
        ({"name": "coco-captions"}, ("train", "val")),
    ),
    "vg": (({"name": "vg-regions"}, ("all",)),),
    "vqa": (({"name": "vqa"}, ("train", "val")), ({"name": "vqa"}, ("train", "nominival", "minival"))),
    "gqa": (({"name": "gqa"}, ("train", "val")),),
    "visual7w": (({"name": "vg-qa"}, ("all",)),),
}


@dataclass
class Datum:
    """All sentences of one image, by data set."""

    image: str
    sentences: dict[str, list[str]] = field(default_factory=dict)
    answers: dict[str, list[dict[str, float]]] = field(default_factory=dict)  # answer -> score of each sentence

    def add(self, source: str, example: Example) -> None:
        self.sentences.setdefault(source, []).append(example.text or "")
        if "question_id" in example.targets:
            self.answers.setdefault(source, []).append(dict(example.targets.get("answers") or {}))


@dataclass
class CorpusSource:
    """One of LXMERT's data sets whose files exist, with its readers by split."""

    name: str
    parts: dict[str, Reader]

    @property
    def files(self) -> list[Path]:
        return [file for reader in self.parts.values() for file in reader.files()]


def find_sources(root: Path, changes: Mapping[str, Mapping[str, Any] | None] | None = None) -> list[CorpusSource]:
    """Returns the data sets whose files are under the root. Raises DataError: a set is unknown, or none is there.

    Args:
        changes: by data set, parameters that differ from those of its usual reader (``name``, ``split`` and ``file``
            among them); None leaves the set out.
    """
    changes = changes or {}
    if unknown := sorted(set(changes) - set(_SETS)):
        raise DataError("There is no such source.", got=", ".join(unknown), expected=", ".join(_SETS))
    wanted = [name for name in _SETS if name not in changes or changes[name] is not None]
    sources = [source for name in wanted if (source := _source(root, name, dict(changes.get(name) or {})))]
    if not sources:
        expected = "COCO captions, VG region descriptions, VQA, GQA or VG questions (docs/data.md)"
        raise DataError("There are no annotation files to aggregate.", where=str(root), expected=expected)
    return sources


def _source(root: Path, name: str, change: dict[str, Any]) -> CorpusSource | None:
    for spec, usual in USUAL[name]:
        fixed = any("{split}" not in str(change.get(key, "{split}")) for key in ("file", "questions"))
        splits = change.get("split", usual[:1] if fixed else usual)  # a file without {split} is of one split
        splits = [splits] if isinstance(splits, str) else list(splits)
        readers = {split: registry.of(Reader).build({**spec, **change, "split": split}, root) for split in splits}
        parts = {split: reader for split, reader in readers.items() if all(map(Path.is_file, reader.files()))}
        if len(parts) == len(splits) or (parts and (spec, usual) == USUAL[name][-1]):
            return CorpusSource(name, parts)
    if change:
        raise DataError("The files of a corpus are missing.", where=str(root), got=f"{name}: {change}")
    return None


def refuse_tests(sources: Iterable[CorpusSource]) -> None:
    """Refuses to train on test splits. Raises DataError: a source names a test split; its files are named."""
    for source in sources:
        for split, reader in source.parts.items():
            if split in reader.held_out_splits and split != "minival":
                where, got = ", ".join(map(str, reader.files())), f"{source.name}.split={split}"
                what, expected = "Pre-training data are made of a test split.", "splits for training and validation"
                raise DataError(what, where=where, got=got, expected=expected)


def aggregate(
    sources: Iterable[CorpusSource],
    root: Path,
    *,
    minival_file: str | None = None,
    image_data: str | None = None,
    progress: Progress | None = None,
) -> dict[str, dict[str, Datum]]:
    """Groups sentences by image, and images by LXMERT's splits.

    An image that COCO and Visual Genome share has COCO's name. Without a list of minival, all of COCO's validation
    images are minival.

    Args:
        minival_file: lists the images of minival; None: the usual places.
        image_data: Visual Genome's ``image_data.json``; None: the usual places.
    """
    report, same, listed = progress or Silent(), Identity.under(root, image_data), minival(root, minival_file)[0]
    held: dict[str, str] = {}  # key of a COCO image: train, val, nominival or minival
    data: dict[str, Datum] = {}
    # COCO's own sets come first: theirs are the names of shared images.
    for source in sorted(sources, key=lambda source: source.name in OF_VG):
        for split, reader in source.parts.items():
            for example in reader.examples():
                key = same.key(example.images[0])
                if source.name in OF_COCO:
                    held[key] = split if held.get(key) in (None, "val") else held[key]
                data.setdefault(key, Datum(example.images[0])).add(source.name, example)
            report.info(f"{source.name} {split}: {len(reader.examples()):,} sentences")
            reader.forget()
    held |= dict.fromkeys(map(same.key, listed or ()), "minival")
    by_split: dict[str, dict[str, Datum]] = {split: {} for split in SPLITS}
    files = {None: "vgnococo", "val": "mscoco_minival" if listed is None else "mscoco_nominival"}
    files |= {"minival": "mscoco_minival", "nominival": "mscoco_nominival"}
    for key, datum in data.items():
        by_split[files.get(held.get(key), "mscoco_train")][datum.image] = datum
    return by_split


def composition(data: Mapping[str, Iterable[Datum]]) -> list[dict[str, Any]]:
    """Counts images and sentences of each set: Table 1 of LXMERT, and the same by split.

    Rows have ``split``, ``part``, ``images``, one column a set, and ``all``. ``COCO and VG``: COCO's images with
    sentences of Visual Genome.
    """
    cells: dict[tuple[str, str], dict[str, int]] = {}
    for split, images in data.items():
        for datum in images:
            of_vg = any(name in datum.sentences for name in OF_VG)
            part = PARTS[2] if not is_coco(datum.image) else PARTS[1] if of_vg else PARTS[0]
            for cell in {(split, part), (split, ALL), (ALL, part), (ALL, ALL)}:
                row = cells.setdefault(cell, dict.fromkeys(("images", *_SETS, "all"), 0))
                row["images"] += 1
                for name, sentences in datum.sentences.items():
                    row[name] = row.get(name, 0) + len(sentences)
                    row["all"] += len(sentences)
    order = [(split, part) for split in (*data, ALL) for part in (*PARTS, ALL) if (split, part) in cells]
    return [{"split": split, "part": part, **cells[split, part]} for split, part in order]
