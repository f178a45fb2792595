"""A label has one number in all that reads it: data sets of one stage, names that are digits, classes of boxes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from PIL import Image

from vlcli import registry
from vlcli.data.numbering import label_names
from vlcli.engine.training_module import build_training_module
from vlcli.errors import DataError
from vlcli.nn.model import DataSpec
from vlcli.objectives.answers import LabelTable
from vlcli.tasks.classification import Classification, ImageClassification
from vlcli.tasks.referring import RegionLabels

DEIT = {"name": "deit", "size": "tiny", "hidden": 16, "layers": 1, "heads": 2, "image_size": 16, "patch": 8}


def folders(root: Path, *names: str, split: str = "train") -> Path:
    for name in names:
        (root / split / name).mkdir(parents=True)
        Image.new("RGB", (16, 16), (len(name), 0, 0)).save(root / split / name / f"{split}{name}.png")
    return root


def table(root: Path, name: str, column: list[str], **options: object):
    rows = "".join(f"{name}{number}.png,a wall,{label}\n" for number, label in enumerate(column))
    (root / f"{name}.csv").write_text(f"image,text,label\n{rows}")
    return registry.build("datasets", {"name": "csv", "file": f"{name}.csv", **options}, root)


@pytest.mark.parametrize("names", [("1", "2", "10"), ("0", "1", "2"), ("3", "cat", "1")])
@pytest.mark.parametrize("task", [ImageClassification(), Classification()])
def test_names_that_are_digits_are_names(names: tuple[str, ...], task: Classification, tmp_path: Path) -> None:
    reader = registry.build("datasets", "imagenet", folders(tmp_path, *names))
    data_spec = DataSpec(answers=task.labels([reader]), text_length=4)
    spec = DEIT if isinstance(task, ImageClassification) else {**DEIT, "name": "vlmo", "layers": 2, "fused_layers": 1}
    spec = {"classes": None, **spec} if spec is DEIT else {k: v for k, v in spec.items() if k != "size"}
    if spec["name"] == "vlmo":
        spec["image"] = "pixels"
    module = build_training_module(spec, task.objectives(), data_spec)
    (objective,) = module.objectives.values()
    objective.setup([reader], None, None)
    truths = [Path(reader.locate(example.images[0])).parent.name for example in reader.examples()]
    values = torch.tensor([example.targets["label"] for example in reader.examples()])
    numbers = objective.table.ids(values, 3)
    assert [data_spec.answers[number] for number in numbers.tolist()] == truths
    assert objective.table.ids([None, 1], 2).tolist() == [-1, 1]


def test_a_column_of_digits_that_is_text(tmp_path: Path) -> None:
    text = table(tmp_path, "t", ["1", "2", "10"], types={"label": "text"})
    numbers = table(tmp_path, "n", ["1", "2", "10"])
    assert label_names([text]) == ("1", "10", "2")
    assert label_names([numbers]) == ()
    assert Classification().labels([numbers]) == ("1", "2", "10")
    assert LabelTable(("1", "2", "10"), 3).ids(torch.tensor([1, 2, 10]), 3).tolist() == [0, 1, 2]


def test_data_sets_that_number_labels_differently_are_refused_together(tmp_path: Path) -> None:
    first, other = table(tmp_path, "a", ["cat", "dog"]), table(tmp_path, "b", ["dog", "fox"])
    with pytest.raises(DataError, match="number their labels differently") as refused:
        Classification().labels([first, other])
    assert "labels: [WORD, ...]" in refused.value.hint
    runner = SimpleNamespace(data=SimpleNamespace(readers=[first, other]))
    with pytest.raises(DataError, match="number their labels differently"):
        Classification().read(runner)
    with pytest.raises(DataError, match="others number them"):
        Classification().labels([first, table(tmp_path, "c", ["1", "2"])])


def test_the_same_list_makes_them_alike(tmp_path: Path) -> None:
    names = ["cat", "dog", "fox"]
    alike = [table(tmp_path, name, column, labels=names) for name, column in (("a", ["dog"]), ("b", ["fox", "cat"]))]
    assert Classification().labels(alike) == tuple(names)
    assert [example.targets["label"] for reader in alike for example in reader.examples()] == [1, 2, 0]
    fewer = [table(tmp_path, "c", ["cat", "dog"]), table(tmp_path, "d", ["cat", "dog", "fox"])]
    assert label_names(fewer) == tuple(names)  # the first names of a longer list have the same numbers


def test_region_labels_are_scored_by_the_numbers_of_the_training(tmp_path: Path) -> None:
    rows = 'image,text,boxes,box_labels\na.png,x,"[[0, 0, 4, 4]]","[""dog""]"\n'
    (tmp_path / "boxes.csv").write_text(rows)
    reader = registry.build("datasets", {"name": "csv", "file": "boxes.csv"}, tmp_path)
    task, runner = RegionLabels(), SimpleNamespace(data=SimpleNamespace(readers=[reader]))
    task.attach(DataSpec(class_names=("dog", "fox")))
    task.read(runner)
    task.attach(DataSpec(class_names=("cat", "dog")))
    with pytest.raises(DataError, match="other numbers than in training"):
        task.read(runner)
