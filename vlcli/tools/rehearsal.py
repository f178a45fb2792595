"""Rehearses recipes: miniature data sets, random weights in released layouts, the recipe itself at reduced sizes."""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import chdir
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vlcli.builders.readers import build_reader
from vlcli.checkpoints.load import every
from vlcli.data import Reader, Tokenizer
from vlcli.data.miniature import ANSWERS, BOXES, SIZE, Miniature
from vlcli.engine.weights import save_tensors
from vlcli.errors import UsageError, VlcliError
from vlcli.features import FeatureWriter, Record
from vlcli.features.concepts import CONCEPTS, WORDS, concept_record
from vlcli.files import writing
from vlcli.progress import Progress
from vlcli.recipe import keys, wiring
from vlcli.recipe.components import of_recipe, of_stage
from vlcli.recipe.locate import Resolved
from vlcli.recipe.plan import RunOptions
from vlcli.recipe.resolve import resolve
from vlcli.recipe.schema import Extract, Recipe, Stage, Training
from vlcli.registry import Spec
from vlcli.runner.execute import StageOutcome
from vlcli.runner.run import run_recipe
from vlcli.tools.counting import training_stages
from vlcli.tools.reduction import WIDTH, Reduced, side
from vlcli.tools.training_cost import Wanted, training_cost

REGIONS, CONCEPT_COUNT, WORDS_MADE = 36, 40, 400
VLP_CLASSES, CLASSES, ATTRIBUTES = 1601, 1600, 400
"""Of VLP's detector, whose stores hold probabilities, background first; of the one whose stores LXMERT reads."""


def rehearse(
    recipes: Sequence[Reduced], folder: Path, device: str | None, progress: Progress
) -> Generator[tuple[Reduced, list[StageOutcome]], None, None]:
    """Runs reduced recipes in a folder on miniatures of all that they read; yields each with its outcomes.

    Args:
        recipes: with relative data roots.
        folder: an empty one; all files are written below it.
        device: overrides every stage's.

    Raises:
        UsageError: something that a recipe reads has no miniature, or a path leaves the folder.
        RecipeError: a recipe has faults that are found before it runs.
    """
    with chdir(folder):
        scene = Scene(folder)
        with writing(folder):
            for one in recipes:
                scene.add(one.small)
            scene.finish()
        for one in recipes:
            yield one, run_recipe(one.small, RunOptions(Path("runs"), device=device, jobs=1), progress)


def full_costs(full: Resolved, gpus: int, memory: float) -> list[dict[str, Any]]:
    """Returns what each training stage of a full recipe takes on ``gpus`` of ``memory`` bytes, as ``vlcli plan`` does.

    Returns:
        ``stage``, ``memory`` (bytes of a GPU), ``hours`` where the recipe names its steps, else ``hours_a_million``
        examples in all epochs, and ``disk`` (bytes of the checkpoints that are kept); or ``why`` it is not known.
    """
    return [stage_cost(full, name, gpus, memory) for name in training_stages(full)]


def stage_cost(full: Resolved, name: str, gpus: int, memory: float) -> dict[str, Any]:
    """Returns the row of one training stage as :func:`full_costs` has it."""
    stage = full.stages[name]
    assert isinstance(stage, Training)
    try:
        counted = training_cost(full, Wanted(gpus, memory, disk=1.0), name)
    except VlcliError as error:
        return {"stage": name, "why": error.what}
    values = {cost.name: cost.value for part in ("memory", "time") for cost in counted[part]}
    time, million = values.get("training"), None
    if time is None and stage.epochs:
        million = stage.epochs * 1e6 / values["examples read"] / 3600
    facts = {"hours": None if time is None else time / 3600, "hours_a_million": million}
    return {"stage": name, "memory": values["all"], **facts, "disk": stage.keep * values["checkpoint"]}


