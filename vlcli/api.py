"""vlcli from Python: load a trained model, encode a text or a picture, read its attention, ask it something.

import vlcli

model = vlcli.load("runs/quickstart/nlvr2", features="runs/quickstart/regions")
vectors = model.encode_text("a red circle is left of a blue square")
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from vlcli import former, registry
from vlcli.builders.stores import open_stores
from vlcli.data.collate import Item, collate
from vlcli.data.inputs import fill_regions
from vlcli.data.pictures import read_picture
from vlcli.data.sample import ImageSample, Sample, TextSample
from vlcli.data.transforms import Transform
from vlcli.engine.bundle import WEIGHTS, Bundle, find_bundle, load_bundle, read_bundle
from vlcli.engine.evaluation import fingerprint
from vlcli.engine.training_module import TrainingModule, build_training_module
from vlcli.engine.weights import load_exactly, read_tensors
from vlcli.errors import DataError, UsageError
from vlcli.features import FeatureStore
from vlcli.features.concepts import ConceptStore
from vlcli.images.boxes import image_id
from vlcli.nn.batch import Batch
from vlcli.nn.model import DataSpec, EncoderOutput, FusionOutput, Model, Recorder, device_of
from vlcli.nn.slots import build_model
from vlcli.objectives.answering import Answering
from vlcli.recipe.stage_record import similar
from vlcli.tasks.base import Task
from vlcli.tasks.generative_vqa import GenerativeVQA
from vlcli.tools.search import Index, make_index

RUNS = "runs"
AT_ONCE = 64
"""Texts embedded at a time."""


@dataclass(frozen=True)
class RegionFeatures:
    """A picture as region features of one's own.

    Attributes:
        features: (R, D).
        boxes: (R, 4) x1, y1, x2, y2, divided by the picture's width and height.
    """

    features: ArrayLike
    boxes: ArrayLike


Picture = str | Path | RegionFeatures
"""A picture's file or its id in a feature store, or its regions."""


