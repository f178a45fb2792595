"""Turns a trained model into functions of tensors, for formats that hold graphs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vlcli.export.base import Trained
from vlcli.nn.batch import Batch, Concepts, Images, Pixels, Regions, Text, View
from vlcli.nn.forward_passes import ForwardPasses
from vlcli.nn.model import DataSpec, EncoderOutput, InputSpec
from vlcli.objectives.base import Objective

INPUTS = {
    "ids": "(batch, words) int64: vocabulary ids, [CLS] and [SEP] included",
    "text_mask": "(batch, words) bool: True at real pieces",
    "features": "(batch, pictures, regions, width) float32: region features",
    "boxes": "(batch, pictures, regions, 4) float32: x1, y1, x2, y2 divided by width and height",
    "region_mask": "(batch, pictures, regions) bool: True at real regions",
    "sizes": "(batch, pictures, 2) int64: height and width of the picture in pixels",
    "classes": "(batch, pictures, regions) int64: detected class from 0, -1 where unknown",
    "class_scores": "(batch, pictures, regions) float32: confidence of that class",
    "class_probs": "(batch, pictures, regions, classes) float32: probabilities of all classes",
    "concept_ids": "(batch, pictures, concepts) int64: visual concepts, best first",
    "concept_scores": "(batch, pictures, concepts) float32: their scores",
    "concept_ranks": "(batch, pictures, concepts) int64: 0 for the best",
    "concept_mask": "(batch, pictures, concepts) bool: True at real concepts",
    "pixels": "(batch, pictures, 3, height, width) float32: normalised as preprocessing.json says",
}
"""Inputs of graphs; ``pictures`` is fixed by the task (two for NLVR2, else one), and absent if a graph reads no text.
A file has only the inputs that change its outputs."""

TEXT = ("ids", "text_mask")
REGIONS = ("features", "boxes", "region_mask", "sizes", "classes", "class_scores")
CONCEPTS = ("concept_ids", "concept_scores", "concept_ranks", "concept_mask")
OPTIONAL = ("sizes", "classes", "class_scores", "concept_scores", "concept_ranks")
Outputs = dict[str, Tensor]


@dataclass(frozen=True)
class Form:
    """Inputs of a graph.

    Attributes:
        pictures: per example.
        alone: pictures come without a sentence, one per row: inputs have no axis ``pictures``.
        probabilities: regions come with the probabilities of all classes.
        concepts: number to which the visual concepts of a picture are padded.
        without: inputs that do not change the outputs.
    """

    needs: InputSpec
    data_spec: DataSpec
    pictures: int = 1
    alone: bool = False
    probabilities: bool = False
    concepts: int = 0
    without: frozenset[str] = frozenset()

    def names(self) -> list[str]:
        names = list(TEXT) if self.needs.text else []
        names += REGIONS if self.needs.regions else ()
        names += ["class_probs"] if self.needs.regions and self.probabilities else []
        names += CONCEPTS if self.needs.concepts else ()
        names += ["pixels"] if self.needs.pixels else []
        return [name for name in names if name not in self.without]

    def meaning(self, name: str) -> str:
        return INPUTS[name].replace("pictures, ", "") if self.alone else INPUTS[name]

    def axes(self) -> list[dict[int, str]]:
        """Return the dynamic dimensions of each input, by name."""
        known = {key: {0: "batch", 1: "words"} for key in TEXT}
        known |= {key: {0: "batch"} for key in ("pixels", "sizes", *CONCEPTS)}
        regions = {0: "batch"} if self.needs.grid is not None else {0: "batch", 1 if self.alone else 2: "regions"}
        return [known.get(name, regions) for name in self.names()]

    def example(self, batch: int, words: int, regions: int, seed: int = 0) -> tuple[Tensor, ...]:
        """Return random inputs, the last half of the examples padded; a grid has a fixed number of regions."""
        rng = torch.Generator().manual_seed(seed)
        words = min(words, self.data_spec.text_length)
        regions = regions if self.needs.grid is None else self.needs.grid[0] * self.needs.grid[1]
        ids = torch.randint(0, self.data_spec.vocab_size, (batch, words), generator=rng)
        ids[:, 0] = self.data_spec.cls_id
        tensors = {"ids": ids, "text_mask": _padded(batch, words)} | self._pictures(batch, regions, rng)
        if self.needs.pixels:
            tensors["pixels"] = torch.randn(batch, self.pictures, 3, *(self.needs.size or (224, 224)), generator=rng)
        flat = {name for name in tensors if self.alone and name not in TEXT}
        return tuple(tensors[name].flatten(0, 1) if name in flat else tensors[name] for name in self.names())

    def _pictures(self, batch: int, count: int, rng: torch.Generator) -> Outputs:
        shape = (batch, self.pictures, count)
        concepts = (batch, self.pictures, max(self.concepts, 1))
        low = torch.rand(*shape, 2, generator=rng) * 0.5
        classes = max(self.data_spec.region_classes, 1)
        whole = self.needs.grid is not None
        mask = torch.ones(batch, count, dtype=torch.bool) if whole else _padded(batch, count)
        return {
            "features": torch.rand(*shape, self.data_spec.region_dim, generator=rng),
            "boxes": torch.cat([low, low + 0.4], -1),
            "region_mask": mask[:, None].repeat(1, self.pictures, 1),
            "sizes": torch.randint(80, 640, (batch, self.pictures, 2), generator=rng),
            "classes": torch.randint(0, classes, shape, generator=rng),
            "class_scores": torch.rand(*shape, generator=rng),
            "class_probs": torch.rand(*shape, classes, generator=rng).softmax(-1),
            "concept_ids": torch.randint(0, max(len(self.data_spec.concepts), 1), concepts, generator=rng),
            "concept_scores": torch.rand(*concepts, generator=rng),
            "concept_ranks": torch.arange(concepts[-1]).expand(concepts).clone(),
            "concept_mask": _padded(batch, concepts[-1])[:, None].repeat(1, self.pictures, 1),
        }

    def batch(self, inputs: Sequence[Tensor]) -> Batch:
        values = dict(zip(self.names(), inputs, strict=True))
        if self.alone:
            values = {name: value if name in TEXT else value[:, None] for name, value in values.items()}
        first = next(iter(values.values()))
        rows = torch.arange(first.shape[0], device=first.device)
        image_rows = rows[:, None] * self.pictures + torch.arange(self.pictures, device=rows.device)  # (B, K)
        images = Images([], _regions(values), _pixels(values), _concepts(values)) if {*values} - {*TEXT} else None
        text = None
        if "ids" in values:
            ids = values["ids"]
            special = (ids == self.data_spec.cls_id) | (ids == self.data_spec.sep_id)
            text = Text(ids, values["text_mask"], special, torch.full_like(ids, -1))
        return Batch({"clean": View(text, images, rows, image_rows, aligned=self.pictures == 1)}, {}, [], rows)

    def inputs(self, batch: Batch, unique: bool = False) -> tuple[Tensor, ...]:
        """Return a batch's examples, or its ``unique`` texts or images, as inputs in the order of :meth:`names`."""
        view, values = batch.clean, {}
        if view.text is not None:
            rows = torch.arange(len(view.text)) if unique else view.text_rows
            values = {"ids": view.text.ids[rows], "text_mask": view.text.mask[rows]}
        if view.images is not None and {*self.names()} - {*TEXT}:
            every = torch.arange(len(view.images))[:, None]
            rows = every if unique else view.image_rows[:, : self.pictures]
            stored = {name: value[rows] for name, value in _stored(view.images).items()}
            values |= {name: value[:, 0] if self.alone else value for name, value in stored.items()}
        return tuple(values[name] for name in self.names())


