"""The stages of a recipe for each goal."""

from __future__ import annotations

from typing import Any

from vlcli.starter.emit import Writer, flow
from vlcli.starter.plan import EYES_BATCH, EYES_STEPS, OF_IMAGES, POOLED_MOST, Plan, patience_for

Rows = dict[str, str]
TRIED_WIDTH = 192
"""Width up to which captioning was tried at its stated rates, above those of the rule."""
SMALL = 96
"""Longest side in pixels of pictures that are read at their own size."""
SMOOTHING = 0.1
"""Label smoothing of classifications with one right answer."""
_BY = ("frequent", "question", "words", "words*image")
_BASELINES = {
    "frequent": "most frequent",
    "question": "best answer to the same text",
    "words": "bag of words",
    "words*image": "bag of words times pooled image",
    "nearest": "nearest picture",
    "probe": "linear probe",
}
"""Rows of baselines: what the task ``baseline`` calls each, and its label in the table."""
_GRID = [6, 6]
METRICS: dict[str, tuple[list[str], str]] = {
    "vqa": (["accuracy", "accuracy/*"], "in brackets: always the most frequent answer"),
    "pairs": (["accuracy"], "in brackets: always the most frequent label"),
    "classification": (["accuracy", "accuracy/*"], "in brackets: always the most frequent label"),
    "referring": (["accuracy"], "in brackets: a box chosen at random"),
    "retrieval": (["image/*", "text/*", "r_mean"], "recall at 1, 5, 10 both ways; in brackets: a random order"),
    "captioning": (["cider_d", "baseline/cider_d", "bleu_4", "distinct"], "baseline: one caption said of all pictures"),
    "multi-label": (["map", "ap/*"], "mean average precision; in brackets: the same score for every picture"),
    "image-classification": (["top1", "top5", "top1/*"], "in brackets: always the most frequent class"),
    "detection": (["AP", "AP50", "AP75"], "COCO's average precision"),
}


def metrics_of(plan: Plan) -> tuple[list[str], str]:
    """The metrics of the recipe's table, and what a reader of the table must know.

    VQA v2 names some sixty types of questions: the table has the three types of answers, the report has all.
    """
    metrics, why = METRICS[plan.goal]
    if plan.source.entry["name"] == "vqa":
        return ["accuracy", *(f"accuracy/{kind}" for kind in ("yes/no", "number", "other"))], why
    return metrics, why


def is_pooled(plan: Plan) -> bool:
    """Whether the model pools frozen features: the examples are too few for a transformer that starts from nothing."""
    if plan.weights is None:
        return False
    few = plan.parts["train"].examples < POOLED_MOST
    return plan.goal in OF_IMAGES or (plan.goal in ("vqa", "classification", "pairs") and few)


def model_of(plan: Plan) -> tuple[dict[str, Any] | None, str]:
    """The recipe's model and why it is that; None where stages name their own."""
    size, grid = plan.size, plan.features != "pixels"
    why = f"Size: width {size.hidden} for {size.why}."
    if plan.goal == "detection":
        return None, ""
    if is_pooled(plan):
        words = {"words": False} if plan.goal in OF_IMAGES else {}
        few = f"{plan.parts['train'].examples:,} training examples"
        return {"name": "pooled", **words}, f"Pooled, whitened features and one hidden layer: {few}."
    if plan.goal in OF_IMAGES or (not grid and plan.goal in ("vqa", "classification", "pairs")):
        return film_of(plan)
    if plan.goal == "captioning":
        shape = {"hidden": size.hidden, "heads": size.heads, "layers": max(2, size.layers[2])}
        return {"name": "dimbert", **shape, "dropout": 0.1, "appearance": "linear", "concepts": 0}, why
    if grid and plan.goal != "retrieval":
        return lxmert_of(plan, size.layers), f"LXMERT reads regions with their boxes. {why}"
    side = 224 if plan.machine.gpu else 96
    seen = {"image": "features", "grid": _GRID} if grid else {"image": "pixels", "image_size": side, "patch": 16}
    shape = {"hidden": size.hidden, "heads": size.heads, "layers": max(2, size.layers[2] + 1), "fused_layers": 1}
    rest = {"second_path": False, "length": max(24, plan.length), "layer_scale": None, "drop_path": 0.0}
    source = (
        "the cells of a grid"
        if grid
        else f"pixels in {(side // 16) ** 2} patches: the folder has no weights of a backbone"
    )
    return {"name": "vlmo", **seen, **shape, **rest}, f"VLMo reads {source}. {why}"