class Loaded:
    """A trained model with its tokenizer and its task; every method takes one example, or a list of them.

    Args:
        bundle: what was trained.
        features: a feature store, for models that read regions.
        concepts: visual concepts, for models that read them.
    """

    facts = former.Attribute("data_spec")
    learner = former.Attribute("module")

    def __init__(
        self, bundle: Bundle, features: FeatureStore | None = None, concepts: ConceptStore | None = None
    ) -> None:
        assert bundle.module is not None
        self.concepts = concepts
        self.module: TrainingModule = bundle.module
        self.tokenizer, self.data_spec, self.folder = bundle.tokenizer, bundle.data_spec, bundle.folder
        self.features = features
        self.task: Task | None = None if bundle.task_spec is None else registry.tasks.build(bundle.task_spec)
        if self.task is not None:
            self.task.attach(self.data_spec)
        needs, spec = bundle.model.input_spec(), bundle.transform_spec
        self.transform_spec = spec
        self.transform: Transform | None = registry.transforms.build(spec, needs) if spec and needs.pixels else None

    @property
    def model(self) -> Model:
        """The network."""
        return self.module.model

    @property
    def answerer(self) -> Answering | None:
        """The objective that owns an answer table, if any."""
        return next((part for part in self.module.objectives.values() if isinstance(part, Answering)), None)

    @property
    def ranker(self) -> GenerativeVQA | None:
        """The task that ranks answers by how likely a decoder says them, if it is that."""
        return self.task if isinstance(self.task, GenerativeVQA) and self.task.decoding == "rank" else None

    def to(self, device: str | torch.device) -> Self:
        """Move the weights."""
        self.module.to(device)
        return self

    def tokens(self, text: str) -> list[str]:
        """The pieces a text is read as, [CLS] and [SEP] included."""
        found: list[str] = self._tokenizer().tokens(self._text(text).ids)
        return found

    def encode_text(self, text: str | Sequence[str]) -> EncoderOutput:
        """States of one text, or of several: ``hidden`` (N, T, D), ``layout.valid`` (N, T)."""
        texts = [text] if isinstance(text, str) else list(text)
        items = [Sample(str(place), self._text(raw), [], {}) for place, raw in enumerate(texts)]
        batch = self._batch(items)
        with torch.no_grad():
            return self.module.step(batch).text().select(batch.clean.text_rows)

    def encode_image(self, image: Picture | Sequence[Picture]) -> EncoderOutput:
        """States of one picture, or of several: ``hidden`` (M, R, D), ``layout.valid`` (M, R)."""
        pictures = [image] if isinstance(image, Picture) else list(image)
        items = [Sample(str(place), None, [self._image(one, place)], {}) for place, one in enumerate(pictures)]
        batch = self._batch(items)
        with torch.no_grad():
            return self.module.step(batch).image().select(batch.clean.image_rows[:, 0])

    def fuse(self, text: str, image: Picture | Sequence[Picture]) -> FusionOutput:
        """A text with a picture, or with each of several: states of both sides and ``pooled``."""
        with torch.no_grad():
            return self.module.step(self._example(text, image)).fused()

    def attention(self, text: str, image: Picture | Sequence[Picture]) -> dict[str, NDArray[np.float32]]:
        """Attention probabilities by layer, e.g. ``cross.4.text_to_image``: (pictures, heads, queries, keys)."""
        record = Recorder()
        with torch.no_grad():
            self.module.step(self._example(text, image), record=record).fused()
        return {name: weights.float().cpu().numpy() for name, weights in record.attention.items()}

    def predict(
        self, text: str | Picture | Sequence[Picture] | None, image: Picture | Sequence[Picture] | None = None
    ) -> dict[str, Any]:
        """What the task makes of an example: ``prediction`` and ``score``; without a task, the objectives' outputs.

        A picture alone is enough where the task asks for no text: ``predict("photo")["prediction"]`` is its caption.
        """
        text, image = (None, text) if image is None else (text, image)
        assert image is not None
        step = self.module.step(self._example(None if text is None else str(text), image))
        with torch.no_grad():
            if self.task is not None:
                return self.task.predictions(step, self.module.predict, self.tokenizer)[0]
            outputs = self.module.predict(step)
        return {f"{name}/{key}": value[0].cpu() for name, found in outputs.items() for key, value in found.items()}

    def answers(self, question: str, image: Picture | Sequence[Picture], best: int = 5) -> list[tuple[str, float]]:
        """The ``best`` answers to a question, likeliest first, each with its probability.

        Raises:
            UsageError: the model was trained on no answer table.
        """
        head = self.answerer
        if self.ranker is not None:
            with torch.no_grad():
                step = self.module.step(self._example(question, image))
                return self.ranker.ranked(step, self.tokenizer)[0][:best]
        if head is None:
            raise UsageError(
                "This model has no answer table.",
                where=str(self.folder),
                got=", ".join(self.module.objectives) or "no objective",
                expected="a model fine-tuned on vqa or gqa, or pre-trained with image-qa",
            )
        with torch.no_grad():
            logits = head.predict(self.module.step(self._example(question, image)))["logits"][0].float()
        chances = logits.sigmoid() if head.loss == "bce" else logits.softmax(-1)
        scores, places = chances.topk(min(best, len(chances)))
        return [
            (head.table.answers[place], score) for place, score in zip(places.tolist(), scores.tolist(), strict=True)
        ]

    def embed_text(self, text: str | Sequence[str], objective: str = "contrast") -> Tensor:
        """Vectors (N, D) of texts, whose products with those of pictures rank; by the objective named, or the only."""
        texts = [text] if isinstance(text, str) else list(text)
        samples = [Sample(raw, self._text(raw), [], {}) for raw in texts]
        parts = [self._embed(samples[at : at + AT_ONCE], objective, "text") for at in range(0, len(samples), AT_ONCE)]
        return torch.cat(parts)

    def embed_image(self, image: Picture | Sequence[Picture], objective: str = "contrast") -> Tensor:
        """Vectors (M, D) of pictures."""
        pictures = [image] if isinstance(image, Picture) else list(image)
        items = [Sample(str(n), None, [self._image(one, n)], {}) for n, one in enumerate(pictures)]
        return self._embed(items, objective, "image")

    def _embed(self, samples: list[Sample], objective: str, side: Literal["text", "image"]) -> Tensor:
        batch = self._batch(samples)
        with torch.no_grad():
            found = self.module.embed(self.module.step(batch), objective, side).float().cpu()
        view = batch.clean
        return found[(view.text_rows if side == "text" else view.image_rows[:, 0]).cpu()]

    def index(self, images: str | Path, *, objective: str = "contrast", **options: Any) -> Index:
        """A folder's pictures as vectors, kept in a store beside it, so that each is embedded once.

        Args:
            images: the folder; subfolders count.
            objective: what embeds.
            options: ``store``, ``batch_size``, ``workers``, ``progress`` of :func:`vlcli.tools.search.make_index`.
        """
        key: dict[str, Any] = {"weights": fingerprint(self.module, objective), "objective": objective}
        key |= {"transform": self.transform_spec, "features": self.features.where if self.features else None}

        def read(path: Path) -> ImageSample:
            return self._image(path, 0)

        def embed(found: Sequence[ImageSample]) -> NDArray[np.float32]:
            samples = [Sample(str(n), None, [image], {}) for n, image in enumerate(found)]
            return self._embed(samples, objective, "image").numpy()

        return make_index(Path(images), read, embed, key, **options)

    def search(
        self, query: str | Path, images: str | Path, top: int = 10, *, objective: str = "contrast", **options: Any
    ) -> list[tuple[Path, float]]:
        """The pictures of a folder nearest to a sentence (or, with a Path, to a picture), best first."""
        index = self.index(images, objective=objective, **options)
        vector = self.embed_image(query, objective) if isinstance(query, Path) else self.embed_text(query, objective)
        return index.nearest(vector[0], top)

    def _example(self, text: str | None, image: Picture | Sequence[Picture]) -> Batch:
        pictures = [image] if isinstance(image, Picture) else list(image)
        images = [self._image(one, place) for place, one in enumerate(pictures)]
        reads = text is not None and (text or self.tokenizer is not None)  # a classifier of pictures reads none
        sentence = self._text(text) if text is not None and reads else None
        return self._batch([Sample("example", sentence, images, {})])

    def _batch(self, samples: list[Sample]) -> Batch:
        batch = collate([Item({"clean": sample}, 0) for sample in samples], pad_id=self.data_spec.pad_id)
        return batch.to(device_of(self.model))

    def _tokenizer(self) -> Any:
        if self.tokenizer is None:
            raise UsageError("This model reads no text.", where=str(self.folder))
        return self.tokenizer

    def _text(self, raw: str) -> TextSample:
        made: TextSample = self._tokenizer().encode(raw, raw, self.data_spec.text_length)
        return made

    def _image(self, picture: Picture, place: int) -> ImageSample:
        needs = self.model.input_spec()
        if isinstance(picture, RegionFeatures):
            features, boxes = np.asarray(picture.features, np.float32), np.asarray(picture.boxes, np.float32)
            return _regions(f"regions-{place}", features, boxes, self.data_spec.region_dim)
        if needs.regions:
            return self._stored(str(picture))
        return read_picture(Path(picture), needs, self.transform)

    def _stored(self, picture: str) -> ImageSample:
        if self.features is None:
            raise UsageError(
                "This model reads region features, and no store of them was given.",
                got=picture,
                expected="load(..., features=STORE), or RegionFeatures(features, boxes) instead of a file",
                hint="make a store: vlcli extract",
            )
        record = self.features.read(image_id(picture))
        _check_regions(record.features, record.boxes, self.data_spec.region_dim)
        image = ImageSample(record.id, record.size)
        fill_regions(image, record)
        if self.model.input_spec().concepts:
            image.concepts = self._concepts(record.id)
        return image

    def _concepts(self, name: str) -> dict[str, NDArray[Any]]:
        if self.concepts is None:
            raise UsageError(
                "This model reads visual concepts, and no store of them was given.",
                got=name,
                expected="load(..., features=[REGIONS, CONCEPTS])",
                hint="make a store: vlcli extract",
            )
        return self.concepts.read(name)


