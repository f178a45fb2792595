"""Retrieval: every row encoded once, ranked as a plain double loop would, by stages, folds, folders and processes."""

from __future__ import annotations

import json
import multiprocessing
import time
from pathlib import Path

import numpy as np
import pytest
import small_run
import torch
import torch.distributed as dist
from small_run import SENTENCES, context, make_bundle, make_store

from vlcli import registry
from vlcli.data.sample import Example
from vlcli.data.sides import split
from vlcli.engine.bundle import load_bundle
from vlcli.errors import ComponentError, DataError
from vlcli.stages import evaluate
from vlcli.tasks.rank_counts import rerank

torch.set_num_threads(1)  # two threads beside a busy neighbour are many times slower
OBJECTIVES = ["contrast", "matching"]
IMAGES, TEXTS = 7, 19


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> dict[str, Path]:
    """Nineteen sentences of seven pictures, in no order, and a model with both heads."""
    root = tmp_path_factory.mktemp("run")
    names = [f"p{number}" for number in range(IMAGES)]
    make_store(root / "regions", names)
    said = [f"{SENTENCES[n % 4]} {' '.join(SENTENCES[n % 3].split()[: n % 5])}".strip() for n in range(TEXTS)]
    rows = [{"image": names[(5 * n) % IMAGES], "text": text} for n, text in enumerate(said)]
    rows.append(rows[3])  # said twice of one picture: once in the library
    (root / "data").mkdir()
    (root / "data/test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(small_run, "LXMERT", {**small_run.LXMERT, "init_std": 0.3})  # scores well apart
        make_bundle(root / "model", None, OBJECTIVES)
    return {"root": root / "data", "regions": root / "regions", "model": root / "model"}


def stage(run, folder, **task):
    config = {"kind": "evaluate", "from": "model", "data": {"name": "jsonl", "split": "test"}, "batch_size": 4}
    config["task"] = {"name": "retrieval", **task}
    return context(folder, run["root"], {"model": run["model"], "regions": run["regions"]}, **config)


def rank(run, folder, **task):
    found = evaluate.run(stage(run, folder, **task))
    rows = [json.loads(line) for line in (folder / "predictions.jsonl").read_text().splitlines()]
    return found.metrics, in_words(rows, run)


def in_words(rows, run):
    """Predictions by sentence or picture; a sentence is named by the first row of the data that has it."""
    lines = [json.loads(line) for line in (run["root"] / "test.jsonl").read_text().splitlines()]
    said = {name: row["text"] for name, row in numbered(lines)}
    found = {}
    for row in rows:
        way, _, asked = row["key"].partition("/")
        if way == "image":
            found[f"image/{said[asked]}"] = row
        else:
            found[row["key"]] = {**row, "prediction": said[row["prediction"]]}
    return found


def numbered(lines):
    return ((str(number), row) for number, row in enumerate(lines))


@pytest.fixture(scope="module")
def truth(run):
    """Names, what belongs together, cosines and matching logits, one pair at a time."""
    lines = [json.loads(line) for line in (run["root"] / "test.jsonl").read_text().splitlines()]
    texts = list(dict.fromkeys(row["text"] for row in lines))
    images = list(dict.fromkeys(row["image"] for row in lines))
    import vlcli

    model = vlcli.load(run["model"], features=run["regions"])
    relevant = np.zeros((len(texts), len(images)), bool)
    for row in lines:
        relevant[texts.index(row["text"]), images.index(row["image"])] = True
    near, logits = np.zeros(relevant.shape), np.zeros((*relevant.shape, 2))
    for row, text in enumerate(texts):
        for column, image in enumerate(images):
            found = model.predict(text, image)
            near[row, column] = found["contrast/text_embedding"] @ found["contrast/image_embedding"]
            logits[row, column] = found["matching/logits"] if "matching/logits" in found else found["matching/score"]
    return texts, images, relevant, near, logits


def released(near, exact, relevant, k):
    """Recall at 1, 5 and 10 the way ALBEF's evaluation takes it: -100 wherever a pair is not among the k nearest."""
    scores = np.full(near.shape, -100.0)
    for row, sims in enumerate(near):
        best = torch.as_tensor(sims).topk(k).indices.numpy()
        scores[row, best] = exact[row, best]
    ranks = []
    for row, found in enumerate(scores):
        order = np.argsort(found)[::-1]
        ranks.append(min(np.where(order == place)[0][0] for place in np.where(relevant[row])[0]))
    return [float(np.mean(np.array(ranks) < top)) for top in (1, 5, 10)]


def test_every_pair_scores_as_a_double_loop_would(run, truth, tmp_path):
    texts, images, relevant, _, logits = truth
    metrics, rows = rank(run, tmp_path / "all", block=5)
    odds = logits[..., 1] - logits[..., 0]
    assert (metrics["texts"], metrics["images"]) == (len(texts), len(images))
    for row, text in enumerate(texts):
        found = rows[f"image/{text}"]
        assert found["prediction"] == images[odds[row].argmax()]
        assert found["score"] == pytest.approx(odds[row].max(), abs=1e-4)
        best = odds[row][relevant[row]].max()
        assert found["rank"] == 1 + (odds[row][~relevant[row]] > best).sum()
    for column, image in enumerate(images):
        assert rows[f"text/{image}"]["prediction"] == texts[odds[:, column].argmax()]


def test_each_ranking_belongs_to_pictures_that_the_stage_names(run, tmp_path):
    """So that intervals are over pictures: sentences of one picture depend on one another."""
    from vlcli.tables.results import RowResults, RunResults
    from vlcli.tables.statistics import estimate

    metrics, _ = rank(run, tmp_path / "stage", first="contrast", objective=None)
    found = RunResults(1, metrics=metrics, evaluation=tmp_path / "stage")
    for metric in ("image/r@1", "text/r@1"):
        measured = estimate(RowResults("row", [found]), metric)
        assert (measured.count, measured.over) == (IMAGES, "images")


@pytest.mark.parametrize("k", [1, 3, 7])
def test_reranking_is_that_of_albef(run, truth, tmp_path, k):
    _, _, relevant, near, logits = truth
    metrics, _ = rank(run, tmp_path / "k", first="contrast", candidates=k, scoring="logit")
    exact = logits[..., 1]
    # Beyond the candidates the released code leaves the order open (all are -100): only what is within is compared.
    for way, found in (
        ("image", released(near, exact, relevant, k)),
        ("text", released(near.T, exact.T, relevant.T, k)),
    ):
        for top, share in zip((1, 5, 10), found, strict=True):
            assert top > k or metrics[f"{way}/r@{top}"] == pytest.approx(share)


def test_sum_adds_the_first_stage_and_all_candidates_are_all_pairs(run, truth, tmp_path):
    texts, images, _, near, logits = truth
    total = near + logits[..., 1]
    every = rank(run, tmp_path / "a", first="contrast", candidates=TEXTS, scoring="sum")
    pairs = rank(run, tmp_path / "b", first="contrast", scoring="sum")
    assert every[0] == pytest.approx(pairs[0])
    for row, text in enumerate(texts):
        assert every[1][f"image/{text}"]["prediction"] == images[total[row].argmax()]
        assert every[1][f"image/{text}"]["score"] == pytest.approx(total[row].max(), abs=1e-4)


def test_zero_shot_ranks_by_vectors_and_folds_by_themselves(run, truth, tmp_path):
    texts, images, relevant, near, _ = truth
    metrics, rows = rank(run, tmp_path / "zero", first="contrast", objective=None, folds=2)
    for row, text in enumerate(texts):
        assert rows[f"image/{text}"]["prediction"] == images[near[row].argmax()]
    hits, counts = [], 0
    for columns in np.array_split(np.arange(len(images)), 2):
        inside = relevant[:, columns].any(1)
        best = near[inside][:, columns].argmax(1)
        hits.append(np.mean(relevant[inside][:, columns][np.arange(inside.sum()), best]))
        counts += inside.sum()
    assert counts == len(texts)
    assert metrics["folds/image/r@1"] == pytest.approx(np.mean(hits))
    assert set(metrics) >= {"folds/r_mean", "folds/text/median_rank", "image/median_rank"}
    with pytest.raises(DataError, match="fewer pictures"):
        rank(run, tmp_path / "many", first="contrast", objective=None, folds=99)


@pytest.mark.parametrize("task", [{"candidates": 3}, {"objective": None}, {"candidates": 2, "folds": 2}, {}])
def test_no_memory_and_other_batches_change_nothing(run, tmp_path, task):
    wanted = rank(run, tmp_path / "much", first="contrast", **task)
    found = rank(run, tmp_path / "none", first="contrast", memory=0, block=3, **task)
    assert found[0] == pytest.approx(wanted[0])
    for key, row in wanted[1].items():
        assert found[1][key]["score"] == pytest.approx(row["score"], abs=1e-4)


def test_each_row_is_encoded_once_and_kept(run, tmp_path, monkeypatch):
    counts = {"text": 0, "image": 0}
    model = type(load_bundle(run["model"]).model)
    for side in counts:
        original = getattr(model, f"encode_{side}")

        def counting(self, rows, record=None, side=side, original=original):
            counts[side] += len(rows)
            return original(self, rows, record)

        monkeypatch.setattr(model, f"encode_{side}", counting)
    config = {"first": "contrast", "objective": None}
    first = evaluate.run(stage(run, tmp_path / "kept", **config)).metrics
    assert counts == {"text": TEXTS, "image": IMAGES}
    assert evaluate.run(stage(run, tmp_path / "kept", **config)).metrics == first
    assert counts == {"text": TEXTS, "image": IMAGES}, "the vectors of the same weights are there"


def _process(rank_, count, run, folder, port):
    dist.init_process_group("gloo", init_method=f"file://{port}", rank=rank_, world_size=count)
    time.sleep(rank_ * 0.3)  # the first has written before the second looks
    evaluate.run(stage(run, folder / "two", first="contrast", candidates=3, folds=2))
    dist.destroy_process_group()


def test_two_processes_find_what_one_finds(run, tmp_path):
    wanted = rank(run, tmp_path / "one", first="contrast", candidates=3, folds=2)
    fork = multiprocessing.get_context("fork")
    args = (2, run, tmp_path, tmp_path / "meeting")
    (tmp_path / "two").mkdir()
    workers = [fork.Process(target=_process, args=(number, *args)) for number in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert json.loads((tmp_path / "two/metrics.json").read_text()) == wanted[0]
    rows = [json.loads(line) for line in (tmp_path / "two/predictions.jsonl").read_text().splitlines()]
    for key, row in in_words(rows, run).items():
        assert {**row, "score": 0} == {**wanted[1][key], "score": 0}
        assert row["score"] == pytest.approx(wanted[1][key]["score"], abs=1e-6)


def test_reranking_keeps_the_rest_in_order_below():
    near = np.array([[0.9, 0.1, 0.5, 0.3]], np.float32)
    made = rerank(near, np.array([[0, 2]]), np.array([[-3.0, 7.0]], np.float32))
    assert np.argsort(-made[0]).tolist() == [2, 0, 3, 1]


def test_what_it_needs_and_trains_on(run, tmp_path):
    with pytest.raises(ComponentError, match="rank by"):
        registry.build("tasks", {"name": "retrieval", "objective": None})
    make_bundle(tmp_path / "matching", None, ["matching"])
    with pytest.raises(ComponentError, match="embed sentences"):
        rank({**run, "model": tmp_path / "matching"}, tmp_path / "x", first="contrast", objective=None)
    with pytest.raises(ComponentError, match="name contrast"):  # what is misspelt is no other objective
        rank(run, tmp_path / "x", first="contrasts", objective=None)
    (tmp_path / "lone").mkdir()
    (tmp_path / "lone/test.jsonl").write_text('{"image": "p0"}\n')
    with pytest.raises(DataError, match="a sentence and a picture"):
        rank({**run, "root": tmp_path / "lone"}, tmp_path / "y", first="contrast", objective=None)
    chosen = {
        "plain": {},
        "hard": {"hard_negatives": 2},
        "dual": {"first": "contrast", "objective": None},
        "both": {"first": "contrast", "candidates": 4},
    }
    found = {
        name: [spec["name"] for spec in registry.build("tasks", {"name": "retrieval", **task}).objectives()]
        for name, task in chosen.items()
    }
    assert found == {
        "plain": ["matching"],
        "hard": ["hard-matching"],
        "dual": ["contrast"],
        "both": ["contrast", "contrast-matching"],
    }


def test_pictures_that_cannot_be_read_take_their_sentences_with_them():
    class Fake:
        def __init__(self, examples):
            self.examples = examples

        def only(self, examples):
            return Fake(examples)

    pairs = [("a", "x", "p"), ("a", "y", "p"), ("", "z", "q"), ("b", "x", "q"), ("b", "x", "r"), ("", "z", "q")]
    sides = split(Fake([Example(str(n), text, [image], key) for n, (key, text, image) in enumerate(pairs)]))
    assert sides.text_keys == ["a", "a (2)", "2", "b"], "one id may stand for two sentences, none for the example"
    assert sides.pairs.tolist() == [[0, 0], [1, 0], [2, 1], [3, 1], [3, 2]]
    left = sides.keep(["p", "r"])
    assert (left.text_keys, left.image_keys) == (["a", "a (2)", "b"], ["p", "r"])
    assert left.pairs.tolist() == [[0, 0], [1, 0], [2, 1]]
    assert [example.key for example in left.texts.examples] == left.text_keys