def film_of(plan: Plan) -> tuple[dict[str, Any], str]:
    """Convolutions, which a question modulates: small pictures at their own size, others at 64 or 96 pixels."""
    classes = plan.goal in OF_IMAGES
    width, height = plan.sizes
    small = 0 < max(width, height) <= SMALL
    side = [height, width] if small else [64, 64] if classes else [96, 96]
    size: Any = side[0] if side[0] == side[1] else side
    if classes:
        shape: dict[str, Any] = {"image_size": size, "convolutions": [24, 48, 96], "blocks": 1, "words": 0}
    else:
        shape = {"image_size": size} | ({} if small else {"convolutions": [16, 32, 64, 64]})
    read = "at their own size" if small else f"at {side[0]} x {side[1]}"
    why = f"Convolutions read pixels {read}: the folder has no weights of a backbone."
    return {"name": "film", **shape}, why


def lxmert_of(plan: Plan, layers: tuple[int, int, int]) -> dict[str, Any]:
    """LXMERT with layers of text, image and both."""
    counts = dict(zip(("text_layers", "image_layers", "cross_layers"), layers, strict=True))
    position = {"name": "box", "numbers": 7}
    return {
        "name": "lxmert",
        "hidden": plan.size.hidden,
        "heads": plan.size.heads,
        **counts,
        "image_position": position,
    }


def answering(plan: Plan, writer: Writer) -> Rows:
    """VQA, and the control that sees no picture."""
    _features(plan, writer)
    source = _pretraining(plan, writer)
    task = {"name": "vqa", "min_count": plan.min_count, "loss": "ce" if plan.one_answer else "bce"}
    task |= {"smoothing": SMOOTHING} if plan.one_answer else {}
    least = f"{plan.min_count} question{_s(plan.min_count)}"
    why = f"{plan.classes:,} answers have a row, each the best answer of {least} or more; "
    why += "one answer a question: softmax (ce)" if plan.one_answer else "several people answered: sigmoid (bce)"
    return _tuned_with_control(plan, writer, "answer", task, why, source, "question alone")


def classification(plan: Plan, writer: Writer) -> Rows:
    """Sentences with labels about one picture or two."""
    _features(plan, writer)
    source = _pretraining(plan, writer)
    task: dict[str, Any] = {"name": "classification", "smoothing": SMOOTHING}
    task |= {"images": 2} if plan.goal == "pairs" else {}
    why = f"{plan.classes} labels" + ("; each example has two pictures" if plan.goal == "pairs" else "")
    return _tuned_with_control(plan, writer, "judge", task, why, source, "sentence alone")


def referring(plan: Plan, writer: Writer) -> Rows:
    """A score for every box of a picture: how well the expression fits it."""
    _features(plan, writer)
    writer.open("refer", 2)
    writer.key("kind", "finetune", 4)
    why = (
        f"softmax over a picture's boxes, of which the expression speaks of one; {plan.candidates:.1f} boxes a picture"
    )
    writer.key("task", {"name": "referring", "loss": "softmax"}, 4, why)
    writer.key("data", "train", 4)
    writer.key("validation", "validation", 4, "the epoch with the best score here is kept")
    _training(plan, writer, batch=plan.batch)
    _missing(plan, writer)
    writer.key("test", {"kind": "evaluate", "from": "refer", "data": "test"} | _drop(plan), 2)
    return {"LXMERT": "test"}


def retrieval(plan: Plan, writer: Writer) -> Rows:
    """Contrast, masked words and matching; ranking by vectors, the nearest again by matching."""
    _features(plan, writer)
    last = max(2, plan.epochs - 3)
    writer.open("pairs", 2)
    writer.key("kind", "pretrain", 4)
    writer.key("data", "train", 4)
    writer.comment("Contrast learns vectors; matching looks at sentence and picture together.", 4)
    objectives = [
        {"name": "contrast", "positives": "masked"},
        {"name": "mlm", "weight": 0.5, "probability": 0.2, "until_epoch": last},
        {"name": "contrast-matching", "from_epoch": last - 1},
    ]
    writer.open("objectives", 4)
    writer.lines += [f"      - {flow(one)}" for one in objectives]
    _training(plan, writer, batch=plan.batch, stops=False)
    _missing(plan, writer)
    for name, task in (
        ("test", {"name": "retrieval", "first": "contrast", "objective": None}),
        ("again", {"name": "retrieval", "first": "contrast", "objective": "contrast-matching", "candidates": 16}),
    ):
        stage = {"kind": "evaluate", "from": "pairs", "task": task, "data": "test"}
        writer.key(name, stage | _drop(plan), 2)
    rows = {"vectors alone": "test", "nearest 16 ranked again": "again"}
    if plan.features != "pixels":
        writer.comment("A row beside: correlation of words and mean features, which needs no training.", 2)
        writer.key(
            "cca", {"kind": "evaluate", "task": "cca-retrieval", "fit": "train", "data": "test"} | _drop(plan), 2
        )
        rows["canonical correlation"] = "cca"
    return rows


