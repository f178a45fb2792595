"""Writes the stages of a recipe for each goal, as YAML with a comment beside what it explains."""

import json
import re
import textwrap
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from vlcli.starter.plan import EYES_BATCH, EYES_STEPS, OF_IMAGES, POOLED_MOST, Plan

_PLAIN = re.compile(r"(?!\.(?:\d|inf\Z|nan\Z))[A-Z_./][A-Z0-9_./ -]*[A-Z0-9_./-]\Z|[A-Z_]\Z", re.IGNORECASE | re.ASCII)
_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n", "~"}
WIDTH = 120


class Noted(NamedTuple):
    """A value with its comment."""

    value: Any
    why: str


def flow(value: Any) -> str:
    """Return a value in YAML's flow style, on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{flow(key)}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, str):
        plain = _PLAIN.match(value) and value.lower() not in _WORDS and "  " not in value
        return value if plain else json.dumps(value, ensure_ascii=False)
    return "~" if value is None else json.dumps(value)


class Writer:
    """Collects the lines of a recipe."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def comment(self, text: str, indent: int = 0) -> None:
        start, words = f"{' ' * indent}# ", " ".join(text.split())
        options: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
        self.lines += textwrap.wrap(words, WIDTH, initial_indent=start, subsequent_indent=start, **options)

    def key(self, name: str, value: Any, indent: int = 0, why: str = "") -> None:
        """Add a key with its value on one line; a long reason goes above, a long mapping into several lines."""
        text = f"{' ' * indent}{flow(name)}: {flow(value)}"
        if why and len(text) + len(why) + 4 <= WIDTH:
            text += f"  # {why}"
        else:
            self.comment(why, indent)
        if len(text) > WIDTH and isinstance(value, dict):
            self.open(name, indent)
            self.keys(value, indent + 2)
        else:
            self.lines.append(text)

    def keys(self, section: Mapping[str, Any], indent: int) -> None:
        """Add the keys of a mapping, whose values may be :class:`Noted`."""
        for name, value in section.items():
            self.key(name, *((value.value, indent, value.why) if isinstance(value, Noted) else (value, indent)))

    def stage(self, name: str, section: Mapping[str, Any]) -> None:
        self.open(name, 2)
        self.keys(section, 4)

    def entries(self, name: str, entries: list[dict[str, Any]], indent: int, why: str = "") -> None:
        if len(entries) == 1:
            self.key(name, entries[0], indent, why)
            return
        self.comment(why, indent)
        self.open(name, indent)
        self.lines += [f"{' ' * indent}  - {flow(entry)}" for entry in entries]

    def open(self, name: str, indent: int = 0) -> None:
        """Add a key whose value follows on the next lines."""
        self.lines.append(f"{' ' * indent}{flow(name)}:")


Rows = dict[str, str]
_TRIED_WIDTH = 192  # width up to which captioning was tried at its stated rates, above those of the rule
# Longest side in pixels of pictures that are read at their own size
SMALL = 96
_SMOOTHING = 0.1  # label smoothing of classifications with one right answer
# Label of a table's row by the option `by` of the task `baseline`.
_BASELINES = {
    "frequent": "most frequent",
    "question": "best answer to the same text",
    "words": "bag of words",
    "words*image": "bag of words times pooled image",
    "nearest": "nearest picture",
    "probe": "linear probe",
}
_GRID = [6, 6]
_KEPT = Noted("validation", "the epoch with the best score here is kept")


def is_pooled(plan: Plan) -> bool:
    """Return whether the model pools frozen features: the examples are too few to train a transformer."""
    few = plan.goal in ("vqa", "classification", "pairs") and plan.parts["train"].examples < POOLED_MOST
    return plan.weights is not None and (few or plan.goal in OF_IMAGES)