class Graph(nn.Module):
    """A function of tensors that becomes one file.

    Args:
        stem: name of the file without its ending.
        compute: returns outputs by name for the forward passes over a batch.
        about: description of the outputs.
        facts: more entries of its signature.

    Attributes:
        objective: of which it is the prediction, or empty.
        kept: outputs that the file has; None: all.
        compared: outputs that must equal the model's; None: all. Caches hold rows at padding, which nothing reads.
        looks: leave out inputs that do not change the outputs.
    """

    looks = True

    def __init__(
        self,
        trained: Trained,
        stem: str,
        form: Form,
        compute: Callable[[ForwardPasses], Outputs],
        about: str,
        facts: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.module, self.stem, self.form, self.compute = trained.module, stem, form, compute
        self.about, self.facts = about, facts or {}
        self.kept: tuple[str, ...] | None = None
        self.compared: tuple[str, ...] | None = None
        self.objective = ""
        if self.looks:
            optional = [name for name in form.names() if name in OPTIONAL]
            self.form = replace(form, without=frozenset(filter(self._ignores, optional)))

    @torch.no_grad()
    def _ignores(self, name: str) -> bool:
        number, inputs = self.form.names().index(name), [*self.form.example(2, 5, 4, 1)]
        before = self.outputs(*inputs)
        inputs[number] = self.form.example(2, 5, 4, 2)[number] + (name == "concept_ranks")
        after = self.outputs(*inputs)
        return all(torch.equal(before[key].nan_to_num(), after[key].nan_to_num()) for key in before)

    def names(self) -> list[str]:
        return self.form.names()

    def meaning(self, name: str) -> str:
        return self.form.meaning(name)

    def axes(self) -> list[dict[int, str]]:
        return self.form.axes()

    def example(self, batch: int, words: int, regions: int, seed: int = 0) -> tuple[Tensor, ...]:
        return self.form.example(batch, words, regions, seed)

    def outputs(self, *inputs: Tensor) -> Outputs:
        """Compute the outputs by name of inputs in the order of :meth:`names`."""
        values = self.compute(ForwardPasses(self.module.model, self.form.batch(inputs), training=False))
        return values if self.kept is None else {name: values[name] for name in self.kept}

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.outputs(*inputs).values())


