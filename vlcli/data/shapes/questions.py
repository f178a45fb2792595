"""Questions on a scene with their answers: what VQA and GQA are made of, and how questions are paired for balance."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from random import Random
from typing import NamedTuple

from vlcli.data.shapes.captions import PHRASES
from vlcli.data.shapes.config import ShapesConfig
from vlcli.data.shapes.world import MARGIN, RELATIONS, Noun, Picture, Scene

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
        settles: the yes/no question on the same picture that the answer settles, if there is one.
    """

    text: str
    answer: str
    answer_type: str
    question_type: str
    full: str
    types: tuple[str, str, str]
    program: tuple[tuple[str, str], ...]
    objects: tuple[int, ...]
    settles: str = ""


def questions(scene: Scene, config: ShapesConfig) -> Iterator[Question]:
    """Every question of this module that applies to a scene."""
    yield from _exist(scene, config)
    yield from _counts(scene, config)
    yield from _colours_and_kinds(scene, config)
    yield from _relations(scene)
    if "relChooser" in config.question_types:  # only where asked for: other worlds keep their questions
        yield from _chosen(scene)
    if {"positionChoose", "positionVerify"} & set(config.question_types):
        yield from _positions(scene)


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
    nouns = [
        Noun(),
        *(Noun(kind=kind) for kind in config.kinds),
        *(Noun(colour=colour) for colour in config.colours),
    ]
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
            settles = f"Is there {Noun('', colour, kind).a} in the picture?"
            types = ("categoryThat", "cat", "query")
            yield Question(text, kind, "other", "what is the", full, types, program, (found[0],), settles)


def _colour(kind: str, colour: str, config: ShapesConfig, index: int) -> Iterator[Question]:
    program = (("select", kind), ("query", "color"))
    full = f"The {kind} is {colour}."
    text, types = f"What color is the {kind}?", ("attr", "attr", "query")
    yield Question(
        text, colour, "other", "what color is the", full, types, program, (index,), f"Is the {kind} {colour}?"
    )
    for other in config.colours:
        answer = _yes(other == colour)
        verify = (("select", kind), ("verify color", other))
        reply = f"{answer.capitalize()}, the {kind} is {colour}."
        types = ("verifyAttr", "attr", "verify")
        yield Question(f"Is the {kind} {other}?", answer, "yes/no", "is the", reply, types, verify, (index,))


def _relations(scene: Scene) -> Iterator[Question]:
    single = [index for index, shape in enumerate(scene.shapes) if len(scene.having(shape.noun)) == 1]
    for anchor in single:
        noun = scene.shapes[anchor].noun
        for word in RELATIONS:
            there = [index for index in range(len(scene.shapes)) if scene.stands(index, word, anchor)]
            others = set(range(len(scene.shapes))) - {anchor, *there}
            if len(there) == 1 and all(scene.clearly_not(index, word, anchor) for index in others):
                yield from _beside(scene, noun, word, there[0], anchor)
        for other in single:
            if other != anchor:
                yield from _is_beside(scene, other, anchor)


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


def _chosen(scene: Scene) -> Iterator[Question]:
    single = [index for index, shape in enumerate(scene.shapes) if len(scene.having(shape.noun)) == 1]
    for first, second in ((one, two) for one in single for two in single if one != two):
        one, two = scene.shapes[first].noun, scene.shapes[second].noun
        for word, back in (("left", "right"), ("above", "below")):
            for real in (word, back):
                if scene.stands(first, real, second):
                    text = f"Is the {one.one} {word} or {PHRASES[back]} the {two.one}?"
                    full = f"The {one.one} is {PHRASES[real]} the {two.one}."
                    program = (("select", one.one), ("choose rel", f"{word}|{back},{two.one}"))
                    types = ("relChooser", "rel", "choose")
                    yield Question(text, real, "other", "is the", full, types, program, (first, second))


def _positions(scene: Scene) -> Iterator[Question]:
    for index, shape in enumerate(scene.shapes):
        if len(scene.having(shape.noun)) == 1:
            for low, high, share in (("left", "right", shape.x / scene.side), ("top", "bottom", shape.y / scene.side)):
                if abs(share - 0.5) >= MARGIN:
                    yield from _half(shape.noun.one, index, (low, high), share > 0.5)


