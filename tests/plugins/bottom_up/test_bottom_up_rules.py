"""The rules of selection against slow oracles, written apart and box by box."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vlcli.detection.detections import Detections, apply_deltas
from vlcli.detection.selection import best_surviving, make_rule, nms
from vlcli.errors import UsageError

THREAD = settings(max_examples=25, deadline=None)


def overlap(a, b, one: float) -> float:
    width = min(a[2], b[2]) - max(a[0], b[0]) + one
    height = min(a[3], b[3]) - max(a[1], b[1]) + one
    both = max(width, 0.0) * max(height, 0.0)
    area = sum((box[2] - box[0] + one) * (box[3] - box[1] + one) for box in (a, b))
    return both / (area - both)


def greedy(boxes, scores, threshold: float, legacy: bool) -> list[int]:
    kept: list[int] = []
    for row in sorted(range(len(scores)), key=lambda i: -scores[i]):
        near = [overlap(boxes[row], boxes[other], float(legacy)) for other in kept]
        if not any(value >= threshold if legacy else value > threshold for value in near):
            kept.append(row)
    return kept


def ranked(scores) -> list[int]:
    return sorted(range(len(scores)), key=lambda i: -scores[i])


def caffe(boxes, probs, least, most, threshold=0.3, confidence=0.2):
    best = np.zeros(len(probs))
    for column in range(probs.shape[1]):
        for row in greedy(boxes, probs[:, column], threshold, True):
            best[row] = max(best[row], probs[row, column])
    rows = [row for row in range(len(probs)) if best[row] >= confidence]
    if len(rows) < least:
        rows = ranked(best)[:least]
    elif len(rows) > most:
        rows = ranked(best)[:most]
    return rows, [int(probs[row].argmax()) for row in rows], best[rows]


def vlp(refined, probs, least, most, threshold=0.5, confidence=0.2):
    best, label = np.zeros(len(probs)), np.zeros(len(probs), int)
    for column in range(probs.shape[1]):
        for row in greedy(refined[:, column], probs[:, column], threshold, True):
            if probs[row, column] > best[row]:
                best[row], label[row] = probs[row, column], column
    rows = [row for row in range(len(probs)) if best[row] > confidence]
    if len(rows) < least:
        rows = ranked(best)[:least]
    elif len(rows) > most:
        rows = ranked(best)[:most]
    return rows, label[rows].tolist(), best[rows]


def airsplay(refined, probs, least, most):
    label = probs.argmax(1)
    boxes, scores = refined[np.arange(len(probs)), label], probs.max(1)
    for tenth in range(3, 10):
        rows = greedy(boxes, scores, tenth / 10, False)[:most]
        if len(rows) >= least:
            break
    return rows, label[rows].tolist(), scores[rows]


def ordinary(refined, probs, most, threshold=0.5, confidence=0.05):
    found = []
    for column in range(probs.shape[1]):
        passed = [row for row in range(len(probs)) if probs[row, column] > confidence]
        kept = greedy(refined[passed, column], probs[passed, column], threshold, False) if passed else []
        found += [(probs[passed[k], column], passed[k], column) for k in kept]
    found.sort(key=lambda item: -item[0])
    return [row for _, row, _ in found[:most]], [column for _, _, column in found[:most]]


@st.composite
def worlds(draw, most=40):
    """Random proposals that overlap a good deal, with distinct scores."""
    seed, rows = draw(st.integers(0, 2**31)), draw(st.integers(1, most))
    columns, sharp = draw(st.integers(2, 6)), draw(st.sampled_from([0.3, 1.0, 4.0]))
    generator = np.random.default_rng(seed)
    corner = generator.uniform(0, 60, (rows, 2))
    boxes = np.concatenate([corner, corner + generator.uniform(5, 50, (rows, 2))], 1).astype(np.float32)
    logits = generator.normal(0, sharp, (rows, columns + 1))
    probs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    shifted = (boxes[:, None] + generator.normal(0, 4, (rows, columns, 4))).astype(np.float32)
    refined = np.concatenate([np.minimum(shifted[..., :2], shifted[..., 2:] - 1), shifted[..., 2:]], -1)
    return boxes, refined.astype(np.float32), probs.astype(np.float32)


def detections(boxes, refined, probs) -> Detections:
    table = torch.from_numpy(probs)
    return Detections(
        boxes=torch.from_numpy(boxes),
        features=torch.arange(len(boxes))[:, None].float(),
        probs=table[:, :-1],
        background=table[:, -1],
        regress=lambda: torch.from_numpy(refined),
    )


@THREAD
@given(worlds(), st.sampled_from([(36, 36), (10, 100), (3, 12), (100, 100)]))
def test_caffe(world, counts):
    boxes, _, probs = world
    kept = make_rule("caffe", *counts)(detections(*world))
    rows, labels, scores = caffe(boxes, probs[:, :-1], *counts)
    assert kept.rows.tolist() == rows
    assert kept.classes.tolist() == labels
    assert np.array_equal(kept.scores.numpy(), scores.astype(np.float32))
    assert np.array_equal(kept.boxes.numpy(), boxes[rows])


@THREAD
@given(worlds(), st.sampled_from([(36, 36), (3, 12), (100, 100)]))
def test_vlp(world, counts):
    _, refined, probs = world
    kept = make_rule("vlp", *counts)(detections(*world))
    rows, labels, scores = vlp(refined, probs[:, :-1], *counts)
    assert kept.rows.tolist() == rows
    assert kept.classes.tolist() == labels
    assert np.array_equal(kept.class_scores.numpy(), scores.astype(np.float32))
    assert np.array_equal(kept.boxes.numpy(), refined[rows, labels])


@THREAD
@given(worlds(), st.sampled_from([(36, 36), (5, 8), (10, 10)]))
def test_airsplay(world, counts):
    _, refined, probs = world
    kept = make_rule("airsplay", *counts)(detections(*world))
    rows, labels, scores = airsplay(refined, probs[:, :-1], *counts)
    assert kept.rows.tolist() == rows
    assert kept.classes.tolist() == labels
    assert np.array_equal(kept.scores.numpy(), scores)
    assert np.array_equal(kept.boxes.numpy(), refined[rows, labels])


@THREAD
@given(worlds())
def test_detectron2(world):
    _, refined, probs = world
    kept = make_rule("detectron2", 0, 20)(detections(*world))
    rows, labels = ordinary(refined, probs[:, :-1], 20)
    assert kept.rows.tolist() == rows
    assert kept.classes.tolist() == labels


@THREAD
@given(worlds())
def test_detectron2_loosens_until_enough(world):
    """As airsplay's notebooks do: 0.5, 0.6 ... until the wanted number is there."""
    _, refined, probs = world
    kept = make_rule("detectron2", 10, 10)(detections(*world))
    for tenth in range(5, 10):
        rows, labels = ordinary(refined, probs[:, :-1], 10, threshold=tenth / 10)
        if len(rows) >= 10:
            break
    assert (kept.rows.tolist(), kept.classes.tolist()) == (rows, labels)