def model_of(plan: Plan) -> tuple[dict[str, Any] | None, str]:
    """Return the recipe's ``model`` and its reason; None where the stages name their models."""
    size, grid = plan.size, plan.features != "pixels"
    why = f"Size: width {size.hidden} for {size.why}."
    if plan.goal == "detection":
        return None, ""
    if is_pooled(plan):
        words = {"words": False} if plan.goal in OF_IMAGES else {}
        few = f"{plan.parts['train'].examples:,} training examples"
        return {"name": "pooled", **words}, f"Pooled, whitened features and one hidden layer: {few}."
    if plan.goal in OF_IMAGES or (not grid and plan.goal in ("vqa", "classification", "pairs")):
        return _film(plan)
    shape: dict[str, Any] = {"hidden": size.hidden, "heads": size.heads}
    if plan.goal == "captioning":
        shape["layers"] = max(2, size.layers[2])
        return {"name": "dimbert", **shape, "dropout": 0.1, "appearance": "linear", "concepts": 0}, why
    if grid and plan.goal != "retrieval":
        shape |= dict(zip(("text_layers", "image_layers", "cross_layers"), size.layers, strict=True))
        model = {"name": "lxmert", **shape, "image_position": {"name": "box", "numbers": 7}}
        return model, f"LXMERT reads regions with their boxes. {why}"
    side = 224 if plan.machine.gpu else 96
    image = {"image": "features", "grid": _GRID} if grid else {"image": "pixels", "image_size": side, "patch": 16}
    shape |= {"layers": max(2, size.layers[2] + 1), "fused_layers": 1, "second_path": False}
    shape |= {"length": max(24, plan.length), "layer_scale": None, "drop_path": 0.0}
    patches = f"pixels in {(side // 16) ** 2} patches: the folder has no weights of a backbone"
    return {"name": "vlmo", **image, **shape}, f"VLMo reads {'the cells of a grid' if grid else patches}. {why}"


def _film(plan: Plan) -> tuple[dict[str, Any], str]:
    classes = plan.goal in OF_IMAGES
    width, height = plan.sizes
    small = 0 < max(width, height) <= SMALL
    side = [height, width] if small else [64, 64] if classes else [96, 96]
    shape: dict[str, Any] = {"name": "film", "image_size": side[0] if side[0] == side[1] else side}
    if classes:
        shape |= {"convolutions": [24, 48, 96], "blocks": 1, "words": 0}
    elif not small:
        shape |= {"convolutions": [16, 32, 64, 64]}
    read = "at their own size" if small else f"at {side[0]} x {side[1]}"
    return shape, f"Convolutions read pixels {read}: the folder has no weights of a backbone."


def _answering(plan: Plan, writer: Writer) -> Rows:
    task = {"name": "vqa", "min_count": plan.min_count, "loss": "ce" if plan.one_answer else "bce"}
    task |= {"smoothing": _SMOOTHING} if plan.one_answer else {}
    least = f"{plan.min_count} question{'' if plan.min_count == 1 else 's'}"
    why = f"{plan.classes:,} answers have a row, each the best answer of {least} or more; "
    why += "one answer a question: softmax (ce)" if plan.one_answer else "several people answered: sigmoid (bce)"
    return _tuned_with_control(plan, writer, "answer", Noted(task, why), "question alone")


def _classification(plan: Plan, writer: Writer) -> Rows:
    pairs = plan.goal == "pairs"
    task = {"name": "classification", "smoothing": _SMOOTHING} | ({"images": 2} if pairs else {})
    why = f"{plan.classes} labels" + ("; each example has two pictures" if pairs else "")
    return _tuned_with_control(plan, writer, "judge", Noted(task, why), "sentence alone")


def _tuned_with_control(plan: Plan, writer: Writer, name: str, task: Noted, control: str) -> Rows:
    _features(plan, writer)
    start = {}
    if plan.captions:
        start = {"from": "pretrain"}
        writer.comment("Words and pictures first, from the captions of the training pictures.", 2)
        objectives = [{"name": "mlm", "probability": 0.2}, "matching"]
        training = _training(plan, batch=64, epochs=10, stops=False)
        writer.stage("pretrain", {"data": "captioned", "objectives": objectives, **training})
    tuned = {"kind": "finetune", **start, "task": task, "data": "train", "validation": _KEPT, **_training(plan)}
    writer.stage(name, tuned)
    rows = _evaluations(plan, writer, {"with pictures": ("test", {"from": name})})
    writer.comment("The control: the same model without pictures. What it scores is in the words alone.", 2)
    blind = f"{name}-blind"
    writer.stage(blind, tuned | {"task": {**task.value, "only": "text"}, "validation": "validation"})
    rows |= _evaluations(plan, writer, {control: ("test-blind", {"from": blind})})
    judged = {key: value for key, value in task.value.items() if key in ("name", "images")}
    return rows | _baselines(plan, writer, judged, ("frequent", "question", "words", "words*image"))


def _referring(plan: Plan, writer: Writer) -> Rows:
    _features(plan, writer)
    why = "softmax over a picture's boxes, of which the expression speaks of one; "
    task = Noted({"name": "referring", "loss": "softmax"}, f"{why}{plan.candidates:.1f} boxes a picture")
    stage = {"kind": "finetune", "task": task, "data": "train", "validation": _KEPT}
    writer.stage("refer", {**stage, **_training(plan)})
    return _evaluations(plan, writer, {"LXMERT": ("test", {"from": "refer"})})


