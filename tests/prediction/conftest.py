"""Photographs, a store that a small backbone made of them, and models that read it: random weights, real extraction."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from small_run import NLVR2_OBJECTIVES, SENTENCES, context, make_bundle

from vlcli.builders.extractions import extractions_of
from vlcli.recipe import stage_record
from vlcli.recipe.stage_record import StageRecord
from vlcli.stages import extract

TINY = {"name": "backbone", "arch": "tiny-conv", "boxes": "grid", "grid": [2, 3]}
WIDTH = 128
ANSWERS = ("red", "green", "two", "yes")


@dataclass(frozen=True)
class Studio:
    """A run folder with a store and a model of it.

    Attributes:
        photos: the folder of pictures.
        run: the run folder: ``regions``, ``nlvr2``, ``vqa``.
    """

    photos: Path
    run: Path

    def photo(self, number: int) -> str:
        """A picture's file."""
        return str(self.photos / f"photo{number}.png")


@pytest.fixture(scope="package")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Studio:
    """Six pictures of two sizes, extracted by a stage, and bundles that know the extraction."""
    base = tmp_path_factory.mktemp("studio")
    made = Studio(base / "photos", base / "runs" / "small")
    made.photos.mkdir()
    rng = np.random.default_rng(1)
    for number in range(6):
        high, wide = (48, 64) if number % 2 else (56, 40)
        rough = rng.integers(0, 255, (6, 8, 3), np.uint8)
        Image.fromarray(rough).resize((wide, high), Image.Resampling.BICUBIC).save(made.photo(number))
    extracted(made)
    extraction = [
        one.beside_bundle(made.run / "nlvr2/model").as_dict() for one in extractions_of([made.run / "regions"])
    ]
    sizes = {"region_dim": WIDTH, "regions": 6}
    make_bundle(made.run / "nlvr2", {"name": "nlvr2"}, NLVR2_OBJECTIVES, extraction, **sizes)
    make_bundle(made.run / "vqa", {"name": "vqa"}, [{"name": "answering"}], extraction, answers=ANSWERS, **sizes)
    heads = [{"name": "image-qa"}, {"name": "matching"}]
    make_bundle(made.run / "pretrain", None, heads, extraction, answers=ANSWERS, **sizes)
    return made


def extracted(made: Studio) -> None:
    """The extract stage, with its record."""
    folder = made.run / "regions"
    there = context(folder, made.photos, {}, kind="extract", extractor=TINY, images=".", dtype="float16", workers=0)
    result = extract.run(there)
    config = {"extractor": TINY, "from": []}
    record = StageRecord("regions", "extract", "done", "k", config=config, root=str(made.photos), files=result.files)
    stage_record.write(folder, record)


QUESTIONS = SENTENCES
