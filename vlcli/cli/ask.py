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
    from vlcli.cli.regions import refuse_unknown

    loaded = load(model, features=features)
    refuse_unknown(loaded, pictures, "ask")
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


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value