def _retrieval(plan: Plan, writer: Writer) -> Rows:
    _features(plan, writer)
    last = max(2, plan.epochs - 3)
    writer.stage("pairs", {"kind": "pretrain", "data": "train"})
    writer.comment("Contrast learns vectors; matching looks at sentence and picture together.", 4)
    objectives: list[dict[str, Any]] = [
        {"name": "contrast", "positives": "masked"},
        {"name": "mlm", "weight": 0.5, "probability": 0.2, "until_epoch": last},
        {"name": "contrast-matching", "from_epoch": last - 1},
    ]
    writer.entries("objectives", objectives, 4)
    writer.keys(_training(plan, stops=False), 4)
    vectors = {"name": "retrieval", "first": "contrast", "objective": None}
    matching = {**vectors, "objective": "contrast-matching", "candidates": 16}
    tests = {
        "vectors alone": ("test", {"from": "pairs", "task": vectors}),
        "nearest 16 ranked again": ("again", {"from": "pairs", "task": matching}),
    }
    rows = _evaluations(plan, writer, tests)
    if plan.features != "pixels":
        writer.comment("A row beside: correlation of words and mean features, which needs no training.", 2)
        cca = {"task": "cca-retrieval", "fit": "train"}
        rows |= _evaluations(plan, writer, {"canonical correlation": ("cca", cca)})
    return rows


