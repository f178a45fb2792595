"""A pre-training step of LXMERT beside transformers' LxmertForPreTraining: forward, backward, fused AdamW.

    python benchmarks/lxmert_step.py --captions captions_val2017.json --vocabulary bert-base-uncased-vocab.txt

The same weights, batches, masks and losses (normaliser 6.67; they must agree), no dropout, float32, one thread, steps
taken in turn; the port pads to 20 pieces as its authors' data did. Batches come from the data pipeline: real captions,
a store of drawn regions (36 of 2048 numbers), the objectives' own corruptions. Prints both losses, where the processor
time of both went (which a busy neighbour disturbs least), the ratio of the medians, and the share of a step's wall time
that is spent waiting for data.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
import transformers
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parent))
from device import now
from vlcli_lxmert import to_transformers

from vlcli import registry
from vlcli.data.pipeline import Pipeline
from vlcli.data.vocabulary import Tokenizer
from vlcli.engine.allocator import keep_freed_memory
from vlcli.engine.training_module import TrainingModule, build_training_module
from vlcli.features import FeatureStore, FeatureWriter, Record
from vlcli.nn import Batch, DataSpec

LENGTH = 20
OBJECTIVES = ["mlm", "matching", {"name": "masked-object", "factor": 6.67}]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--captions", type=Path, required=True, help="COCO captions file: real sentence lengths")
    parser.add_argument("--vocabulary", type=Path, required=True)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--layers", type=int, nargs=3, default=(9, 5, 5), metavar=("LANGUAGE", "OBJECT", "CROSS"))
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=5, help="timed steps of each, after one to warm up")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1, help="processes that load")
    parser.add_argument("--device", default="cpu")
    return parser.parse_args()


def build(args: argparse.Namespace, data_spec: DataSpec) -> tuple[TrainingModule, nn.Module]:
    """Ours and the port, with the same weights."""
    language, objects, cross = args.layers
    sizes = {"text_layers": language, "image_layers": objects, "cross_layers": cross, "dropout": 0.0}
    spec = {"name": "lxmert", "hidden": args.hidden, "heads": args.heads, "frozen_padding": True, **sizes}
    module = build_training_module(spec, OBJECTIVES, data_spec)
    port = transformers.LxmertForPreTraining(
        transformers.LxmertConfig(
            hidden_size=args.hidden,
            num_attention_heads=args.heads,
            intermediate_size=4 * args.hidden,
            l_layers=language,
            r_layers=objects,
            x_layers=cross,
            task_qa=False,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
    )
    port.load_state_dict(to_transformers(module.state_dict()), strict=False)
    return module.to(args.device).train(), port.to(args.device).train()


def make_data(
    args: argparse.Namespace, folder: Path, module: TrainingModule, data_spec: DataSpec, tokenizer: Tokenizer
) -> Pipeline:
    """The captions with a store of regions drawn for the pictures of as many steps as are taken."""
    wanted = args.batch * (args.steps + 1)
    spec = {"name": "coco-captions", "file": str(args.captions.absolute()), "limit": wanted}
    reader = registry.build("datasets", spec, folder)
    draw = np.random.default_rng(0)
    with FeatureWriter(folder / "features.h5") as writer:
        for name in dict.fromkeys(name for example in reader.examples() for name in example.images):
            writer.append(_record(name, data_spec, draw))
    corruptions = [made for o in module.objectives.values() if (made := o.corruption()) is not None]  # type: ignore[operator]
    return Pipeline(
        [reader],
        needs=module.model.input_spec(),
        tokenizer=tokenizer,
        data_spec=data_spec,
        store=FeatureStore([folder / "features.h5"]),
        corruptions=corruptions,
        seed=0,
        missing="error",
    )


def _record(name: str, data_spec: DataSpec, draw: np.random.Generator) -> Record:
    count = data_spec.regions
    features = np.maximum(draw.standard_normal((count, data_spec.region_dim), np.float32), 0)
    corners = np.sort(draw.random((count, 2, 2), np.float32), 1).reshape(count, 4) * 400
    record = Record(name, features, corners, (400, 400))
    record.classes = draw.integers(data_spec.region_classes, size=count, dtype=np.int32)
    record.attributes = draw.integers(data_spec.region_attributes, size=count, dtype=np.int32)
    record.class_scores, record.attribute_scores = draw.random((2, count), np.float32)
    return record


def port_feed(batch: Batch) -> dict[str, object]:
    """The batch as the port wants it, padded to 20."""
    view = batch.views["corrupted"]
    clean = batch.clean.images.regions.select(batch.clean.image_rows[:, 0])
    text, regions, more = view.text, view.images.regions, LENGTH - view.text.ids.shape[1]
    labels = nn.functional.pad(view.mask_labels["masked_words"], (0, more), value=-1)
    return {
        "input_ids": nn.functional.pad(text.ids, (0, more)),
        "attention_mask": nn.functional.pad(text.mask, (0, more)).float(),
        "token_type_ids": torch.zeros(len(text.ids), LENGTH, dtype=torch.long, device=text.ids.device),
        "visual_feats": regions.features,
        "visual_pos": regions.boxes,
        "labels": labels.masked_fill(labels < 0, -100),
        "matched_label": view.mask_labels["matched"],
        "obj_labels": {
            "obj": (clean.classes, clean.class_scores),
            "attr": (clean.attributes, clean.attribute_scores),
            "feat": (clean.features, view.mask_labels["masked_regions"].float()),
        },
    }


class Clock:
    """Seconds by part, one number a step: of processor time, on a GPU of the clock.

    Args:
        device: where the models are.
    """

    def __init__(self, device: str) -> None:
        self.device, self.parts = device, defaultdict[str, list[float]](list)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Time what is done inside."""
        begun = now(self.device)
        yield
        self.parts[name].append(now(self.device) - begun)

    def watch(self, module: nn.Module, name: str) -> None:
        """Time the forward of a module that runs once a step."""
        begun: list[float] = []
        module.register_forward_pre_hook(lambda *_: begun.append(now(self.device)))
        module.register_forward_hook(lambda *_: self.parts[name].append(now(self.device) - begun.pop()))

    def median(self, name: str) -> float:
        """Over the steps after the first."""
        return statistics.median(self.parts[name][1:])