def _half(name: str, index: int, halves: tuple[str, str], second: bool) -> Iterator[Question]:
    real = halves[second]
    full = f"The {name} is at the {real}."
    program = (("select", name), ("choose position", "|".join(halves)))
    types = ("positionChoose", "rel", "choose")
    text = f"Where is the {name}, at the {halves[0]} or at the {halves[1]}?"
    yield Question(text, real, "other", "where is the", full, types, program, (index,))
    for half in halves:
        answer = _yes(half == real)
        program, types = (("select", name), ("verify position", half)), ("positionVerify", "rel", "verify")
        reply = f"{answer.capitalize()}, the {name} is at the {real}."
        yield Question(f"Is the {name} at the {half}?", answer, "yes/no", "is the", reply, types, program, (index,))


class Asked(NamedTuple):
    """A question on the picture with that index of its split."""

    picture: int
    question: Question


Pair = tuple[Asked, Asked]
Answers = dict[str, list[Asked]]


def balanced(pictures: Sequence[Picture], rng: Random, config: ShapesConfig) -> list[Pair]:
    """Complementary pairs: one question, two pictures, two answers (Goyal et al. 2017, section 3).

    Every pair has one yes and one no, or two numbers or words drawn evenly from those that occur, so a question's
    string does not tell its answer. No picture is asked the same question twice.
    """
    table = _answers(pictures, config)
    sort = {text: next(iter(answers.values()))[0].question for text, answers in table.items()}
    pairs: list[Pair] = []
    total = max(1, len(pictures) * config.questions // 2)
    for groups, share in _shares(sort, config):
        pairs += _draw_pairs(rng, table, groups, max(1, round(total * share)))
    return pairs


def _shares(sort: dict[str, Question], config: ShapesConfig) -> Iterator[tuple[list[list[str]], float]]:
    if config.question_types:
        for name, count in Counter(config.question_types).items():
            texts = sorted(text for text, question in sort.items() if question.types[0] == name)
            yield [texts], count / len(config.question_types)
        return
    for answer_type, share in SHARES.items():
        groups: dict[str, list[str]] = defaultdict(list)
        for text, question in sorted(sort.items()):
            if question.answer_type == answer_type:
                groups[question.types[0]].append(text)
        yield list(groups.values()), share


def companions(pictures: Sequence[Picture], pairs: Sequence[Pair], config: ShapesConfig) -> list[tuple[Pair, Pair]]:
    """Each pair whose answers settle a yes/no question on its two pictures, with that question's pair.

    "What color is the circle?" (red here, blue there) settles "Is the circle red?" (yes here, no there).
    """
    asked = {(one.picture, one.question.text) for pair in pairs for one in pair}
    found = []
    for pair in pairs:
        text = pair[0].question.settles
        keys = [(one.picture, text) for one in pair]
        if text and not asked.intersection(keys):
            asked.update(keys)
            one, two = (_question(pictures[index].scene, config, wanted, index) for index, wanted in keys)
            found.append((pair, (one, two)))
    return found


def _question(scene: Scene, config: ShapesConfig, text: str, index: int) -> Asked:
    return Asked(index, next(question for question in questions(scene, config) if question.text == text))


def _answers(pictures: Sequence[Picture], config: ShapesConfig) -> dict[str, Answers]:
    table: dict[str, Answers] = defaultdict(lambda: defaultdict(list))
    for index, picture in enumerate(pictures):
        for question in questions(picture.scene, config):
            table[question.text][question.answer].append(Asked(index, question))
    return {text: dict(answers) for text, answers in table.items() if len(answers) > 1}


def _draw_pairs(rng: Random, table: dict[str, Answers], groups: list[list[str]], wanted: int) -> list[Pair]:
    for rows in (rows for texts in groups for text in texts for rows in table[text].values()):
        rng.shuffle(rows)
    pairs: list[Pair] = []
    while any(groups) and len(pairs) < wanted:
        for texts in [texts for texts in groups if texts][: wanted - len(pairs)]:
            text = rng.choice(texts)
            one, two = rng.sample(sorted(answer for answer, rows in table[text].items() if rows), 2)
            pairs.append((table[text][one].pop(), table[text][two].pop()))
            if sum(map(bool, table[text].values())) < 2:
                texts.remove(text)
    return pairs
