"""What a file of checkpoints may say (pydantic, as recipes): every fault is reported with its line."""

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
    """A published number.

    Attributes:
        task: data set and split.
        metric: what is measured.
        value: as printed.
    """

    task: Name
    metric: Name
    value: float


class Reading(Section):
    """How a file is read: by which model, and what of either side stays without a partner.

    Attributes:
        model: name and options of the model that reads the file; or
        extractor: name and options of the extractor that does.
        objectives: whose heads are read too.
        data: sizes that usually come from data: the fields of ``vlcli.nn.DataSpec``, and ``answers`` as a number.
        excused: patterns (regular expressions, searched) of the file's tensors that are not read, and why.
        new: patterns of the model's weights that the file does not hold, and why.
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
        about: what wrote it.
        code: repository and file that names and shapes were compared with.
        extends: a layout of the same file from which everything that is not said here is taken.
        sizes: numbers by name, for shapes and ranges.
        tensors: by name, with ranges and alternatives in braces; a shape, a kind of layer, or a block.
        without: regular expressions (matched whole) of names that the layout that is extended has and this one has not.
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
        url: where from.
        licence: as the source names it, or :data:`NOT_VERIFIED`.
        layout: of this file of checkpoints.
        sizes: where they differ from the layout's.
        scores: published numbers of this very file.
        about: what was trained on what.
        loads: false where vlcli does not read the file; ``about`` says why.
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
    """The published checkpoints of a package.

    Attributes:
        family: short name.
        title: papers and repositories.
        blocks: rules that several layouts use by name.
        layouts: by name.
        files: in the order in which they are listed.
    """

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
