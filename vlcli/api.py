"""Loads trained models in Python: encode a text or a picture, read the attention, ask a question.

import vlcli

model = vlcli.load("runs/quickstart/nlvr2", features="runs/quickstart/regions")
vectors = model.encode_text("a red circle is left of a blue square")
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vlcli import registry
from vlcli.builders.readers import open_stores
from vlcli.data.collate import Item, collate
from vlcli.data.sample import ImageSample, Sample, TextSample
from vlcli.data.transforms import Transform
from vlcli.engine.bundle import Bundle
from vlcli.engine.evaluation import fingerprint
from vlcli.engine.state_dict import load_state_dict
from vlcli.engine.training_module import TrainingModule
from vlcli.errors import UsageError
from vlcli.features import FeatureStore
from vlcli.features.concepts import ConceptStore
from vlcli.nn.batch import Batch
from vlcli.nn.model import DataSpec, EncoderOutput, FusionOutput, Model, Recorder, device_of
from vlcli.nn.slots import build_model
from vlcli.objectives.answering import AnswerHead
from vlcli.prediction.batches import Answerer
from vlcli.prediction.drawing import png
from vlcli.prediction.looking import look
from vlcli.prediction.pictures import PictureReader
from vlcli.prediction.records import Failure, Picture, Prediction, RegionFeatures, Request, Use, name_of
from vlcli.prediction.sources import Sources, find_model, find_sources, load_any
from vlcli.prediction.uses import Asked, choose, uses_of
from vlcli.tasks.answering import GenerativeVQA
from vlcli.tasks.base import Task
from vlcli.tools.search import Index, make_index

__all__ = ["Loaded", "Picture", "RegionFeatures", "load", "load_state_dict", "model"]

AT_ONCE = 64
"""Texts that are embedded at a time."""


class Loaded:
    """A trained model with its tokenizer and its task; every method takes one example, or a list of them.

    Args:
        features: a feature store, for models that read regions.
        concepts: visual concepts, for models that read them.
        sources: where the regions of pictures in no store come from; None: nowhere.
    """

    def __init__(
        self,
        bundle: Bundle,
        features: FeatureStore | None = None,
        concepts: ConceptStore | None = None,
        sources: Sources | None = None,
    ) -> None:
        assert bundle.module is not None
        self.module: TrainingModule = bundle.module
        self.tokenizer, self.data_spec, self.folder = bundle.tokenizer, bundle.data_spec, bundle.folder
        self.task: Task | None = None if bundle.task_spec is None else registry.of(Task).build(bundle.task_spec)
        if self.task is not None:
            self.task.attach(self.data_spec)
        self.task_spec, self.transform_spec = bundle.task_spec, bundle.transform_spec
        needs, spec, sources = bundle.model.input_spec(), bundle.transform_spec, sources or Sources()
        transform: Transform | None = registry.of(Transform).build(spec, needs) if spec and needs.pixels else None
        stores = {"features": features, "concepts": concepts, **sources.stores}
        self.reader = PictureReader(needs, self.data_spec.region_dim, transform, fresh=sources.fresh, **stores)

    @property
    def features(self) -> FeatureStore | None:
        return self.reader.features

    @property
    def concepts(self) -> ConceptStore | None:
        return self.reader.concepts

    @property
    def transform(self) -> Transform | None:
        return self.reader.transform

    @property
    def model(self) -> Model:
        return self.module.model

    @property
    def answerer(self) -> AnswerHead | None:
        """The objective that owns an answer table, if any."""
        return next((part for part in self.module.objectives.values() if isinstance(part, AnswerHead)), None)

    @property
    def ranker(self) -> GenerativeVQA | None:
        """The task that ranks answers by how likely a decoder says them, if it is that."""
        return self.task if isinstance(self.task, GenerativeVQA) and self.task.decoding == "rank" else None

    def to(self, device: str | torch.device) -> Self:
        self.module.to(device)
        return self

    def tokens(self, text: str) -> list[str]:
        """Returns the word pieces of a text, [CLS] and [SEP] included."""
        pieces: list[str] = self._tokenizer().tokens(self._text(text).ids)
        return pieces

    def encode_text(self, text: str | Sequence[str]) -> EncoderOutput:
        """Encodes one text, or several: ``hidden`` (N, T, D), ``layout.valid`` (N, T)."""
        batch = self._batch(self._samples(text))
        with torch.no_grad():
            return self.module.step(batch).text().select(batch.clean.text_rows)

    def encode_image(self, image: Picture | Sequence[Picture]) -> EncoderOutput:
        """Encodes one picture, or several: ``hidden`` (M, R, D), ``layout.valid`` (M, R)."""
        batch = self._batch(_samples_of(self.reader.read(_listed(image))))
        with torch.no_grad():
            return self.module.step(batch).image().select(batch.clean.image_rows[:, 0])

    def fuse(self, text: str, image: Picture | Sequence[Picture]) -> FusionOutput:
        """Fuses a text with a picture, or with each of several: states of both sides and ``pooled``."""
        with torch.no_grad():
            return self.module.step(self._example(text, image)).fused()

    def attention(self, text: str, image: Picture | Sequence[Picture]) -> dict[str, NDArray[np.float32]]:
        """Returns attention probabilities by layer (``cross.4.text_to_image``): (pictures, heads, queries, keys)."""
        return self.looked(text, image)[1]

    def looked(
        self, text: str, image: Picture | Sequence[Picture]
    ) -> tuple[FusionOutput, dict[str, NDArray[np.float32]]]:
        """Returns what :meth:`fuse` and :meth:`attention` return, in one pass."""
        record = Recorder()
        with torch.no_grad():
            fused = self.module.step(self._example(text, image), record=record).fused()
        return fused, {name: weights.float().cpu().numpy() for name, weights in record.attention.items()}

    @cached_property
    def _asked(self) -> dict[str, Asked]:
        return uses_of(self.module, self.task, self.task_spec, self.data_spec)

    @property
    def uses(self) -> dict[str, Use]:
        """What the model can be asked, by name: the task it was fine-tuned on first, then heads of objectives."""
        return {name: asked.use for name, asked in self._asked.items()}

    @property
    def use(self) -> Use:
        """What :meth:`predict` asks where it names no task; UsageError: the model cannot be asked anything."""
        return self.choose().use

    def choose(self, task: str | None = None) -> Asked:
        """Returns one of :attr:`uses` (None: the first) with its task; UsageError: the model cannot be asked that."""
        return choose(self._asked, task, str(self.folder), list(self.module.objectives))

    def predict(
        self,
        text: str | Picture | Sequence[Picture] | None,
        image: Picture | Sequence[Picture] | None = None,
        *,
        task: str | None = None,
        top: int = 5,
    ) -> Prediction:
        """Predicts one example.

        As a mapping it has the fields that the task writes into ``predictions.jsonl`` (``prediction``, ``score``). A
        picture alone is enough where the task asks for no text: ``predict("photo.jpg")["prediction"]`` is its caption.
        A pre-trained model, without a task, adds the outputs of its objectives, by ``objective/output``.

        Args:
            text: a question, a sentence or an expression.
            image: one picture or several: files, open images, ids in a store, or regions.
            task: one of :attr:`uses`; None: the first.
            top: most answers or labels.
        """
        text, image = (None, text) if image is None else (text, image)
        assert image is not None
        pictures, said = _listed(image), None if text is None else str(text)
        if self._asked or task is not None:
            prediction = self._answerer(task, top).one(Request(pictures, said))
        else:
            about = Use("outputs", "other", 0, "none", "what the objectives predict")
            names = [name_of(one, index) for index, one in enumerate(pictures)]
            prediction = Prediction(about, "", names, said, None)
        prediction.shown = partial(png, prediction, pictures, partial(look, self, said or "", pictures))
        if self.task is None and task is None:
            prediction.row = {**self.outputs(said, pictures), **prediction.row}
        return prediction

    def predict_many(
        self,
        requests: Iterable[Request | Failure],
        *,
        task: str | None = None,
        top: int = 5,
        batch_size: int = 16,
        min_score: float | None = None,
    ) -> Iterator[Prediction | Failure]:
        """Yields a prediction or a failure for every request, in order.

        Args:
            task: one of :attr:`uses`; None: the first.
            top: most answers or labels of each.
            batch_size: requests answered together.
            min_score: boxes below it are left out; None: the bound of the task.

        Raises:
            VlcliError: no request can be answered (the extractor's weights are missing, for instance).
        """
        return self._answerer(task, top, min_score).answer(requests, batch_size)

    def _answerer(self, task: str | None, top: int, min_score: float | None = None) -> Answerer:
        asked = self.choose(task)
        return Answerer(asked, self.module, self.tokenizer, self.data_spec, self.reader, top, min_score)

    def outputs(self, text: str | None, image: Picture | Sequence[Picture]) -> dict[str, Any]:
        """Returns the outputs of all objectives for one example, by ``objective/output``."""
        step = self.module.step(self._example(text, image))
        with torch.no_grad():
            outputs = self.module.predict(step)
        return {f"{name}/{key}": value[0].cpu() for name, part in outputs.items() for key, value in part.items()}

    def answers(self, question: str, image: Picture | Sequence[Picture], best: int = 5) -> list[tuple[str, float]]:
        """Returns the ``best`` answers with their probabilities; UsageError: the model has no answer table."""
        name = next((one.use.name for one in self._asked.values() if one.use.kind == "answer"), None)
        choices = [] if name is None else self.predict(question, image, task=name, top=best).choices
        if choices:
            return [(choice.label, choice.probability) for choice in choices]
        what, where = "This model has no answer table.", str(self.folder)
        expected = "a model fine-tuned on vqa or gqa, or pre-trained with image-qa"
        raise UsageError(what, where=where, got=", ".join(self.module.objectives) or "no objective", expected=expected)

    def embed_text(self, text: str | Sequence[str], objective: str = "contrast") -> Tensor:
        """Returns vectors (N, D) of texts, whose products with those of pictures rank them."""
        samples = self._samples(text)
        parts = [self._embed(samples[at : at + AT_ONCE], objective, "text") for at in range(0, len(samples), AT_ONCE)]
        return torch.cat(parts)

    def embed_image(self, image: Picture | Sequence[Picture], objective: str = "contrast") -> Tensor:
        """Returns vectors (M, D) of pictures."""
        return self._embed(_samples_of(self.reader.read(_listed(image))), objective, "image")

    def _embed(self, samples: list[Sample], objective: str, side: Literal["text", "image"]) -> Tensor:
        batch = self._batch(samples)
        with torch.no_grad():
            vectors = self.module.embed(self.module.step(batch), objective, side).float().cpu()
        view = batch.clean
        return vectors[(view.text_rows if side == "text" else view.image_rows[:, 0]).cpu()]

    def index(self, images: str | Path, *, objective: str = "contrast", **options: Any) -> Index:
        """Embeds a folder's pictures, subfolders included, and keeps the vectors in a store beside it.

        ``options``: ``store``, ``batch_size``, ``workers``, ``progress`` of :func:`vlcli.tools.search.make_index`.
        """
        key: dict[str, Any] = {"weights": fingerprint(self.module, objective), "objective": objective}
        key |= {"transform": self.transform_spec, "features": self.features.where if self.features else None}
        if self.features is None and self.reader.fresh.known:
            key["extraction"] = [one.as_dict() for one in self.reader.fresh.extractions]

        def read(path: Path) -> ImageSample:
            return self.reader.read([path])[0]

        def embed(images: Sequence[ImageSample]) -> NDArray[np.float32]:
            return self._embed(_samples_of(images), objective, "image").numpy()

        return make_index(Path(images), read, embed, key, **options)

    def search(
        self, query: str | Path, images: str | Path, top: int = 10, *, objective: str = "contrast", **options: Any
    ) -> list[tuple[Path, float]]:
        """Returns the pictures of a folder nearest to a sentence (or, with a Path, to a picture), best first."""
        index = self.index(images, objective=objective, **options)
        vector = self.embed_image(query, objective) if isinstance(query, Path) else self.embed_text(query, objective)
        return index.nearest(vector[0], top)

    def _example(self, text: str | None, image: Picture | Sequence[Picture]) -> Batch:
        images = self.reader.read(_listed(image))
        reads = text is not None and (text or self.tokenizer is not None)  # a classifier of pictures reads none
        sentence = self._text(text) if text is not None and reads else None
        return self._batch([Sample("example", sentence, images, {})])

    def _batch(self, samples: list[Sample]) -> Batch:
        batch = collate([Item({"clean": sample}, 0) for sample in samples], pad_id=self.data_spec.pad_id)
        return batch.to(device_of(self.model))

    def _samples(self, text: str | Sequence[str]) -> list[Sample]:
        texts = [text] if isinstance(text, str) else list(text)
        return [Sample(str(index), self._text(raw), [], {}) for index, raw in enumerate(texts)]

    def _tokenizer(self) -> Any:
        if self.tokenizer is None:
            raise UsageError("This model reads no text.", where=str(self.folder))
        return self.tokenizer

    def _text(self, raw: str) -> TextSample:
        sample: TextSample = self._tokenizer().encode(raw, raw, self.data_spec.text_length)
        return sample


def load(
    place: str | Path,
    *,
    features: str | Path | Sequence[str | Path] | FeatureStore | None = None,
    features_from: str | Path | None = None,
    extractor: Mapping[str, Any] | None = None,
    boxes: str | Path | None = None,
    device: str = "cpu",
) -> Loaded:
    """Loads a trained model, with the extractor that made its features where it reads regions.

    Args:
        place: the folder of a stage, of an exported model or of a checkpoint; a name such as ``quickstart/nlvr2`` is
            looked for under ``runs/``.
        features: for models that read regions: a store, its file, or the folder of the stage that made it; a list of
            these where concepts come from another stage. Pictures whose ids a store holds are read from there.
        features_from: the folder of an extract stage, or its store, whose extractor reads new pictures; None: the one
            that the model's config or its stage's record names.
        extractor: an extractor as in recipes, ``{"name": ..., "weights": ...}``; without ``name`` it changes options of
            the one that is known.
        boxes: a file of boxes of new pictures, for extractors of given boxes, which take a grid without it.
        device: where to compute.

    Raises:
        DataError: there is no trained model there.
    """
    bundle = load_any(find_model(place), device)
    named: dict[str, Any] = {"features_from": features_from, "extractor": extractor, "boxes": boxes, "device": device}
    sources = find_sources(bundle, bundle.model.input_spec(), **named)
    if features is None or isinstance(features, FeatureStore):
        return Loaded(bundle, features, sources=sources)
    paths = [Path(one) for one in ([features] if isinstance(features, str | Path) else features)]
    files = [path / "features.h5" if (path / "features.h5").is_file() else path for path in paths]
    stores = open_stores(files, bundle.model.input_spec())
    return Loaded(bundle, stores.regions, stores.concepts, sources)


def model(name: str, *, data_spec: DataSpec | None = None, **parameters: Any) -> Model:
    """Builds a model by its registered name, e.g. ``vlcli.model("lxmert", hidden=96, heads=4)``, in evaluation mode.

    Args:
        data_spec: sizes that data decide; None: those the papers used.
        parameters: what a recipe may set on it (``vlcli show NAME``).
    """
    return build_model({"name": name, **parameters}, data_spec or DataSpec()).eval()


def _samples_of(images: Sequence[ImageSample]) -> list[Sample]:
    return [Sample(str(index), None, [image], {}) for index, image in enumerate(images)]


def _listed(image: Picture | Sequence[Picture]) -> list[Picture]:
    return [image] if isinstance(image, Picture) else list(image)
