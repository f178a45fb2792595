"""Questions on a scene with their answers: what VQA and GQA are made of, and how questions are paired for balance."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain, combinations, permutations, product
from random import Random
from typing import NamedTuple

from vlcli.data.shapes.captions import PHRASES
from vlcli.data.shapes.config import ShapesConfig
from vlcli.data.shapes.world import MARGIN, RELATIONS, Noun, Picture, Scene

SHARES = {"yes/no": 0.4, "number": 0.2, "other": 0.4}
OPENINGS = ("what color is the", "what is the", "where is the", "how many", "is there a", "are there", "is the", "what")
# GQA's semantic and structural type by its detailed type
TYPES = {
    "existAttrC": ("obj", "verify"),
    "twoCount": ("obj", "compare"),
    "count": ("obj", "query"),
    "categoryThat": ("cat", "query"),
    "attr": ("attr", "query"),
    "verifyAttr": ("attr", "verify"),
    "categoryRel": ("rel", "query"),
    "relAttr": ("rel", "query"),
    "relVerify": ("rel", "verify"),
    "relChooser": ("rel", "choose"),
    "positionChoose": ("rel", "choose"),
    "positionVerify": ("rel", "verify"),
}
# Types of questions that are there only where a world names them: other worlds keep their questions
ONLY_ASKED = ("relChooser", "positionChoose", "positionVerify")
Program = tuple[tuple[str, str], ...]


class Question(NamedTuple):
    """One question on one scene.

    Attributes:
        detailed: GQA's detailed type, a key of ``TYPES``.
        full: GQA's full answer.
        program: GQA's semantic steps as (operation, argument).
        objects: indices of the shapes the question speaks of.
        settles: the yes/no question on the same picture that the answer settles, if there is one.
    """

    detailed: str
    text: str
    answer: str
    full: str
    program: Program
    objects: tuple[int, ...]
    settles: str = ""

    @property
    def answer_type(self) -> str:
        """VQA's: yes/no, number or other."""
        return "yes/no" if self.answer in ("yes", "no") else "number" if self.answer.isdigit() else "other"

    @property
    def question_type(self) -> str:
        return next(opening for opening in OPENINGS if self.text.lower().startswith(opening))


def questions(scene: Scene, config: ShapesConfig) -> Iterator[Question]:
    """Yield every question of this module that applies to a scene."""
    single = [index for index, shape in enumerate(scene.shapes) if scene.having(shape.noun) == [index]]
    every = (_exist(scene, config), _counts(scene, config), _colours_and_kinds(scene, config))
    of_single = (_relations(scene, single), _of_two(scene, single), *(_positions(scene, index) for index in single))
    for question in chain(*every, *of_single):
        if question.detailed not in ONLY_ASKED or question.detailed in config.question_types:
            yield question


def _yes(truth: bool) -> str:
    return "yes" if truth else "no"


def _exist(scene: Scene, config: ShapesConfig) -> Iterator[Question]:
    for noun in (Noun("", colour, kind) for colour, kind in product(config.colours, config.kinds)):
        shapes = scene.having(noun)
        full = f"Yes, there is {noun.a}." if shapes else f"No, there is no {noun.one}."
        program = (("select", noun.kind), ("filter color", noun.colour), ("exist", "?"))
        text = f"Is there {noun.a} in the picture?"
        yield Question("existAttrC", text, _yes(bool(shapes)), full, program, tuple(shapes))
    for one, two in combinations([Noun(kind=kind) for kind in config.kinds], 2):
        first, second = scene.having(one), scene.having(two)
        text, answer = f"Are there more {one.many} than {two.many}?", _yes(len(first) > len(second))
        full = f"{answer.capitalize()}, there are {len(first)} {one.many} and {len(second)} {two.many}."
        program = (("select", one.kind), ("select", two.kind), ("compare count", "more"))
        yield Question("twoCount", text, answer, full, program, (*first, *second))


def _counts(scene: Scene, config: ShapesConfig) -> Iterator[Question]:
    kinds, colours = [Noun(kind=kind) for kind in config.kinds], [Noun(colour=colour) for colour in config.colours]
    for noun in (Noun(), *kinds, *colours):
        shapes = scene.having(noun)
        program = (("select", noun.kind or "shape"), ("filter color", noun.colour), ("count", "?"))
        full = f"There {'is' if len(shapes) == 1 else 'are'} {noun.number(len(shapes))}."
        yield Question("count", f"How many {noun.many} are there?", str(len(shapes)), full, program, tuple(shapes))


def _colours_and_kinds(scene: Scene, config: ShapesConfig) -> Iterator[Question]:
    for index, (_, colour, kind) in enumerate(scene.looks):
        if scene.having(Noun(kind=kind)) == [index]:
            text, full, settles = f"What color is the {kind}?", f"The {kind} is {colour}.", f"Is the {kind} {colour}?"
            program: Program = (("select", kind), ("query", "color"))
            yield Question("attr", text, colour, full, program, (index,), settles)
            for other in config.colours:
                answer, program = _yes(other == colour), (("select", kind), ("verify color", other))
                full = f"{answer.capitalize()}, the {kind} is {colour}."
                yield Question("verifyAttr", f"Is the {kind} {other}?", answer, full, program, (index,))
        if scene.having(Noun(colour=colour)) == [index]:
            text, full = f"What is the {colour} shape?", f"The {colour} shape is a {kind}."
            settles = f"Is there {Noun('', colour, kind).a} in the picture?"
            program = (("select", "shape"), ("filter color", colour), ("query", "name"))
            yield Question("categoryThat", text, kind, full, program, (index,), settles)


