"""What to type where a model reads regions of pictures, and nobody knows how to extract them."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def refuse_unknown(loaded: Any, pictures: list[str], verb: str, folder: str = "FOLDER") -> None:
    """Say what to type where a model reads regions of pictures that no store holds and no extractor is known for.

    Args:
        loaded: the model (:class:`vlcli.api.Loaded`).
        pictures: files, or ids in the store.
        verb: of the command, for the message.
        folder: what holds the pictures, where that is known.

    Raises:
        UsageError: which pictures, the options that name an extractor, and the command that extracts the regions.
    """
    from vlcli.errors import UsageError

    trained = None if verb == "search" else loaded.reader.trained  # a folder's pictures are not read by their names
    store = loaded.features if loaded.features is not None else trained
    if not loaded.model.input_spec().regions or loaded.reader.fresh.known:
        return
    absent = [one for one in pictures if store is None or store.missing([store.id_of(one)])]
    if absent or store is None:
        given = "no store was given" if loaded.features is None else "the store does not hold them"
        ids = ", or ids of pictures in it" if verb != "search" else ""
        more = "" if verb == "search" else "; or what extracts them: --features-from STAGE, --extractor '{name: NAME}'"
        raise UsageError(
            f"This model reads regions of pictures, and {given}.",
            got=", ".join(absent) or folder,
            expected=f"--features STORE with these pictures{ids}{more}",
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
    where = ", where FOLDER holds the pictures" if folder == "FOLDER" else ""
    extract = f"vlcli extract --recipe {recipe} --only {stage} {root} {data}"
    return f"{extract}{where}; then {verb} with --features and the folder it prints"


def _recipe_of(stage: Path, name: str) -> str:
    """How a run's recipe is named on the command line: as it is registered, else by the copy in the run's folder."""
    from vlcli.recipe.load import slug
    from vlcli.registry import names

    known = next((one for one in names("recipes") if name in (one, slug(one))), None)
    return known or (name if Path(name).is_file() else str(stage.parent / "recipe.yaml"))
