"""Generates data in VIST's format: albums of six pictures of one shape, and stories of five sentences."""

from operator import methodcaller
from pathlib import Path
from random import Random
from typing import NamedTuple

from vlcli.data.shapes.captions import PHRASES, sentence
from vlcli.data.shapes.coco import tokens, write_instances, write_json
from vlcli.data.shapes.config import SPLITS, ShapesConfig
from vlcli.data.shapes.render import draw_pictures
from vlcli.data.shapes.world import RELATIONS, Noun, Picture, compose, concrete, fill, stream
from vlcli.progress import Progress

PHOTOS = 6
LENGTH = 5
STORIES = 2
OPENINGS = ("once", "one day", "at first", "in the beginning")
MIDDLES = ("then", "next", "after that", "soon", "later")
ENDS = ("in the end", "finally", "at last")


class Event(NamedTuple):
    """One picture of an album and the facts that a sentence on it may use."""

    picture: Picture
    guest: Noun
    relation: str


def write_vist(root: Path, config: ShapesConfig, progress: Progress, workers: int) -> dict[str, int]:
    """Write vist/: stories in sequence, descriptions in isolation, instances, and images/{split}/<photo id>.png."""
    stories = photos = 0
    first = annotation = 1
    for split in SPLITS:
        rng = stream(config, "vist", split)
        count = config.albums if split == "train" else max(1, config.albums // 8)
        albums: list[dict[str, object]] = []
        annotations: list[list[dict[str, object]]] = []
        pictures: list[Picture] = []
        for album in range(first, first + count):
            hero, events = _album(rng, config, album, split)
            pictures += [event.picture for event in events]
            albums.append(_album_row(album, hero))
            for story in range(stories, stories + STORIES):
                annotations += _story(rng, hero, events, album, story)
            stories += STORIES
        first += count
        photos += len(pictures)
        draw_pictures(root / "vist/images", pictures, progress, f"vist {split}", workers)
        images = [_image_row(picture) for picture in pictures]
        document = {"type": "Visual Storytelling", "albums": albums, "images": images, "annotations": annotations}
        write_json(root / f"vist/{split}.story-in-sequence.json", document)
        described = _descriptions(stream(config, "vist", "descriptions", split), pictures)
        write_json(root / f"vist/{split}.description-in-isolation.json", {**document, "annotations": described})
        annotation = write_instances(root / f"vist/instances_{split}.json", config, pictures, annotation)
    return {"vist photos": photos, "vist stories": stories}


def _album(rng: Random, config: ShapesConfig, album: int, split: str) -> tuple[Noun, list[Event]]:
    look = concrete(rng, config, Noun())
    hero = Noun("", look.colour, look.kind)
    events = []
    for number in range(100 * album, 100 * album + PHOTOS):
        visitor = fill(rng, config, [], 1, [Noun(kind=hero.kind)])[0]
        relation = rng.choice(RELATIONS)
        others = fill(rng, config, [], rng.randint(0, config.objects[1] - 3), [Noun(kind=hero.kind)])
        looks = [look, visitor, *(other for other in others if other.kind != visitor.kind)]
        scene = compose(rng, config, looks, methodcaller("stands", 0, relation, 1))
        guest = Noun("", visitor.colour, visitor.kind)
        events.append(Event(Picture(number, f"{split}/{number}.png", scene), guest, relation))
    return hero, events


def _story(rng: Random, hero: Noun, events: list[Event], album: int, story: int) -> list[list[dict[str, object]]]:
    rows = []
    for order, index in enumerate(sorted(rng.sample(range(PHOTOS), LENGTH))):
        picture = events[index].picture
        text = sentence(_told(rng, hero, events[index], order))
        others = dict.fromkeys(shape.noun.one for shape in picture.scene.shapes if shape.noun != hero)
        row = {"original_text": text, "album_id": str(album), "photo_flickr_id": str(picture.id)}
        row |= {"setting": "first-2-pick-and-tell", "worker_id": "shapes", "story_id": str(story)}
        told = {"worker_arranged_photo_order": order, "text": " ".join(tokens(text)) + " ."}
        told |= {"storylet_id": str(LENGTH * story + order), "named": list(others)}  # ours: what only this picture adds
        rows.append([{**row, "tier": "story-in-sequence", **told}])
    return rows


def _descriptions(rng: Random, pictures: list[Picture]) -> list[list[dict[str, str]]]:
    rows: list[list[dict[str, str]]] = []
    for picture in pictures:
        shapes, relations = picture.scene.shapes, list(picture.scene.relations())
        for _ in range(2):
            first, word, second = rng.choice(relations)
            frame = rng.choice(("{} is {} {}", "{} {} {}", "there is {} {} {}"))
            text = sentence(frame.format(shapes[first].noun.a, PHRASES[word], shapes[second].noun.a))
            row = {"original_text": text, "photo_flickr_id": str(picture.id), "worker_id": "shapes"}
            row |= {"album_id": str(picture.id // 100), "tier": "descriptions-in-isolation"}
            row |= {"caption_id": str(len(rows)), "text": " ".join(tokens(text)) + " ."}
            rows.append([row])
    return rows


def _told(rng: Random, hero: Noun, event: Event, order: int) -> str:
    where = f"{PHRASES[event.relation]} {event.guest.a}"
    if order == 0:
        return f"{rng.choice(OPENINGS)} {rng.choice((f'there was {hero.a} {where}', f'{hero.a} stood {where}'))}"
    if order == LENGTH - 1:
        return f"{rng.choice(ENDS)} the {hero.one} {rng.choice(('came to rest', 'stayed', 'slept'))} {where}"
    deed = rng.choice(("went", "moved", "jumped", "was"))
    return f"{rng.choice(MIDDLES)} {rng.choice(('it', f'the {hero.one}'))} {deed} {where}"


def _image_row(picture: Picture) -> dict[str, object]:
    row = {"datetaken": f"2026-01-01 00:00:{picture.id % 100:02d}", "license": "0", "title": "", "text": ""}
    row |= {"album_id": str(picture.id // 100), "longitude": "0", "url_o": f"images/{picture.file}", "secret": ""}
    return {**row, "media": "photo", "latitude": "0", "id": str(picture.id), "tags": ""}


def _album_row(album: int, hero: Noun) -> dict[str, object]:
    row = {"description": "", "title": f"a day of {hero.a}", "farm": "0", "date_update": "0"}
    row |= {"primary": str(100 * album), "server": "0", "date_create": "0", "photos": str(PHOTOS), "secret": ""}
    return {**row, "owner": "shapes", "vist_label": hero.kind, "id": str(album)}