# Only relations that hold or fail by the margin are asked.
def _relations(scene: Scene, single: list[int]) -> Iterator[Question]:
    everything = set(range(len(scene.shapes)))
    for anchor, word in product(single, RELATIONS):
        there = [index for index in everything if scene.stands(index, word, anchor)]
        others = everything - {anchor, *there}
        if len(there) == 1 and all(scene.clearly_not(index, word, anchor) for index in others):
            look, name = scene.shapes[there[0]].look, scene.shapes[anchor].noun.one
            where, steps = f"{PHRASES[word]} the {name}", (("select", name), ("relate", word))
            full = f"The {Noun('', look.colour, look.kind).one} is {where}."
            text, program = f"What shape is {where}?", (*steps, ("query", "name"))
            yield Question("categoryRel", text, look.kind, full, program, (there[0], anchor))
            text, program = f"What color is the shape {where}?", (*steps, ("query", "color"))
            yield Question("relAttr", text, look.colour, full, program, (there[0], anchor))


def _of_two(scene: Scene, single: list[int]) -> Iterator[Question]:
    for objects, axis in product(permutations(single, 2), (("left", "right"), ("above", "below"))):
        real = next((word for word in axis if scene.stands(objects[0], word, objects[1])), None)
        if real is None:
            continue
        one, two = (scene.shapes[index].noun.one for index in objects)
        word, back = axis
        fact, answer = f"the {one} is {PHRASES[real]} the {two}.", _yes(real == word)
        program = (("select", one), ("verify rel", f"{word},{two}"))
        text = f"Is the {one} {PHRASES[word]} the {two}?"
        yield Question("relVerify", text, answer, f"{answer.capitalize()}, {fact}", program, objects)
        program = (("select", one), ("choose rel", f"{word}|{back},{two}"))
        text = f"Is the {one} {word} or {PHRASES[back]} the {two}?"
        yield Question("relChooser", text, real, fact.replace("the", "The", 1), program, objects)


def _positions(scene: Scene, index: int) -> Iterator[Question]:
    shape = scene.shapes[index]
    name = shape.noun.one
    for low, high, share in (("left", "right", shape.x / scene.side), ("top", "bottom", shape.y / scene.side)):
        if abs(share - 0.5) < MARGIN:
            continue
        real = high if share > 0.5 else low
        text, full = f"Where is the {name}, at the {low} or at the {high}?", f"The {name} is at the {real}."
        program: Program = (("select", name), ("choose position", f"{low}|{high}"))
        yield Question("positionChoose", text, real, full, program, (index,))
        for half in (low, high):
            answer, program = _yes(half == real), (("select", name), ("verify position", half))
            full = f"{answer.capitalize()}, the {name} is at the {real}."
            yield Question("positionVerify", f"Is the {name} at the {half}?", answer, full, program, (index,))


class Asked(NamedTuple):
    """A question on the picture with that index of its split."""

    picture: int
    question: Question


Pair = tuple[Asked, Asked]
Answers = dict[str, list[Asked]]


def balanced(pictures: Sequence[Picture], rng: Random, config: ShapesConfig) -> list[Pair]:
    """Return complementary pairs: one question, two pictures, two answers (Goyal et al. 2017, section 3).

    Every pair has one yes and one no, or two numbers or words drawn evenly from those that occur, so a question's
    string does not tell its answer. No picture is asked the same question twice.
    """
    every: dict[str, Answers] = defaultdict(lambda: defaultdict(list))
    for index, picture in enumerate(pictures):
        for question in questions(picture.scene, config):
            every[question.text][question.answer].append(Asked(index, question))
    table = {text: every[text] for text in sorted(every) if len(every[text]) > 1}
    first = {text: next(iter(answers.values()))[0].question for text, answers in table.items()}
    pairs: list[Pair] = []
    total = max(1, len(pictures) * config.questions // 2)
    for groups, share in _shares(first, config):
        pairs += _draw_pairs(rng, table, groups, max(1, round(total * share)))
    return pairs


def _shares(first: dict[str, Question], config: ShapesConfig) -> Iterator[tuple[list[list[str]], float]]:
    if config.question_types:
        for name, count in Counter(config.question_types).items():
            texts = [text for text, question in first.items() if question.detailed == name]
            yield [texts], count / len(config.question_types)
        return
    for answer_type, share in SHARES.items():
        groups: dict[str, list[str]] = defaultdict(list)
        for text, question in first.items():
            if question.answer_type == answer_type:
                groups[question.detailed].append(text)
        yield list(groups.values()), share


def companions(pictures: Sequence[Picture], pairs: Sequence[Pair], config: ShapesConfig) -> list[tuple[Pair, Pair]]:
    """Return each pair whose answers settle a yes/no question on its two pictures, with that question's pair.

    "What color is the circle?" (red here, blue there) settles "Is the circle red?" (yes here, no there).
    """
    asked = {(one.picture, one.question.text) for pair in pairs for one in pair}
    settled = []
    for pair in pairs:
        text = pair[0].question.settles
        keys = [(one.picture, text) for one in pair]
        if text and not asked.intersection(keys):
            asked.update(keys)
            one, two = (
                Asked(index, next(one for one in questions(pictures[index].scene, config) if one.text == text))
                for index, _ in keys
            )
            settled.append((pair, (one, two)))
    return settled


def _draw_pairs(rng: Random, table: dict[str, Answers], groups: list[list[str]], wanted: int) -> list[Pair]:
    for text in chain.from_iterable(groups):
        for rows in table[text].values():
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