def load(
    place: str | Path,
    *,
    features: str | Path | Sequence[str | Path] | FeatureStore | None = None,
    device: str = "cpu",
) -> Loaded:
    """Load a trained model.

    Args:
        place: the folder of a stage, of an exported model or of a checkpoint; a name such as ``quickstart/nlvr2`` is
            looked for under ``runs/``.
        features: for models that read regions: a store, its file, or the folder of the stage that made it; a list of
            these where concepts come from another stage.
        device: where to compute.

    Raises:
        DataError: there is no trained model there.
    """
    bundle = _load(_find(place), device)
    if features is None or isinstance(features, FeatureStore):
        return Loaded(bundle, features)
    places = [Path(one) for one in ([features] if isinstance(features, str | Path) else features)]
    files = [path / "features.h5" if (path / "features.h5").is_file() else path for path in places]
    stores = open_stores(files, bundle.model.input_spec())
    return Loaded(bundle, stores.regions, stores.concepts)


@former.keywords(facts="data_spec")
def model(name: str, *, data_spec: DataSpec | None = None, **parameters: Any) -> Model:
    """A fresh model by its registered name, e.g. ``vlcli.model("lxmert", hidden=96, heads=4)``, in evaluation mode.

    Args:
        name: of the model (``vlcli ls models``).
        data_spec: sizes that data decide; None: those the papers used.
        parameters: what a recipe may set on it (``vlcli show NAME``).
    """
    return build_model({"name": name, **parameters}, data_spec or DataSpec()).eval()


