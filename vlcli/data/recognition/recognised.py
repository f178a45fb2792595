"""Records data that a reader can read in a folder, or a question about data that are unclear."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from vlcli.data.recognition.parts import parts_of, split_names
from vlcli.plain import comma_list

KINDS = {
    "vqa": "questions with answers",
    "pairs": "statements about two pictures, with labels",
    "statements": "sentences with labels",
    "captions": "captions",
    "referring": "expressions, each with a box",
    "labels": "pictures with classes",
    "multilabel": "pictures with several classes each",
    "boxes": "labelled boxes",
}
"""Descriptions of data sets by kind."""


@dataclass
class Recognised:
    """One data set of a folder, or a question about files that annotate pictures and are not understood.

    Attributes:
        kind: one of :data:`KINDS`; empty for a question.
        entry: name and options of the reader that reads all parts; an option may hold ``{split}``.
        files: the files that it reads, relative to the folder; other readers are not shown them.
        columns: column or field by role (``image``, ``text``, ``answers``, ``label``, ``boxes``), for people.
        parts: options that choose each part (``train``, ``validation``, ``test``) where the data name their parts.
        reasons: why the options are what they are, by option; ``parts`` says who names the parts.
        notes: warnings.
        unused: unused files or columns with the reason: "FILE: reason".
        question: about unclear data, with the options or changes that settle it; such a data set is not read.
        title: name of the data set; empty: its files.
        fallback: whether it counts only where no table of the folder annotates pictures.
    """

    kind: str
    entry: dict[str, Any]
    files: list[str]
    columns: dict[str, Any] = field(default_factory=dict)
    parts: dict[str, dict[str, Any]] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)
    question: str = ""
    title: str = ""
    fallback: bool = False

    @property
    def where(self) -> str:
        """Its files, for people."""
        return self.title or comma_list(self.files, 4)

    @property
    def splits(self) -> list[str]:
        """Every split that its parts name, each once; empty where parts are chosen otherwise."""
        named = [options["split"] for options in self.parts.values() if "split" in options]
        return list(dict.fromkeys(word for one in named for word in ([one] if isinstance(one, str) else one)))

    def name_files(self, option: str = "file", splits: Sequence[str] | None = None) -> Recognised:
        """Set the option that names the files: one name, or one with ``{split}`` and the parts that the names tell.

        Args:
            option: of the reader.
            splits: words by which a single file divides its rows (values of a field); None: the file does not.

        Returns:
            The record.
        """
        self.entry[option] = self.files[0]
        if splits is None and len(self.files) > 1:
            self.entry[option], splits = split_names(self.files)
            self.reasons["parts"] = "the files are named after the parts"
        self.parts = parts_of(splits or [])
        if splits and not self.parts:
            self.entry["split"] = list(splits)
        if len(self.files) > 1 and not self.parts:
            self.notes.append(f"nothing in the names of {self.where} says which is for training: they are read as one")
        return self