def captioning(plan: Plan, writer: Writer) -> Rows:
    """DiMBERT learns to continue captions, and writes them by beam search."""
    _features(plan, writer)
    writer.open("pretrain", 2)
    writer.key("data", "train", 4)
    writer.key("objectives", [{"name": "blm-s2slm", "probability": 0.3, "limit": None}], 4)
    tried = plan.size.hidden <= TRIED_WIDTH
    _training(plan, writer, batch=plan.batch, stops=False, lr=1e-3 if tried else None)
    writer.open("caption", 2)
    writer.key("kind", "finetune", 4)
    writer.key("from", "pretrain", 4)
    writer.key("task", "captioning", 4)
    writer.key("objectives", [{"name": "s2slm", "probability": 0.3, "limit": None}], 4)
    writer.key("data", "train", 4)
    writer.key("epochs", max(1, plan.epochs // 3), 4)
    writer.key("batch_size", 64, 4)
    writer.key("optimizer", {"lr": 3e-4, "betas": [0.9, 0.98]} if tried else {"betas": [0.9, 0.98]}, 4)
    task = {"name": "captioning", "no_repeat_ngram": 3}
    writer.key("test", {"kind": "evaluate", "from": "caption", "task": task, "data": "test"}, 2)
    writer.comment("A row beside: the caption of the training picture that looks most alike.", 2)
    writer.key("nearest", {"kind": "evaluate", "task": "nearest-caption", "fit": "train", "data": "test"}, 2)
    return {"DiMBERT": "test", "caption of the nearest picture": "nearest"}


def image_classification(plan: Plan, writer: Writer) -> Rows:
    """One hidden layer on frozen features, or convolutions on pixels."""
    _features(plan, writer)
    writer.open("classify", 2)
    writer.key("kind", "finetune", 4)
    writer.key("task", plan.goal, 4)
    if plan.goal == "image-classification":
        writer.key("objectives", [{"name": "image-classification", "smoothing": SMOOTHING}], 4)
    writer.key("data", "train", 4)
    writer.key("validation", "validation", 4, "the epoch with the best score here is kept")
    if plan.weights is None:
        crops = {"scale": [0.5, 1.0], "augment": "", "jitter": 0.0, "erasing": 0.0, "crop": 1.0}
        writer.key("transform", {"name": "imagenet", **crops}, 4, "random crops and horizontal flips while training")
    _training(plan, writer, batch=plan.batch)
    _missing(plan, writer)
    writer.key("test", {"kind": "evaluate", "from": "classify", "data": "test"} | _drop(plan), 2)
    rows = {"test": "test"}
    return rows | _baselines(plan, writer, {"name": "image-classification"}, ("frequent", "nearest", "probe"))


def detection(plan: Plan, writer: Writer) -> Rows:
    """Faster R-CNN with a small backbone."""
    writer.open("detector", 2)
    writer.key("kind", "finetune", 4)
    side = {"short": 320, "long": 480} if not plan.machine.gpu else {"short": 600, "long": 1000}
    body = {"backbone": plan.weights.arch} if plan.weights else {"backbone": "tiny-conv"}
    writer.key("model", {"name": "faster-rcnn", **body, **side, "width": 256, "proposals": 100}, 4)
    writer.key("task", "detection", 4)
    writer.key("data", "train", 4)
    _training(plan, writer, batch=plan.batch, stops=False)
    _missing(plan, writer)
    writer.key("test", {"kind": "evaluate", "from": "detector", "data": "test"} | _drop(plan), 2)
    return {"Faster R-CNN": "test"}


def _features(plan: Plan, writer: Writer) -> None:
    """The stage that extracts features, where the model reads any."""
    if plan.weights is None and plan.labelled is None:
        return
    extractor: dict[str, Any] = {"name": "backbone"}
    if plan.weights is not None:
        writer.comment(f"Features of the {plan.weights.arch} in {plan.weights.file}.", 2)
        layout = {"layout": "caffe"} if plan.weights.layout == "caffe" else {}
        extractor |= {"arch": plan.weights.arch, **layout, "weights": plan.weights.file, "short": 256, "long": 427}
    else:
        writer.comment(
            "The folder has no weights of a backbone: a small network learns from the labelled boxes first.", 2
        )
        writer.open("eyes", 2)
        writer.key("kind", "finetune", 4)
        writer.key("model", {"name": "region-classifier", "arch": "tiny-conv"}, 4)
        writer.key("task", "region-labels", 4)
        writer.key("data", "objects", 4)
        writer.key("steps", EYES_STEPS, 4)
        writer.key("batch_size", EYES_BATCH, 4)
        writer.key("optimizer", {"lr": 2e-3}, 4)
        extractor |= {"arch": "tiny-conv", "short": 256, "long": 427}
    whole = plan.goal in ("retrieval", "captioning", *OF_IMAGES)
    on_grid = whole or not (plan.boxes or plan.goal == "referring")
    given = {"boxes": "given"} if plan.goal == "referring" else {"boxes": "given-or-grid", "limit": 36}
    extractor |= {"boxes": "grid", "grid": _GRID} if on_grid else given
    writer.open("regions", 2)
    writer.key("kind", "extract", 4)
    if plan.weights is None:
        writer.key("from", "eyes", 4)
    writer.key("extractor", extractor, 4)
    writer.key("data", ["all", "captioned"] if plan.captions else "all", 4)
    if plan.goal == "referring" and not plan.boxes:
        writer.comment("The boxes that the expressions about a picture speak of: the model chooses among them.", 4)
    elif not on_grid:
        others = (
            "the model chooses among them" if plan.goal == "referring" else "pictures without any are cut into a grid"
        )
        writer.key("boxes", plan.boxes, 4, f"given boxes; {others}")


def _pretraining(plan: Plan, writer: Writer) -> str | None:
    """Pre-training on captions of the same pictures, where there are any."""
    if not plan.captions:
        return None
    writer.comment("Words and pictures first, from the captions of the training pictures.", 2)
    writer.open("pretrain", 2)
    writer.key("data", "captioned", 4)
    writer.key("objectives", [{"name": "mlm", "probability": 0.2}, "matching"], 4)
    _training(plan, writer, batch=64, epochs=10, stops=False)
    _missing(plan, writer)
    return "pretrain"


def _tuned_with_control(
    plan: Plan, writer: Writer, name: str, task: dict[str, Any], why: str, source: str | None, control: str
) -> Rows:
    """Fine-tuning with its test, and the same without pictures: what the words alone give away."""
    rows: Rows = {}
    for stage, only, label in ((name, {}, "with pictures"), (f"{name}-blind", {"only": "text"}, control)):
        if only:
            writer.comment("The control: the same model without pictures. What it scores is in the words alone.", 2)
        writer.open(stage, 2)
        writer.key("kind", "finetune", 4)
        if source is not None:
            writer.key("from", source, 4)
        writer.key("task", {**task, **only}, 4, "" if only else why)
        writer.key("data", "train", 4)
        writer.key("validation", "validation", 4, "" if only else "the epoch with the best score here is kept")
        _training(plan, writer, batch=plan.batch)
        _missing(plan, writer)
        test = "test" if not only else "test-blind"
        writer.key(test, {"kind": "evaluate", "from": stage, "data": "test"} | _drop(plan), 2)
        rows[label] = test
    return rows | _baselines(plan, writer, {k: v for k, v in task.items() if k in ("name", "images")}, _BY)


def _baselines(plan: Plan, writer: Writer, task: dict[str, Any], kinds: tuple[str, ...]) -> Rows:
    """What is reached in seconds without a trained model, each as an evaluate stage and a row."""
    writer.comment(
        "Rows beside: what is reached in seconds. A model that is below one of them has learnt too little.", 2
    )
    rows: Rows = {}
    for by in kinds:
        stage = {
            "kind": "evaluate",
            "task": {"name": "baseline", "by": by, "task": task},
            "fit": "train",
            "data": "test",
        }
        name = by.replace("*", "-by-").replace("+", "-and-")
        writer.key(name, stage | _drop(plan), 2)
        rows[_BASELINES[by]] = name
    return rows


def _training(
    plan: Plan,
    writer: Writer,
    *,
    batch: int,
    epochs: int | None = None,
    stops: bool = True,
    lr: float | None = None,
) -> None:
    """Epochs, batch and optimizer; without ``lr`` the engine's rule chooses the learning rate (docs/training.md)."""
    longest = epochs or plan.epochs
    writer.key("epochs", longest, 4)
    if stops:
        patience = patience_for(longest)
        writer.key("stop", {"patience": patience}, 4, f"ends after {patience} validations without a better score")
    writer.key("batch_size", batch, 4)
    if plan.weights is None and plan.goal in ("vqa", "classification") and plan.features == "pixels":
        writer.key("group", "image", 4, "the questions about a picture in one batch: it is read once")
    if is_pooled(plan):
        writer.key("schedule", {"name": "constant"}, 4)
    decay = {"weight_decay": 0.3} if is_pooled(plan) else {"weight_decay": 0.05} if plan.goal in OF_IMAGES else {}
    writer.key("optimizer", {**({} if lr is None else {"lr": lr}), "betas": [0.9, 0.98], **decay}, 4)
    if plan.machine.gpu:
        writer.key("precision", "bf16", 4, "the GPU is faster in it")


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def _missing(plan: Plan, writer: Writer) -> None:
    if plan.drop:
        writer.key("missing", "drop", 4, "examples whose picture cannot be used are left out and counted")


def _drop(plan: Plan) -> dict[str, str]:
    return {"missing": "drop"} if plan.drop else {}
