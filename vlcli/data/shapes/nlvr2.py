"""NLVR2: JSON lines, pictures named as NLVR2 names them, and COCO instances of those pictures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

from vlcli.data.shapes.coco import instances
from vlcli.data.shapes.config import ShapesConfig
from vlcli.data.shapes.render import draw_pictures
from vlcli.data.shapes.scenes import NoSuchSceneError, PooledScenes
from vlcli.data.shapes.statements import StatementCell, cell
from vlcli.data.shapes.store import write_json, write_lines
from vlcli.data.shapes.world import Picture, Scene, stream
from vlcli.errors import DataError
from vlcli.progress import Progress


def write_nlvr2(root: Path, config: ShapesConfig, progress: Progress, workers: int) -> dict[str, int]:
    """Write nlvr2/{train,dev,test1}.json, instances_*.json and images/."""
    wanted = {"train": config.nlvr2_train, "dev": config.nlvr2_dev, "test1": config.nlvr2_test}
    counts = {"nlvr2 pictures": 0, "nlvr2 statements": 0}
    annotation = 1
    for split, examples in wanted.items():
        rng, first = stream(config, "nlvr2", split), counts["nlvr2 pictures"] + 1
        pool = PooledScenes(rng, config) if split == "train" and config.nlvr2_pool else None
        cells = [(kind, _cell(kind, rng, config, pool)) for kind in _kinds(config, split, -(-examples // 4))]
        pictures = list(_pictures(split, cells, first) if pool is None else _pool(split, pool.pool, first))
        names = {id(picture.scene): picture.file for picture in pictures}
        rows = [row for number, (kind, one) in enumerate(cells) for row in _rows(split, number, kind, one, names)]
        draw_pictures(root / "nlvr2/images", pictures, progress, f"nlvr2 {split}", workers)
        write_lines(root / f"nlvr2/{split}.json", rows)
        write_json(root / f"nlvr2/instances_{split}.json", instances(config, pictures, annotation))
        annotation += sum(len(picture.drawn) for picture in pictures)
        counts["nlvr2 pictures"] += len(pictures)
        counts["nlvr2 statements"] += len(rows)
    return counts


def _kinds(config: ShapesConfig, split: str, count: int) -> list[str]:
    kinds = config.statements if split == "train" else tuple(dict.fromkeys(config.statements))
    return [kinds[number % len(kinds)] for number in range(count)]


def _cell(kind: str, rng: Random, config: ShapesConfig, pool: PooledScenes | None) -> StatementCell:
    for _ in range(100):
        with suppress(NoSuchSceneError):
            return cell(kind, rng, config, pool)
    raise DataError(
        "the pool of pictures is too small for these statements",
        where="shapes.nlvr2_pool",
        got=f"{config.nlvr2_pool} pictures, statements: {kind}",
        hint="raise nlvr2_pool, or set it to 0: each cell then has four pictures of its own",
    )


def _stem(split: str, number: int, pair: int) -> str:
    folder = f"train/{number % 100}" if split == "train" else split
    return f"{folder}/{split}-{number}-{pair}"


def _rows(
    split: str, number: int, kind: str, statements: StatementCell, names: dict[int, str]
) -> Iterator[dict[str, object]]:
    for pair, scenes in enumerate(statements.pairs):
        files = [names[id(scene)] for scene in scenes]
        for index, text in enumerate(statements.texts):
            label = str(pair == index)
            row: dict[str, object] = {
                "validation": {"0": label},
                "sentence": text,
                "left_url": f"images/{files[0]}",
                "writer": "0",
                "label": label,
                "right_url": f"images/{files[1]}",
                "synset": "shape",
                "query": f"shapes{number}",
                "identifier": f"{split}-{number}-{pair}-{index}",
                "kind": kind,
            }
            if files[0] != f"{_stem(split, number, pair)}-img0.png":  # the identifier does not name a pool's pictures
                row |= {f"img{side}": Path(file).stem for side, file in enumerate(files)}
            row |= {"directory": number % 100} if split == "train" else {"extra_validations": {"1": label}}
            yield row


def _pictures(split: str, cells: list[tuple[str, StatementCell]], first: int) -> Iterator[Picture]:
    for number, (_, one) in enumerate(cells):
        for pair, scenes in enumerate(one.pairs):
            for side, scene in enumerate(scenes):
                yield Picture(first, f"{_stem(split, number, pair)}-img{side}.png", scene)
                first += 1


def _pool(split: str, scenes: list[Scene], first: int) -> Iterator[Picture]:
    for number, scene in enumerate(scenes, first):
        yield Picture(number, f"{split}/pool/{split}-pool-{number}.png", scene)