class Scene:
    """Writes what recipes read into the present folder: data sets, stores, vocabularies, weights."""

    def __init__(self, folder: Path) -> None:
        self.miniature = Miniature(folder)
        self._texts = [" ".join(ANSWERS)]
        self._reads: list[tuple[list[Path], dict[str, None]]] = []
        self._weights: dict[Path, str] = {}
        self._vocabularies: dict[Path, bool] = {}

    def add(self, resolved: Resolved) -> None:
        """Writes the data sets of a recipe, and notes what else it reads.

        Raises UsageError: a reader has no miniature, or a path leaves the folder.
        """
        recipe, order = resolved.recipe, list(resolved.stages)
        for number, (name, stage) in enumerate(resolved.stages.items()):
            if stage.kind == "make" or wiring.root_stage(recipe, stage, order[:number]):
                continue
            root = wiring.root_folder(recipe, stage, {})
            self._inner(root).mkdir(parents=True, exist_ok=True)
            readers = [self._reader(spec, root, name) for spec in _data(recipe, stage)]
            task = resolve(recipe, stage, keys.task_kept).built_task
            if task is not None and readers:
                task.write_miniature(self.miniature, readers)
            images = {image: None for one in readers for row in one.examples() for image in row.images}
            named = [self._inner(root / word) for word in getattr(stage, "features", []) if word not in order]
            self._reads += [([p for p in named if _holds_concepts(p) == kind], images) for kind in (True, False)]
            if isinstance(stage, Extract):
                self._note_extraction(stage, root, images)
            self._weights |= {self._inner(root / word): word for word in stage.source if word not in order}
            text = getattr(stage, "text", None) or recipe.text
            if isinstance(stage, Training) and isinstance(text.vocabulary, str):
                self._vocabularies[self._inner(root / text.vocabulary)] = text.lowercase

    def finish(self) -> None:
        """Writes vocabularies, weights and stores; called when every recipe was added."""
        words = 0
        for path, lowercase in self._vocabularies.items():
            tokenizer = Tokenizer.train(self._texts, WORDS_MADE, lowercase=lowercase)
            path.mkdir(parents=True, exist_ok=True)
            tokenizer.save(path)
            words = max(words, tokenizer.data_spec_fields()["vocab_size"])
        for path, name in self._weights.items():
            write_released(name, path, words)
        for path, images in self._shared_out().items():
            path.parent.mkdir(parents=True, exist_ok=True)
            _write_store(path, images)

    def _inner(self, path: Path) -> Path:
        if path.is_absolute() or ".." in path.parts:
            what = "A rehearsal reads nothing outside its own folder."
            raise UsageError(what, got=str(path), expected="a path below the recipe's `root`")
        return path

    def _reader(self, spec: Spec, root: Path, stage: str) -> Reader:
        try:
            build_reader(spec, root).write_miniature(self.miniature)
        except NotImplementedError:
            what = "A data set of this recipe cannot be rehearsed: its reader writes no miniature of it."
            where, expected = f"stages.{stage}", "the method `write_miniature` (docs/seams.md, Reader)"
            hint = f"the stages that read it remain unrehearsed: leave them out, '~stages.{stage}'"
            raise UsageError(what, where=where, got=str(spec["name"]), expected=expected, hint=hint) from None
        reader = build_reader(spec, root)  # anew: it looks for its files when it is built
        self._texts += [example.text for example in reader.examples() if example.text]
        return reader

    def _note_extraction(self, stage: Extract, root: Path, images: Iterable[str]) -> None:
        if stage.images is not None:
            folder = self._inner(root / stage.images)
            for number in self.miniature.numbers("pictures"):
                self.miniature.picture(folder / f"{number}.jpg")
        size = {"width": SIZE[0], "height": SIZE[1], "boxes": [[x, y, x + w, y + h] for x, y, w, h in BOXES]}
        for number, file in enumerate(stage.boxes):
            share = list(images)[number :: len(stage.boxes)]
            self.miniature.write(root / file, [{"file_name": f"{image}.jpg", **size} for image in share])
        if isinstance(weights := stage.extractor.get("weights"), str):
            self._weights[self._inner(root / weights)] = weights

    def _shared_out(self) -> dict[Path, dict[str, None]]:
        # an image lies in the store that most of the stages which need it read; no store stays empty
        stores: dict[Path, dict[str, None]] = {path: {} for paths, _ in self._reads for path in paths}
        wanted: dict[str, list[list[Path]]] = {}
        for paths, images in self._reads:
            for image in images if paths else ():
                wanted.setdefault(image, []).append(paths)
        for number, (image, lists) in enumerate(wanted.items()):
            while lists:
                counts = Counter(path for paths in lists for path in paths)
                best = [path for path, count in counts.items() if count == max(counts.values())]
                chosen = best[number % len(best)]
                stores[chosen][image] = None
                lists[:] = [paths for paths in lists if chosen not in paths]
        return {path: images or {"unread": None} for path, images in stores.items()}


def _data(recipe: Recipe, stage: Stage) -> list[Spec]:
    # with all of their splits, which belong together; the data of vocabularies too
    specs = list(stage.data) if isinstance(stage, Extract) else resolve(recipe, stage, keys.task_kept).data
    specs = specs + [spec for key in ("validation", "fit") for spec in getattr(stage, key, [])]
    uses = [use for use in (*of_recipe(recipe), *of_stage("", stage)) if use.kind == "datasets" and "train" in use.path]
    return specs + ([use.spec for use in uses] if isinstance(stage, Training) else [])


def _holds_concepts(path: Path) -> bool:
    return "concept" in str(path)


