"""``vlcli ask MODEL TEXT PICTURE...``: what a trained model makes of one sentence or question."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from vlcli.cli import options as o
from vlcli.cli.guard import guarded


@guarded
def ask(
    model: Annotated[str, typer.Argument(help="A stage's folder, RECIPE/STAGE under runs/, or an exported model.")],
    text: Annotated[str, typer.Argument(help="The question, or the sentence.")],
    pictures: Annotated[list[str], typer.Argument(help="Picture files, or their ids in the store.")],
    features: Annotated[
        Path | None, typer.Option("--features", help="For models that read regions: a store or its stage's folder.")
    ] = None,
    best: Annotated[int, typer.Option("--best", min=1, help="How many answers.")] = 5,
    json_: o.Json = False,
    verbose: o.Verbose = 0,
) -> None:
    """Ask a trained model: the best answers to a question, else what its task predicts."""
    from vlcli.api import load
    from vlcli.cli import console

    loaded = load(model, features=features)
    _refuse_unknown(loaded, pictures)
    given = pictures[0] if len(pictures) == 1 else pictures
    if loaded.answerer is None and loaded.ranker is None:
        found: dict[str, Any] = {key: _plain(value) for key, value in loaded.predict(text, given).items()}
    else:
        found = {"answers": [{"answer": a, "probability": p} for a, p in loaded.answers(text, given, best)]}
    if json_:
        console.out_json(found)
    elif "answers" in found:
        rows = [[row["answer"], f"{row['probability']:.3f}"] for row in found["answers"]]
        console.table(["answer", "probability"], rows)
    else:
        console.table(["what", "value"], [[key, str(value)] for key, value in found.items() if key != "key"])


def _refuse_unknown(loaded: Any, pictures: list[str]) -> None:
    """Say what to type where a model reads regions of pictures that no store was given for.

    Raises:
        UsageError: which pictures, and the commands that extract their regions.
    """
    from vlcli.errors import UsageError
    from vlcli.features.boxes import image_id

    if not loaded.model.needs().regions:
        return
    absent = [one for one in pictures if loaded.features is None or loaded.features.missing([image_id(one)])]
    if absent:
        given = "no store was given" if loaded.features is None else "the store does not hold them"
        raise UsageError(
            f"This model reads regions of pictures, and {given}.",
            got=", ".join(absent),
            expected="--features STORE with these pictures, or ids of pictures in it",
            hint=_extraction(loaded.folder),
        )


def _extraction(folder: Path) -> str:
    """The command that makes such regions of new pictures: the extraction that the model learnt from, of a folder."""
    from vlcli.recipe import ledger

    record = ledger.read(folder) or ledger.read(folder.parent)
    stores = [Path(store) for store in (record.features if record else [])]
    stores = [store.parent if store.is_file() or store.suffix == ".h5" else store for store in stores]
    made = next(((store, found) for store in stores if (found := ledger.read(store))), None)
    recipe, stage = (_recipe_of(made[0], made[1].recipe), made[1].stage) if made else ("RECIPE", "STAGE")
    root, data = f"stages.{stage}.root=FOLDER", f"'stages.{stage}.data={{name: folder, images: .}}'"
    extract = f"vlcli extract --recipe {recipe} --only {stage} {root} {data}"
    return f"{extract}, where FOLDER holds the pictures; then ask with --features and the folder it prints"


def _recipe_of(stage: Path, name: str) -> str:
    """How a run's recipe is named on the command line: as it is registered, else by the copy in the run's folder."""
    from vlcli.recipe.load import slug
    from vlcli.registry import names

    known = next((one for one in names("recipes") if name in (one, slug(one))), None)
    return known or (name if Path(name).is_file() else str(stage.parent / "recipe.yaml"))


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value
