"""Settings and results of generation."""

from dataclasses import dataclass
from typing import Any, Literal, Protocol

from torch import Tensor

from vlcli.errors import ComponentError
from vlcli.nn.batch import Tensors, Text
from vlcli.nn.model import DataSpec, EncoderOutput


class Decoder(Protocol):
    """A :class:`vlcli.nn.Model` that can ``generate``, or :class:`Recomputed`.

    Its caches have ``select(rows, per)``: select rows, of which ``per`` neighbours belong to one picture.
    """

    data_spec: DataSpec

    def start(self, image: EncoderOutput, text: Text | None = None) -> Any:
        """Return the cache before the first word."""
        ...

    def step(self, ids: Tensor, cache: Any) -> tuple[Tensor, Any]:
        """Return the logits (P, V) of the next word, and the cache with this one."""
        ...


@dataclass(frozen=True)
class Generation:
    """Settings of generation.

    Attributes:
        decoding: ``beam``, ``greedy`` (a beam of one) or ``sample``.
        beams: sentences kept at a time.
        max_length: most words, the end included.
        min_length: words before the end is allowed.
        length_penalty: added to the log probability for each word (VLP); above 0 favours long sentences.
        no_repeat_ngram: length of runs of words that may not come twice; 0: all may.
        bad_words: ids that are never chosen, beside padding, class token and mask.
        temperature: of sampling.
        top_k: sample among so many likeliest words; 0: among all.
        top_p: sample among the fewest words that have this probability together.
        samples: sentences per picture.
    """

    decoding: Literal["beam", "greedy", "sample"] = "beam"
    beams: int = 3
    max_length: int = 20
    min_length: int = 0
    length_penalty: float = 0.0
    no_repeat_ngram: int = 0
    bad_words: tuple[int, ...] = ()
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    samples: int = 1

    def __post_init__(self) -> None:
        ranges = {
            "beams": self.beams >= 1,
            "max_length": self.max_length >= 1,
            "min_length": 0 <= self.min_length < self.max_length,
            "no_repeat_ngram": self.no_repeat_ngram >= 0,
            "temperature": self.temperature > 0,
            "top_k": self.top_k >= 0,
            "top_p": 0 < self.top_p <= 1,
            "samples": self.samples >= 1,
        }
        if wrong := [f"{name} {getattr(self, name)}" for name, fits in ranges.items() if not fits]:
            limits = "min_length below max_length", "beams, max_length and samples from 1", "temperature above 0"
            expected = "; ".join([*limits, "0 < top_p <= 1"])
            raise ComponentError("The generation settings are out of range.", got=", ".join(wrong), expected=expected)


@dataclass
class Generated(Tensors):
    """Sentences of B pictures, K of each (1, or ``samples``).

    Attributes:
        ids: (B, K, T) words, the end if it was reached, then padding.
        mask: (B, K, T) True at words and at the end.
        scores: (B, K) log probability with length penalty.
        word_scores: (B, K, T) log probability of every sampled word, with gradient; None for beam search.
    """

    ids: Tensor
    mask: Tensor
    scores: Tensor
    word_scores: Tensor | None = None

    def words(self, end: int) -> list[list[list[int]]]:
        """Return the ids of each picture's sentences, without end and padding."""
        pairs = zip(self.ids.cpu(), (self.mask & (self.ids != end)).cpu(), strict=True)
        return [[words[kept].tolist() for words, kept in zip(*pair, strict=True)] for pair in pairs]
