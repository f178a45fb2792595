"""VQA, GQA, RefCOCO+, SNLI-VE, VIST, ImageNet and ADE20K files of the shapes world."""

from __future__ import annotations

import json
import pickletools
import re
from collections import Counter, defaultdict
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from PIL import Image
from shapes_oracle import SMALL, matching, read, read_lines, related, small_world, stands, things

from vlcli.data.shapes import make_shapes
from vlcli.data.shapes.coco import shared_pictures
from vlcli.data.shapes.folders import _related
from vlcli.data.shapes.questions import balanced, questions
from vlcli.data.shapes.world import RELATIONS
from vlcli.progress import Silent

SHARED = ("train", "val", "test")


def shapes_by_id():
    found = {}
    for split in SHARED:
        document = read(f"coco/annotations/instances_{split}.json")
        names = {row["file_name"]: row["id"] for row in document["images"]}
        found |= {names[name]: seen for name, seen in things(f"coco/annotations/instances_{split}.json").items()}
    return found


def answered(split):
    questions = read(f"vqa/v2_OpenEnded_mscoco_{split}_questions.json")["questions"]
    answers = {row["question_id"]: row for row in read(f"vqa/v2_mscoco_{split}_annotations.json")["annotations"]}
    assert {row["question_id"] for row in questions} == set(answers)
    return [(row, answers[row["question_id"]]) for row in questions]


@pytest.mark.parametrize("split", ["train", "val"])
def test_vqa_pairs_are_complementary(split):
    """One question, two pictures, two answers; so yes and no are equally frequent for every question."""
    rows = {question["question_id"]: (question, answer) for question, answer in answered(split)}
    pairs = read(f"vqa/v2_mscoco_{split}_complementary_pairs.json")
    assert sorted(number for pair in pairs for number in pair) == sorted(rows)
    balance = Counter()
    for one, two in pairs:
        (first, first_answer), (second, second_answer) = rows[one], rows[two]
        assert first["question"] == second["question"]
        assert first["image_id"] != second["image_id"]
        assert first_answer["multiple_choice_answer"] != second_answer["multiple_choice_answer"]
    for question, answer in rows.values():
        if answer["answer_type"] == "yes/no":
            balance[question["question"]] += 1 if answer["multiple_choice_answer"] == "yes" else -1
    assert balance
    assert set(balance.values()) == {0}


def test_questions_are_of_the_types_asked_for():
    config = replace(SMALL, images=200, questions=10, question_types=("relVerify", "relVerify", "count"))
    train = shared_pictures(config)["train"]
    pairs = balanced(train, Random(0), config)
    types = Counter(one.question.detailed for pair in pairs for one in pair)
    assert set(types) == {"relVerify", "count"}
    assert types["count"] == 2 * round(5 * len(train) / 3)
    assert types["relVerify"] > types["count"]
    assert all(one.question.text == two.question.text for one, two in pairs)


def test_questions_of_position_name_the_half_that_a_shape_stands_in():
    config = replace(SMALL, images=200, questions=10, question_types=("positionChoose", "positionVerify"))
    train = shared_pictures(config)["train"]
    asked = [one for pair in balanced(train, Random(0), config) for one in pair]
    assert {one.question.detailed for one in asked} == {"positionChoose", "positionVerify"}
    for one in asked:
        scene, [index] = train[one.picture].scene, one.question.objects
        shape = scene.shapes[index]
        halves = {"left" if shape.x < scene.side / 2 else "right", "top" if shape.y < scene.side / 2 else "bottom"}
        if one.question.detailed == "positionChoose":
            assert one.question.answer in halves
        else:
            assert one.question.answer == ("yes" if one.question.text.rstrip("?").split()[-1] in halves else "no")


def test_questions_of_position_are_asked_only_where_they_are_wanted():
    train = shared_pictures(SMALL)["train"]
    kinds = {question.detailed for picture in train for question in questions(picture.scene, SMALL)}
    assert not kinds & {"positionChoose", "positionVerify", "relChooser"}