@THREAD
@given(worlds(), st.sampled_from([0.0, 0.01, 0.1, 0.3]))
def test_a_floor_changes_nothing_above_it(world, floor):
    boxes, _, probs = world
    table = torch.from_numpy(probs)
    whole, _ = best_surviving(table, torch.from_numpy(boxes), 0.3)
    some, _ = best_surviving(table, torch.from_numpy(boxes), 0.3, floor)
    assert torch.equal(torch.where(whole >= floor, whole, 0), some)


def test_legacy_overlap_counts_the_last_pixel_and_the_threshold():
    boxes = torch.tensor([[0.0, 0, 9, 9], [0, 0, 9, 4]])  # 100 and 50 pixels: one half exactly
    scores = torch.tensor([0.9, 0.8])
    assert nms(boxes, scores, 0.5, legacy=True).tolist() == [0]
    assert nms(boxes, scores, 0.51, legacy=True).tolist() == [0, 1]
    assert nms(boxes, scores, 0.5).tolist() == [0, 1]  # 36 of 81


@pytest.mark.parametrize("name", ["caffe", "airsplay", "vlp", "detectron2"])
def test_no_proposals(name):
    nothing = (np.zeros((0, 4), np.float32), np.zeros((0, 5, 4), np.float32), np.zeros((0, 6), np.float32))
    kept = make_rule(name, 36, 36)(detections(*nothing))
    assert len(kept.rows) == len(kept.boxes) == len(kept.classes) == 0


def test_deltas_in_three_conventions():
    box, delta = torch.tensor([[10.0, 20, 29, 59]]), torch.tensor([[0.1, 0.2, float(np.log(2.0)), 0.0]])
    edges = apply_deltas(delta, box, (1, 1, 1, 1))  # 19 x 39 about (19.5, 39.5)
    assert torch.allclose(edges, torch.tensor([[2.4, 27.8, 40.4, 66.8]]))
    caffe = apply_deltas(delta, box, (1, 1, 1, 1), extra=1)  # 20 x 40 about (20, 40)
    assert torch.allclose(caffe, torch.tensor([[2.0, 28, 42, 68]]))
    detectron = apply_deltas(delta, box, (1, 1, 1, 1), extra=1, inclusive=True)
    assert torch.allclose(detectron, torch.tensor([[2.0, 28, 41, 67]]))
    assert torch.allclose(apply_deltas(delta * 10, box, (10, 10, 10, 10)), edges)


@pytest.mark.parametrize("counts", [(36, 10), (-1, 10), (0, 0)])
def test_counts_that_disagree_are_refused(counts):
    with pytest.raises(UsageError, match="min_boxes and max_boxes disagree"):
        make_rule("detectron2", *counts)
