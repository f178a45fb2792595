"""Defines the schema of a file of checkpoints."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from vlcli.recipe.fields import Section

NOT_VERIFIED = "not verified"
"""A fact that was not found in the authors' repository or on an official page."""
NAME = r"^[A-Za-z0-9][A-Za-z0-9._+/-]*$"

Name = Annotated[str, Field(min_length=1, max_length=200)]
Text = Annotated[str, Field(min_length=3, max_length=1000)]
Size = int | str
Rules = dict[str, str]
Reasons = dict[str, Text]


class Score(Section):
    """A published number, as printed; ``task`` is data set and split."""

    task: Name
    metric: Name
    value: float


class Reading(Section):
    """The model or extractor that reads a file, and the tensors that have no counterpart.

    Attributes:
        objectives: whose heads are read too.
        data: sizes that usually come from data: the fields of ``vlcli.nn.DataSpec``, and ``answers`` as a number.
        excused: reasons by pattern (a regular expression, searched) of the file's tensors that are not read.
        new: reasons by pattern of the model's weights that the file lacks.
    """

    model: dict[str, Any] | None = None
    extractor: dict[str, Any] | None = None
    objectives: list[Any] = Field(default_factory=list)
    data: dict[str, Size] = Field(default_factory=dict)
    excused: Reasons = Field(default_factory=dict)
    new: Reasons = Field(default_factory=dict)


class Layout(Reading):
    """The tensors of a kind of file.

    Attributes:
        about: the program that wrote it.
        code: repository and file that names and shapes were compared with.
        extends: a layout of the same file whose keys are taken over.
        sizes: numbers by name, for shapes and ranges.
        tensors: rules of :mod:`vlcli.checkpoints.layout`.
        without: regular expressions (matched whole) of names of the extended layout that this one lacks.
    """

    about: Text | None = None
    code: Text | None = None
    extends: Name | None = None
    sizes: dict[str, Size] = Field(default_factory=dict)
    tensors: Rules = Field(default_factory=dict)
    without: list[Name] = Field(default_factory=list)


class File(Reading):
    """A published file.

    Attributes:
        name: as it is downloaded; for a folder of the Hugging Face hub, its name there.
        licence: as the source names it, or :data:`NOT_VERIFIED`.
        sizes: those that differ from the layout's.
        loads: False if vlcli does not read the file; ``about`` says why.
    """

    name: Annotated[str, Field(pattern=NAME, max_length=120)]
    url: Annotated[str, Field(pattern=r"^https?://\S+$")]
    licence: Name
    layout: Name
    sizes: dict[str, Size] = Field(default_factory=dict)
    scores: list[Score] = Field(default_factory=list)
    about: Text
    loads: Literal[True, False] = True


class CheckpointsFile(Section):
    """The published checkpoints of a package; ``title`` has papers and repositories, ``blocks`` shared rules."""

    family: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=40)]
    title: Text
    blocks: dict[str, Rules] = Field(default_factory=dict)
    layouts: dict[str, Layout]
    files: Annotated[list[File], Field(min_length=1)]

    @model_validator(mode="after")
    def _known(self) -> CheckpointsFile:
        unknown = [f"{one.name}: layout {one.layout!r}" for one in self.files if one.layout not in self.layouts]
        unknown += [
            f"{n}: extends {x.extends!r}" for n, x in self.layouts.items() if x.extends not in (None, *self.layouts)
        ]
        if unknown:
            raise ValueError(f"there is no such layout: {'; '.join(unknown)}")
        return self
