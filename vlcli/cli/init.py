"""``vlcli init``: writes the first recipe for a folder of pictures and tables."""

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from vlcli.cli import console, options
from vlcli.cli.guard import guarded
from vlcli.errors import UsageError
from vlcli.files import write_text
from vlcli.recipe.load import from_mapping
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
    from vlcli.starter.look import look, plan_for
    from vlcli.starter.plan import GOALS, unknown_answers
    from vlcli.starter.recipe import recipe_text
    from vlcli.starter.times import times_of

    options.refuse_existing(output, force)
    if task is not None and task not in GOALS:
        raise UsageError("No recipe is written for this task.", got=task, expected=", ".join(GOALS))
    columns = {"image": image, "text": text, "answers": answer, "label": label}
    named = {role: column for role, column in columns.items() if column is not None}
    scanned = look(folder, named, fallback=task is not None)
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
    console.out(f"wrote {output}; next:\n  vlcli validate {output} --deep\n  vlcli run {output}")


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

    pictures, aside = facts["pictures"], facts["left_aside"]
    console.out(f"{pictures['count']:,} pictures, mostly about {pictures['size'][0]} x {pictures['size'][1]} pixels")
    console.out_lines(f"  cannot be read: {path} ({why})" for path, why in list(pictures["unreadable"].items())[:3])
    for one in facts["data"]:
        console.out(f"{one['file']}: {KINDS[one['kind']]}")
        columns = ", ".join(f"{key}={value}" for key, value in one["reader"].items() if key not in ("name", "file"))
        console.out(f"  reader {one['reader']['name']}" + (f" with {columns}" if columns else ""))
    console.out("as understood:")
    for row in facts["rows"][:_ROWS]:
        said = " | ".join(filter(None, (row["text"], row["target"])))
        console.out(f"  {', '.join(row['pictures'])}: {said}")
    more = [f"{len(aside) - _MOST} more (--json lists them)"] if len(aside) > _MOST else []
    console.out_lines(f"left aside: {line}" for line in [*aside[:_MOST], *more])
    console.out_lines(f"boxes: {name}" for name in facts["boxes"])
    if weights := facts["weights"]:
        used = "" if facts["features"] == "weights" else ", not used"
        console.out(f"weights: {weights['file']} ({weights['arch']}){used}")
    chosen = {facts["chosen"]: "  <- chosen"}
    console.out("\nWhat can be learnt (--task chooses):")
    console.out_lines(f"  {goal:<21}{text}{chosen.get(goal, '')}" for goal, text in facts["can_learn"].items())
    console.out("")
    rows = [[name, f"{part['examples']:,}", f"{part['pictures']:,}"] for name, part in facts["parts"].items()]
    console.table(["part", "examples", "pictures"], rows)
    console.out(f"features: {_FEATURES[facts['features']]}")
    console.out_lines(f"note: {note}" for note in facts["notes"])
    console.out(f"time expected on this machine ({facts['machine']}): {facts['expected']}")