def _write_store(path: Path, images: Iterable[str]) -> None:
    draw = np.random.default_rng(0)
    width, height = SIZE
    if _holds_concepts(path):
        words = [f"{answer} {number}" for number in range(10) for answer in ANSWERS][:CONCEPT_COUNT]
        with FeatureWriter(path, {WORDS: words}, set=CONCEPTS) as writer:
            for image in images:
                ids = draw.permutation(CONCEPT_COUNT)
                writer.append(concept_record(image, ids, np.linspace(0.9, 0.1, CONCEPT_COUNT), (height, width)))
        return
    with FeatureWriter(path) as writer:
        for image in images:
            boxes = np.sort(draw.uniform(0, SIZE, (REGIONS, 2, 2)).astype(np.float32), 1).reshape(REGIONS, 4)
            record = Record(image, draw.random((REGIONS, 2048), np.float32), boxes, (height, width))
            record.classes = draw.integers(0, CLASSES, REGIONS).astype(np.int32)
            record.attributes = draw.integers(0, ATTRIBUTES, REGIONS).astype(np.int32)
            record.classes[0], record.attributes[0] = CLASSES - 1, ATTRIBUTES - 1  # readers count by the greatest
            record.class_scores = record.attribute_scores = draw.random(REGIONS, np.float32)
            if "obj36" not in path.name:  # VLP's
                record.class_probs = draw.dirichlet(np.ones(VLP_CLASSES), REGIONS).astype(np.float32)
            writer.append(record)


# Published files under the names that the recipes have for them
SAME = {
    "unilm.bin": "unilm1-base-cased.bin",
    "vlp.bin": "cc_g8_lr1e-4_batch512_s0.75_b0.25.tar.gz",
    "vlp-detector.safetensors": "e2e_faster_rcnn_X-101-64x4d-FPN_2x-vlp.pkl",
}
NARROW = {"hidden": WIDTH, "inner": 4 * WIDTH, "queue": 64, "side": 4, "cells": 16}
_NARROW_DETECTOR = {"stem": 8, "width": 16, "inner": 16, "pyramid": 16}  # sizes of layouts that a rehearsal reduces


def write_released(name: str, path: Path, words: int) -> None:
    """Writes random weights in the layout of a published file or hub repository. Raises UsageError: it is not known."""
    last = PurePosixPath(name).name
    known = {one.name: one for one in every()}
    checkpoint = known.get(name) or known.get(SAME.get(last, last))
    torch.manual_seed(0)
    if checkpoint is None:
        state = _other(name, words)
    else:
        tensors = checkpoint.sized(**(_NARROW_DETECTOR if checkpoint.layout.extractor else NARROW), words=words)
        state = {key: _random(one.shape, getattr(torch, one.dtype), key) for key, one in tensors.items()}
    is_folder = not path.suffix or ("/" in name and path.suffix not in (".bin", ".pth", ".pt", ".safetensors"))
    file = path / "model.safetensors" if is_folder else path
    file.parent.mkdir(parents=True, exist_ok=True)
    save_tensors(file, state) if file.suffix == ".safetensors" else torch.save(state, file)


def _random(shape: tuple[int, ...], dtype: torch.dtype, name: str) -> Tensor:
    if not dtype.is_floating_point:
        return torch.zeros(shape, dtype=dtype)
    variance = name.endswith(("running_var", "bn_s"))  # and other factors of normalisations
    return torch.ones(shape, dtype=dtype) if variance else torch.randn(shape).mul_(0.02).to(dtype)


def _other(name: str, words: int) -> dict[str, Tensor]:
    # weights that no registered layout describes
    import timm
    import transformers
    from torchvision import models

    sizes = {"hidden_size": WIDTH, "intermediate_size": 4 * WIDTH}
    builders: dict[str, Callable[[], nn.Module]] = {
        "fc7": lambda: nn.ModuleDict({"fc7": nn.Linear(2048, 2048)}),
        "resnet50": models.resnet50,
        "vgg16": models.vgg16,
        "deit_base": lambda: timm.create_model("deit_base_patch16_224", embed_dim=WIDTH, img_size=side(224)),
        "bert-base": lambda: transformers.BertForPreTraining(transformers.BertConfig(vocab_size=words, **sizes)),
        "vit-base": lambda: transformers.ViTModel(transformers.ViTConfig(image_size=side(224), **sizes)),
    }
    for part, build in builders.items():
        if part in name:
            return dict(build().state_dict())
    what = "Weights whose layout is not known cannot be rehearsed."
    expected = "a file of `vlcli ls checkpoints`, or BERT-base, ViT-base, DeiT-base, ResNet-50, VGG-16 or fc7"
    raise UsageError(what, got=name, expected=expected, hint="rehearse without them: leave the word out of `from`")
