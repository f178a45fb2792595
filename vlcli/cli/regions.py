"""What to type where a model reads regions of pictures that no store was given for (``ask``, ``search``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def refuse_unknown(loaded: Any, pictures: list[str], verb: str, folder: str = "FOLDER") -> None:
    """Say what to type where a model reads regions of pictures that no store was given for.

    Args:
        loaded: the model (:class:`vlcli.api.Loaded`).
        pictures: files, or ids in the store.
        verb: of the command, for the message.
        folder: what holds the pictures, where that is known.

    Raises:
        UsageError: which pictures, and the commands that extract their regions.
    """
    from vlcli.errors import UsageError
    from vlcli.images.boxes import image_id

    if not loaded.model.input_spec().regions:
        return
    absent = [one for one in pictures if loaded.features is None or loaded.features.missing([image_id(one)])]
    if absent or loaded.features is None:
        given = "no store was given" if loaded.features is None else "the store does not hold them"
        raise UsageError(
            f"This model reads regions of pictures, and {given}.",
            got=", ".join(absent) or folder,
            expected="--features STORE with these pictures" + (", or ids of pictures in it" if verb == "ask" else ""),
            hint=_extraction(loaded.folder, verb, folder),
        )


def _extraction(model: Path, verb: str, folder: str) -> str:
    """The command that makes such regions of new pictures: the extraction that the model learnt from, of a folder."""
    from vlcli.recipe import stage_record

    record = stage_record.read(model) or stage_record.read(model.parent)
    stores = [Path(store) for store in (record.features if record else [])]
    stores = [store.parent if store.is_file() or store.suffix == ".h5" else store for store in stores]
    made = next(((store, found) for store in stores if (found := stage_record.read(store))), None)
    recipe, stage = (_recipe_of(made[0], made[1].recipe), made[1].stage) if made else ("RECIPE", "STAGE")
    root, data = f"stages.{stage}.root={folder}", f"'stages.{stage}.data={{name: folder, images: .}}'"
    word, boxes = _boxes(stage, made[1].config.get("extractor", {})) if made else ("", "")
    extract = f"vlcli extract --recipe {recipe} --only {stage} {root} {data}{word}"
    where = ", where FOLDER holds the pictures" if folder == "FOLDER" else ""
    return f"{extract}{where}{boxes}; then {verb} with --features and the folder it prints"


def _boxes(stage: str, spec: dict[str, Any]) -> tuple[str, str]:
    """What an extractor of given boxes must be told besides: the words, and what they mean; nothing for others."""
    from vlcli.errors import ComponentError
    from vlcli.registry import load, parameters

    try:
        known = parameters(load("extractors", spec["name"])).get("boxes") if spec else None
    except ComponentError:  # a plugin that is not loaded now
        return "", ""
    if known is None or spec.get("boxes", known.default) != "given":
        return "", ""
    file = f"stages.{stage}.boxes=FILE"
    reads = "this extractor reads given boxes: FILE has those of the pictures (COCO JSON or npz, see docs/features.md)"
    if "grid" not in getattr(known.annotation, "__args__", ()):
        return f" {file}", f"; {reads}"
    grid = f" stages.{stage}.extractor.boxes=grid"
    return grid, f"; the model learnt from given boxes, which it does better with: {file}, in place of the grid"


def _recipe_of(stage: Path, name: str) -> str:
    """How a run's recipe is named on the command line: as it is registered, else by the copy in the run's folder."""
    from vlcli.recipe.load import slug
    from vlcli.registry import names

    known = next((one for one in names("recipes") if name in (one, slug(one))), None)
    return known or (name if Path(name).is_file() else str(stage.parent / "recipe.yaml"))
