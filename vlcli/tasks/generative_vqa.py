"""VQA by generation: a decoder ranks a list of answers by their likelihood, or generates any words."""

from __future__ import annotations

from typing import Any, Literal

from vlcli.data.collate import collate_texts
from vlcli.errors import ComponentError
from vlcli.nn import DataSpec, ForwardPasses, Text
from vlcli.nn.generation import Generation, generate, rank
from vlcli.registry import Spec
from vlcli.tasks.answering import VQA
from vlcli.tasks.base import Predict


class GenerativeVQA(VQA):
    """Say the answer to a question; official accuracy, overall and by type of answer and question.

    By default the answers of a list are ranked (ALBEF: 3,128 of them): the candidates whose first word is likeliest are
    said in full, and the likeliest is the answer. Training says whatever people answered, in the list or not.

    Args:
        answers: file of the answer list under the data root; None: ``vqa/answer_list.json`` where it is there, else a
            list made of the training questions.
        min_count: an answer belongs to a list made of the questions if it is the chosen one of so many.
        decoding: ``rank``: candidates of the list; ``generate``: any words, the likeliest at each step.
        candidates: how many of the list are said in full.
        first_twice: the first word's likelihood counts once more, as in ALBEF's released code; LAVIS counts it once.
        block: candidates said at a time.
        max_length: most pieces of an answer that is generated, the end counted.
    """

    paper = "ALBEF, Li et al. 2021, section 5 (VQA); Cho et al. 2021 (VQA as generation)"
    requires = frozenset({"fuse", "decode"})
    usual_answers = 0
    usual_table = "vqa/answer_list.json"

    def __init__(
        self,
        *,
        answers: str | None = None,
        min_count: int = 9,
        decoding: Literal["rank", "generate"] = "rank",
        candidates: int = 128,
        first_twice: bool = True,
        block: int = 512,
        max_length: int = 10,
    ) -> None:
        super().__init__(answers=answers, min_count=min_count)
        if min(candidates, block, max_length) < 1:
            got = f"candidates {candidates}, block {block}, max_length {max_length}"
            raise ComponentError("These numbers cannot be.", where="task generative-vqa", got=got, expected="1 or more")
        self.decoding, self.candidates, self.max_length = decoding, candidates, max_length
        self.options: dict[str, Any] = {"first_twice": first_twice, "block": block}
        self._ids: tuple[tuple[str, ...], Text] | None = None

    def objectives(self) -> list[Spec]:
        return [{"name": "answer-generation"}]

    def attach(self, data_spec: DataSpec) -> None:
        super().attach(data_spec)
        if self.decoding == "rank" and not self.answers:
            raise ComponentError(
                "There is no answer to choose from.",
                where="task generative-vqa",
                expected="an answer list, or training questions that share answers",
                hint="set `answers: FILE`, lower `min_count`, or `decoding: generate`",
            )

    def predictions(self, step: ForwardPasses, predict: Predict, tokenizer: Any) -> list[dict[str, Any]]:
        # with the probability among the candidates as ``score``, or the log probability of what is generated
        if self.decoding == "generate":
            answers = generate(step.model, step.fused().text, Generation("greedy", max_length=self.max_length))
            words = [tokenizer.decode(best[0]) for best in answers.words(tokenizer.ids["sep"])]
            return self.answered(step.batch, words, answers.scores[:, 0].tolist())
        best = self.ranked(step, tokenizer)
        return self.answered(step.batch, [row[0][0] for row in best], [row[0][1] for row in best])

    def probabilities(self, step: ForwardPasses, predict: Predict, tokenizer: Any) -> list[list[tuple[str, float]]]:
        return self.ranked(step, tokenizer) if self.decoding == "rank" else [[] for _ in step.batch.keys]

    def ranked(self, step: ForwardPasses, tokenizer: Any) -> list[list[tuple[str, float]]]:
        """Return the candidates of every question, likeliest first, with their probabilities."""
        if self._ids is None or self._ids[0] != self.answers:
            encoded = [tokenizer.encode_answer(answer) for answer in self.answers]
            self._ids = self.answers, collate_texts(encoded, tokenizer.ids["pad"])
        fused = step.fused().text
        ranks = rank(step.model, fused, self._ids[1].to(fused.hidden.device), self.candidates, **self.options)
        rows = zip(*(part.tolist() for part in ranks), strict=True)
        return [[(self.answers[place], p) for place, p in zip(*row, strict=True)] for row in rows]
