"""``vlcli init``: writes the first recipe for a folder of pictures and tables."""

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from vlcli.cli import console, options
from vlcli.cli.guard import guarded
from vlcli.errors import UsageError
from vlcli.files import write_text
from vlcli.recipe.yaml import parse


@guarded
def init(
    folder: Annotated[Path, Argument(help="The folder with your pictures and tables.")],
    output: Annotated[Path, Option("--out", "-o", help="The recipe to write.")] = Path("recipe.yaml"),
    task: Annotated[str | None, Option(help="What to learn: vqa, retrieval, captioning ...")] = None,
    image: Annotated[str | None, Option(help="The column that names the pictures.")] = None,
    text: Annotated[str | None, Option(help="The column of sentences or questions.")] = None,
    answer: Annotated[str | None, Option(help="The column of answers.")] = None,
    label: Annotated[str | None, Option(help="The column of classes, or several of 0 and 1: A,B.")] = None,
    sheet: Annotated[Path | None, Option(help="A page of twelve examples and their pictures.")] = None,
    force: options.Replace = False,
    json_: options.Json = False,
) -> None:
    """Look at a folder of pictures and tables, say what can be learnt from it, and write a recipe that does so.

    vlcli init photos -o photos.yaml
    """
    from vlcli.recipe.load import from_mapping
    from vlcli.starter.look import look, plan_for
    from vlcli.starter.plan import GOALS, unknown_answers
    from vlcli.starter.recipe import recipe_text
    from vlcli.starter.times import times_of

    if output.exists() and not force:
        hint = "choose another name with -o, or replace it with --force"
        raise UsageError("The recipe is there already.", where=str(output), hint=hint)
    if task is not None and task not in GOALS:
        raise UsageError("No recipe is written for this task.", got=task, expected=", ".join(GOALS))
    named = {"image": image, "text": text, "answers": answer, "label": label}
    columns = {role: column for role, column in named.items() if column is not None}
    scanned = look(folder, columns, fallback=task is not None)
    plan = plan_for(scanned, task)
    recipe = from_mapping("init", parse(recipe_text(plan, str(folder), output.name)).value).recipe
    times = times_of(plan, recipe)
    plan.notes += unknown_answers(recipe, folder)
    facts = _facts(scanned, plan, times)
    if sheet is not None:
        from vlcli.pages.sheet import write_sheet

        write_sheet(sheet, facts, folder)
    write_text(output, recipe_text(plan, str(folder), output.name, times))
    if json_:
        console.out_json({"recipe": str(output), **facts})
        return
    _tell(facts)
    console.out(f"wrote {output}; next:")
    console.out(f"  vlcli validate {output} --deep")
    console.out(f"  vlcli run {output}")


def _facts(scanned: Any, plan: Any, times: Any) -> dict[str, Any]:
    from vlcli.starter.plan import GOALS, goals_of

    return {
        "pictures": {
            "count": plan.pictures,
            "size": list(plan.sizes),
            "unreadable": {scanned.name(path): why for path, why in scanned.unreadable.items()},
        },
        "data": [
            {"file": one.where, "kind": one.kind, "reader": one.entry, "columns": one.columns, "notes": one.notes}
            for one in scanned.sources
        ],
        "learnt_from": plan.source.where,
        "left_aside": plan.aside,
        "boxes": scanned.boxes,
        "weights": None if scanned.weights is None else vars(scanned.weights),
        "can_learn": {goal: GOALS[goal][1] for goal in goals_of(scanned.sources)},
        "chosen": plan.goal,
        "parts": {
            name: {"options": part.options, "examples": part.examples, "pictures": part.pictures}
            for name, part in plan.parts.items()
        },
        "rows": [
            {"pictures": [scanned.name(path) for path in row.files], "text": row.text, "target": row.target}
            for row in plan.rows
        ],
        "features": plan.features,
        "machine": plan.machine.text,
        "notes": plan.notes,
        "expected_seconds": round(times.total),
        "expected": times.text,
    }


_ROWS, _MOST = 3, 12
_FEATURES = {
    "weights": "of the backbone whose weights lie in the folder",
    "boxes": "of a small network that learns from the labelled boxes first",
    "pixels": "none: the model reads pixels",
}


def _tell(facts: dict[str, Any]) -> None:
    from vlcli.data.recognition.recognised import KINDS

    pictures = facts["pictures"]
    console.out(f"{pictures['count']:,} pictures, mostly about {pictures['size'][0]} x {pictures['size'][1]} pixels")
    for path, why in list(pictures["unreadable"].items())[:3]:
        console.out(f"  cannot be read: {path} ({why})")
    for one in facts["data"]:
        console.out(f"{one['file']}: {KINDS[one['kind']]}")
        columns = ", ".join(f"{key}={value}" for key, value in one["reader"].items() if key not in ("name", "file"))
        console.out(f"  reader {one['reader']['name']}" + (f" with {columns}" if columns else ""))
    console.out("as understood:")
    for row in facts["rows"][:_ROWS]:
        said = " | ".join(part for part in (row["text"], row["target"]) if part)
        console.out(f"  {', '.join(row['pictures'])}: {said}")
    for line in facts["left_aside"][:_MOST]:
        console.out(f"left aside: {line}")
    if (more := len(facts["left_aside"]) - _MOST) > 0:
        console.out(f"left aside: {more} more (--json lists them)")
    for name in facts["boxes"]:
        console.out(f"boxes: {name}")
    if weights := facts["weights"]:
        used = "" if facts["features"] == "weights" else ", not used"
        console.out(f"weights: {weights['file']} ({weights['arch']}){used}")
    console.out("")
    console.out("What can be learnt (--task chooses):")
    for goal, text in facts["can_learn"].items():
        console.out(f"  {goal:<21}{text}" + ("  <- chosen" if goal == facts["chosen"] else ""))
    console.out("")
    rows = [[name, f"{part['examples']:,}", f"{part['pictures']:,}"] for name, part in facts["parts"].items()]
    console.table(["part", "examples", "pictures"], rows)
    console.out(f"features: {_FEATURES[facts['features']]}")
    for note in facts["notes"]:
        console.out(f"note: {note}")
    console.out(f"time expected on this machine ({facts['machine']}): {facts['expected']}")
