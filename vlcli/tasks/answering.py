"""Question answering: over an answer table (VQA v2, GQA, multiple choice), or by a decoder that writes the answer."""

from collections import Counter
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from vlcli.data.answers import ANSWER_TABLE_SIZE, AnswerList, best_answer, read_answers, table_file
from vlcli.data.collate import collate_texts
from vlcli.data.miniature import ANSWERS, Miniature
from vlcli.data.sample import Example
from vlcli.errors import ComponentError
from vlcli.files import write_json
from vlcli.metrics import gqa, vqa, wups
from vlcli.metrics.baseline import CHANCE, most_frequent
from vlcli.metrics.classification import by_kind
from vlcli.nn import Batch, DataSpec, ForwardPasses, Text
from vlcli.nn.generation import Generation, generate, rank
from vlcli.objectives.base import full_precision
from vlcli.objectives.blanking import Only
from vlcli.registry import Spec
from vlcli.registry.bounds import Count
from vlcli.tasks.base import Examples, Predict, Task
from vlcli.tasks.outputs import changed_options, likeliest, logits_of, mean, said, target

Loss = Literal["bce", "ce"]
_TYPES = ("answer_type", "question_type")


class Answering(Task):
    """Base of tasks that choose an answer of a table. The usual one overrides ``count`` and ``score``.

    Args:
        loss: ``bce`` against soft scores, or ``ce`` against the best answer.
        only: ``text`` or ``images`` make the control that sees one modality.
        head: a head of ``vlcli.nn.heads``; None: the model's own for answers.
        source_answers: file of the answers of starting weights that are not vlcli's, under the data root or here.
    """

    usual_table: ClassVar[str] = ""  # path of the published table in the authors' data folder
    local_files = ("source_answers",)
    facts_of_questions: ClassVar[tuple[str, ...]] = ("question_id",)  # targets that predictions keep
    smoothing: float = 0.0  # label smoothing of the loss ``ce``

    def __init__(
        self,
        *,
        answers: str | None = None,
        min_count: int = 1,
        loss: Loss = "bce",
        only: Only = "both",
        head: str | None = None,
        source_answers: str | None = None,
    ) -> None:
        self.answers_file, self.min_count = answers, min_count
        self.loss, self.only, self.head, self.source_answers = loss, only, head, source_answers
        self.answers: tuple[str, ...] = ()

    def objectives(self) -> list[Spec]:
        spec: Spec = {"name": "answering", "loss": self.loss}
        return [spec | changed_options(self, "only", "head", "smoothing", "source_answers")]

    def labels(self, readers: list[Any]) -> tuple[str, ...]:
        file = table_file(self.answers_file, readers, self.usual_table) if self.usual_table else None
        return self.count(readers) if file is None else read_answers(file).strings

    def write_miniature(self, miniature: Miniature, readers: list[Any]) -> None:
        if table := self.answers_file or self.usual_table:
            miniature.write(readers[0].root / table, list(ANSWERS))
        if self.source_answers is not None:  # as many as the weights have rows
            further = (f"answer {number}" for number in range(len(ANSWERS), ANSWER_TABLE_SIZE))
            rows = [{"ans": answer, "dsets": ["vqa", "gqa"]} for answer in (*ANSWERS, *further)]
            miniature.write(readers[0].root / self.source_answers, rows)

    def right_answers(self, example: Example, names: Sequence[str]) -> list[str]:
        scores = example.targets.get("answers")
        right = [answer for answer, score in scores.items() if score > 0] if isinstance(scores, dict) else []
        if (best := best_answer(example.targets)) is not None:
            right.insert(0, best)
        return [*right, *map(vqa.table_form, right)]

    def count(self, readers: list[Any]) -> tuple[str, ...]:
        """Return the answers of ``min_count`` training questions or more; called where there is no published table."""
        raise NotImplementedError(f"{type(self).__name__} makes no table")

    def attach(self, data_spec: DataSpec) -> None:
        self.answers = data_spec.answers

    def decode(self, outputs: dict[str, dict[str, Tensor]], batch: Batch) -> list[dict[str, Any]]:
        # ``prediction`` (the answer), ``score`` (its probability), and what the data say of the question
        logits = full_precision(logits_of(outputs, "answering", classes=len(self.answers)))  # (B, A)
        best = logits.argmax(-1, keepdim=True)  # of logits: several probabilities may round to 1
        score = self._chances(logits).gather(-1, best).flatten()
        return self.answered(batch, [self.answers[row] for row in best.flatten().tolist()], score.tolist())

    def judge(self, predictions: list[dict[str, Any]], batch: Batch) -> list[dict[str, Any]]:
        answers = [said(row) for row in predictions]
        return self.answered(batch, answers, [row.get("score") for row in predictions])

    def probabilities(self, step: ForwardPasses, predict: Predict, tokenizer: Any) -> list[list[tuple[str, float]]]:
        logits = full_precision(logits_of(predict(step), "answering", classes=len(self.answers)))
        return likeliest(self.answers, self._chances(logits))

    def _chances(self, logits: Tensor) -> Tensor:
        return logits.sigmoid() if self.loss == "bce" else logits.softmax(-1)

    def answered(self, batch: Batch, answers: Sequence[str], scores: Sequence[float | None]) -> list[dict[str, Any]]:
        """Return a row of every question, with ``facts_of_questions`` where the data have them."""
        facts = [target(batch, name) for name in self.facts_of_questions]
        rows: list[dict[str, Any]] = []
        for key, answer, score, *values in zip(batch.keys, answers, scores, *facts, strict=True):
            known = {n: v for n, v in zip(self.facts_of_questions, values, strict=True) if v is not None}
            known = known if score is None else {"score": score, **known}  # a look-up has no score
            rows.append({"key": key, "prediction": answer, **known})
        return rows


