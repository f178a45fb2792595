"""Questions on a scene with their answers: what VQA and GQA are made of, and how questions are paired for balance."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from random import Random
from typing import NamedTuple

from vlcli.data.shapes.captions import PHRASES
from vlcli.data.shapes.config import ShapesConfig
from vlcli.data.shapes.world import RELATIONS, Noun, Picture, Scene

SHARES = {"yes/no": 0.4, "number": 0.2, "other": 0.4}


class Question(NamedTuple):
    """One question on one scene.

    Attributes:
        text: the question.
        answer: its one answer.
        answer_type: VQA's: yes/no, number or other.
        question_type: VQA's: the opening words.
        full: GQA's full answer.
        types: GQA's (detailed, semantic, structural).
        program: GQA's semantic steps as (operation, argument).
        objects: indices of the shapes the question speaks of.
        entails: texts of questions on the same picture that the answer settles, with their answers.
    """

    text: str
    answer: str
    answer_type: str
    question_type: str
    full: str
    types: tuple[str, str, str]
    program: tuple[tuple[str, str], ...]
    objects: tuple[int, ...]
    entails: tuple[tuple[str, str], ...] = ()


def questions(scene: Scene, config: ShapesConfig) -> Iterator[Question]:
    """Every question of this module that applies to a scene."""
    yield from _exist(scene, config)
    yield from _counts(scene, config)
    yield from _colours_and_kinds(scene, config)
    yield from _relations(scene)


def _yes(truth: bool) -> str:
    return "yes" if truth else "no"


def _exist(scene: Scene, config: ShapesConfig) -> Iterator[Question]:
    nouns = [Noun("", colour, kind) for colour in config.colours for kind in config.kinds]
    for noun in nouns:
        found = scene.having(noun)
        full = f"Yes, there is {noun.a}." if found else f"No, there is no {noun.one}."
        program = (("select", noun.kind), ("filter color", noun.colour), ("exist", "?"))
        types = ("existAttrC", "obj", "verify")
        text = f"Is there {noun.a} in the picture?"
        yield Question(text, _yes(bool(found)), "yes/no", "is there a", full, types, program, tuple(found))
    for index, one in enumerate(config.kinds):
        for two in config.kinds[index + 1 :]:
            yield _more_than(scene, Noun(kind=one), Noun(kind=two))


def _more_than(scene: Scene, one: Noun, two: Noun) -> Question:
    first, second = scene.having(one), scene.having(two)
    text = f"Are there more {one.many} than {two.many}?"
    answer = _yes(len(first) > len(second))
    full = f"{answer.capitalize()}, there are {len(first)} {one.many} and {len(second)} {two.many}."
    program = (("select", one.kind), ("select", two.kind), ("compare count", "more"))
    return Question(
        text, answer, "yes/no", "are there", full, ("twoCount", "obj", "compare"), program, (*first, *second)
    )


def _counts(scene: Scene, config: ShapesConfig) -> Iterator[Question]:
    nouns = [Noun(), *(Noun(kind=kind) for kind in config.kinds), *(Noun(colour=colour) for colour in config.colours)]
    for noun in nouns:
        found = scene.having(noun)
        program = (("select", noun.kind or "shape"), ("filter color", noun.colour), ("count", "?"))
        full = f"There {'is' if len(found) == 1 else 'are'} {noun.number(len(found))}."
        text = f"How many {noun.many} are there?"
        yield Question(
            text, str(len(found)), "number", "how many", full, ("count", "obj", "query"), program, tuple(found)
        )


def _colours_and_kinds(scene: Scene, config: ShapesConfig) -> Iterator[Question]:
    for kind in config.kinds:
        found = scene.having(Noun(kind=kind))
        if len(found) == 1:
            colour = scene.shapes[found[0]].look.colour
            yield from _colour(kind, colour, config, found[0])
    for colour in config.colours:
        found = scene.having(Noun(colour=colour))
        if len(found) == 1:
            kind = scene.shapes[found[0]].look.kind
            program = (("select", "shape"), ("filter color", colour), ("query", "name"))
            text, full = f"What is the {colour} shape?", f"The {colour} shape is a {kind}."
            entails = ((f"Is there {Noun('', colour, kind).a} in the picture?", "yes"),)
            types = ("categoryThat", "cat", "query")
            yield Question(text, kind, "other", "what is the", full, types, program, (found[0],), entails)


def _colour(kind: str, colour: str, config: ShapesConfig, index: int) -> Iterator[Question]:
    program = (("select", kind), ("query", "color"))
    full = f"The {kind} is {colour}."
    entails = (
        (f"Is the {kind} {colour}?", "yes"),
        (f"Is there {Noun('', colour, kind).a} in the picture?", "yes"),
    )
    text, types = f"What color is the {kind}?", ("attr", "attr", "query")
    yield Question(text, colour, "other", "what color is the", full, types, program, (index,), entails)
    for other in config.colours:
        answer = _yes(other == colour)
        verify = (("select", kind), ("verify color", other))
        reply = f"{answer.capitalize()}, the {kind} is {colour}."
        types = ("verifyAttr", "attr", "verify")
        yield Question(f"Is the {kind} {other}?", answer, "yes/no", "is the", reply, types, verify, (index,))


def _relations(scene: Scene) -> Iterator[Question]:
    """What stands where: only relations that hold or fail by the margin are asked."""
    single = [index for index, shape in enumerate(scene.shapes) if len(scene.having(shape.noun)) == 1]
    for anchor in single:
        noun = scene.shapes[anchor].noun
        for word in RELATIONS:
            there = [index for index in range(len(scene.shapes)) if scene.stands(index, word, anchor)]
            unclear = [
                i for i in range(len(scene.shapes)) if i not in (*there, anchor) and _ahead(scene, i, word, anchor)
            ]
            if len(there) == 1 and not unclear:
                yield from _beside(scene, noun, word, there[0], anchor)
        for other in single:
            if other != anchor:
                yield from _is_beside(scene, other, anchor)


def _ahead(scene: Scene, index: int, word: str, anchor: int) -> bool:
    one, two = scene.shapes[index], scene.shapes[anchor]
    return {"left": one.x < two.x, "right": one.x > two.x, "above": one.y < two.y, "below": one.y > two.y}[word]


def _beside(scene: Scene, noun: Noun, word: str, index: int, anchor: int) -> Iterator[Question]:
    look, where = scene.shapes[index].look, f"{PHRASES[word]} the {noun.one}"
    full = f"The {Noun('', look.colour, look.kind).one} is {where}."
    program = (("select", noun.one), ("relate", word), ("query", "name"))
    types = ("categoryRel", "rel", "query")
    yield Question(f"What shape is {where}?", look.kind, "other", "what", full, types, program, (index, anchor))
    program = (*program[:2], ("query", "color"))
    text = f"What color is the shape {where}?"
    types = ("relAttr", "rel", "query")
    yield Question(text, look.colour, "other", "what color is the", full, types, program, (index, anchor))


def _is_beside(scene: Scene, first: int, second: int) -> Iterator[Question]:
    one, two = scene.shapes[first].noun, scene.shapes[second].noun
    for word, back in (("left", "right"), ("above", "below")):
        holds = scene.stands(first, word, second)
        if holds or scene.stands(first, back, second):
            text = f"Is the {one.one} {PHRASES[word]} the {two.one}?"
            real = PHRASES[word if holds else back]
            full = f"{_yes(holds).capitalize()}, the {one.one} is {real} the {two.one}."
            program = (("select", one.one), ("verify rel", f"{word},{two.one}"))
            types = ("relVerify", "rel", "verify")
            yield Question(text, _yes(holds), "yes/no", "is the", full, types, program, (first, second))


class Asked(NamedTuple):
    """A question on the picture with that index of its split."""

    picture: int
    question: Question


def balanced(pictures: Sequence[Picture], rng: Random, config: ShapesConfig) -> list[tuple[Asked, Asked]]:
    """Complementary pairs: one question, two pictures, two answers (Goyal et al. 2017, section 3).

    Every pair has one yes and one no, or two numbers or words drawn evenly from those that occur, so a question's
    string does not tell its answer. No picture is asked the same question twice.
    """
    table = _answers(pictures, config)
    pairs: list[tuple[Asked, Asked]] = []
    total = max(1, len(pictures) * config.questions // 2)
    for answer_type, share in SHARES.items():
        texts = sorted(text for text, kinds in table.items() if _type_of(kinds) == answer_type)
        pairs += _draw_pairs(rng, {text: table[text] for text in texts}, max(1, round(total * share)))
    return pairs


Answers = dict[str, list[Asked]]


def _type_of(answers: Answers) -> str:
    return next(iter(answers.values()))[0].question.answer_type


def _answers(pictures: Sequence[Picture], config: ShapesConfig) -> dict[str, Answers]:
    table: dict[str, Answers] = defaultdict(lambda: defaultdict(list))
    for index, picture in enumerate(pictures):
        for question in questions(picture.scene, config):
            table[question.text][question.answer].append(Asked(index, question))
    return {text: dict(answers) for text, answers in table.items() if len(answers) > 1}


def _draw_pairs(rng: Random, table: dict[str, Answers], wanted: int) -> list[tuple[Asked, Asked]]:
    """Take pairs from the questions in turn until there are enough or nothing is left to pair."""
    for answers in table.values():
        for rows in answers.values():
            rng.shuffle(rows)
    pairs: list[tuple[Asked, Asked]] = []
    texts = list(table)
    while texts and len(pairs) < wanted:
        rng.shuffle(texts)
        for text in texts[: wanted - len(pairs)]:
            one, two = rng.sample(sorted(answer for answer, rows in table[text].items() if rows), 2)
            pairs.append((table[text][one].pop(), table[text][two].pop()))
        texts = [text for text in texts if sum(map(bool, table[text].values())) > 1]
    return pairs
