"""Matching: whether a sentence belongs to its picture; text assignment: which of two pictures it describes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vlcli import registry
from vlcli.data.language import Rewrite
from vlcli.data.sample import Corruption, Donor, Sample, TextSample, copied
from vlcli.errors import ComponentError
from vlcli.nn import DataSpec, EncoderOutput, ForwardPasses, FusionOutput, Model, build_head, initialise
from vlcli.objectives.answering import draws
from vlcli.objectives.base import Mean, Objective, ObjectiveOutput, classified, full_precision
from vlcli.objectives.contrast import summary
from vlcli.objectives.negatives import gumbel, ids_of
from vlcli.registry import RewriteSpec, as_spec

FIRST, SECOND, NEITHER = 0, 1, 2


class TextAssignment(Objective):
    """Which of two pictures a sentence speaks of: the first, the second or neither (ALBEF's preparation for NLVR2).

    The second picture is another one of the batch, drawn by the cosine of their vectors, which an earlier contrast's
    projection gives; it is not trained. Where a batch has no other picture, an example is left out.

    Args:
        neither: how often neither picture is the sentence's.
        width: of the vectors.
        temperature: of the cosines.
        head: a named head instead of a linear one.
        view: the view it reads.
    """

    paper = "ALBEF, Li et al. 2021, section 5 (NLVR2) and appendix A: text assignment"
    requires = frozenset({"image", "fuse"})
    init_from = ("momentum-contrast", "contrast", "anchor-alignment")

    def __init__(
        self,
        model: Model,
        data_spec: DataSpec,
        *,
        neither: float = 1 / 3,
        width: int = 256,
        temperature: float = 0.07,
        head: str | None = None,
        view: str = "clean",
    ) -> None:
        super().__init__(model, data_spec)
        if not model.many_images:
            what = "Text assignment needs a model that fuses two pictures in one sequence."
            where = "objective text-assignment"
            raise ComponentError(what, where=where, got=type(model).__name__, hint="with albef: model: {images: 2}")
        self.neither, self.temperature, self.view = neither, temperature, view
        self.image = nn.Linear(self.dim, width).requires_grad_(False)
        initialise(self.image, model.init_std)
        self.head = build_head(model, "assignment", model.pooled_dim, 3, head)

    def forward(self, step: ForwardPasses, others: Mapping[str, ObjectiveOutput]) -> ObjectiveOutput:
        text, image = step.fusible(self.view)
        text_rows, image_rows = step.pairs(self.view)
        texts, images = text.select(text_rows), image.select(image_rows)
        pairs, truth = self._pairs(step, images, image_rows)
        rows = (truth >= 0).nonzero()[:, 0]
        if not len(rows):
            return ObjectiveOutput({"text-assignment": Mean(images.hidden.sum() * 0, truth.new_zeros(()).float())})
        fused = step.fuse_states(texts.select(rows), step.chain(images, pairs[rows]), rows="pooled")
        logits = full_precision(self.head(fused.pooled))  # (P, 3)
        loss, right = classified(logits, truth[rows])
        outputs = {"logits": logits, "pairs": pairs, "truth": truth}
        return ObjectiveOutput({"text-assignment": loss}, outputs, {"accuracy": right})

    @torch.no_grad()
    def _pairs(self, step: ForwardPasses, images: EncoderOutput, rows: Tensor) -> tuple[Tensor, Tensor]:
        # Two examples' pictures for each example (B, 2), and which is its own (B,); -1: there is no other picture
        view, device = step.view(self.view), images.hidden.device
        assert view.images is not None
        keys = ids_of(view.images.keys, rows).to(device)
        vectors = F.normalize(full_precision(self.image(summary(images))), dim=-1)
        apart = keys[:, None] != keys[None]  # (B, B)
        noise = gumbel(step.batch.seeds.to(device), keys)
        # The two highest of score plus noise are two draws without putting back.
        total = ((vectors @ vectors.T / self.temperature).double() + noise).masked_fill(~apart, -torch.inf)
        best = total.topk(min(2, len(total)), 1).indices.expand(-1, 2)
        count, chance = apart.sum(1), torch.tensor(draws(step.batch.seeds), device=device)
        neither = (chance < self.neither) & (count > 1)
        second = (chance - self.neither) / (1 - self.neither) < 0.5
        truth = torch.where(neither, NEITHER, torch.where(second, SECOND, FIRST))
        pairs = torch.stack([torch.arange(len(keys), device=device), best[:, 0]], 1)
        pairs = torch.where(second[:, None], pairs.flip(1), pairs)
        return torch.where(neither[:, None], best, pairs), truth.masked_fill(count == 0, -1)

    def adapt(self, state: dict[str, Tensor], report: list[str]) -> dict[str, Tensor]:
        # of a contrast, its projection of pictures alone
        fresh = self.state_dict()
        return {name: value for name, value in state.items() if name in fresh}


MARK = "matched"
"""Per example: 1 where the sentence is the picture's own, 0 where it was replaced. Other objectives may read it."""

# Per example, where captions are rewritten: 0 its own sentence, 1 another picture's, from 2 on by which rewrite
CHANGE = "change"

TRIES = 16  # How many other samples are drawn before an example is left as it is

Word = tuple[int, ...]


@dataclass(eq=False)
class SwapSentence(Corruption):
    """Gives some examples a sentence that is not theirs, and marks which.

    A foil is the example's own sentence with one word exchanged for a word that another sentence has beside the same
    left or right neighbour ("a red circle" beside "a blue circle" gives red for blue). Where no drawn sentence offers
    one, two unlike words change places. A foil may happen to be true of the picture: no scene graph is needed.

    With ``rewrites``, one that can change the sentence makes the foil; if none can, it becomes another picture's. The
    mark ``change`` says what was done.

    Args:
        probability: of a sentence that is not the picture's.
        foils: share of these that are foils; the rest are the sentences of other pictures.
        rewrites: what makes a caption false (see :mod:`vlcli.data.language.rewrites`).
    """

    name, phase = "matching", "sentence"
    probability: float
    foils: float
    view: str
    rewrites: Sequence[Rewrite] = ()

    def ready(self, tokenizer: Any, length: int | None) -> None:
        self._tokenizer: Any = tokenizer if self.rewrites else None
        self._length = length

    def __call__(self, sample: Sample, rng: np.random.Generator, donor: Donor) -> None:
        text, marks = sample.text, sample.mask_labels.example
        marks[MARK] = 1
        if self.rewrites:
            marks[CHANGE] = 0
        if text is None or rng.random() >= self.probability:
            return
        foiled = rng.random() < self.foils
        # the first rewrite that can, in a drawn order, else another picture's caption
        for number in rng.permutation(len(self.rewrites)).tolist() if self.rewrites and foiled else []:
            if (caption := self.rewrites[number](text.raw, rng)) is not None:
                changed = self._tokenizer.encode(caption, f"{text.key}#{caption}", self._length)
                if changed.ids != text.ids:  # what lies behind the longest length changes nothing
                    sample.text = copied(changed, causal=text.causal)
                    marks |= {MARK: 0, CHANGE: number + 2}
                    return
        pictures = {image.key for image in sample.images}
        wrong = self._foil(text, rng, donor) if foiled and not self.rewrites else self._other(text, pictures, donor)
        if wrong is not None:
            sample.text, marks[MARK] = wrong, 0
            marks |= {CHANGE: 1} if self.rewrites else {}

    @staticmethod
    def _other(text: TextSample, pictures: set[str], donor: Donor) -> TextSample | None:
        for drawn in (donor() for _ in range(TRIES)):
            others = pictures.isdisjoint(image.key for image in drawn.images)
            if drawn.text is not None and drawn.text.ids != text.ids and others:
                return drawn.text
        return None

    @staticmethod
    def _foil(text: TextSample, rng: np.random.Generator, donor: Donor) -> TextSample | None:
        words = split_words(text)
        for drawn in (donor().text for _ in range(TRIES)):
            if drawn is not None and (exchanges := _exchanges(words, split_words(drawn))):
                index, word = exchanges[rng.integers(len(exchanges))]
                return join_words(text, [*words[:index], word, *words[index + 1 :]])
        pairs = [(i, j) for i in range(len(words)) for j in range(i) if words[i] != words[j]]
        if not pairs:
            return None
        left, right = pairs[rng.integers(len(pairs))]
        words[left], words[right] = words[right], words[left]
        return join_words(text, words)


def split_words(text: TextSample) -> list[Word]:
    """Return the pieces of each whitespace word, without special tokens."""
    words: dict[int, list[int]] = {}
    for piece, word, special in zip(text.ids, text.words, text.special, strict=True):
        if not special:
            words.setdefault(word, []).append(piece)
    return [tuple(pieces) for _, pieces in sorted(words.items())]


def join_words(text: TextSample, words: list[Word]) -> TextSample:
    """Return ``text`` with other words between its special tokens, never longer than before."""
    places = [index for index, special in enumerate(text.special) if not special]
    front, end = (places[0], places[-1] + 1) if places else (len(text.ids), len(text.ids))
    pieces = [(piece, False, number) for number, word in enumerate(words) for piece in word][: max(end - front, 1)]
    before = list(zip(text.ids, text.special, text.words, strict=True))
    ids, special, numbers = map(list, zip(*before[:front], *pieces, *before[end:], strict=True))
    return replace(text, key=f"{text.key}#{'-'.join(map(str, ids))}", ids=ids, special=special, words=numbers)


def _exchanges(words: list[Word], others: list[Word]) -> list[tuple[int, Word]]:
    # indices of ``words``, and unlike words of ``others`` that stand between like neighbours there
    exchanges = []
    for i, word in enumerate(words):
        for j, candidate in enumerate(others):
            left = i > 0 and j > 0 and words[i - 1] == others[j - 1]
            right = i + 1 < len(words) and j + 1 < len(others) and words[i + 1] == others[j + 1]
            if candidate != word and (left or right):
                exchanges.append((i, candidate))
    return exchanges


class Matching(Objective):
    """Cross-modality matching: whether sentence and picture belong together (class 1, as in LXMERT's code).

    The examples of the view are marked as matched or not, so that question answering can leave mismatched ones out.

    Args:
        probability: of replacing the sentence by one that is not the picture's.
        foils: share of the replaced that are near misses of their own sentence (see :class:`SwapSentence`) instead of
            another picture's sentence.
        view: the view it shares.
        head: a named head instead of the model's own.
        rewrites: how near misses are made: ``other-attribute``, ``swapped-names``, ``turned-relation``,
            ``other-number`` or one of your own; none: words are exchanged by their neighbours. ``share`` (how often
            each was used) and ``right`` (and recognised) are logged.
    """

    paper = "LXMERT, Tan and Bansal 2019, section 3.1.3"
    requires = frozenset({"fuse"})
    changeable = frozenset({"probability", "foils"})

    def __init__(
        self,
        model: Model,
        data_spec: DataSpec,
        *,
        probability: float = 0.5,
        foils: float = 0.0,
        view: str = "corrupted",
        head: str | None = None,
        rewrites: list[RewriteSpec] = [],  # noqa: B006 (a schema's default)
    ) -> None:
        super().__init__(model, data_spec)
        names = [str(as_spec(spec)["name"]) for spec in rewrites]  # numbered where one is used several times
        self.rewrites = [n if names.count(n) == 1 else f"{n}-{names[:i].count(n) + 1}" for i, n in enumerate(names)]
        self.view = view
        built = [registry.of(Rewrite).build(spec) for spec in rewrites]
        self._corruption = SwapSentence(probability, foils, view, built)
        self.head = build_head(model, "matching", model.pooled_dim, 2, head)

    def corruption(self) -> SwapSentence:
        return self._corruption

    def forward(self, step: ForwardPasses, others: Mapping[str, ObjectiveOutput]) -> ObjectiveOutput:
        marks = step.view(self.view).mask_labels
        if MARK not in marks:
            return ObjectiveOutput({})
        logits = self.logits(step.fused(self.view, rows="pooled"))  # (P, 2)
        truth = marks[MARK].long().repeat_interleave(len(logits) // len(marks[MARK]))
        loss, accuracy = classified(logits, truth)
        metrics = {"accuracy": accuracy}
        if self.rewrites and CHANGE in marks:  # how often each rewrite made the sentence, and was recognised
            right = (logits.argmax(-1) == truth).float()
            change = marks[CHANGE].repeat_interleave(len(logits) // len(marks[CHANGE]))
            kinds = {name: change == number + 1 for number, name in enumerate(("other-picture", *self.rewrites))}
            metrics |= {f"share/{name}": Mean.of(used.to(right.dtype)) for name, used in kinds.items()}
            metrics |= {f"right/{name}": Mean.of(right, used) for name, used in kinds.items()}
        return ObjectiveOutput({"matching": loss}, outputs={"logits": logits}, metrics=metrics)

    def logits(self, fused: FusionOutput) -> Tensor:
        """Return scores (P, 2) of fused pairs: column 1 speaks for a match."""
        return full_precision(self.head(fused.pooled))

    def predict(self, step: ForwardPasses) -> dict[str, Tensor]:
        # ``score`` (B,) is the log odds of a match, of the samples as read
        logits = self.logits(step.fused("clean", rows="pooled"))  # (B, 2)
        return {"logits": logits, "score": logits.diff()[..., 0]}
