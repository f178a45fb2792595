"""How much do region features know? A linear probe predicts the COCO category of ground-truth boxes.

    python benchmarks/linear_probe.py --images FOLDER --instances instances.json --weights resnet50.safetensors

Non-crowd boxes of all annotated images; logistic regression (L2, L-BFGS) on standardised features;
splits that share no image; top-1 beside the most frequent class of the training part.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from vlcli_backbone import BackboneExtractor

from vlcli.detection.extraction import extract_images
from vlcli.features import FeatureStore
from vlcli.images.boxes import image_id, read_boxes


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--instances", type=Path, required=True)
    parser.add_argument("--weights", required=True)
    parser.add_argument("--layout", default="caffe", choices=("caffe", "torchvision"))
    parser.add_argument("--head", default="c5", choices=("c5", "c4-res5"))
    parser.add_argument("--short", type=int, default=600)
    parser.add_argument("--long", type=int, default=1000)
    parser.add_argument("--store", type=Path, help="keep the features here, and reuse them")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--penalty", type=float, default=0.02, help="weight of the squared norm")
    parser.add_argument("--device", default="cpu")
    return parser.parse_args()


def extract(args: argparse.Namespace, out: Path) -> FeatureStore:
    """Features at the ground-truth boxes of every annotated image."""
    boxes = read_boxes(args.instances)
    files = {image_id(path): path for path in sorted(args.images.iterdir())}
    images = [(name, files[name]) for name in boxes if name in files]
    extractor = BackboneExtractor(
        weights=args.weights, layout=args.layout, head=args.head, short=args.short, long=args.long, limit=0
    )
    report = extract_images(images, extractor, out, boxes=boxes, device=args.device)
    seconds = f"{report.seconds:.0f} s, {report.device_seconds:.0f} s of it forward"
    print(f"{report.images} images, {report.regions} boxes, {seconds}")
    return FeatureStore(out)


def fit(features: Tensor, labels: Tensor, classes: int, penalty: float) -> Tensor:
    """Weights of a multinomial logistic regression (D + 1, classes)."""
    inputs = torch.cat([features, torch.ones(len(features), 1)], dim=1)  # (n, D + 1)
    weights = torch.zeros(inputs.shape[1], classes, requires_grad=True)
    solver = torch.optim.LBFGS([weights], max_iter=60, history_size=10, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        solver.zero_grad()
        value = torch.nn.functional.cross_entropy(inputs @ weights, labels) + penalty * weights[:-1].square().sum() / 2
        value.backward()
        return value

    solver.step(loss)
    return weights.detach()


def probe(features: Tensor, labels: Tensor, groups: np.ndarray, seed: int, penalty: float) -> tuple[float, float]:
    """Top-1 of the probe and of the most frequent class on a fifth of the images, held out."""
    images = np.random.default_rng(seed).permutation(np.unique(groups))
    held = torch.from_numpy(np.isin(groups, images[: len(images) // 5]))
    mean, std = features[~held].mean(0), features[~held].std(0) + 1e-6
    scaled = (features - mean) / std
    weights = fit(scaled[~held], labels[~held], int(labels.max()) + 1, penalty)
    guesses = (scaled[held] @ weights[:-1] + weights[-1]).argmax(1)
    frequent = labels[~held].bincount().argmax()
    return float((guesses == labels[held]).float().mean()), float((labels[held] == frequent).float().mean())


def main() -> None:
    args = arguments()
    with tempfile.TemporaryDirectory() as folder:
        store = extract(args, args.store or Path(folder) / "features.h5")
        records = [store.read(name) for name in store.ids]
    features = torch.from_numpy(np.concatenate([r.features for r in records]).astype(np.float32))
    _, labels = np.unique(np.concatenate([r.classes for r in records]), return_inverse=True)
    groups = np.repeat(np.arange(len(records)), [len(r) for r in records])
    results = np.array(
        [probe(features, torch.from_numpy(labels), groups, seed, args.penalty) for seed in range(args.splits)]
    )
    top1, frequent = results.mean(0)
    print(json.dumps({"top1": top1, "sd": results[:, 0].std(), "most_frequent": frequent, "splits": results.tolist()}))
    print(f"linear probe: {top1:.1%} +- {results[:, 0].std():.1%} top-1; most frequent class {frequent:.1%}")


if __name__ == "__main__":
    main()