class VQA(Answering):
    """Answer questions; official accuracy, overall and by type of answer and question.

    Args:
        answers: file of the answer table under the data root; None: ``vqa/trainval_label2ans.json`` where it is there,
            else a table made of the training questions.
        min_count: occurrences as best answer that put an answer into a table made of the questions.
        smoothing: label smoothing of the loss ``ce``.
        wups: score sets of answers by WUPS too (``wups_0.9``, ``wups_0.0``), where nltk's WordNet is.
    """

    paper = "Goyal et al. 2017, Making the V in VQA Matter; Teney et al. 2018 (answer table, soft scores)"
    eval_split = "val"
    usual_data = "vqa"
    usual_answers = 3129
    usual_table = "vqa/trainval_label2ans.json"
    facts_of_questions = ("question_id", *_TYPES)

    def __init__(self, *, min_count: int = 9, smoothing: float = 0.0, wups: bool = False, **options: Any) -> None:
        super().__init__(min_count=min_count, **options)
        self.smoothing, self.wups = smoothing, wups

    def read(self, runner: Examples) -> None:
        if self.wups and (reason := wups.lacking()):
            runner.progress.warn(reason)
            self.wups = False

    def count(self, readers: list[Any]) -> tuple[str, ...]:
        targets = (example.targets for reader in readers for example in reader.examples())
        best = ((best_answer(scores), scores.get("answer_form") == "plain") for scores in targets)
        counts = Counter(answer if plain else vqa.table_form(answer) for answer, plain in best if answer is not None)
        return vqa.answer_vocabulary(counts, self.min_count)

    def answered(self, batch: Batch, answers: Sequence[str], scores: Sequence[float | None]) -> list[dict[str, Any]]:
        # where the true answers are known: ``accuracy``, and ``answers`` with the accuracy of each
        rows = super().answered(batch, answers, scores)
        for row, people, soft in zip(rows, target(batch, "raw_answers"), target(batch, "answers"), strict=True):
            if people:
                row.update(accuracy=vqa.accuracy(row["prediction"], people), answers=vqa.accuracies(people))
            elif soft is not None:
                normalised = vqa.set_form if row.get("answer_type") == "set" else vqa.table_form
                form = row["prediction"] if row["prediction"] in soft else normalised(row["prediction"])
                row.update(accuracy=float(soft.get(form, 0.0)), answers=dict(soft))
                truth, said = best_answer({"answers": soft}) or "", vqa.set_form(row["prediction"])
                sets = truth.split(vqa.SET), said.split(vqa.SET)
                row |= {name: wups.wups(*sets, least) for name, least in wups.METRICS.items() if self.wups}
        return rows

    def score(self, predictions: list[dict[str, Any]]) -> dict[str, float]:
        rows = [row for row in predictions if "accuracy" in row]
        if not rows:
            return {}
        metrics = {"accuracy": mean(rows, "accuracy"), **most_frequent(rows)}
        for name in wups.METRICS if self.wups else ():
            of_sets = [row for row in rows if name in row]
            metrics |= {name: mean(of_sets, name), **by_kind(of_sets, "answer_type", name, prefix=f"{name}/")}
        for kind in _TYPES:
            metrics |= by_kind(rows, kind, "accuracy", prefix="accuracy/") | most_frequent(rows, kind)
        return metrics

    def submission(self, predictions: list[dict[str, Any]], folder: Path) -> list[Path]:
        ids = [row.get("question_id", row["key"]) for row in predictions]
        numbers = [int(name) if str(name).isdecimal() else name for name in ids]  # integers in the official files
        rows = [{"question_id": n, "answer": row["prediction"]} for n, row in zip(numbers, predictions, strict=True)]
        return [write_json(folder / "vqa.json", rows)]


