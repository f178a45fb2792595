"""``vlcli ask MODEL TEXT PICTURE...``: what a trained model makes of one sentence or question."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from vlcli.cli import options as o
from vlcli.cli.guard import guarded
from vlcli.cli.words import refuse_bytes
from vlcli.plain import to_plain


@guarded
def ask(
    model: o.Trained,
    text: Annotated[str, typer.Argument(help="The question, or the sentence.")],
    pictures: Annotated[list[str], typer.Argument(help="Picture files, or their ids in the store.")],
    features: Annotated[
        Path | None, typer.Option("--features", help="For models that read regions: a store or its stage's folder.")
    ] = None,
    features_from: o.FeaturesFrom = None,
    extractor: o.Extractor = None,
    best: Annotated[int, typer.Option("--best", min=1, help="How many answers.")] = 5,
    plugin: o.Plugin = None,
    json_: o.Json = False,
    verbose: o.Verbose = 0,
) -> None:
    """Ask a trained model: the best answers to a question, else what its task predicts.

    The text may also stand behind the pictures, as in `vlcli predict`.
    """
    from vlcli.api import load
    from vlcli.cli import console
    from vlcli.cli.predict import read_extractor
    from vlcli.cli.regions import refuse_unknown
    from vlcli.errors import shown
    from vlcli.prediction.pictures import is_file

    o.load_plugins(plugin)
    if is_file(text) and not is_file(pictures[-1]):
        text, pictures = pictures[-1], [text, *pictures[:-1]]
    refuse_bytes(text)
    loaded = load(model, features=features, features_from=features_from, extractor=read_extractor(extractor))
    refuse_unknown(loaded, pictures, "ask")
    given = pictures[0] if len(pictures) == 1 else pictures
    if loaded.answerer is None and loaded.ranker is None:
        silent = bool(loaded.uses) and loaded.use.text == "none"
        if silent and text:
            console.err(f"{loaded.use.name} takes no text: {shown(text, 60)} is not read")
        said = loaded.predict(None if silent else text, given)
        found: dict[str, Any] = {key: to_plain(value) for key, value in said.items()}
    else:
        found = {"answers": [{"answer": a, "probability": p} for a, p in loaded.answers(text, given, best)]}
    if json_:
        console.out_json(found)
    elif "answers" in found:
        rows = [[row["answer"], f"{row['probability']:.3f}"] for row in found["answers"]]
        console.table(["answer", "probability"], rows)
    else:
        console.table(["what", "value"], [[key, str(value)] for key, value in found.items() if key != "key"])