def _find(place: str | Path) -> Path:
    for path in (Path(place), Path(RUNS) / place):
        if path.exists():
            return path
    expected = f"a folder, or RECIPE/STAGE under {RUNS}/"
    hint = similar(Path(RUNS), str(place)) or "train it: vlcli run RECIPE"
    raise DataError("There is no such model.", got=str(place), expected=expected, hint=hint)


def _load(path: Path, device: str) -> Bundle:
    """A bundle, or the weights of a checkpoint in the bundle of its stage."""
    if find_bundle(path) is not None or not (path / WEIGHTS).is_file():
        return load_bundle(path, device)
    bundle = read_bundle(path.parent.parent)
    module = build_training_module(bundle.model_spec, bundle.objectives_specs, bundle.data_spec)
    load_exactly(module, read_tensors(path / WEIGHTS), str(path / WEIGHTS))
    bundle.module, bundle.folder = module.to(device).eval(), path
    return bundle


def _regions(key: str, features: NDArray[Any], boxes: NDArray[Any], dim: int) -> ImageSample:
    _check_regions(features, boxes, dim)
    clipped = np.clip(np.asarray(boxes, np.float32), 0, 1)
    return ImageSample(key, (1, 1), np.asarray(features), clipped)


def _check_regions(features: NDArray[Any], boxes: NDArray[Any], dim: int) -> None:
    if features.ndim != 2 or features.shape[1] != dim or boxes.shape != (len(features), 4):
        raise DataError(
            "These are not the regions the model reads.",
            got=f"features {features.shape}, boxes {boxes.shape}",
            expected=f"features (R, {dim}), boxes (R, 4) divided by width and height",
        )


__getattr__ = former.getattr_of(__name__, {"Regions": "RegionFeatures"})
