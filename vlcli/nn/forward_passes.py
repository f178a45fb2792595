"""One training or evaluation step as objectives see it: every forward is done once and shared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from vlcli.errors import DataError
from vlcli.nn.batch import Batch, Images, Text, View
from vlcli.nn.generation import Generated, Generation, generate
from vlcli.nn.model import EncoderOutput, FusionOutput, Model, Recorder

T = TypeVar("T")
Rows = Literal["all", "text", "pooled"]
ROWS: tuple[Rows, ...] = ("all", "text", "pooled")
"""Which tokens of a pass are read, each a part of the one before: all, the text's, the pooled vector alone."""


class ForwardPasses:
    """Forward passes over one batch, computed on first demand and kept.

    Objectives ask for ``step.text(view)``, ``step.image(view)``, ``step.fused(view)``; two views that hold the same
    tensors share the pass.

    Args:
        model: what computes.
        batch: on the model's device.
        epoch: 0-based, may be fractional progress's integer part.
        index: optimizer steps done.
        training: whether this is a training step.
        gather: differentiable gathering of (B, ...) tensors over processes, in rank order; identity where single.
        rank: this process's number in that order.
        teacher: the momentum copy, or None.
        record: keeps attention probabilities of every pass where given.
    """

    def __init__(
        self,
        model: Model,
        batch: Batch,
        *,
        epoch: int = 0,
        index: int = 0,
        training: bool = True,
        gather: Callable[[Tensor], Tensor] | None = None,
        rank: int = 0,
        teacher: Model | None = None,
        record: Recorder | None = None,
    ) -> None:
        self.model, self.batch = model, batch
        self.epoch, self.index, self.training = epoch, index, training
        self.gather: Callable[[Tensor], Tensor] = gather or (lambda tensor: tensor)
        self.rank, self.record = rank, record
        self._teacher = teacher
        self._done: dict[tuple[Any, ...], Any] = {}
        self._teacher_step: ForwardPasses | None = None

    def view(self, name: str = "clean") -> View:
        """A view of the batch; ``clean`` where no objective corrupted anything under that name."""
        return self.batch.views.get(name, self.batch.clean)

    def text(self, view: str = "clean", rows: Rows = "all") -> EncoderOutput:
        """Unique texts of a view, alone: N rows.

        ``rows`` are the tokens that the caller reads: see ``Model.supports_partial_output``.
        """
        text = self._texts(view)
        return self._finished(("text", id(text)), rows, lambda own: self.model.encode_text(text, self.record, **own))

    def image(self, view: str = "clean", rows: Rows = "all") -> EncoderOutput:
        """Unique images of a view, alone: M rows."""
        images = self._images(view)
        key = ("image", id(images))
        return self._finished(key, rows, lambda own: self.model.encode_image(images, self.record, **own))

    def fused(self, text_view: str = "clean", image_view: str | None = None, rows: Rows = "all") -> FusionOutput:
        """Every example of a view: its text with its image, or with each of its K images in turn."""
        left, right = self.view(text_view), self.view(image_view or text_view)
        key = ("fused", id(left.text), id(right.images), id(left.text_rows), id(right.image_rows))
        views = text_view, image_view or text_view
        return self._finished(key, rows, lambda own: self._fuse_examples(left, right, views, own))

    def fuse_rows(self, text_rows: Tensor, image_rows: Tensor, view: str = "clean", rows: Rows = "all") -> FusionOutput:
        """Any pairing of unique rows (hard negatives): ``text_rows`` and ``image_rows`` (P,)."""
        text, image = self.fusible(view)
        return self.fuse_states(text.select(text_rows), image.select(image_rows), rows)

    def fuse_states(self, text: EncoderOutput, image: EncoderOutput, rows: Rows = "all") -> FusionOutput:
        """Any pairs, row by row, from what :meth:`fusible` gave on this process or another."""
        return self.model.fuse(text, image, self.record, **self._asked(rows))

    def fusible(self, view: str = "clean") -> tuple[EncoderOutput, EncoderOutput]:
        """Unique texts and images of a view as the model fuses them: encoded, or embedded."""
        return self._fuse_inputs(view, view)

    def pictures(self, view: str = "clean") -> EncoderOutput:
        """Every example's picture (its K pictures one after another) as the model fuses it and generates from it."""
        images, rows = self._images(view), self.view(view).image_rows  # (B, K)
        if self.model.fuse_takes == "encodings":
            image = self.image(view)
        else:
            image = self._once(("embed", id(images)), lambda: self.model.embed_image(images))
        return image.select(rows[:, 0]) if rows.shape[1] == 1 else self.chain(image, rows)

    def generate(
        self, settings: Generation | None = None, view: str = "clean", generator: torch.Generator | None = None
    ) -> Generated:
        """Sentences of every example's pictures, each example's anew where they are drawn."""
        make = lambda: generate(self.model, self.pictures(view), settings, generator=generator)  # noqa: E731
        return self._once(("generate", object()), make)

    def pairs(self, view: str = "clean") -> tuple[Tensor, Tensor]:
        """Rows of every example's text and of its (first) picture: (B,) and (B,)."""
        chosen = self.view(view)
        return chosen.text_rows, chosen.image_rows[:, 0]

    def _asked(self, rows: Rows) -> dict[str, Any]:
        # What is recorded, or kept by layer, is wanted whole.
        return {"rows": rows} if self.model.supports_partial_output and rows != "all" and self.record is None else {}

    def _finished(self, key: tuple[Any, ...], rows: Rows, make: Callable[[dict[str, Any]], T]) -> T:
        own = self._asked(rows)
        wider = ROWS[: ROWS.index(rows)] if own else ()
        done: T | None = next((found for more in wider if (found := self._done.get((*key, more))) is not None), None)
        return self._once((*key, rows if own else "all"), lambda: make(own)) if done is None else done

    @property
    def teacher(self) -> ForwardPasses:
        """Forward passes of the momentum copy over the same batch, without gradient: targets of distillation.

        Raises:
            AttributeError: no objective of the stage sets ``teacher_momentum``.
        """
        if self._teacher is None:
            raise AttributeError("no momentum copy: an objective that reads step.teacher sets teacher_momentum")
        if self._teacher_step is None:
            self._teacher_step = ForwardPasses(
                self._teacher,
                self.batch,
                epoch=self.epoch,
                index=self.index,
                training=self.training,
                gather=self.gather,
                rank=self.rank,
            )
        return self._teacher_step

    def _fuse_inputs(self, text_view: str, image_view: str) -> tuple[EncoderOutput, EncoderOutput]:
        if self.model.fuse_takes == "encodings":
            return self.text(text_view), self.image(image_view)
        text, images = self._texts(text_view), self._images(image_view)
        return (
            self._once(("embed", id(text)), lambda: self.model.embed_text(text)),
            self._once(("embed", id(images)), lambda: self.model.embed_image(images)),
        )

    def _fuse_examples(self, left: View, right: View, views: tuple[str, str], asked: dict[str, Any]) -> FusionOutput:
        text, image = self._fuse_inputs(*views)
        if not (left.aligned and right.aligned):
            count = 1 if self.model.many_images else right.image_rows.shape[1]
            text = text.select(left.text_rows.repeat_interleave(count))
            rows = right.image_rows if self.model.many_images else right.image_rows.reshape(-1)
            image = image.select(rows) if rows.dim() == 1 else self.chain(image, rows)
            if count > 1:
                image.number = torch.arange(count, device=rows.device).repeat(
                    rows.shape[0] // count
                )  # len() would fix an export
        fused = self.model.fuse(text, image, self.record, **asked)
        fused.images = 1 if self.model.many_images else right.image_rows.shape[1]
        return fused

    @staticmethod
    def chain(image: EncoderOutput, rows: Tensor) -> EncoderOutput:
        """K pictures of an example as one sequence, each its own source; what goes with a row is the first one's."""
        parts = [image.select(column) for column in rows.unbind(1)]
        layouts = [part.layout.expand(len(rows)) for part in parts]
        whole = layouts[0]
        for number, layout in enumerate(layouts[1:], 1):
            layout = layout.map(torch.clone)  # noqa: PLW2901
            layout.source = layout.source + number
            whole = whole + layout
        return EncoderOutput(torch.cat([part.hidden for part in parts], 1), whole, extra=parts[0].extra)

    def _texts(self, view: str) -> Text:
        hint = "name the column of the sentences (vlcli data stats RECIPE shows the first examples)"
        return self._there(self.view(view).text, "reads texts", hint)

    def _images(self, view: str) -> Images:
        hint = "use data with pictures, or an objective on words alone"
        return self._there(self.view(view).images, "looks at pictures", hint)

    def _there(self, found: T | None, reads: str, hint: str) -> T:
        if found is None:
            what = f"The model {reads}, and these examples have none."
            raise DataError(what, where=type(self.model).__name__, hint=hint)
        return found

    def _once(self, key: tuple[Any, ...], make: Callable[[], T]) -> T:
        if key not in self._done:
            self._done[key] = make()
        found: T = self._done[key]
        return found