class MultipleChoice(VQA):
    """Choose one of the choices that a question comes with, by the scores of the answer table; accuracy.

    The data name the choices: ``choices: COLUMN`` of tables. A choice that the table lacks is chosen only if it lacks
    all of them, and then the first is.
    """

    paper = "Schwenk et al. 2022, A-OKVQA: A Benchmark for Visual Question Answering using World Knowledge"

    def dataset(self) -> Spec:
        columns = {"text": "question", "id": "question_id", "answers": "direct_answers", "choices": "choices"}
        return {"name": "json", "file": "aokvqa_v1p0_{split}.json", "image": "{image_id:012}.jpg", **columns}

    def decode(self, outputs: dict[str, dict[str, Tensor]], batch: Batch) -> list[dict[str, Any]]:
        # ``prediction`` (the choice) and ``score`` (its probability); where the right one is known, ``correct``
        logits = full_precision(logits_of(outputs, "answering", classes=len(self.answers)))  # (B, A)
        table = AnswerList(self.answers)
        best: list[tuple[tuple[float, float], str]] = []  # logit and probability, and the choice
        answers = torch.stack([logits, self._chances(logits)], -1).tolist()  # (B, A, 2)
        for row, choices in zip(answers, target(batch, "choices"), strict=True):
            columns = [table.find(vqa.table_form(choice)) for choice in choices or ()]
            scores = [(-1e9, 0.0) if column is None else tuple(row[column]) for column in columns]
            best.append(max(zip(scores, choices or (), strict=True), key=itemgetter(0), default=((0.0, 0.0), "")))
        return self.answered(batch, [choice for _, choice in best], [chance for (_, chance), _ in best])

    def answered(self, batch: Batch, answers: Sequence[str], scores: Sequence[float | None]) -> list[dict[str, Any]]:
        rows = super(VQA, self).answered(batch, answers, scores)
        for row, choices, right in zip(rows, target(batch, "choices"), target(batch, "choice"), strict=True):
            if right is not None:
                hit = vqa.same(row["prediction"], right)
                row.update(label=right, correct=hit, accuracy=float(hit), chance=1 / len(choices))
        return rows

    def score(self, predictions: list[dict[str, Any]]) -> dict[str, float]:
        rows = [row for row in predictions if "correct" in row]
        return {"accuracy": mean(rows, "accuracy"), f"{CHANCE}/accuracy": mean(rows, "chance")} if rows else {}

    def submission(self, predictions: list[dict[str, Any]], folder: Path) -> list[Path]:
        # A-OKVQA's form
        rows = {str(row.get("question_id", row["key"])): {"multiple_choice": row["prediction"]} for row in predictions}
        return [write_json(folder / "multiple_choice.json", rows)]


