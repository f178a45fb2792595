"""Writes the recipe of a plan, with a reason beside each choice."""

import yaml

from vlcli.recipe.load import slug
from vlcli.starter.plan import GOALS, OF_IMAGES, Plan, whole
from vlcli.starter.stages import STAGES, Writer, model_of
from vlcli.starter.times import Times

# By goal, the metrics of the recipe's table, and the comment beside them.
_METRICS: dict[str, tuple[list[str], str]] = {
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
_MOST_ASIDE = 12  # files left aside that the head of a recipe names


def recipe_text(plan: Plan, root: str, file: str, times: Times | None = None) -> str:
    """Return the recipe as YAML; ``times``: those expected on this machine."""
    writer = Writer()
    _head(plan, writer, file, times)
    _data(plan, writer, root)
    _model(plan, writer)
    writer.open("stages")
    rows = STAGES[plan.goal](plan, writer)
    writer.open("table")
    writer.key("title", f"{GOALS[plan.goal][1]}: held-out pictures", 2)
    writer.key("rows", rows, 2)
    metrics, why = _METRICS[plan.goal]
    if plan.source.entry["name"] == "vqa":  # VQA v2 names some sixty types of questions: the report has all
        metrics = ["accuracy", *(f"accuracy/{kind}" for kind in ("yes/no", "number", "other"))]
    writer.key("metrics", metrics, 2, why)
    stages = yaml.safe_load("\n".join(writer.lines))["stages"]
    model = f"{slug(file.removesuffix('.yaml'))}/{stages['test']['from']}"
    writer.comment(
        f"The trained model as a folder for hubs and transformers: vlcli export {model} --format hub (or onnx)."
    )
    return "\n".join(writer.lines) + "\n"


def _head(plan: Plan, writer: Writer, file: str, times: Times | None) -> None:
    goal = GOALS[plan.goal][1]
    writer.lines += [f"# vlcli run {file}", "#"]
    writer.comment(
        f"Written by `vlcli init`: {goal}, learnt from {plan.source.where}. Change what you like: docs/recipes.md "
        f"explains every key, and `vlcli validate {file} --deep` checks the recipe before anything runs."
    )
    if times is not None:
        writer.comment(f"Time expected on this machine ({plan.machine.text}): {times.text}.")
    more = len(plan.aside) - _MOST_ASIDE
    lines = [*(f"Note: {note}." for note in plan.notes), *(f"Left aside: {line}." for line in plan.aside[:_MOST_ASIDE])]
    for line in [*lines, *([f"Left aside: {more:,} more files."] if more > 0 else [])]:
        writer.comment(line)
    writer.key("about", f"{goal[0].upper()}{goal[1:]}, learnt from {plan.source.where}")
    writer.key("seed", 1, why="another seed draws other initial weights: vlcli run ... --seeds 3 --table")
    if plan.machine.cores > 1:
        writer.key("jobs", 2, why="stages that do not need one another run side by side")


def _data(plan: Plan, writer: Writer, root: str) -> None:
    writer.key("root", root, why="relative to where vlcli runs; root=FOLDER on the command line reads another folder")
    writer.open("datasets")
    entries = [whole(plan.source), *(dict(source.entry) for source in plan.more)]
    writer.entries("all", entries, 2, plan.source.reasons.get("encoding", ""))
    by_hash = "Held out by picture: a hash of a picture's name decides, so that all rows of a picture are in one part, "
    parts = f"Parts: {plan.source.reasons['parts']}." if plan.source.parts else ""
    writer.comment(parts or f"{by_hash}whatever the order of the table.", 2)
    for name, part in plan.parts.items():
        counts = f"{part.examples:,} examples on {part.pictures:,} pictures"
        writer.key(name, {"name": "all", **part.options}, 2, counts)
    taken = plan.parts["train"].options
    if plan.captions:
        captioned = [{**source.entry, **taken} for source in plan.captions]
        writer.entries("captioned", captioned, 2, "of the same share of pictures: no test picture is among them")
    if plan.labelled is not None and plan.goal != "detection":
        share = {key: value for key, value in taken.items() if key == "take"}
        share = plan.labelled.parts.get("train", share)
        why = "labelled boxes, on which a small network learns to see"
        why += "; of the same share of pictures" if share else ""
        writer.key("objects", {**plan.labelled.entry, **share}, 2, why)


def _model(plan: Plan, writer: Writer) -> None:
    model, why = model_of(plan)
    if model is None:
        return
    writer.comment(why)
    writer.key("model", model)
    if plan.goal not in OF_IMAGES:
        writer.open("text")
        vocabulary = {"train": ["train", "captioned"] if plan.captions else "train", "size": plan.vocabulary}
        writer.key("vocabulary", vocabulary, 2, "word pieces learnt from the training sentences")
        writer.key("length", plan.length, 2, "99 of 100 sentences are shorter")
