"""Captioning: describes pictures, by a model or by the caption of the nearest picture, and scores the captions."""

import re
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from vlcli import registry
from vlcli.data.concepts import REFERENCES, WithReferences
from vlcli.data.reader import Reader
from vlcli.errors import ComponentError, DataError
from vlcli.features import FeatureStore
from vlcli.files import write_json, written
from vlcli.images.boxes import BoxList
from vlcli.metrics.captions.facts import Claims, Thing, fact_metrics
from vlcli.metrics.captions.measure import NAMES, Metric, measure, same_for_all
from vlcli.nn import Batch, ForwardPasses
from vlcli.nn.generation import Generation
from vlcli.registry import DatasetSpec, Spec
from vlcli.tasks.base import Examples, Find, Given, Predict, Result, Runner, Task
from vlcli.tasks.correlation import unit
from vlcli.tasks.outputs import said, target
from vlcli.tasks.pooled import blocks_of, mean_features, refuse_known, sentences_by_picture, trains_no_model

SAID_OF_ALL = lru_cache(maxsize=2)(same_for_all)  # every evaluation in training has the same references
SERVER = ("val2014", "test2014")  # splits that the COCO caption server wants, each in a file


@dataclass(kw_only=True, eq=False)
class Writing(Task):
    """Base of tasks that write a text on pictures: BLEU, ROUGE-L, CIDEr-D and CIDEr; METEOR and SPICE where Java is.

    Args:
        decoding: ``beam``, ``greedy`` or ``sample``.
        beams: texts kept at a time.
        max_length: most word pieces, the end counted.
        min_length: pieces before the end is allowed.
        length_penalty: added to a text's log probability for each piece; above 0 favours long texts.
        no_repeat_ngram: no run of so many pieces comes twice in a text; 0: any may.
        bad_words: words none of whose pieces is ever generated.
        unknown: whether [UNK] may be generated.
        temperature: of sampling.
        top_k: sample among so many likeliest pieces; 0: among all.
        top_p: sample among the fewest pieces that hold this probability together.
        metrics: which are computed; ``cider_d`` is what the COCO evaluation prints as CIDEr.
        baseline: also score the best single text, said of every picture (``baseline/cider_d``).
    """

    requires = frozenset({"generate"})
    metric = "cider_d"
    joint = True
    eval_split = "test"

    decoding: Literal["beam", "greedy", "sample"] = "beam"
    beams: int = 3
    max_length: int = 20
    min_length: int = 0
    length_penalty: float = 0.0
    no_repeat_ngram: int = 0
    bad_words: tuple[str, ...] = ()
    unknown: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    metrics: tuple[Metric, ...] = NAMES
    baseline: bool = True

    def __post_init__(self) -> None:
        shared = {item.name for item in fields(Generation)} - {"bad_words", "samples"}
        self.settings = Generation(**{name: getattr(self, name) for name in shared})

    def objectives(self) -> list[Spec]:
        return [{"name": "s2slm"}]

    def generation(self, tokenizer: Any) -> Generation:
        pieces = {number for word in self.bad_words for number in tokenizer.pieces(word)}
        pieces |= set() if self.unknown else {self.data_spec.unk_id}
        return replace(self.settings, bad_words=tuple(sorted(pieces)))

    def predictions(self, step: ForwardPasses, predict: Predict, tokenizer: Any) -> list[dict[str, Any]]:
        # ``prediction``, ``score`` (its log probability) and the ``references``
        image = step.pictures().hidden
        rng = torch.Generator(image.device).manual_seed(int(step.batch.seeds[0]))  # a second evaluation draws the same
        captions = step.generate(self.generation(tokenizer), generator=rng)
        texts = [tokenizer.decode(words[0]) for words in captions.words(tokenizer.ids["sep"])]
        scores = captions.scores[:, 0].tolist()
        return self.judge([{"prediction": t, "score": s} for t, s in zip(texts, scores, strict=True)], step.batch)

    def judge(self, predictions: list[dict[str, Any]], batch: Batch) -> list[dict[str, Any]]:
        rows = zip(batch.keys, predictions, target(batch, REFERENCES), strict=True)
        return [caption_row(key, said(row), row.get("score"), known) for key, row, known in rows]

    def rescore(self, find: Find, runner: Examples) -> Result:
        return self.measured(super().rescore(find, runner), runner)

    def evaluate(self, runner: Runner) -> Result:
        return self.measured(super().evaluate(runner), runner)

    def measured(self, result: Result, runner: Examples | Given) -> Result:
        """Score the captions of a result against the references; report metrics that cannot be computed."""
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
            text, value = SAID_OF_ALL(tuple(map(tuple, references)))
            runner.progress.info(f"said of every picture: {text!r}, CIDEr-D {value:.3f}")
            result.metrics["baseline/cider_d"] = value
        return result

    def scored(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [row for row in rows if row[REFERENCES]]

    def score(self, predictions: list[dict[str, Any]]) -> dict[str, float]:
        texts = [row["prediction"] for row in predictions]
        if not texts:
            return {}
        return {"words": fmean(len(text.split()) for text in texts), "distinct": len(set(texts)) / len(texts)}


@dataclass(kw_only=True, eq=False)
class Captioning(Writing):
    """Caption each picture once, scored against all its captions: BLEU, ROUGE-L, CIDEr-D, CIDEr, METEOR, SPICE.

    Args:
        train_on: an epoch of fine-tuning passes over all ``captions``, or over ``pictures``, a caption of each drawn.
        facts: a data set of annotated boxes, against which the captions' claims are checked (``right/look``).
        algorithm: the name in the COCO server's file names.
    """

    paper = "Chen et al. 2015, Microsoft COCO Captions; Liu et al. 2021 (DiMBERT), section 4"
    usual_data = "karpathy"

    train_on: Literal["captions", "pictures"] = "captions"
    facts: DatasetSpec | None = None
    algorithm: str = "vlcli"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not re.fullmatch(r"[\w.-]+", self.algorithm):
            what = "The name is for a file."
            raise ComponentError(what, where="task captioning", got=self.algorithm, expected="letters")

    def arrange(self, readers: list[Any]) -> list[Any]:
        return [r if isinstance(r, WithReferences) else WithReferences(r, by_picture=True) for r in readers]

    def arrange_training(self, readers: list[Any]) -> list[Any]:
        by_picture = self.train_on == "pictures"
        return [r if isinstance(r, WithReferences) else WithReferences(r, by_picture=by_picture) for r in readers]

    def measured(self, result: Result, runner: Examples | Given) -> Result:
        if self.facts is not None:
            result.metrics |= check_facts(self.facts, runner, result.predictions)
        return super().measured(result, runner)

    def submission(self, predictions: list[dict[str, Any]], folder: Path) -> list[Path]:
        # COCO's result file; the server's pair and its zip where the pictures are its splits'
        files = {"captions.json": predictions}
        for split in SERVER:
            if rows := [row for row in predictions if f"_{split}_" in str(row["key"])]:
                files[f"captions_{split}_{self.algorithm}_results.json"] = rows
        paths = []
        for name, rows in files.items():
            captions = [{"image_id": row["image_id"], "caption": row["prediction"]} for row in rows]
            paths.append(write_json(folder / name, captions))
        if len(files) > len(SERVER):
            pair, file = paths[1:], folder / "results.zip"
            with written(file) as beside, zipfile.ZipFile(beside, "w", zipfile.ZIP_DEFLATED) as archive:
                for path in pair:
                    archive.write(path, path.name)
            paths.append(file)
        return paths


def caption_row(key: str, caption: str, score: float | None, references: list[str] | None) -> dict[str, Any]:
    """Return the row of one picture's caption."""
    row = {"key": key, "image_id": coco_number(key), "prediction": caption, "score": score}
    return {**row, REFERENCES: references or []}


def coco_number(key: str) -> int | str:
    """Return COCO's number of ``000000391895`` or ``COCO_val2014_000000391895``; other ids as they are."""
    match = re.fullmatch(r"(?:COCO_\w+?_)?(\d+)", key)
    return int(match.group(1)) if match else key


def check_facts(spec: Spec | str, runner: Examples | Given, rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return shares of true captions by a data set with boxes; each row's ``facts`` say which claims are true.

    Raises:
        DataError: the data set has no classes, or none of the pictures (``key`` of the rows).
    """
    reader = registry.of(Reader).build(spec, runner.data.readers[0].root)
    reader.ids = runner.data.readers[0].ids
    boxes, kinds = reader.boxes(), reader.class_names()
    known = [row for row in rows if row["key"] in boxes]
    if rows and not (known and kinds):
        what = "no boxes with classes" if not kinds else "none of the captioned pictures"
        hint = "name the splits that are captioned: facts: {name: coco-instances, split: [val, test]}"
        raise DataError(f"The data set that captions are checked against has {what}.", where=reader.label, hint=hint)
    attributes = reader.attribute_names()
    claims = Claims(kinds, sorted({word for name in attributes for word in name.split()}))
    truths = [claims.check(row["prediction"], _things(boxes[row["key"]], kinds, attributes)) for row in known]
    for row, truth in zip(known, truths, strict=True):
        row["facts"] = {name: value for name, value in vars(truth).items() if value is not None}
    return fact_metrics(truths)


def _things(boxes: BoxList, kinds: list[str], attributes: list[str]) -> list[Thing]:
    height, width = boxes.size or (1, 1)
    things = []
    for row, (x1, y1, x2, y2) in enumerate(boxes.boxes.tolist()):
        kind = "" if boxes.classes is None else kinds[int(boxes.classes[row])]
        look = -1 if boxes.attributes is None or not attributes else int(boxes.attributes[row])  # -1: not known
        looks = "" if look < 0 else attributes[look]
        things.append(Thing(kind, frozenset(looks.split()), (x1 + x2) / 2 / width, (y1 + y2) / 2 / height))
    return things


class NearestCaption(Captioning):
    """The first caption of the picture whose mean region feature is nearest (cosine), without a model.

    An evaluate stage names in ``fit`` the pictures whose captions are taken; of equally near ones, the first counts.
    """

    paper = "Ordonez et al. 2011; Devlin et al. 2015, Exploring Nearest Neighbor Approaches for Image Captioning"
    requires = frozenset()
    fitted = True

    def __init__(
        self,
        *,
        metrics: tuple[Metric, ...] = NAMES,
        baseline: bool = True,
        facts: DatasetSpec | None = None,
        algorithm: str = "nearest",
    ) -> None:
        super().__init__(metrics=metrics, baseline=baseline, facts=facts, algorithm=algorithm)

    def objectives(self) -> list[Spec]:
        raise trains_no_model("nearest-caption", "captioning")

    def solve(self, inputs: Given) -> Result:
        assert inputs.store is not None
        texts, examples = sentences_by_picture(inputs.fit.examples), inputs.data.examples
        refuse_known(texts, [name for example in examples for name in example.images])
        groups = [example.images for example in examples]
        starts = np.cumsum([0, *(len(group) for group in groups[:-1])])
        rows = mean_features(inputs.store, [name for group in groups for name in group])
        means = unit(np.add.reduceat(rows, starts, axis=0))  # (N, D)
        known = list(texts)
        best, cosines = nearest(inputs.store, known, means)
        predictions = []
        for example, row, cosine in zip(examples, best.tolist(), cosines.tolist(), strict=True):
            references = example.targets.get(REFERENCES)
            caption = caption_row(example.key, texts[known[row]][0], cosine, references)
            predictions.append({**caption, "nearest": known[row]})
        return self.measured(Result(self.score(predictions), predictions), inputs)


def nearest(
    store: FeatureStore, names: Sequence[str], queries: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the row (N,) in ``names`` of the picture nearest to each query (N, D), and its cosine (N,)."""
    rows, best, start = np.zeros(len(queries), np.int64), np.full(len(queries), -np.inf), 0
    for some, features in blocks_of(store, names):
        cosines = queries @ features.T  # (N, n)
        nearest_here = cosines.argmax(1)
        highest = cosines[np.arange(len(queries)), nearest_here]
        rows, best = np.where(highest > best, nearest_here + start, rows), np.maximum(highest, best)
        start += len(some)
    return rows, best
