"""What a model says of folders that it is built from, such as the towers of other libraries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any


class Folders:
    """Hooks of models whose options name folders with configurations, weights and tokenizers; none by default.

    They are called before a model is built, and when a bundle is written.
    """

    @classmethod
    def tower_folders(cls, options: Mapping[str, Any]) -> dict[str, str]:  # noqa: ARG003
        """Options that name a folder or a cached hub name; called before a model is built, to find the folders.

        Args:
            options: the recipe's entry of the model.

        Returns:
            By option the word that may be a path under the data root; empty where the model reads no folder.
        """
        return {}

    @classmethod
    def vocabulary_folder(cls, options: Mapping[str, Any]) -> str | None:  # noqa: ARG003
        """The folder whose tokenizer belongs to the model; called where a recipe names no ``text.vocabulary``.

        Args:
            options: the recipe's entry of the model, folders resolved.

        Returns:
            A folder or a hub name; None where the model has no tokenizer of its own.
        """
        return None

    def bundle_options(self) -> dict[str, Any]:
        """Options that replace the recipe's in a bundle, so that it needs no other folder; called when one is written.

        Returns:
            Values by option; empty where the recipe's entry builds the model again.
        """
        return {}


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence transformers' progress bars and warnings."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