def test_vqa_language_alone_is_weak():
    """The most frequent answer of a question, known from the same data, is no better than a coin for yes/no."""
    votes = defaultdict(lambda: defaultdict(Counter))
    for question, answer in answered("train"):
        votes[answer["answer_type"]][question["question"]][answer["multiple_choice_answer"]] += 1
    best = {
        sort: sum(max(votes.values()) for votes in texts.values())
        / sum(sum(votes.values()) for votes in texts.values())
        for sort, texts in votes.items()
    }
    assert set(best) == {"yes/no", "number", "other"}
    assert best["yes/no"] == 0.5
    assert max(best.values()) <= 0.55


def test_vqa_has_ten_answers_whose_majority_is_the_label():
    for _, row in answered("val"):
        assert len(row["answers"]) == 10
        assert Counter(one["answer"] for one in row["answers"]).most_common(1)[0][0] == row["multiple_choice_answer"]
        assert {one["answer_confidence"] for one in row["answers"]} <= {"yes", "maybe", "no"}
        assert row["question_id"] // 1000 == row["image_id"]


def test_vqa_answers_are_what_the_pictures_show():
    seen, checked = shapes_by_id(), Counter()
    for question, answer in (*answered("train"), *answered("val")):
        expected = reply(question["question"], seen[question["image_id"]])
        assert expected == answer["multiple_choice_answer"], question
        checked[answer["answer_type"]] += 1
    assert min(checked.values()) > 50


WHERE = r"(left|right|above|below)(?: of)?"


def reply(text, seen):
    """The answer to one of the world's questions from boxes, kinds and colours."""
    yes = {True: "yes", False: "no"}
    if found := re.fullmatch(r"Is there an? (.+) in the picture\?", text):
        return yes[bool(matching(found[1], seen))]
    if found := re.fullmatch(r"Are there more (\w+) than (\w+)\?", text):
        return yes[len(matching(found[1], seen)) > len(matching(found[2], seen))]
    if found := re.fullmatch(r"How many (.+) are there\?", text):
        return str(len(matching(found[1], seen)))
    if found := re.fullmatch(rf"Is the (\w+ \w+) {WHERE} the (.+)\?", text):
        return yes[related(found[1], found[2], found[3], seen)]
    if found := re.fullmatch(rf"What (shape is|color is the shape) {WHERE} the (.+)\?", text):
        (anchor,) = matching(found[3], seen)
        (there,) = [thing for thing in seen if thing is not anchor and stands(thing, found[2], anchor)]
        return there.kind if found[1] == "shape is" else there.colour
    if found := re.fullmatch(r"What color is the (\w+)\?", text):
        return matching(found[1], seen)[0].colour
    if found := re.fullmatch(r"What is the (\w+) shape\?", text):
        return matching(found[1], seen)[0].kind
    found = re.fullmatch(r"Is the (\w+) (\w+)\?", text)
    return yes[matching(found[1], seen)[0].colour == found[2]]


@pytest.mark.parametrize("name", ["train", "val", "testdev"])
def test_gqa_questions_are_answered_by_the_pictures(name):
    rows, seen = read(f"gqa/{name}_balanced_questions.json"), shapes_by_id()
    fields = {"semantic", "entailed", "equivalent", "question", "imageId", "isBalanced", "groups", "answer"}
    fields |= {"semanticStr", "annotations", "types", "fullAnswer"}
    for number, row in rows.items():
        assert set(row) == fields
        assert row["equivalent"] == [number]
        assert reply(row["question"], seen[int(row["imageId"])]) == row["answer"]
        assert all(rows[other]["imageId"] == row["imageId"] for other in row["entailed"])
    assert any(row["entailed"] for row in rows.values())
    assert {row["types"]["structural"] for row in rows.values()} == {"verify", "query", "compare"}


