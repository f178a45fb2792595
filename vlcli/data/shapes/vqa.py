"""VQA v2 and GQA files over the shared pictures, both made of the same balanced questions."""

from collections import Counter
from itertools import chain
from pathlib import Path
from random import Random

from vlcli.data.shapes.coco import INFO, NO_RIGHTS, Pictures, write_json
from vlcli.data.shapes.config import SPLITS, ShapesConfig
from vlcli.data.shapes.questions import TYPES, Asked, Question, balanced, companions
from vlcli.data.shapes.world import Picture, stream

HEAD = {"info": INFO, "license": {"name": NO_RIGHTS, "url": ""}, "data_type": "mscoco"}


def write_vqa(root: Path, config: ShapesConfig, pictures: Pictures) -> dict[str, int]:
    """Write vqa/: questions of each split; annotations and complementary pairs of train and val."""
    count = 0
    for split in SPLITS:
        rng = stream(config, "vqa", split)
        pairs = balanced(pictures[split], rng, config)
        ids: list[list[int]] = []
        used: Counter[int] = Counter()
        for pair in pairs:
            ids.append([])
            for index, _ in pair:
                ids[-1].append(1000 * pictures[split][index].id + used[index])
                used[index] += 1
        asked = sorted(zip(chain(*ids), (one.question for one in chain(*pairs)), strict=True))
        rows = [{"image_id": n // 1000, "question": question.text, "question_id": n} for n, question in asked]
        document = {**HEAD, "task_type": "Open-Ended", "data_subtype": split, "questions": rows}
        write_json(root / f"vqa/v2_OpenEnded_mscoco_{split}_questions.json", document)
        if split != "test":
            answers = [_annotation(rng, config, number, question) for number, question in asked]
            document = {**HEAD, "data_subtype": split, "annotations": answers}
            write_json(root / f"vqa/v2_mscoco_{split}_annotations.json", document)
            write_json(root / f"vqa/v2_mscoco_{split}_complementary_pairs.json", ids)
        count += len(rows)
    return {"vqa questions": count}


def _annotation(rng: Random, config: ShapesConfig, number: int, question: Question) -> dict[str, object]:
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
        "image_id": number // 1000,
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
        pairs = balanced(pictures[split], stream(config, "gqa", split), config)
        followed = companions(pictures[split], pairs, config)
        asked = [one for pair in (*pairs, *(extra for _, extra in followed)) for one in pair]
        ids = {one: f"{number:08d}" for number, one in enumerate(asked, count)}
        settled = {one: [ids[two]] for pair, extra in followed for one, two in zip(pair, extra, strict=True)}
        rows = {ids[one]: _gqa_row(one, pictures[split], ids[one], settled.get(one, [])) for one in asked}
        write_json(root / f"gqa/{name}_balanced_questions.json", rows)
        count += len(rows)
        if split != "test":
            graphs = {f"{picture.id:012d}": _graph(picture) for picture in pictures[split]}
            write_json(root / f"gqa/sceneGraphs/{split}_sceneGraphs.json", graphs)
    return {"gqa questions": count}


def _gqa_row(asked: Asked, pictures: list[Picture], mine: str, entailed: list[str]) -> dict[str, object]:
    picture, question = pictures[asked.picture], asked.question
    steps: list[dict[str, object]] = []
    for number, (operation, argument) in enumerate(question.program):
        read = {"select": 0, "compare count": 2}.get(operation, 1)  # steps whose results this one takes
        dependencies = list(range(number - read, number))
        steps.append({"operation": operation, "dependencies": dependencies, "argument": argument})
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


def _object_id(picture: Picture, index: int) -> str:
    return str(10 * picture.id + index)


def _graph(picture: Picture) -> dict[str, object]:
    names = {"left": "to the left of", "right": "to the right of", "above": "above", "below": "below"}
    objects: dict[str, dict[str, object]] = {}
    for index, (shape, drawn) in enumerate(zip(picture.scene.shapes, picture.drawn, strict=True)):
        x, y, width, height = drawn.box
        relations = [
            {"name": names[word], "object": _object_id(picture, other)}
            for first, word, other in picture.scene.relations()
            if first == index
        ]
        box, attributes = {"x": x, "y": y, "w": width, "h": height}, [shape.look.colour, shape.look.size]
        facts = {"name": shape.look.kind, "attributes": attributes, "relations": relations}
        objects[_object_id(picture, index)] = {**box, **facts}
    return {"width": picture.scene.side, "height": picture.scene.side, "objects": objects}
