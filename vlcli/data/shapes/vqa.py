"""VQA v2 and GQA files over the shared pictures, both made of the same balanced questions."""

from pathlib import Path
from random import Random

from vlcli.data.shapes.coco import INFO, Pictures, write_json
from vlcli.data.shapes.config import SPLITS, ShapesConfig
from vlcli.data.shapes.questions import TYPES, Asked, balanced, companions
from vlcli.data.shapes.world import Picture, stream

LICENSE = {"name": "generated; no rights reserved", "url": ""}
HEAD = {"info": INFO, "license": LICENSE, "data_type": "mscoco"}


def write_vqa(root: Path, config: ShapesConfig, pictures: Pictures) -> dict[str, int]:
    """Write vqa/: questions of each split; annotations and complementary pairs of train and val."""
    count = 0
    for split in SPLITS:
        rng = stream(config, "vqa", split)
        pairs = balanced(pictures[split], rng, config)
        ids = _question_ids(pictures[split], pairs)
        asked = [
            (number, one)
            for numbers, pair in zip(ids, pairs, strict=True)
            for number, one in zip(numbers, pair, strict=True)
        ]
        asked.sort(key=lambda row: row[0])
        rows = [
            {"image_id": pictures[split][one.picture].id, "question": one.question.text, "question_id": number}
            for number, one in asked
        ]
        document = {**HEAD, "task_type": "Open-Ended", "data_subtype": split, "questions": rows}
        write_json(root / f"vqa/v2_OpenEnded_mscoco_{split}_questions.json", document)
        if split != "test":
            answers = [_annotation(rng, config, pictures[split], number, one) for number, one in asked]
            document = {**HEAD, "data_subtype": split, "annotations": answers}
            write_json(root / f"vqa/v2_mscoco_{split}_annotations.json", document)
            write_json(root / f"vqa/v2_mscoco_{split}_complementary_pairs.json", ids)
        count += len(rows)
    return {"vqa questions": count}


def _question_ids(pictures: list[Picture], pairs: list[tuple[Asked, Asked]]) -> list[list[int]]:
    used: dict[int, int] = {}
    rows = []
    for pair in pairs:
        numbers = []
        for one in pair:
            count = used[one.picture] = used.get(one.picture, -1) + 1
            numbers.append(1000 * pictures[one.picture].id + count)
        rows.append(numbers)
    return rows


def _annotation(
    rng: Random, config: ShapesConfig, pictures: list[Picture], number: int, one: Asked
) -> dict[str, object]:
    question = one.question
    people = [(question.answer, "yes")] * 10
    if question.answer_type != "yes/no" and rng.random() < 0.25:  # a dissenter, where he does not shift the balance
        people[rng.randrange(10)] = (_other_answer(rng, config, question.answer), rng.choice(("maybe", "no")))
    answers = [
        {"answer": answer, "answer_confidence": sure, "answer_id": person}
        for person, (answer, sure) in enumerate(people, 1)
    ]
    return {
        "question_type": question.question_type,
        "multiple_choice_answer": question.answer,
        "answers": answers,
        "image_id": pictures[one.picture].id,
        "answer_type": question.answer_type,
        "question_id": number,
    }


def _other_answer(rng: Random, config: ShapesConfig, answer: str) -> str:
    if answer.isdigit():
        return str(int(answer) + 1)
    words = config.colours if answer in config.colours else config.kinds
    return rng.choice([word for word in words if word != answer])


def write_gqa(root: Path, config: ShapesConfig, pictures: Pictures) -> dict[str, int]:
    """Write gqa/: balanced questions of train, val and testdev, scene graphs of train and val."""
    count = 0
    for split, name in zip(SPLITS, ("train", "val", "testdev"), strict=True):
        rows = _gqa_rows(stream(config, "gqa", split), config, pictures[split], count)
        write_json(root / f"gqa/{name}_balanced_questions.json", rows)
        count += len(rows)
        if split != "test":
            graphs = {f"{picture.id:012d}": _graph(picture) for picture in pictures[split]}
            write_json(root / f"gqa/sceneGraphs/{split}_sceneGraphs.json", graphs)
    return {"gqa questions": count}


def _gqa_rows(rng: Random, config: ShapesConfig, pictures: list[Picture], first: int) -> dict[str, dict[str, object]]:
    pairs = balanced(pictures, rng, config)
    followed = companions(pictures, pairs, config)
    asked = [one for pair in (*pairs, *(extra for _, extra in followed)) for one in pair]
    ids = {(one.picture, one.question.text): f"{first + number:08d}" for number, one in enumerate(asked)}
    settled = {_key(one): ids[_key(two)] for pair, extra in followed for one, two in zip(pair, extra, strict=True)}
    rows = {}
    for one in asked:
        entailed = [settled[_key(one)]] if _key(one) in settled else []
        rows[ids[_key(one)]] = _gqa_row(one, pictures[one.picture], ids[_key(one)], entailed)
    return rows


def _key(one: Asked) -> tuple[int, str]:
    return one.picture, one.question.text


def _gqa_row(one: Asked, picture: Picture, mine: str, entailed: list[str]) -> dict[str, object]:
    question = one.question
    steps = [
        {"operation": operation, "dependencies": _dependencies(operation, number), "argument": argument}
        for number, (operation, argument) in enumerate(question.program)
    ]
    objects = {str(number): _object_id(picture, index) for number, index in enumerate(question.objects)}
    semantic, structural = TYPES[question.detailed]
    return {
        "semantic": steps,
        "entailed": entailed,
        "equivalent": [mine],
        "question": question.text,
        "imageId": f"{picture.id:012d}",
        "isBalanced": True,
        "groups": {"global": question.question_type, "local": f"{question.detailed}-{question.text}"},
        "answer": question.answer,
        "semanticStr": "->".join(f"{operation}: {argument}" for operation, argument in question.program),
        "annotations": {"answer": {}, "question": objects, "fullAnswer": {}},
        "types": {"detailed": question.detailed, "semantic": semantic, "structural": structural},
        "fullAnswer": question.full,
    }


def _dependencies(operation: str, step: int) -> list[int]:
    if operation == "select":
        return []
    return [step - 2, step - 1] if operation == "compare count" else [step - 1]


def _object_id(picture: Picture, index: int) -> str:
    return str(10 * picture.id + index)


def _graph(picture: Picture) -> dict[str, object]:
    names = {"left": "to the left of", "right": "to the right of", "above": "above", "below": "below"}
    objects: dict[str, dict[str, object]] = {}
    for index, (shape, drawn) in enumerate(zip(picture.scene.shapes, picture.drawn, strict=True)):
        x, y, width, height = drawn.box
        box = {"x": x, "y": y, "w": width, "h": height}
        relations = [
            {"name": names[word], "object": _object_id(picture, other)}
            for first, word, other in picture.scene.relations()
            if first == index
        ]
        facts = {"name": shape.look.kind, "attributes": [shape.look.colour, shape.look.size], "relations": relations}
        objects[_object_id(picture, index)] = {**box, **facts}
    return {"width": picture.scene.side, "height": picture.scene.side, "objects": objects}
