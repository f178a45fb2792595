"""Visual storytelling: one story for five pictures, scored by album."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from vlcli.data.concepts import OfAlbum
from vlcli.data.readers.vist import ALBUM, NAMED, PHOTOS
from vlcli.files import write_json
from vlcli.metrics.captions.tokens import tokenize
from vlcli.nn import Batch
from vlcli.tasks.captioning import Writing
from vlcli.tasks.outputs import target


@dataclass(kw_only=True, eq=False)
class Storytelling(Writing):
    """Tell a story of five pictures: caption metrics by album, and a file for the challenge.

    An album's first story is scored against all stories that people wrote on it (AREL's evaluation). ``in_order`` is
    the share of sentences that name what their own picture shows, ``in_order/stories`` that of stories where all do.

    Args:
        max_length: most word pieces of a story, the end counted.
        story_per: a story for each ``album``, or for each ``sequence`` of pictures, as the challenge wants.
        team: the name in the challenge's file.
    """

    usual_data = "vist"
    paper = "Huang et al. 2016, Visual Storytelling; Wang et al. 2018 (AREL); Liu et al. 2021 (DiMBERT), section 4.2"

    max_length: int = 120
    story_per: Literal["album", "sequence"] = "album"
    team: str = ""

    def arrange(self, readers: list[Any]) -> list[Any]:
        first = self.story_per == "album"
        return [reader if isinstance(reader, OfAlbum) else OfAlbum(reader, ALBUM, first=first) for reader in readers]

    def arrange_training(self, readers: list[Any]) -> list[Any]:
        return [reader if isinstance(reader, OfAlbum) else OfAlbum(reader, ALBUM, first=False) for reader in readers]

    def judge(self, predictions: list[dict[str, Any]], batch: Batch) -> list[dict[str, Any]]:
        # adds the album, the photographs and the sentences
        rows = super().judge(predictions, batch)
        columns = zip(*(target(batch, name) for name in (ALBUM, PHOTOS, NAMED)), strict=True)
        for row, (album, photos, named) in zip(rows, columns, strict=True):
            row.pop("image_id")
            row.update({ALBUM: album, PHOTOS: photos, "sentences": sentences(row["prediction"])})
            if named is not None:
                row["in_order"] = in_order(row["sentences"], named)
        return rows

    def scored(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        first: dict[str, dict[str, Any]] = {}  # story of each album
        for row in super().scored(rows):
            first.setdefault(str(row[ALBUM]), row)
        return list(first.values())

    def score(self, predictions: list[dict[str, Any]]) -> dict[str, float]:
        metrics = super().score(predictions)
        if not predictions:
            return metrics
        metrics["sentences"] = fmean(len(row["sentences"]) for row in predictions)
        metrics["five_sentences"] = fmean(len(row["sentences"]) == len(row[PHOTOS] or ()) for row in predictions)
        if known := [row["in_order"] for row in predictions if "in_order" in row]:
            metrics["in_order"] = fmean(map(fmean, known))
            metrics["in_order/stories"] = fmean(map(all, known))
        return metrics

    def submission(self, predictions: list[dict[str, Any]], folder: Path) -> list[Path]:
        # one story for each sequence of photographs
        stories: dict[tuple[str, ...], dict[str, Any]] = {}
        for row in predictions:
            story = {"album_id": row[ALBUM], "photo_sequence": row[PHOTOS]}
            story["story_text_normalized"] = normalised(row["prediction"])
            stories.setdefault(tuple(row[PHOTOS]), story)
        document = {"team_name": self.team, "evaluation_info": {"additional_description": ""}}
        return [write_json(folder / "challenge.json", {**document, "output_stories": list(stories.values())})]


def sentences(story: str) -> list[str]:
    """Split a story at full stops, exclamation and question marks."""
    return [text for text in re.split(r"(?<=[.!?])\s+", story.strip()) if tokenize(text)]


def normalised(story: str) -> str:
    """Return a story as VIST writes it: lower case, punctuation set off, names such as [male] in one."""
    apart = re.sub(r"\s*([.,!?;:])\s*", r" \1 ", story.lower())
    return " ".join(re.sub(r"\[\s*(\w+)\s*\]", r"[\1]", apart).split())


def in_order(story: Sequence[str], named: Sequence[Sequence[str]]) -> list[bool]:
    """Return for each picture whether its sentence names, as words in a row, one of the things that it shows.

    All are False where there are more sentences than pictures: none has its place then.
    """
    if len(story) > len(named):
        return [False] * len(named)
    words = [f" {' '.join(tokenize(text))} " for text in story] + [""] * (len(named) - len(story))
    pairs = zip(words, named, strict=True)
    return [any(f" {' '.join(tokenize(name))} " in text for name in names) for text, names in pairs]