def _captioning(plan: Plan, writer: Writer) -> Rows:
    _features(plan, writer)
    tried = plan.size.hidden <= _TRIED_WIDTH
    objectives = [{"name": "blm-s2slm", "probability": 0.3, "limit": None}]
    training = _training(plan, stops=False, lr=1e-3 if tried else None)
    writer.stage("pretrain", {"data": "train", "objectives": objectives, **training})
    stage: dict[str, Any] = {"kind": "finetune", "from": "pretrain", "task": "captioning"}
    stage |= {"objectives": [{"name": "s2slm", "probability": 0.3, "limit": None}], "data": "train"}
    training = _training(plan, batch=64, epochs=max(1, plan.epochs // 3), stops=False, lr=3e-4 if tried else None)
    writer.stage("caption", {**stage, **training})
    task = {"name": "captioning", "no_repeat_ngram": 3}
    rows = _evaluations(plan, writer, {"DiMBERT": ("test", {"from": "caption", "task": task})})
    writer.comment("A row beside: the caption of the training picture that looks most alike.", 2)
    nearest = {"task": "nearest-caption", "fit": "train"}
    return rows | _evaluations(plan, writer, {"caption of the nearest picture": ("nearest", nearest)})


def _image_classification(plan: Plan, writer: Writer) -> Rows:
    _features(plan, writer)
    stage: dict[str, Any] = {"kind": "finetune", "task": plan.goal}
    if plan.goal == "image-classification":
        stage["objectives"] = [{"name": "image-classification", "smoothing": _SMOOTHING}]
    stage |= {"data": "train", "validation": _KEPT}
    if plan.weights is None:
        crops = {"scale": [0.5, 1.0], "augment": "", "jitter": 0.0, "erasing": 0.0, "crop": 1.0}
        why = "random crops and horizontal flips while training"
        stage["transform"] = Noted({"name": "imagenet", **crops}, why)
    writer.stage("classify", {**stage, **_training(plan)})
    rows = _evaluations(plan, writer, {"test": ("test", {"from": "classify"})})
    return rows | _baselines(plan, writer, {"name": plan.goal}, ("frequent", "nearest", "probe"))


def _detection(plan: Plan, writer: Writer) -> Rows:
    side = {"short": 320, "long": 480} if not plan.machine.gpu else {"short": 600, "long": 1000}
    body = {"backbone": plan.weights.arch if plan.weights else "tiny-conv"}
    model = {"name": "faster-rcnn", **body, **side, "width": 256, "proposals": 100}
    stage = {"kind": "finetune", "model": model, "task": "detection", "data": "train"}
    writer.stage("detector", {**stage, **_training(plan, stops=False)})
    return _evaluations(plan, writer, {"Faster R-CNN": ("test", {"from": "detector"})})


# By goal, the function that writes the stages and returns the table's rows: stage by label
STAGES: dict[str, Callable[[Plan, Writer], Rows]] = {
    "vqa": _answering,
    "pairs": _classification,
    "classification": _classification,
    "referring": _referring,
    "retrieval": _retrieval,
    "captioning": _captioning,
    "image-classification": _image_classification,
    "multi-label": _image_classification,
    "detection": _detection,
}


def _features(plan: Plan, writer: Writer) -> None:
    if plan.weights is None and plan.labelled is None:
        return
    extractor: dict[str, Any] = {"name": "backbone", "arch": "tiny-conv"}
    if plan.weights is not None:
        writer.comment(f"Features of the {plan.weights.arch} in {plan.weights.file}.", 2)
        layout = {"layout": "caffe"} if plan.weights.layout == "caffe" else {}
        extractor |= {"arch": plan.weights.arch, **layout, "weights": plan.weights.file}
    else:
        why = "The folder has no weights of a backbone: a small network learns from the labelled boxes first."
        writer.comment(why, 2)
        stage: dict[str, Any] = {"kind": "finetune", "model": {"name": "region-classifier", "arch": "tiny-conv"}}
        stage |= {"task": "region-labels", "data": "objects", "steps": EYES_STEPS, "batch_size": EYES_BATCH}
        writer.stage("eyes", {**stage, "optimizer": {"lr": 2e-3}})
    referring = plan.goal == "referring"
    on_grid = plan.goal in ("retrieval", "captioning", *OF_IMAGES) or not (plan.boxes or referring)
    stored = {"boxes": "given"} if referring else {"boxes": "given-or-grid", "limit": 36}
    extractor |= {"short": 256, "long": 427} | ({"boxes": "grid", "grid": _GRID} if on_grid else stored)
    source = {} if plan.weights else {"from": "eyes"}
    data = ["all", "captioned"] if plan.captions else "all"
    writer.stage("regions", {"kind": "extract", **source, "extractor": extractor, "data": data})
    if referring and not plan.boxes:
        writer.comment("The boxes that the expressions about a picture speak of: the model chooses among them.", 4)
    elif not on_grid:
        why = "the model chooses among them" if referring else "pictures without any are cut into a grid"
        writer.key("boxes", plan.boxes, 4, f"given boxes; {why}")


def _baselines(plan: Plan, writer: Writer, task: dict[str, Any], kinds: tuple[str, ...]) -> Rows:
    why = "Rows beside: what is reached in seconds. A model that is below one of them has learnt too little."
    writer.comment(why, 2)
    sections = {by: {"task": {"name": "baseline", "by": by, "task": task}, "fit": "train"} for by in kinds}
    tests = {_BASELINES[by]: (by.replace("*", "-by-"), section) for by, section in sections.items()}
    return _evaluations(plan, writer, tests)


def _evaluations(plan: Plan, writer: Writer, tests: Mapping[str, tuple[str, dict[str, Any]]]) -> Rows:
    # `tests`: name and section of a stage by the label of its row
    missing = {"missing": "drop"} if plan.drop else {}
    for name, section in tests.values():
        writer.key(name, {"kind": "evaluate", **section, "data": "test", **missing}, 2)
    return {label: name for label, (name, _) in tests.items()}


def _training(
    plan: Plan, *, batch: int | None = None, epochs: int | None = None, stops: bool = True, lr: float | None = None
) -> dict[str, Any]:
    # without `lr` the engine's rule chooses the rate (docs/training.md)
    section: dict[str, Any] = {"epochs": epochs or plan.epochs}
    if stops:
        # More validations where an epoch has few steps, and where a few hundred answers judge a small, cheap model.
        patience = max(4, plan.epochs // (2 if is_pooled(plan) else 5))
        why = f"ends after {patience} validations without a better score"
        section["stop"] = Noted({"patience": patience}, why)
    section["batch_size"] = batch or plan.batch
    if plan.weights is None and plan.goal in ("vqa", "classification") and plan.features == "pixels":
        section["group"] = Noted("image", "the questions about a picture in one batch: it is read once")
    if is_pooled(plan):
        section["schedule"] = {"name": "constant"}
    decay = {"weight_decay": 0.3} if is_pooled(plan) else {"weight_decay": 0.05} if plan.goal in OF_IMAGES else {}
    section["optimizer"] = {**({} if lr is None else {"lr": lr}), "betas": [0.9, 0.98], **decay}
    if plan.machine.gpu:
        section["precision"] = Noted("bf16", "the GPU is faster in it")
    if plan.drop:
        section["missing"] = Noted("drop", "examples whose picture cannot be used are left out and counted")
    return section