def step(run: Callable[[], Tensor], optimizer: torch.optim.Optimizer, clock: Clock, who: str) -> float:
    with clock.part(f"{who} step"):
        with clock.part(f"{who} forward"):
            loss = run()
        with clock.part(f"{who} backward"):
            loss.backward()
        with clock.part(f"{who} optimizer"):
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
    return loss.item()


def watch_parts(clock: Clock, module: TrainingModule, port: nn.Module) -> None:
    own = module.model
    for name in ("language", "objects", "cross"):
        clock.watch(getattr(own, name), f"vlcli {name}")
    for name in OBJECTIVES:
        named = name if isinstance(name, str) else name["name"]
        clock.watch(
            module.objectives[named].head if named != "masked-object" else module.objectives[named].transform,
            f"vlcli head of {named}",
        )
    clock.watch(port.lxmert.encoder, "transformers three encoders")
    clock.watch(port.cls, "transformers heads of mlm and matching")
    clock.watch(port.obj_predict_head, "transformers head of masked-object")


def main() -> None:
    args = arguments()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    tokenizer, data_spec, clock = Tokenizer.load(args.vocabulary), DataSpec(), Clock(args.device)
    module, port = build(args, data_spec)
    keep_freed_memory()  # as the trainer does; for both
    watch_parts(clock, module, port)
    pairs = {"vlcli": module, "transformers": port}
    optimizers = {name: torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True) for name, model in pairs.items()}
    waits, walls = [], []
    with tempfile.TemporaryDirectory() as folder:
        data = make_data(args, Path(folder), module, data_spec, tokenizer)
        batches = iter(data.loader(args.batch, shuffle=True, workers=args.workers, drop_last=True))
        for number in range(args.steps + 1):
            begun = time.perf_counter()
            batch = next(batches).to(args.device)
            arrived = time.perf_counter()
            ours = step(lambda b=batch: module(b).total, optimizers["vlcli"], clock, "vlcli")
            waits.append(arrived - begun)
            walls.append(time.perf_counter() - begun)
            module.close_step()
            feed = port_feed(batch)
            theirs = step(lambda f=feed: port(**f).loss, optimizers["transformers"], clock, "transformers")
            print(f"step {number}: loss {ours:.5f} / {theirs:.5f}", flush=True)
            if abs(ours - theirs) > 2e-4 * abs(theirs):
                raise SystemExit("the losses differ: the comparison means nothing")
    for name in clock.parts:
        print(f"{name:42} {clock.median(name):8.3f} s")
    ratio = clock.median("vlcli step") / clock.median("transformers step")
    print(f"waiting for data: {100 * sum(waits[1:]) / sum(walls[1:]):.2f} % of a step's wall time")
    print(f"median of {args.steps} steps of {args.batch} on {args.device}; ratio {ratio:.3f}")


if __name__ == "__main__":
    main()