class GQA(Answering):
    """Answer questions; accuracy, by type, and the further scores of the official evaluation.

    ``binary`` and ``open``, ``consistency`` and ``distribution`` need the question file's facts, ``validity`` and
    ``plausibility`` the file of choices.

    Args:
        answers: file of the answer table under the data root; None: ``gqa/trainval_label2ans.json`` where it is there,
            else the answers of the training questions.
        min_count: occurrences that put an answer into a table made of the questions.
    """

    paper = "Hudson and Manning 2019, GQA: A New Dataset for Real-World Visual Reasoning"
    eval_split = "testdev"
    usual_data = "gqa"
    usual_answers = 1842
    usual_table = "gqa/trainval_label2ans.json"
    facts_of_questions = (
        "question_id",
        "answer",
        "structural",
        "semantic",
        "detailed",
        "group",
        "balanced",
        "entailed",
    )

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.choices: dict[str, dict[str, list[str]]] = {}

    def count(self, readers: list[Any]) -> tuple[str, ...]:
        answers = (best_answer(example.targets) for reader in readers for example in reader.examples())
        return vqa.answer_vocabulary(Counter(answer for answer in answers if answer is not None), self.min_count)

    def read(self, runner: Examples) -> None:
        readers = [reader for reader in runner.data.readers if hasattr(reader, "choices")]
        self.choices = {key: row for reader in readers for key, row in reader.choices().items()}

    def answered(self, batch: Batch, answers: Sequence[str], scores: Sequence[float | None]) -> list[dict[str, Any]]:
        rows = super().answered(batch, answers, scores)
        for row in rows:
            if "answer" in row:
                row["correct"] = str(row["prediction"]) == str(row["answer"])  # to the letter
        return rows

    def score(self, predictions: list[dict[str, Any]]) -> dict[str, float]:
        return gqa.scores([row for row in predictions if "answer" in row], self.choices)

    def submission(self, predictions: list[dict[str, Any]], folder: Path) -> list[Path]:
        ids = (str(row.get("question_id", row["key"])) for row in predictions)
        rows = [{"questionId": n, "prediction": row["prediction"]} for n, row in zip(ids, predictions, strict=True)]
        return [write_json(folder / "gqa.json", rows)]


class GenerativeVQA(VQA):
    """Say the answer to a question; official accuracy, overall and by type of answer and question.

    By default the answers of a list are ranked (ALBEF: 3,128 of them): the candidates whose first word is likeliest are
    said in full, and the likeliest is the answer. Training says whatever people answered, in the list or not.

    Args:
        answers: file of the answer list under the data root; None: ``vqa/answer_list.json`` where it is there, else a
            list made of the training questions.
        min_count: occurrences as best answer that put an answer into a list made of the questions.
        decoding: ``rank``: candidates of the list; ``generate``: any words, the likeliest at each step.
        candidates: answers of the list that are scored in full.
        first_twice: the first word's likelihood counts once more, as in ALBEF's released code; LAVIS counts it once.
        block: candidates scored at a time.
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
        candidates: Count = 128,
        first_twice: bool = True,
        block: Count = 512,
        max_length: Count = 10,
    ) -> None:
        super().__init__(answers=answers, min_count=min_count)
        self.decoding, self.candidates, self.max_length = decoding, candidates, max_length
        self.options: dict[str, Any] = {"first_twice": first_twice, "block": block}
        self._ids: tuple[tuple[str, ...], Text] | None = None

    def objectives(self) -> list[Spec]:
        return [{"name": "answer-generation"}]

    def attach(self, data_spec: DataSpec) -> None:
        super().attach(data_spec)
        if self.decoding == "rank" and not self.answers:
            where, expected = "task generative-vqa", "an answer list, or training questions that share answers"
            hint = "set `answers: FILE`, lower `min_count`, or `decoding: generate`"
            raise ComponentError("There is no answer to choose from.", where=where, expected=expected, hint=hint)

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
        """Return the candidates of every question with their probabilities, likeliest first."""
        if self._ids is None or self._ids[0] != self.answers:
            encoded = map(tokenizer.encode_answer, self.answers)
            self._ids = self.answers, collate_texts(list(encoded), tokenizer.ids["pad"])
        fused = step.fused().text
        ranks = rank(step.model, fused, self._ids[1].to(fused.hidden.device), self.candidates, **self.options)
        rows = zip(*(part.tolist() for part in ranks), strict=True)
        return [[(self.answers[number], p) for number, p in zip(*row, strict=True)] for row in rows]
