"""Makes the pictures of NLVR2 statements for each cell, or picks them from a pool that all cells share."""

from collections.abc import Callable, Sequence
from functools import cache
from itertools import count
from random import Random

from vlcli.data.shapes.config import ShapesConfig
from vlcli.data.shapes.world import Look, Noun, Scene, compose, concrete, fill, random_looks


class Scenes:
    """Composes pictures that meet what a statement's builder asks for, each for the cell that asks."""

    def __init__(self, rng: Random, config: ShapesConfig) -> None:
        self.rng, self.config = rng, config

    def holding(self, nouns: Sequence[Noun], held: Sequence[int]) -> Scene:
        """Return a picture that holds a shape of some nouns and none of the others."""
        absent = [noun for noun, here in zip(nouns, held, strict=True) if not here]
        looks = [self._look(noun, absent, bool(here)) for noun, here in zip(nouns, held, strict=True)]
        return self._composed(looks, absent)

    def _look(self, noun: Noun, absent: list[Noun], held: bool) -> Look:
        """Return a look that a noun describes, or else one that differs from it in one attribute alone, if any does."""
        named = [name for name in Look._fields if getattr(noun, name)]
        for _ in count() if held else range(20):
            look = concrete(self.rng, self.config, noun if held else noun._replace(**{self.rng.choice(named): ""}))
            if not any(other.matches(look) for other in absent):
                return look
        return fill(self.rng, self.config, [], 1, absent)[0]

    def counting(self, noun: Noun, number: int) -> Scene:
        """Return a picture with exactly ``number`` shapes of a noun."""
        return self._composed([concrete(self.rng, self.config, noun) for _ in range(number)], [noun])

    def related(self, nouns: tuple[Noun, Noun], relation: str) -> Scene:
        """Return a picture with one shape of each noun, the first ``relation`` (of) the second."""
        looks = [concrete(self.rng, self.config, noun) for noun in nouns]
        return self._composed(looks, nouns, lambda scene: _ordered(scene, nouns, relation))

    def coloured(self, kind: str, colour: str, decoy: str, other: str) -> Scene:
        """Return a picture whose only shape of ``kind`` has ``colour``, beside a ``decoy`` of the colour ``other``."""
        looks = [concrete(self.rng, self.config, noun) for noun in (Noun("", colour, kind), Noun("", other, decoy))]
        return self._composed(looks, [Noun(kind=kind)])

    def _composed(
        self, looks: Sequence[Look], without: Sequence[Noun], accept: Callable[[Scene], bool] | None = None
    ) -> Scene:
        total = len(looks) if Noun() in without else self.rng.randint(*self.config.objects)
        return compose(self.rng, self.config, fill(self.rng, self.config, looks, total, without), accept)


class NoSuchSceneError(Exception):
    """The pool has no picture of the sort; the cell is drawn anew."""


class PooledScenes(Scenes):
    """Pictures picked from a pool of ``config.nlvr2_pool`` random ones, so that many statements need few pictures."""

    TRIES = 5
    """How often, on average, a picture of the pool is looked at before the cell is given up."""

    def __init__(self, rng: Random, config: ShapesConfig) -> None:
        super().__init__(rng, config)
        totals = (rng.randint(*config.objects) for _ in range(config.nlvr2_pool))
        self.pool = [compose(rng, config, random_looks(rng, config, total)) for total in totals]
        self._numbers = cache(lambda noun: {id(scene): len(scene.having(noun)) for scene in self.pool})

    def holding(self, nouns: Sequence[Noun], held: Sequence[int]) -> Scene:
        return self._picked(lambda scene: [bool(scene.having(noun)) for noun in nouns] == list(held))

    def counting(self, noun: Noun, number: int) -> Scene:
        numbers = self._numbers(noun)
        return self._picked(lambda scene: numbers[id(scene)] == number)

    def related(self, nouns: tuple[Noun, Noun], relation: str) -> Scene:
        return self._picked(
            lambda scene: all(len(scene.having(noun)) == 1 for noun in nouns) and _ordered(scene, nouns, relation)
        )

    def coloured(self, kind: str, colour: str, decoy: str, other: str) -> Scene:
        def fits(scene: Scene) -> bool:
            colours = [scene.shapes[index].look.colour for index in scene.having(Noun(kind=kind))]
            return colours == [colour] and bool(scene.having(Noun("", other, decoy)))

        return self._picked(fits)

    def _picked(self, fits: Callable[[Scene], bool]) -> Scene:
        for _ in range(self.TRIES * len(self.pool)):
            scene = self.rng.choice(self.pool)
            if fits(scene):
                return scene
        raise NoSuchSceneError


def _ordered(scene: Scene, nouns: tuple[Noun, Noun], relation: str) -> bool:
    return scene.stands(scene.having(nouns[0])[0], relation, scene.having(nouns[1])[0])
