"""Defines the methods of models that read folders of other libraries: weights, configurations, tokenizers."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar


class Folders:
    """Hooks of models whose options name folders with configurations, weights and tokenizers."""

    local_files: ClassVar[tuple[str, ...]] = ()  # options that name a file of weights, of which a bundle has no need

    @classmethod
    def tower_folders(cls, options: Mapping[str, Any]) -> dict[str, str]:
        """Return the options that name a folder (under the data root or absolute) or a cached hub name.

        Called before a model is built; empty: the model reads no folder.
        """
        return {key: options[key] for key in cls.local_files if options.get(key)}

    @classmethod
    def vocabulary_folder(cls, options: Mapping[str, Any]) -> str | None:  # noqa: ARG003
        """Return folder or hub name of the model's tokenizer; called for recipes without ``text.vocabulary``."""
        return None

    def bundle_options(self) -> dict[str, Any]:
        """Return options for a bundle, so that it needs no other folder; called when a bundle is written."""
        return dict.fromkeys(self.local_files)


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