def test_gqa_scene_graphs_agree_with_the_boxes():
    names = {"to the left of": "left", "to the right of": "right", "above": "above", "below": "below"}
    seen, relations = shapes_by_id(), Counter()
    for image, graph in read("gqa/sceneGraphs/val_sceneGraphs.json").items():
        assert len(graph["objects"]) == len(seen[int(image)])
        for (number, row), thing in zip(graph["objects"].items(), seen[int(image)], strict=True):
            assert (row["x"], row["y"], row["w"], row["h"]) == thing.box
            assert (row["name"], row["attributes"]) == (thing.kind, [thing.colour, thing.size])
            for relation in row["relations"]:
                other = list(graph["objects"]).index(relation["object"])
                assert stands(thing, names[relation["name"]], seen[int(image)][other]), number
                relations[relation["name"]] += 1
    assert relations["above"] == relations["below"] > 20
    assert relations["to the left of"] == relations["to the right of"] > 20


def test_expressions_pick_out_one_object():
    """Recomputed from the instances: the described object, and no other, fits."""
    document = read("refcoco/instances.json")
    names, order = {row["id"]: row["file_name"] for row in document["images"]}, defaultdict(list)
    for row in document["annotations"]:
        order[row["image_id"]].append(row["id"])
    seen, checked, place = (
        things("refcoco/instances.json"),
        Counter(),
        "left|right|above|below|most|lowest|nearest|farthest",
    )
    for ref in read("refcoco/refs(unc).json"):
        found = seen[names[ref["image_id"]]]
        target = found[order[ref["image_id"]].index(ref["ann_id"])]
        for sentence in ref["sentences"]:
            assert referents(sentence["sent"], found) == [target], sentence
            assert bool(re.search(place, sentence["sent"])) == sentence["place"]
            checked[ref["split"], sentence["place"]] += 1
    assert set(checked) == {(split, placed) for split in ("train", "val", "testA", "testB") for placed in (True, False)}


def test_expressions_without_place_words(tmp_path):
    """As RefCOCO+ has them: every one still picks out one object, and pictures are the same."""
    make_shapes(tmp_path / "world", replace(SMALL, parts=("refcoco",), place_words=False), Silent())
    refs = json.loads((tmp_path / "world/refcoco/refs(unc).json").read_text())
    sentences = [sentence for ref in refs for sentence in ref["sentences"]]
    assert len(sentences) > 50
    assert not any(sentence["place"] for sentence in sentences)
    seen = things("refcoco/instances.json")
    names = {row["id"]: row["file_name"] for row in read("refcoco/instances.json")["images"]}
    for ref in refs:
        assert all(len(matching(one["sent"], seen[names[ref["image_id"]]])) == 1 for one in ref["sentences"])


EXTREME = {"leftmost": "left", "rightmost": "right", "topmost": "above", "lowest": "below"}
FAR = {
    "farthest to the left": "left",
    "farthest to the right": "right",
    "nearest to the top": "above",
    "nearest to the bottom": "below",
}


def referents(text, seen):
    """Every object that an expression fits."""
    first, _, rest = text.partition(" ")
    if first in EXTREME:
        return extreme(matching(rest, seen), EXTREME[first])
    for ending, word in FAR.items():
        if text.endswith(ending):
            return extreme(matching(text.removesuffix(ending), seen), word)
    if found := re.fullmatch(rf"(.+?) {WHERE} the (.+)", text):
        (anchor,) = matching(found[3], seen)
        return [thing for thing in matching(found[1], seen) if thing is not anchor and stands(thing, found[2], anchor)]
    return matching(text, seen)


def extreme(found, word):
    return [one for one in found if all(stands(one, word, two) for two in found if two is not one)]


def test_the_pickle_is_of_plain_containers():
    """Read as opcodes only: nothing in it calls or imports anything, and it is protocol 2."""
    names = [code.name for code, _, _ in pickletools.genops((small_world() / "refcoco/refs(unc).p").read_bytes())]
    assert names[0] == "PROTO"
    assert not {"GLOBAL", "REDUCE", "BUILD", "INST", "OBJ", "NEWOBJ", "STACK_GLOBAL"} & set(names)
    assert names.count("EMPTY_DICT") >= len(read("refcoco/refs(unc).json"))


