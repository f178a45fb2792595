"""Retrieval: ranks pictures for each sentence and sentences for each picture."""

import tempfile
from dataclasses import dataclass
from typing import Any

from vlcli.data.sides import Sides, split
from vlcli.errors import ComponentError
from vlcli.metrics.baseline import CHANCE
from vlcli.metrics.ranking import recalls
from vlcli.registry import Spec
from vlcli.tasks.base import Result, Runner, Task
from vlcli.tasks.rank_counts import WAYS, Group, Ranking, by_chance, groups_of
from vlcli.tasks.ranking import Exact, Scoring, Shelf, embed, encode, score_pairs


@dataclass(kw_only=True, eq=False)
class Retrieval(Task):
    """Rank all pictures for each sentence and all sentences for each picture; recall at 1, 5 and 10, median rank.

    Each sentence and each picture is encoded once. ``chance/...`` are the scores of a random order.

    Args:
        objective: which scores a fused pair; None ranks by the first stage alone.
        first: an objective that gives each sentence and each picture a vector.
        candidates: how many of the first stage's best are scored in pairs, above the others (ALBEF: 256 on COCO, 128 on
            Flickr30k); None: all.
        scoring: of a candidate: the log ``odds`` of a match, its ``logit`` alone (ALBEF's code), or the ``sum`` of that
            logit and the first stage's product (VLMo's code).
        block: pairs fused at a time.
        memory: MiB of encoded rows (the rest waits on disk) and of scores that are held at a time.
        folds: rank within so many parts of the pictures too, each with its sentences, and take the mean: COCO's 1K test
            is 5 folds of its 5,000.
        hard_negatives: wrong pictures and sentences that fine-tuning draws from the batch, the likeliest first;
            0: random sentences of the data.
        ks: the k of recall at k.
    """

    paper = "Karpathy and Fei-Fei 2015 (protocol); ALBEF, Li et al. 2021, section 5 (re-ranking); VLMo, Bao et al. 2022"
    requires = frozenset()
    metric = "r_mean"
    eval_split = "test"
    usual_data = "karpathy"
    joint = True

    objective: str | None = "matching"
    first: str | None = None
    candidates: int | None = None
    scoring: Scoring = "odds"
    block: int = 128
    memory: int = 1024
    folds: int | None = None
    hard_negatives: int = 0
    ks: tuple[int, ...] = (1, 5, 10)

    def __post_init__(self) -> None:
        if self.first is None and (self.objective is None or self.candidates is not None or self.scoring == "sum"):
            what, expected = "A ranking needs something to rank by.", "`first: OBJECTIVE`"
            raise ComponentError(what, where="task retrieval", expected=expected)

    def objectives(self) -> list[Spec]:
        # The head of matching goes by one name whichever way negatives are drawn.
        specs: list[Spec] = [{"name": self.first}] if self.first is not None else []
        if self.objective is not None and self.hard_negatives:
            specs += [{"name": "hard-matching", "as": "matching", "negatives": self.hard_negatives}]
        elif self.objective is not None:
            specs += [{"name": "contrast-matching", "as": self.objective} if specs else {"name": "matching"}]
        return specs

    def evaluate(self, runner: Runner) -> Result:
        with tempfile.TemporaryDirectory(prefix="vlcli-ranking-") as folder:
            sides, shelf = split(runner.data), Shelf(self.memory, folder)
            image, image_chunks, kept = self._side(runner, sides, "image", shelf)
            sides = sides.keep(kept)
            text, text_chunks, _ = self._side(runner, sides, "text", shelf)
            groups, vectors = groups_of(sides, self.folds), None if self.first is None else (text, image)
            ranking = Ranking(sides, vectors, self.memory, self.candidates, self.scoring)
            exact = codes = None
            if self.objective is not None:
                if self.candidates is not None:
                    codes = runner.share.gather(ranking.codes(groups) if runner.share.rank == 0 else None)[0]
                chunks = text_chunks, image_chunks
                exact = score_pairs(runner, chunks, self.objective, codes, self.block, self.scoring)
        return Result({}) if runner.share.rank else self._result(ranking, groups, exact)

    def _side(self, runner: Runner, sides: Sides, side: Any, shelf: Shelf) -> tuple[Any, Any, list[str]]:
        # vectors, encoded chunks, and the names of those that could be read
        data, names = (sides.texts, sides.text_keys) if side == "text" else (sides.images, sides.image_keys)
        vectors, chunks, kept = None, None, names
        if self.first is not None:
            vectors, kept = embed(runner, data, side, names, self.first)
        if self.objective is not None:
            chunks, kept = encode(runner, data, side, shelf)
        return vectors, chunks, kept

    def _result(self, ranking: Ranking, groups: list[Group], exact: Exact | None) -> Result:
        whole, *folds = groups
        rows: list[dict[str, Any]] = []
        metrics = recalls((ranking.stand(way, whole, exact, rows) for way in WAYS), self.ks)
        if folds:
            parts = [recalls((ranking.stand(way, fold, exact) for way in WAYS), self.ks) for fold in folds]
            metrics |= {f"folds/{name}": sum(part[name] for part in parts) / len(parts) for name in parts[0]}
        chance = recalls((by_chance(ranking.sides, way) for way in WAYS), self.ks)
        metrics |= {f"{CHANCE}/{name}": value for name, value in chance.items()}
        return Result({**metrics, "texts": float(len(whole.texts)), "images": float(len(whole.images))}, rows)
