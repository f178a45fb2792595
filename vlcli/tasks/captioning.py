"""Captioning: say what is in a picture, scored against what people said."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch

from vlcli.data.references import REFERENCES, WithReferences
from vlcli.errors import ComponentError
from vlcli.files import write_json, written
from vlcli.metrics.captions.measure import NAMES, Metric, measure, same_for_all
from vlcli.nn import Batch, DataSpec, ForwardPasses
from vlcli.nn.generation import Generation
from vlcli.registry import DatasetSpec, Spec
from vlcli.tasks.base import Examples, Find, Given, Predict, Result, Runner, Task
from vlcli.tasks.caption_facts import check_facts
from vlcli.tasks.outputs import target

SERVER = ("val2014", "test2014")  # The splits that the COCO caption server wants, each in a file of its own


class Captioning(Task):
    """Say what is in a picture: BLEU, ROUGE-L, CIDEr-D and CIDEr; METEOR and SPICE where Java is.

    Each picture is captioned once and scored against all its captions. ``cider_d`` is what the COCO evaluation prints
    as CIDEr; ``baseline/cider_d`` that of the best single caption said of every picture.

    Args:
        decoding: ``beam``, ``greedy`` or ``sample``.
        beams: sentences kept at a time.
        max_length: most word pieces, the end counted.
        min_length: pieces before the end is allowed.
        length_penalty: added to a sentence's log probability for each piece; above 0 favours long sentences.
        no_repeat_ngram: no run of so many pieces comes twice in a caption; 0: any may.
        bad_words: words that are never said; all pieces of a word are bad_words, wherever they stand.
        unknown: whether [UNK] may be said.
        temperature: of sampling.
        top_k: sample among so many likeliest pieces; 0: among all.
        top_p: sample among the fewest pieces that hold this probability together.
        metrics: which are computed.
        train_on: an epoch of fine-tuning passes over all ``captions``, or over ``pictures``, a caption of each drawn.
        baseline: also score the best single caption.
        facts: a data set of annotated boxes, against which what captions claim is checked (``right/look``).
        algorithm: the name in the COCO server's file names.
    """

    paper = "Chen et al. 2015, Microsoft COCO Captions; Liu et al. 2021 (DiMBERT), section 4"
    requires = frozenset({"generate"})
    metric = "cider_d"
    joint = True
    eval_split = "test"

    def __init__(
        self,
        *,
        decoding: Literal["beam", "greedy", "sample"] = "beam",
        beams: int = 3,
        max_length: int = 20,
        min_length: int = 0,
        length_penalty: float = 0.0,
        no_repeat_ngram: int = 0,
        bad_words: tuple[str, ...] = (),
        unknown: bool = False,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        metrics: tuple[Metric, ...] = NAMES,
        train_on: Literal["captions", "pictures"] = "captions",
        baseline: bool = True,
        facts: DatasetSpec | None = None,
        algorithm: str = "vlcli",
    ) -> None:
        sampling: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
        self.settings = Generation(decoding, beams, max_length, min_length, length_penalty, no_repeat_ngram, **sampling)
        self.bad_words, self.unknown, self.metrics = tuple(bad_words), unknown, tuple(metrics)
        self.train_on, self.baseline, self.facts = train_on, baseline, facts
        if not re.fullmatch(r"[\w.-]+", algorithm):
            raise ComponentError("The name is for a file.", where="task captioning", got=algorithm, expected="letters")
        self.algorithm = algorithm
        self.unk_id = DataSpec().unk_id
        self._constant: dict[int, tuple[str, float]] = {}

    def objectives(self) -> list[Spec]:
        return [{"name": "s2slm"}]

    def dataset(self) -> Spec:
        return {"name": "karpathy"}

    def arrange(self, readers: list[Any]) -> list[Any]:
        return [_referring(reader, by_picture=True) for reader in readers]

    def arrange_training(self, readers: list[Any]) -> list[Any]:
        return [_referring(reader, by_picture=self.train_on == "pictures") for reader in readers]

    def attach(self, data_spec: DataSpec) -> None:
        self.unk_id = data_spec.unk_id

    def generation(self, tokenizer: Any) -> Generation:
        """The settings, with the ids that are never said."""
        from dataclasses import replace

        pieces = {number for word in self.bad_words for number in tokenizer.pieces(word)}
        pieces |= set() if self.unknown else {self.unk_id}
        return replace(self.settings, bad_words=tuple(sorted(pieces)))

    def predictions(self, step: ForwardPasses, predict: Predict, tokenizer: Any) -> list[dict[str, Any]]:
        # A caption of every example: ``prediction``, ``score`` (its log probability) and the ``references``
        batch = step.batch
        found = step.generate(self.generation(tokenizer), generator=_draws(step))
        said = [tokenizer.decode(words[0]) for words in found.words(tokenizer.ids["sep"])]
        return self._rows(batch, said, found.scores[:, 0].tolist())

    @staticmethod
    def _rows(batch: Batch, said: Sequence[str], scores: Sequence[float | None]) -> list[dict[str, Any]]:
        given = zip(batch.keys, said, scores, target(batch, REFERENCES), strict=True)
        return [
            {"key": key, "image_id": coco_number(key), "prediction": text, "score": score, REFERENCES: known or []}
            for key, text, score, known in given
        ]

    def judge(self, predictions: list[dict[str, Any]], batch: Batch) -> list[dict[str, Any]]:
        said = [str(row["prediction"]) for row in predictions]
        return self._rows(batch, said, [row.get("score") for row in predictions])

    def rescore(self, find: Find, runner: Examples) -> Result:
        return self.measured(super().rescore(find, runner), runner)

    def evaluate(self, runner: Runner) -> Result:
        return self.measured(super().evaluate(runner), runner)

    def measured(self, result: Result, runner: Examples | Given) -> Result:
        """The same result, its captions scored against the references."""
        if self.facts is not None:
            result.metrics |= check_facts(self.facts, runner, result.predictions)
        rows = self.scored(result.predictions)
        if not rows:
            return result
        references = [row[REFERENCES] for row in rows]
        measured = measure([row["prediction"] for row in rows], references, self.metrics)
        for row, value in zip(rows, measured.each, strict=True):
            row["cider_d"] = value
        for line in measured.notes:
            runner.progress.info(line)
        result.metrics |= measured.metrics | {"pictures": float(len(rows))}
        if self.baseline:
            text, value = self._same(references)
            runner.progress.info(f"said of every picture: {text!r}, CIDEr-D {value:.3f}")
            result.metrics["baseline/cider_d"] = value
        return result

    def scored(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Those of the predictions that are measured against references: all that have any."""
        return [row for row in rows if row[REFERENCES]]

    def score(self, predictions: list[dict[str, Any]]) -> dict[str, float]:
        said = [row["prediction"] for row in predictions]
        if not said:
            return {}
        return {"words": sum(len(text.split()) for text in said) / len(said), "distinct": len(set(said)) / len(said)}

    def submission(self, predictions: list[dict[str, Any]], folder: Path) -> list[Path]:
        # COCO's result file, ``captions.json``; the server's pair and its zip where the pictures are its splits'
        by_split = {split: [row for row in predictions if f"_{split}_" in str(row["key"])] for split in SERVER}
        files = [write_json(folder / "captions.json", _results(predictions))]
        for split, rows in by_split.items():
            if rows:
                files.append(write_json(folder / f"captions_{split}_{self.algorithm}_results.json", _results(rows)))
        if all(by_split.values()):
            files.append(_zipped(folder / "results.zip", files[1:]))
        return files

    def _same(self, references: Sequence[Sequence[str]]) -> tuple[str, float]:
        place = hash(tuple(map(tuple, references)))
        if place not in self._constant:
            self._constant[place] = same_for_all(references)
        return self._constant[place]


def _referring(reader: Any, *, by_picture: bool) -> Any:
    return reader if isinstance(reader, WithReferences) else WithReferences(reader, by_picture=by_picture)


def _draws(step: ForwardPasses) -> torch.Generator:
    image = step.pictures().hidden
    return torch.Generator(image.device).manual_seed(int(step.batch.seeds[0]))


def coco_number(key: str) -> int | str:
    """COCO's number of an image: of ``000000391895`` or ``COCO_val2014_000000391895``; other ids stay."""
    found = re.fullmatch(r"(?:COCO_\w+?_)?(\d+)", key)
    return int(found.group(1)) if found else key


def _results(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"image_id": row["image_id"], "caption": row["prediction"]} for row in rows]


def _zipped(path: Path, files: Sequence[Path]) -> Path:
    with written(path) as beside, zipfile.ZipFile(beside, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            archive.write(file, file.name)
    return path
