"""Loads a trained model, and says what to type where it reads regions that nobody knows how to extract."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from vlcli.errors import UsageError

if TYPE_CHECKING:
    from vlcli.api import Loaded


def load_model(
    name: str,
    verb: str,
    pictures: list[str] | None,
    device: str | None = None,
    folder: str = "FOLDER",
    **named: Any,
) -> Loaded:
    """Loads a model as :func:`vlcli.load` does, and refuses pictures whose regions it needs and nobody extracts.

    Args:
        name: of the model.
        verb: of the command, for the message.
        pictures: files, or ids in the store; None: not known beforehand.
        device: where to compute; None: on the processor.
        folder: of the pictures, where that is known.
        named: the other options of :func:`vlcli.load`.

    Raises:
        UsageError: which pictures, the options that name an extractor, and the command that extracts the regions.
    """
    from vlcli.api import load
    from vlcli.engine.processes import resolve_device

    loaded = load(name, device=resolve_device(device or "cpu"), **named)
    if pictures is None or not loaded.model.input_spec().regions or loaded.reader.fresh.known:
        return loaded
    trained = None if verb == "search" else loaded.reader.trained  # a folder's pictures are not read by their names
    store = loaded.features if loaded.features is not None else trained
    absent = [one for one in pictures if store is None or store.missing([store.id_of(one)])]
    if absent or store is None:
        lacks = "no store was given" if loaded.features is None else "the store does not hold them"
        ids = ", or ids of pictures in it" if verb != "search" else ""
        more = "" if verb == "search" else "; or what extracts them: --features-from STAGE, --extractor '{name: NAME}'"
        raise UsageError(
            f"This model reads regions of pictures, and {lacks}.",
            got=", ".join(absent) or folder,
            expected=f"--features STORE with these pictures{ids}{more}",
            hint=_extraction(loaded.folder, verb, folder),
        )
    return loaded


def _extraction(model: Path, verb: str, folder: str) -> str:
    # the extraction that the model learnt from, of another folder
    from vlcli.recipe import stage_record
    from vlcli.recipe.load import slug
    from vlcli.registry import names

    record = stage_record.read(model) or stage_record.read(model.parent)
    recipe, stage = "RECIPE", "STAGE"
    for path in map(Path, record.features if record else []):
        store = path.parent if path.is_file() or path.suffix == ".h5" else path
        if (extract := stage_record.read(store)) is not None:
            known = next((one for one in names("recipes") if extract.recipe in (one, slug(one))), None)
            file = extract.recipe if Path(extract.recipe).is_file() else str(store.parent / "recipe.yaml")
            recipe, stage = known or file, extract.stage
            break
    root, data = f"stages.{stage}.root={folder}", f"'stages.{stage}.data={{name: folder, images: .}}'"
    where = ", where FOLDER holds the pictures" if folder == "FOLDER" else ""
    extract_it = f"vlcli extract --recipe {recipe} --only {stage} {root} {data}"
    return f"{extract_it}{where}; then {verb} with --features and the folder it prints"
