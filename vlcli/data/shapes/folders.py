"""Sets that are folders of pictures: ImageNet-style classification (what it is, where it is) and ADE20K-style masks."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

from vlcli.data.shapes import world
from vlcli.data.shapes.coco import write_text
from vlcli.data.shapes.config import ShapesConfig
from vlcli.data.shapes.render import Job, draw_all
from vlcli.progress import Progress

PATCH = 16  # pixels: the patch of a vision transformer at 112 pixels and above
STEPS = {"left": (-1, 0), "right": (1, 0), "above": (0, -1), "below": (0, 1)}

Drawn = Callable[[Random, ShapesConfig, str], world.Scene]
"""Composes a picture of a class."""


def write_imagenet(root: Path, config: ShapesConfig, progress: Progress, workers: int) -> dict[str, int]:
    """Write folders ``{train,val}/<class>/`` of pictures: of one big shape, of two shapes, and of boards of shapes."""
    classes = [f"{colour}_{kind}" for colour in config.colours for kind in config.kinds]
    cells = [f"{x + 1}-{y + 1}" for y in range(config.placed) for x in range(config.placed)]
    sets: dict[str, tuple[Sequence[str], Drawn]] = {
        "imagenet": (classes, _big),
        "imagenet_relation": (world.RELATIONS, _related),
        **({"imagenet_marked": (_colours(config)[1:], _marked)} if config.marked else {}),
        **({"imagenet_placed": (cells, _placed)} if config.placed else {}),
    }
    jobs = []
    for folder, (names, drawn) in sets.items():
        for split, share in (("train", 0.8), ("val", 0.2)):
            rng = world.stream(config, folder, split)
            for number in range(max(len(names), round(config.imagenet * share))):
                name = names[number % len(names)]
                path = root / folder / split / name / f"{name}_{number:06d}.png"
                jobs.append(Job(drawn(rng, config, name), path))
    return {"imagenet pictures": sum(1 for _ in draw_all(jobs, progress, "imagenet", workers))}


def _big(rng: Random, config: ShapesConfig, name: str) -> world.Scene:
    colour, kind = name.split("_")
    scene = world.compose(rng, config, [world.Look("large", colour, kind)])
    radius = round(config.size * rng.uniform(0.14, 0.32))
    x, y = (rng.randint(radius + 2, config.size - radius - 3) for _ in range(2))
    return replace(scene, shapes=(replace(scene.shapes[0], x=x, y=y, radius=radius),))


# A first-kind shape beside a second-kind shape; the relation is where the first stands. A model blind to places stays
# at chance: at least PATCH pixels lie between the shapes, so that no patch shows both; their distance spreads evenly
# over PATCH pixels, so that where they fall inside their patches says nothing; the ground has no slope. The middle
# between them is drawn from one square whatever the relation.
def _related(rng: Random, config: ShapesConfig, relation: str) -> world.Scene:
    side, scale = config.size, min(1.0, config.size / 112)
    nouns = [world.Noun("small", colour, kind) for colour, kind in zip(config.related, config.kinds, strict=False)]
    scene = world.compose(rng, config, [world.concrete(rng, config, noun) for noun in nouns])
    radius = round(0.5 * PATCH * scale)
    angle = math.atan2(*STEPS[relation][::-1]) + rng.uniform(-0.35, 0.35)
    distance = scale * PATCH * rng.uniform(2.1, 3.1)
    across, down = round(distance * math.cos(angle)), round(distance * math.sin(angle))
    edge = math.ceil(1.55 * PATCH * scale) + radius + 3
    x, y = (rng.randint(edge, side - 1 - edge) for _ in range(2))
    x, y = x - across // 2, y - down // 2
    first, second = scene.shapes
    shapes = (replace(first, x=x + across, y=y + down, radius=radius), replace(second, x=x, y=y, radius=radius))
    return replace(scene, shapes=shapes, slope=(0, 0))


# A board full of squares with one circle in a colour that no square has; a square of ``colour`` is right of it. The
# other squares have random colours, so that a board as a whole tells little about the class.
def _marked(rng: Random, config: ShapesConfig, colour: str) -> world.Scene:
    side, (marker, *others) = config.marked, _colours(config)
    cells = {(x, y): (rng.choice(others), "square") for x in range(side) for y in range(side)}
    x, y = rng.randrange(side - 1), rng.randrange(side)
    cells[(x, y)] = (marker, "circle")
    cells[(x + 1, y)] = (colour, "square")
    return world.board(rng, config, side, cells)


def _placed(rng: Random, config: ShapesConfig, cell: str) -> world.Scene:
    x, y = (int(number) - 1 for number in cell.split("-"))
    return world.board(rng, config, config.placed, {(x, y): (config.colours[0], "square")})


# All colours, the marking circle's first.
def _colours(config: ShapesConfig) -> list[str]:
    return sorted(config.colours, key=lambda colour: colour != (config.related[0] or config.colours[0]))


def write_ade20k(root: Path, config: ShapesConfig, progress: Progress, workers: int) -> dict[str, int]:
    """Write ade20k/images and annotations (0 unlabelled, 1 ground, then the kinds) with objectInfo150.txt."""
    jobs, scenes = [], []
    for split, short, share in (("training", "train", 0.8), ("validation", "val", 0.2)):
        rng = world.stream(config, "ade20k", split)
        for number in range(1, max(1, round(config.ade20k * share)) + 1):
            scene = world.compose(rng, config, world.random_looks(rng, config, rng.randint(*config.objects)))
            name = f"ADE_{short}_{number:08d}"
            classes = tuple(config.kinds.index(shape.look.kind) + 2 for shape in scene.shapes)
            mask = root / "ade20k/annotations" / split / f"{name}.png"
            jobs.append(Job(scene, root / "ade20k/images" / split / f"{name}.jpg", mask, classes))
            scenes.append(f"{name} shapes\n")
    kinds = dict.fromkeys(config.kinds, 0.0)
    for job, drawn in zip(jobs, draw_all(jobs, progress, "ade20k", workers), strict=True):
        for shape, piece in zip(job.scene.shapes, drawn, strict=True):
            kinds[shape.look.kind] += piece.area / (len(jobs) * config.size**2)
    train = sum(job.path.parent.name == "training" for job in jobs)
    rows = [("ground", 1 - sum(kinds.values()), 1), *((kind, ratio, 0) for kind, ratio in kinds.items())]
    lines = "".join(
        f"{number}\t{ratio:.4f}\t{train}\t{len(jobs) - train}\t{stuff}\t{name}\n"
        for number, (name, ratio, stuff) in enumerate(rows, 1)
    )
    write_text(root / "ade20k/objectInfo150.txt", f"Idx\tRatio\tTrain\tVal\tStuff\tName\n{lines}")
    write_text(root / "ade20k/sceneCategories.txt", "".join(scenes))
    return {"ade20k pictures": len(jobs)}
