"""A small model, objectives and data that stand in for the real ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from vlcli import registry
from vlcli.nn.batch import Batch, Text, View
from vlcli.nn.blocks import run_layer
from vlcli.nn.forward_passes import ForwardPasses
from vlcli.nn.layout import Layout
from vlcli.nn.model import DataSpec, EncoderOutput, InputSpec, Model
from vlcli.objectives.base import Mean, Objective, ObjectiveOutput
from vlcli.recipe.schema import Pretrain

DATA_SPEC = DataSpec(vocab_size=30, text_length=8)


class Block(nn.Module):
    checkpointing = False

    def __init__(self, dim: int, dropout: float) -> None:
        super().__init__()
        self.dense, self.norm, self.drop = nn.Linear(dim, dim), nn.LayerNorm(dim), nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x + self.drop(torch.tanh(self.dense(x))))


class TinyModel(Model):
    capabilities = frozenset({"text"})

    def __init__(
        self, data_spec: DataSpec, *, hidden: int = 16, layers: int = 2, dropout: float = 0.0, stacked: bool = False
    ) -> None:
        super().__init__(data_spec)
        if stacked:  # its blocks are those of a stack
            self.checkpointing = False
        self.words = nn.Embedding(data_spec.vocab_size, hidden)
        self.blocks = nn.ModuleList(Block(hidden, dropout) for _ in range(layers))

    @property
    def dim(self) -> int:
        return self.words.embedding_dim

    def input_spec(self) -> InputSpec:
        return InputSpec(text=True)

    def word_table(self) -> nn.Embedding:
        return self.words

    def encode_text(self, text: Text, record: Any = None) -> EncoderOutput:
        x = self.words(text.ids)
        for block in self.blocks:
            x = run_layer(block, x, active=getattr(self, "checkpointing", False))
        return EncoderOutput(x, Layout.for_text(text.mask, text.special), x[:, 0])

    def layer_of(self, name: str) -> int | None:
        return int(name.split(".")[1]) + 1 if name.startswith("blocks.") else 0

    def parameter_groups(self) -> list[tuple[str, dict[str, float]]]:
        return [("^words", {"lr": 0.5, "decay": 0.0})]


class Words(Objective):
    """Predict every third word from the sentence: masked means of unequal counts; the head is tied to the words."""

    def __init__(self, model: Model, data_spec: DataSpec, *, bad_at: int = -1) -> None:
        super().__init__(model, data_spec)
        self.transform, self.table, self.bad_at = nn.Linear(self.dim, self.dim), model.word_table().weight, bad_at

    def forward(self, step: ForwardPasses, others: Mapping[str, ObjectiveOutput]) -> ObjectiveOutput:
        text = step.batch.clean.text
        asked = (text.ids % 3 == 0) & text.mask
        logits = self.transform(step.text().hidden)[asked] @ self.table.T
        loss = nn.functional.cross_entropy(logits, text.ids[asked], reduction="none")
        if step.index == self.bad_at:
            loss = loss * torch.nan
        right = (logits.argmax(-1) == text.ids[asked]).float()
        return ObjectiveOutput({"words": Mean.of(loss)}, {"logits": logits}, {"accuracy": Mean.of(right)})

    def predict(self, step: ForwardPasses) -> dict[str, Tensor]:
        return {"logits": self.transform(step.text().pooled)}


class Contrast(Objective):
    """Each sentence against all sentences of all processes: needs the gradient of what is gathered."""

    def __init__(self, model: Model, data_spec: DataSpec) -> None:
        super().__init__(model, data_spec)
        self.left, self.right = nn.Linear(self.dim, 8), nn.Linear(self.dim, 8)
        self.scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, step: ForwardPasses, others: Mapping[str, ObjectiveOutput]) -> ObjectiveOutput:
        pooled = step.text().pooled
        mine, all_rows = self.left(pooled), step.gather(self.right(pooled))
        keys, own = step.gather(step.batch.seeds), step.batch.seeds
        target = (own[:, None] == keys[None]).float().argmax(1)
        loss = nn.functional.cross_entropy(self.scale * mine @ all_rows.T, target, reduction="none")
        return ObjectiveOutput({"contrast": Mean.of(loss)})


class Queue(Objective):
    """Against a queue of what the momentum copy said of the last sentences."""

    teacher_momentum = 0.9

    def __init__(self, model: Model, data_spec: DataSpec, *, size: int = 12) -> None:
        super().__init__(model, data_spec)
        self.register_buffer("queue", torch.randn(size, self.dim))
        self.register_buffer("place", torch.zeros((), dtype=torch.long))

    def forward(self, step: ForwardPasses, others: Mapping[str, ObjectiveOutput]) -> ObjectiveOutput:
        own, taught = step.text().pooled, step.teacher.text().pooled
        scores = torch.cat([(own * taught).sum(1, keepdim=True), own @ self.queue.clone().T], 1)
        loss = -scores.log_softmax(1)[:, 0]
        return ObjectiveOutput({"queue": Mean.of(loss)}, {"taught": taught})

    def after_step(self, step: ForwardPasses, outcome: ObjectiveOutput) -> None:
        taught = step.gather(outcome.outputs["taught"])
        rows = (self.place + torch.arange(len(taught))) % len(self.queue)
        self.queue[rows] = taught
        self.place.add_(len(taught)).remainder_(len(self.queue))


class Rare(Objective):
    """Few sentences have a term: none in some batches, and in others none on one of two processes."""

    def __init__(self, model: Model, data_spec: DataSpec) -> None:
        super().__init__(model, data_spec)
        self.head, self.idle = nn.Linear(self.dim, 1), nn.Linear(2, 2)  # no loss uses the second

    def forward(self, step: ForwardPasses, others: Mapping[str, ObjectiveOutput]) -> ObjectiveOutput:
        rows = (step.batch.seeds % 6 == 0).nonzero().flatten().tolist()
        terms = [self.head(step.text().pooled[row]).square() for row in rows]
        return ObjectiveOutput({"rare": Mean.of(torch.cat(terms) if terms else torch.zeros(0))})


class Reader(Objective):
    """Reads the outputs of ``words``."""

    reads = ("engine-words",)

    def __init__(self, model: Model, data_spec: DataSpec) -> None:
        super().__init__(model, data_spec)
        self.gain = nn.Parameter(torch.ones(()))

    def forward(self, step: ForwardPasses, others: Mapping[str, ObjectiveOutput]) -> ObjectiveOutput:
        logits = others["engine-words"].outputs["logits"]
        return ObjectiveOutput({"reader": Mean.of((self.gain * logits.logsumexp(-1)) ** 2)})


class Fusing(Objective):
    requires = frozenset({"fuse"})


for _part in (Words, Contrast, Queue, Rare, Reader, Fusing):
    registry.register("objectives", f"engine-{_part.__name__.lower()}", _part)
registry.register("models", "engine-tiny", TinyModel)


class FakeData:
    """Sentences of random words, in the order and shares that the real pipeline gives."""

    def __init__(self, size: int = 24, seed: int = 0) -> None:
        draw = torch.Generator().manual_seed(seed)
        self.ids = torch.randint(1, 30, (size, 8), generator=draw)
        self.lengths = torch.randint(3, 9, (size,), generator=draw)

    def __len__(self) -> int:
        return len(self.ids)

    def loader(self, batch_size: int, *, shuffle: bool, **options: Any) -> Iterator[Batch]:
        epoch, first = options.get("epoch", 0), options.get("start_batch", 0)
        rank, world, drop = options.get("rank", 0), options.get("world", 1), options.get("drop_last", False)
        draw = torch.Generator().manual_seed(1000 + epoch)
        order = torch.randperm(len(self), generator=draw) if shuffle else torch.arange(len(self))
        for number, rows in enumerate(order.split(batch_size)):
            if (
                number >= first
                and (number - first) % options.get("stride", 1) == 0
                and not (drop and len(rows) < batch_size)
            ):
                yield self.batch(rows[rank::world])

    def batch(self, rows: Tensor) -> Batch:
        ids, count = self.ids[rows], len(rows)
        mask = torch.arange(8)[None] < self.lengths[rows][:, None]
        text = Text(ids, mask, torch.zeros_like(mask), torch.zeros_like(ids))
        view = View(text, None, torch.arange(count), torch.zeros(count, 0, dtype=torch.long), aligned=True)
        return Batch({"clean": view}, {}, [str(row) for row in rows.tolist()], rows.clone())


def config(**given: Any) -> Pretrain:
    given = {"batch_size": 8, "steps": 6, "log_every": 2, "schedule": {"name": "constant", "warmup": 0}, **given}
    return Pretrain(kind="pretrain", **given)
