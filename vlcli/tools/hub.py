"""Uploads a folder to the Hugging Face hub."""

import re
from pathlib import Path

from vlcli.engine.bundle import find_bundle
from vlcli.errors import DataError, UsageError, VlcliError

CARD = "README.md"


def upload(folder: Path, name: str, *, public: bool = False, message: str = "Upload by vlcli") -> str:
    """Create a repository on the hub unless it is there, and upload a folder with a model card; return the address.

    Args:
        folder: written by ``format: hub``, or the stage folder that holds it as ``hub/``.
        name: ``OWNER/NAME``, or ``NAME`` for the owner of the token.
        public: whether anybody may see a new repository.

    Raises:
        UsageError: the name cannot be one.
        DataError: there is no model with a card.
        VlcliError: the hub refuses, or cannot be reached.
    """
    source = next((one for one in (folder, folder / "hub") if (one / CARD).is_file()), None)
    if source is None or find_bundle(source) is None:
        hint = "write one: stages: {hub: {kind: export, from: STAGE, format: hub}}"
        got = "no folder" if not folder.is_dir() else f"no {CARD}" if source is None else "no model"
        expected = f"a folder with {CARD} and model/, as format: hub writes it"
        raise DataError("There is nothing to upload.", where=str(folder), got=got, expected=expected, hint=hint)
    if not re.fullmatch(r"([\w.-]+/)?[\w.-]{1,96}", name) or ".." in name or "--" in name:
        raise UsageError("This is no name of a repository.", got=repr(name), expected="OWNER/NAME, or NAME")
    from huggingface_hub import HfApi

    try:
        api = HfApi()
        address = api.create_repo(name, private=not public, exist_ok=True)
        api.upload_folder(repo_id=address.repo_id, folder_path=str(source), commit_message=message)
    except Exception as error:  # refused, no token, no network: each library below has classes of its own
        raise VlcliError(
            "The folder was not uploaded.",
            where=name,
            got=(str(error).strip() or type(error).__name__).split("\n")[0],
            expected="a network, and a token that may write",
            hint="log in with: hf auth login; then run the same command again",
        ) from error
    return str(address)
