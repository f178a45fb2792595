"""Image classification: the objective against timm, the task's scores, the readers of the published layouts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from timm.data import Mixup
from timm.layers import calculate_drop_path_rates
from timm.loss import LabelSmoothingCrossEntropy, SoftTargetCrossEntropy

from vlcli import registry
from vlcli.data.pipeline import Pipeline
from vlcli.engine.training_module import build_training_module
from vlcli.errors import ComponentError, DataError
from vlcli.nn.batch import Batch
from vlcli.nn.blocks import DropPath
from vlcli.nn.model import DataSpec
from vlcli.objectives.image_classification import Mixing, batch_seed, soft_targets
from vlcli.tasks.classification import ImageClassification

DEIT = {
    "name": "deit",
    "size": "tiny",
    "hidden": 16,
    "layers": 3,
    "heads": 2,
    "image_size": 16,
    "patch": 8,
    "classes": None,
}


def folder_of_classes(root: Path, classes: int = 3, each: int = 4, split: str = "train") -> Path:
    rng = np.random.default_rng(0)
    for number in range(classes):
        place = root / split / f"n{number:02d}"
        place.mkdir(parents=True)
        for item in range(each):
            picture = rng.integers(0, 256, (16, 16, 3), np.uint8)
            Image.fromarray(picture).save(place / f"n{number:02d}_{item}.png")
    return root


@pytest.mark.parametrize("options", [(0.8, 1.0), (0.8, 0.0), (0.0, 1.0)])
@pytest.mark.parametrize("probability", [1.0, 0.6])
def test_mixing_is_timms(options: tuple[float, float], probability: float) -> None:
    mixup, cutmix = options
    ours = Mixing(mixup, cutmix, probability)
    facts = {"mixup_alpha": mixup, "cutmix_alpha": cutmix, "prob": probability, "label_smoothing": 0.1}
    theirs = Mixup(**facts, num_classes=7)
    pixels, labels = torch.rand(6, 3, 20, 12), torch.tensor([0, 3, 6, 1, 1, 5])
    kinds = set()
    for seed in range(25):
        found, share = ours(pixels, seed)
        targets = soft_targets(labels, 7, 0.1)
        np.random.seed(seed)
        wanted, soft = theirs(pixels.clone(), labels)
        torch.testing.assert_close(found, wanted)
        torch.testing.assert_close(targets * share + targets.flip(0) * (1 - share), soft)
        kinds.add(round(share, 3))
    assert len(kinds) > 5


def test_soft_targets_without_a_label() -> None:
    assert soft_targets(torch.tensor([-1, 1]), 4, 0.2).tolist()[0] == [0] * 4
    assert soft_targets(torch.tensor([-1, 1]), 4, 0.2).sum().item() == pytest.approx(1)


def test_a_batchs_seed() -> None:
    seeds = torch.tensor([2**62, 5, 7])
    assert batch_seed(seeds) == batch_seed(seeds.clone()) != batch_seed(seeds + 1)


def make(root: Path, **options: object) -> tuple:
    reader = registry.build("datasets", "imagenet", root)
    data_spec = DataSpec(answers=ImageClassification().labels([reader]))
    module = build_training_module(DEIT, [{"name": "image-classification", **options}], data_spec)
    data = Pipeline([reader], needs=module.model.input_spec(), data_spec=data_spec)
    return module, data


def test_losses_are_timms(tmp_path: Path) -> None:
    folder_of_classes(tmp_path)
    module, data = make(tmp_path, smoothing=0.1)
    batch = data.batch(range(12))
    logits = module.eval().predict(module.step(batch))["image-classification"]["logits"]
    for part in module.modules():
        if isinstance(part, DropPath):
            part.rate = 0.0
    labels = batch.targets["label"]
    smooth = module.train()(batch).losses["image-classification"].value()
    assert smooth.item() == pytest.approx(LabelSmoothingCrossEntropy(0.1)(logits, labels).item(), abs=1e-6)
    plain = module.eval()(batch).losses["image-classification"].value()
    assert plain.item() == pytest.approx(torch.nn.functional.cross_entropy(logits, labels).item(), abs=1e-6)


def test_a_mixed_step_is_timms(tmp_path: Path) -> None:
    folder_of_classes(tmp_path)
    module, data = make(tmp_path, smoothing=0.1, mixup=0.8, cutmix=1.0)
    for part in module.modules():
        if isinstance(part, DropPath):
            part.rate = 0.0
    for codes in (range(12), range(2, 8)):
        batch = data.batch(codes)
        np.random.seed(batch_seed(batch.seeds))
        images, labels = batch.clean.images.pixels.images.clone(), batch.targets["label"]
        pixels, soft = Mixup(0.8, 1.0, label_smoothing=0.1, num_classes=3)(images, labels)
        wanted = SoftTargetCrossEntropy()(module.model(pixels), soft).item()
        result = module.train()(data.batch(codes))
        assert result.losses["image-classification"].value().item() == pytest.approx(wanted, abs=1e-5)
        assert not result.metrics  # accuracy on mixed pictures says nothing
    assert module.eval()(batch).metrics


def test_labels_may_be_distributions(tmp_path: Path) -> None:
    folder_of_classes(tmp_path)
    module, data = make(tmp_path)
    batch = data.batch(range(4))
    soft = torch.rand(4, 3).softmax(-1)
    batch.targets["label"] = soft
    found = module.eval()(batch).losses["image-classification"].value()
    wanted = SoftTargetCrossEntropy()(module.model(batch.clean.images.pixels.images), soft)
    assert found.item() == pytest.approx(wanted.item(), abs=1e-6)
    batch.targets["label"] = soft[:, :2]
    with pytest.raises(DataError, match="number of classes"):
        module(batch)


def test_a_classifier_of_other_classes_is_refused(tmp_path: Path) -> None:
    folder_of_classes(tmp_path)
    with pytest.raises(ComponentError, match="another number"):
        build_training_module({**DEIT, "classes": 5}, ["image-classification"], DataSpec(answers=("a", "b")))


def test_stochastic_depth_is_timms() -> None:
    model = registry.build("models", {**DEIT, "layers": 12, "drop_path": 0.1}, DataSpec(answers=("a", "b")))
    rates = [part.rate for part in model.modules() if isinstance(part, DropPath)]
    assert rates[::2] == rates[1::2] == pytest.approx(calculate_drop_path_rates(0.1, 12))
    torch.manual_seed(0)
    dropped = DropPath(0.25).train()(torch.ones(4000, 2, 3))
    assert sorted(set(dropped.flatten().tolist())) == pytest.approx([0, 1 / 0.75])
    assert (dropped == dropped[:, :1, :1]).all()  # whole examples
    assert dropped.mean().item() == pytest.approx(1, abs=0.03)


def test_top_one_and_five() -> None:
    task = ImageClassification()
    names = tuple(f"c{number}" for number in range(8))
    task.attach(DataSpec(answers=names))
    task.words = names
    logits = torch.eye(8)[[0, 1, 2, 3]] * 9 + torch.arange(8.0)
    batch = Batch({}, {"label": [0, 7, 0, None]}, ["a", "b", "c", "d"], torch.zeros(4))
    rows = task.decode({"image-classification": {"logits": logits}}, batch)
    assert [row.get("correct") for row in rows] == [True, False, False, None]
    assert [row.get("in_top") for row in rows] == [True, True, False, None]
    assert rows[0]["top"] == ["c0", "c7", "c6", "c5", "c4"]
    metrics = task.score(rows)
    assert metrics["top1"] == pytest.approx(1 / 3)
    assert metrics["top5"] == pytest.approx(2 / 3)
    assert metrics["top1/c0"] == 0.5


def test_imagenet_folders(tmp_path: Path) -> None:
    folder_of_classes(tmp_path / "imagenet")
    reader = registry.build("datasets", "imagenet", tmp_path)
    assert reader.label_names() == ["n00", "n01", "n02"]
    assert [example.targets["label"] for example in reader.examples()] == [0] * 4 + [1] * 4 + [2] * 4
    some = registry.build("datasets", {"name": "imagenet", "classes": ["n02", "n00"]}, tmp_path)
    assert [example.targets["label"] for example in some.examples()] == [1] * 4 + [0] * 4
    for label in ("n00", "n01"):  # two classes may use one file name
        place = tmp_path / "imagenet/train" / label
        (place / f"{label}_0.png").rename(place / "same.png")
    again = registry.build("datasets", "imagenet", tmp_path)
    assert {"imagenet/train/n00/same", "imagenet/train/n01/same"} <= set(again.image_files())
    with pytest.raises(DataError, match="no such class"):
        registry.build("datasets", {"name": "imagenet", "classes": ["n09"]}, tmp_path).examples()
    with pytest.raises(DataError, match="folder of pictures is missing"):
        registry.build("datasets", {"name": "imagenet", "split": "val"}, tmp_path).require()


def test_the_challenges_layout(tmp_path: Path) -> None:
    """Training pictures by synset, validation pictures flat with a table of labels."""
    place = tmp_path / "ILSVRC/Data/CLS-LOC"
    folder_of_classes(place)
    (place / "val").mkdir()
    names = ["ILSVRC2012_val_00000001", "ILSVRC2012_val_00000002"]
    for name in names:
        Image.new("RGB", (8, 8)).save(place / f"val/{name}.JPEG")
    table = tmp_path / "LOC_val_solution.csv"
    table.write_text(f"ImageId,PredictionString\n{names[0]},n02 1 2 3 4 \n{names[1]},n00 1 1 2 2 n00 3 3 5 5 \n")
    reader = registry.build("datasets", {"name": "imagenet", "split": "val"}, tmp_path)
    assert reader.files() == [table]
    found = {example.key: reader.label_names()[example.targets["label"]] for example in reader.examples()}
    assert found == {names[0]: "n02", names[1]: "n00"}
    assert all(path.is_file() for path in reader.image_files().values())
    table.write_text("ImageId,PredictionString\nx,\n")
    with pytest.raises(DataError, match=r"solution.csv:2"):
        registry.build("datasets", {"name": "imagenet", "split": "val"}, tmp_path).read()


def test_stanford_cars_from_matlab(tmp_path: Path) -> None:
    scipy = pytest.importorskip("scipy.io")
    devkit = tmp_path / "stanford_cars/devkit"
    devkit.mkdir(parents=True)
    kind = [("bbox_x1", "O"), ("class", "O"), ("fname", "O")]
    rows = np.array([(1, 2, "00001.jpg"), (1, 1, "00002.jpg"), (1, 2, "00003.jpg")], dtype=kind)
    scipy.savemat(devkit / "cars_train_annos.mat", {"annotations": rows})
    scipy.savemat(devkit / "cars_meta.mat", {"class_names": np.array(["AM General Hummer", "Acura RL"], dtype=object)})
    reader = registry.build("datasets", "stanford-cars", tmp_path)
    assert [(e.key, e.targets["label"]) for e in reader.examples()] == [("00001", 1), ("00002", 0), ("00003", 1)]
    assert reader.label_names() == ["AM General Hummer", "Acura RL"]
    assert reader.image_files()["00002"] == tmp_path / "stanford_cars/cars_train/00002.jpg"
    assert len(reader.files()) == 2


def test_stanford_cars_in_one_file(tmp_path: Path) -> None:
    scipy = pytest.importorskip("scipy.io")
    kind = [("relative_im_path", "O"), ("class", "O"), ("test", "O")]
    rows = np.array([("car_ims/000001.jpg", 3, 0), ("car_ims/000002.jpg", 1, 1)], dtype=kind)
    names = np.array(["a", "b", "c"], dtype=object)
    scipy.savemat(tmp_path / "cars_annos.mat", {"annotations": rows, "class_names": names})
    train, test = (
        registry.build("datasets", {"name": "stanford-cars", "split": s}, tmp_path) for s in ("train", "test")
    )
    assert [(e.key, e.targets["label"]) for e in train.examples()] == [("000001", 2)]
    assert [(e.key, e.targets["label"]) for e in test.examples()] == [("000002", 0)]
    assert test.label_names() == ["a", "b", "c"]


def test_stanford_cars_from_tables(tmp_path: Path) -> None:
    (tmp_path / "anno_train.csv").write_text("00001.jpg,39,116,569,375,14\n00002.jpg,36,116,868,587,3\n")
    (tmp_path / "names.csv").write_text("AM General Hummer SUV 2000\nAcura RL Sedan 2012\n")
    reader = registry.build("datasets", "stanford-cars", tmp_path)
    assert [(e.key, e.targets["label"]) for e in reader.examples()] == [("00001", 13), ("00002", 2)]
    assert reader.label_names()[1] == "Acura RL Sedan 2012"
    (tmp_path / "anno_train.csv").write_text("00001.jpg,39\n")
    with pytest.raises(DataError, match=r"anno_train.csv:1"):
        registry.build("datasets", "stanford-cars", tmp_path).examples()
    with pytest.raises(DataError, match="missing"):
        registry.build("datasets", {"name": "stanford-cars", "split": "test"}, tmp_path).require()


def test_cub(tmp_path: Path) -> None:
    folder = tmp_path / "CUB_200_2011"
    folder.mkdir()
    (folder / "images.txt").write_text("1 001.Albatross/A_1.jpg\n2 001.Albatross/A_2.jpg\n3 002.Auklet/B_1.jpg\n")
    (folder / "image_class_labels.txt").write_text("1 1\n2 1\n3 2\n")
    (folder / "train_test_split.txt").write_text("1 0\n2 1\n3 1\n")
    (folder / "classes.txt").write_text("1 001.Albatross\n2 002.Auklet\n")
    train = registry.build("datasets", "cub-200", tmp_path)
    test = registry.build("datasets", {"name": "cub-200", "split": "test"}, tmp_path)
    assert [(e.key, e.targets["label"]) for e in train.examples()] == [("A_2", 0), ("B_1", 1)]
    assert [(e.key, e.targets["label"]) for e in test.examples()] == [("A_1", 0)]
    assert train.label_names() == ["001.Albatross", "002.Auklet"]
    assert train.image_files()["B_1"] == folder / "images/002.Auklet/B_1.jpg"
    (folder / "image_class_labels.txt").write_text("1 1\n2 9\n3 2\n")
    with pytest.raises(DataError, match="no class"):
        registry.build("datasets", "cub-200", tmp_path).examples()