@pytest.mark.parametrize("split", ["train", "dev", "test"])
def test_entailment_is_balanced_and_right(split):
    rows, seen = read_lines(f"snli_ve/snli_ve_{split}.jsonl"), shapes_by_id()
    assert len(set(Counter(row["gold_label"] for row in rows).values())) == 1
    assert len({row["pairID"] for row in rows}) == len(rows)
    balance = defaultdict(Counter)
    for row in rows:
        assert entails(row["sentence2"], seen[int(row["Flickr30K_ID"])]) == row["gold_label"], row
        if row["family"] == "either":
            balance[row["sentence2"]][row["gold_label"]] += 1
    assert all(len(labels) == 3 and len(set(labels.values())) == 1 for labels in balance.values())


def entails(text, seen):
    text = text[0].lower() + text[1:-1]
    hidden = r"(?:made of \w+|very heavy|as old as the picture)"
    if found := re.fullmatch(rf"(?:there is|the picture has) (.+) or (?:else )?(.+) that is {hidden}", text):
        return "entailment" if matching(found[1], seen) else "neutral" if matching(found[2], seen) else "contradiction"
    if found := re.fullmatch(rf"(.+) is {hidden}", text):
        return "neutral" if matching(found[1], seen) else "contradiction"
    return "entailment" if matching(text.removeprefix("there is "), seen) else "contradiction"


@pytest.mark.parametrize("split", SHARED)
def test_stories_follow_five_pictures_in_order(split):
    document = read(f"vist/{split}.story-in-sequence.json")
    albums = {row["id"]: row["album_id"] for row in document["images"]}
    assert all((small_world() / f"vist/images/{split}/{photo}.png").is_file() for photo in albums)
    assert min(Counter(albums.values()).values()) >= 5
    stories = defaultdict(list)
    for (row,) in document["annotations"]:
        stories[row["story_id"]].append(row)
        assert albums[row["photo_flickr_id"]] == row["album_id"]
    for rows in stories.values():
        assert [row["worker_arranged_photo_order"] for row in rows] == [0, 1, 2, 3, 4]
        photos = [int(row["photo_flickr_id"]) for row in rows]
        assert photos == sorted(set(photos))


def test_class_folders_hold_every_class_evenly():
    for folder, count in (("imagenet", len(SMALL.colours) * len(SMALL.kinds)), ("imagenet_relation", 4)):
        for split in ("train", "val"):
            sizes = [len(list(path.iterdir())) for path in (small_world() / folder / split).iterdir()]
            assert len(sizes) == count
            assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("size", [64, 112, 224])
def test_relation_pictures_say_nothing_without_places(size):
    """No 16-pixel patch shows both shapes, and offsets inside the patches do not tell left from right."""
    config, rng, phases = replace(SMALL, size=size), Random(0), defaultdict(Counter)
    patch = 16 * min(1, size / 112)
    for number in range(2000):
        label = RELATIONS[number % 4]
        scene = _related(rng, config, label)
        one, two = scene.shapes
        assert scene.stands(0, label, 1)
        assert scene.slope == (0, 0)
        gap = max(abs(one.x - two.x), abs(one.y - two.y)) - one.radius - two.radius
        assert gap >= patch - 4
        assert all(one.radius < place < size - one.radius for shape in scene.shapes for place in (shape.x, shape.y))
        if label in ("left", "right"):
            phases[int((one.x - two.x) % patch / patch * 8)][label] += 1
    best = sum(max(votes.values()) for votes in phases.values()) / 1000
    assert best < 0.6


def test_segmentation_masks_fit_the_pictures():
    lines = (small_world() / "ade20k/objectInfo150.txt").read_text().splitlines()
    assert lines[0].split("\t") == ["Idx", "Ratio", "Train", "Val", "Stuff", "Name"]
    assert [line.split("\t")[-1] for line in lines[1:]] == ["ground", *SMALL.kinds]
    for split, short in (("training", "train"), ("validation", "val")):
        pictures = sorted((small_world() / "ade20k/images" / split).iterdir())
        assert pictures[0].name == f"ADE_{short}_00000001.jpg"
        for path in pictures:
            mask = np.asarray(Image.open(small_world() / "ade20k/annotations" / split / f"{path.stem}.png"))
            assert mask.shape == Image.open(path).size == (SMALL.size, SMALL.size)
            assert {0, 1} < set(np.unique(mask)) <= set(range(len(lines)))
            assert (mask == 0).mean() < 0.2