def form_of(trained: Trained, *, pictures: int = 1, alone: bool = False, probabilities: bool = False) -> Form:
    """Return the inputs of a model, or of its image side ``alone``."""
    needs = trained.model.input_spec()
    most = getattr(getattr(trained.model, "concepts", None), "most", 0)
    return Form(replace(needs, text=needs.text and not alone), trained.data_spec, pictures, alone, probabilities, most)


def prediction(trained: Trained, name: str, stem: str, probabilities: bool = False) -> Graph:
    """Return the graph of an objective's prediction."""
    part: Objective = trained.module.objectives[name]
    fused = reads_both(trained) and part.requires != frozenset({"image"})
    pictures = getattr(part, "images", 1) if fused else 1
    form = form_of(trained, pictures=pictures, alone=not fused, probabilities=probabilities)
    graph = Graph(trained, stem, form, part.predict, f"what the objective {name} predicts")
    graph.objective = name
    return graph


def encoders(trained: Trained, name: str, probabilities: bool = False) -> list[Graph]:
    """Return two graphs: the vectors of sentences and of pictures, whose products rank pairs."""
    part: Objective = trained.module.objectives[name]
    pictures = form_of(trained, alone=True, probabilities=probabilities)

    def encoder(side: Literal["text", "image"], form: Form) -> Graph:
        about = f"vectors of {side}s by the objective {name}: products of text and image vectors rank"
        facts = {"temperature": temperature(part)}
        return Graph(trained, side, form, lambda passes: {"vectors": part.embed(passes, side)}, about, facts)

    return [encoder("text", replace(pictures, needs=InputSpec(text=True))), encoder("image", pictures)]


def hidden_states(trained: Trained, probabilities: bool = False) -> Graph:
    """Return the graph of the model without a head: hidden states of words and image, and one vector."""
    fused = reads_both(trained)
    form = form_of(trained, alone=not fused, probabilities=probabilities)
    return Graph(trained, "model", form, _fused_states if fused else _image_states, "hidden states, without a head")


