"""Runs each forward pass over a batch once, for all objectives."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, Literal, TypeVar, cast

import torch
from torch import Tensor

from vlcli.errors import DataError
from vlcli.nn.batch import Batch, Images, Text, View
from vlcli.nn.generation import Generated, Generation, generate
from vlcli.nn.model import EncoderOutput, FusionOutput, Model, Recorder

T = TypeVar("T")
Rows = Literal["all", "text", "pooled"]
"""Tokens of a pass that are read: all, the text's, or the pooled vector alone."""
# All values of ``Rows``, each set of tokens a part of the one before
ROWS: tuple[Rows, ...] = ("all", "text", "pooled")


class ForwardPasses:
    """Forward passes over one batch, computed when they are first needed and then kept.

    Objectives call ``step.text(view)``, ``step.image(view)``, ``step.fused(view)``; two views with the same tensors
    share the pass.

    Args:
        batch: on the model's device.
        epoch: 0-based.
        index: optimizer steps done.
        gather: gathers (B, ...) tensors over processes in rank order, with gradient; the identity for one process.
        teacher: the momentum copy.
        record: keeps the attention probabilities of every pass.
        shared: views that several objectives read: their fused passes compute all tokens at once.
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
        shared: Collection[str] = (),
    ) -> None:
        self.model, self.batch, self.record, self.shared = model, batch, record, shared
        self.epoch, self.index, self.training, self.rank = epoch, index, training, rank
        self.gather: Callable[[Tensor], Tensor] = gather or (lambda tensor: tensor)
        at: dict[str, Any] = {"epoch": epoch, "index": index, "training": training, "gather": gather, "rank": rank}
        at["shared"] = shared
        self._teacher = None if teacher is None else ForwardPasses(teacher, batch, **at)
        self._done: dict[tuple[Any, ...], Any] = {}

    def view(self, name: str = "clean") -> View:
        """Return a view of the batch; ``clean`` if no objective corrupted samples under that name."""
        return self.batch.views.get(name, self.batch.clean)

    def text(self, view: str = "clean", rows: Rows = "all") -> EncoderOutput:
        """Encode the N unique texts of a view; ``rows``: tokens that are read (``Model.partial_passes``)."""
        text, record = self._texts(view), self.record
        return self._pass(("text", id(text)), rows, lambda partial: self.model.encode_text(text, record, **partial))

    def image(self, view: str = "clean", rows: Rows = "all") -> EncoderOutput:
        images, record = self._images(view), self.record
        key = ("image", id(images))
        return self._pass(key, rows, lambda partial: self.model.encode_image(images, record, **partial))

    def fused(self, text_view: str = "clean", image_view: str | None = None, rows: Rows = "all") -> FusionOutput:
        """Fuse each example's text with its image, or with each of its K images in turn."""
        views = text_view, image_view or text_view
        left, right = map(self.view, views)
        key = ("fused", id(left.text), id(right.images), id(left.text_rows), id(right.image_rows))
        rows = "all" if text_view in self.shared else rows
        return self._pass(key, rows, lambda partial: self._fuse_examples(views, partial))

    def fuse_rows(self, text_rows: Tensor, image_rows: Tensor, view: str = "clean", rows: Rows = "all") -> FusionOutput:
        """Fuse any pairs of unique rows (hard negatives): ``text_rows`` and ``image_rows`` (P,)."""
        text, image = self.fusible(view)
        return self.fuse_states(text.select(text_rows), image.select(image_rows), rows)

    def fuse_states(self, text: EncoderOutput, image: EncoderOutput, rows: Rows = "all") -> FusionOutput:
        """Fuse pairs row by row, of states of :meth:`fusible` of this process or another."""
        return self.model.fuse(text, image, self.record, **self._partial("fused", rows))

    def fusible(self, view: str = "clean") -> tuple[EncoderOutput, EncoderOutput]:
        """Return the unique texts and images of a view as the model fuses them: encoded or embedded."""
        return self._fuse_inputs(view, view)

    def pictures(self, view: str = "clean") -> EncoderOutput:
        """Return each example's picture (its K pictures one after another) as the model fuses it."""
        image, rows = self._fusible_images(view), self.view(view).image_rows  # (B, K)
        return image.select(rows[:, 0]) if rows.shape[1] == 1 else self.chain(image, rows)

    def generate(
        self, settings: Generation | None = None, view: str = "clean", generator: torch.Generator | None = None
    ) -> Generated:
        """Generate sentences of each example's pictures; sampled sentences are drawn anew at every call."""
        key = ("generate", object())
        return self._once(key, lambda: generate(self.model, self.pictures(view), settings, generator=generator))

    def pairs(self, view: str = "clean") -> tuple[Tensor, Tensor]:
        """Return the rows of each example's text and of its (first) picture: (B,) and (B,)."""
        samples = self.view(view)
        return samples.text_rows, samples.image_rows[:, 0]

    def _partial(self, which: str, rows: Rows) -> dict[str, Any]:
        # Recorded passes compute all tokens.
        return {"rows": rows} if which in self.model.partial_passes and rows != "all" and self.record is None else {}

    def _pass(self, key: tuple[Any, ...], rows: Rows, make: Callable[[dict[str, Any]], T]) -> T:
        # A pass with more tokens serves for fewer.
        partial = self._partial(key[0], rows)
        wider = [(*key, more) for more in (ROWS[: ROWS.index(rows)] if partial else ())]
        done = next((other for other in wider if other in self._done), (*key, rows if partial else "all"))
        return self._once(done, lambda: make(partial))

    @property
    def teacher(self) -> ForwardPasses:
        """Passes of the momentum copy over the same batch; AttributeError if no objective sets ``teacher_momentum``."""
        if self._teacher is None:
            raise AttributeError("no momentum copy: an objective that reads step.teacher sets teacher_momentum")
        return self._teacher

    def _fuse_inputs(self, text_view: str, image_view: str) -> tuple[EncoderOutput, EncoderOutput]:
        if self.model.fuse_takes == "encodings":
            return self.text(text_view), self.image(image_view)
        text = self._texts(text_view)
        embedded = self._once(("embed", id(text)), lambda: self.model.embed_text(text))
        return embedded, self._fusible_images(image_view)

    def _fusible_images(self, view: str) -> EncoderOutput:
        if self.model.fuse_takes == "encodings":
            return self.image(view)
        images = self._images(view)
        return self._once(("embed", id(images)), lambda: self.model.embed_image(images))

    def _fuse_examples(self, views: tuple[str, str], partial: dict[str, Any]) -> FusionOutput:
        left, right = map(self.view, views)
        text, image = self._fuse_inputs(*views)
        if not (left.aligned and right.aligned):
            count = 1 if self.model.many_images else right.image_rows.shape[1]
            text = text.select(left.text_rows.repeat_interleave(count, 0))
            rows = right.image_rows if self.model.many_images else right.image_rows.reshape(-1)
            image = image.select(rows) if rows.dim() == 1 else self.chain(image, rows)
            if count > 1:  # len() would fix an export
                image.number = torch.arange(count, device=rows.device).repeat(rows.shape[0] // count)
        fused = self.model.fuse(text, image, self.record, **partial)
        fused.images = 1 if self.model.many_images else right.image_rows.shape[1]
        return fused

    @staticmethod
    def chain(image: EncoderOutput, rows: Tensor) -> EncoderOutput:
        """Concatenate the K pictures of an example, each with its own ``source``; ``extra`` is that of the first."""
        parts = [image.select(column) for column in rows.unbind(1)]
        whole = parts[0].layout.expand(len(rows))
        for number, part in enumerate(parts[1:], 1):
            layout = part.layout.expand(len(rows))
            whole += replace(layout, source=layout.source + number)
        return EncoderOutput(torch.cat([part.hidden for part in parts], 1), whole, extra=parts[0].extra)

    def _texts(self, view: str) -> Text:
        hint = "name the column of the sentences (vlcli data stats RECIPE shows the first examples)"
        return self._require(self.view(view).text, "reads texts", hint)

    def _images(self, view: str) -> Images:
        hint = "use data with pictures, or an objective on words alone"
        return self._require(self.view(view).images, "looks at pictures", hint)

    def _require(self, samples: T | None, reads: str, hint: str) -> T:
        if samples is None:
            what = f"The model {reads}, and these examples have none."
            raise DataError(what, where=type(self.model).__name__, hint=hint)
        return samples

    def _once(self, key: tuple[Any, ...], make: Callable[[], T]) -> T:
        if key not in self._done:
            self._done[key] = make()
        return cast("T", self._done[key])