def _fused_states(step: ForwardPasses) -> Outputs:
    fused = step.fused()
    return {"text_hidden": _real(fused.text), "image_hidden": _real(fused.image), "pooled": fused.pooled}


def _image_states(step: ForwardPasses) -> Outputs:
    image = step.image()
    return {"hidden": _real(image)} | ({} if image.pooled is None else {"pooled": image.pooled})


def _real(states: EncoderOutput) -> Tensor:
    return states.hidden.masked_fill(~states.layout.valid[..., None], 0)


def reads_both(trained: Trained) -> bool:
    """Return whether the model reads sentences with pictures."""
    return "fuse" in trained.model.capabilities and trained.model.input_spec().text


def temperature(part: Objective) -> float | None:
    """Return the temperature of the similarity softmax, or None."""
    value, scale = getattr(part, "temperature", None), getattr(part, "scale", None)
    if value is None and isinstance(scale, Tensor):
        value = (-scale.detach()).exp()
    return float(value) if isinstance(value, Tensor | float) else None


def predicting(trained: Trained) -> tuple[list[str], list[str]]:
    """Return the names of objectives that predict for a pair or a picture, and of those that embed."""
    able, embeds = [], []
    for name, part in trained.module.objectives.items():
        if type(part).embed is not Objective.embed:
            embeds.append(name)
        elif type(part).predict is not Objective.predict and not part.predicts_hidden:
            able.append(name)
    return able, embeds


def _stored(images: Images) -> Outputs:
    stored: Outputs = {}
    if images.pixels is not None:
        stored["pixels"] = images.pixels.images
    if (regions := images.regions) is not None:
        none = torch.full_like(regions.mask, -1, dtype=torch.long)
        stored |= {"features": regions.features, "boxes": regions.boxes, "region_mask": regions.mask}
        stored |= {"sizes": regions.sizes, "classes": none if regions.classes is None else regions.classes}
        stored["class_scores"] = (none * 0 + 1.0) if regions.class_scores is None else regions.class_scores
        stored |= {} if regions.class_probs is None else {"class_probs": regions.class_probs}
    if (concepts := images.concepts) is not None:
        stored |= {"concept_ids": concepts.ids, "concept_scores": concepts.scores}
        stored |= {"concept_ranks": concepts.ranks, "concept_mask": concepts.mask}
    return stored


def _padded(batch: int, length: int) -> Tensor:
    # (B, L) bool; the second half of the rows lack their last third
    mask = torch.ones(batch, length, dtype=torch.bool)
    mask[batch // 2 + 1 :, max(1, length - length // 3) :] = False
    return mask


def _regions(values: Outputs) -> Regions | None:
    if "features" not in values:
        return None
    flat: dict[str, Any] = {name: values[name].flatten(0, 1) for name in (*REGIONS, "class_probs") if name in values}
    features, boxes, mask = (flat.pop(name) for name in REGIONS[:3])
    sizes = flat.pop("sizes") if "sizes" in flat else torch.ones_like(boxes[:, 0, :2], dtype=torch.long)
    return Regions(features, boxes, mask, sizes, **flat)


def _pixels(values: Outputs) -> Pixels | None:
    if "pixels" not in values:
        return None
    images = values["pixels"].flatten(0, 1)
    return Pixels(images, torch.ones_like(images[:, 0, 0, :2], dtype=torch.long))


def _concepts(values: Outputs) -> Concepts | None:
    if "concept_ids" not in values:
        return None
    flat = {name: values[name].flatten(0, 1) for name in CONCEPTS if name in values}
    ids = flat["concept_ids"]
    ranks = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
    flat = {"concept_scores": torch.ones_like(ids, dtype=torch.float32), "concept_ranks": ranks} | flat
    return Concepts(*(flat[name] for name in CONCEPTS))
