"""A pre-training step of LXMERT beside transformers' LxmertForPreTraining: forward, backward, fused AdamW.

    python benchmarks/lxmert_step.py --captions captions_val2017.json --vocabulary bert-base-uncased-vocab.txt

The same weights, batches, masks and losses (normaliser 6.67), no dropout, float32, one thread, steps taken in turn; the
port pads to 20 pieces as its authors' data did. Prints both losses, the medians of the processor time (which a busy
neighbour disturbs least) and the ratio.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import replace
from pathlib import Path

import torch
import transformers
from torch import Tensor
from vlcli_lxmert import LXMERT, MaskedObject, to_transformers

from vlcli import registry
from vlcli.data.vocabulary import Tokenizer
from vlcli.nn import Batch, Facts, Step, Text, View
from vlcli.nn.fake import fake_images

LENGTH = 20


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
    return parser.parse_args()


def build(args: argparse.Namespace, facts: Facts) -> tuple[LXMERT, torch.nn.ModuleDict, torch.nn.Module]:
    """Ours and the port, with the same weights."""
    language, objects, cross = args.layers
    sizes = {"language_layers": language, "object_layers": objects, "cross_layers": cross}
    model = LXMERT(facts, hidden=args.hidden, heads=args.heads, dropout=0.0, frozen_padding=True, **sizes)
    heads = {name: registry.build("objectives", name, model, facts) for name in ("mlm", "matching")}
    heads["masked-object"] = MaskedObject(model, facts, factor=6.67)
    objectives = torch.nn.ModuleDict(heads)
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
    own = {f"objectives.{name}": value for name, value in objectives.state_dict().items()}
    port.load_state_dict(to_transformers({**model.state_dict(), **own}), strict=False)
    return model.train(), objectives.train(), port.train()


def sentences(args: argparse.Namespace, facts: Facts, tokenizer: Tokenizer, number: int) -> tuple[Text, Tensor]:
    """One batch of captions, padded to its longest, with 15 % of the pieces hidden; and what they were, else -1."""
    found = json.loads(args.captions.read_text())["annotations"]
    chosen = found[number * args.batch : (number + 1) * args.batch]
    samples = [tokenizer.encode(row["caption"], str(row["id"]), LENGTH) for row in chosen]
    width = max(len(sample.ids) for sample in samples)
    ids = torch.tensor([sample.ids + [facts.pad_id] * (width - len(sample.ids)) for sample in samples])
    special = torch.tensor([sample.special + [False] * (width - len(sample.special)) for sample in samples])
    mask = torch.arange(width) < torch.tensor([len(sample.ids) for sample in samples])[:, None]
    hidden = (torch.rand(ids.shape) < 0.15) & mask & ~special
    labels = ids.masked_fill(~hidden, -1)
    return Text(ids.masked_fill(hidden, facts.mask_id), mask, special, torch.zeros_like(ids)), labels


def make_batch(args: argparse.Namespace, model: LXMERT, facts: Facts, tokenizer: Tokenizer, number: int) -> Batch:
    torch.manual_seed(number)
    text, labels = sentences(args, facts, tokenizer, number)
    images = fake_images(model.needs(), facts, args.batch)
    regions = images.regions
    assert regions is not None
    corners = torch.rand(args.batch, facts.regions, 2, 2).sort(2).values.flatten(2)
    kinds = {
        "features": torch.randn_like(regions.features).relu(),
        "boxes": corners,
        "classes": torch.randint(0, facts.region_classes, regions.mask.shape),
        "class_scores": torch.rand(regions.mask.shape),
        "attributes": torch.randint(0, facts.region_attributes, regions.mask.shape),
        "attribute_scores": torch.rand(regions.mask.shape),
    }
    images.regions = replace(regions, **kinds)
    marks = {
        "masked_words": labels,
        "masked_regions": torch.rand(regions.mask.shape) < 0.15,
        "matched": torch.randint(0, 2, (args.batch,)),
    }
    rows = torch.arange(args.batch)
    views = {
        name: View(text, images, rows, rows[:, None], True, found)
        for name, found in [("clean", {}), ("corrupted", marks)]
    }
    return Batch(views, {}, [], rows)


def our_loss(model: LXMERT, objectives: torch.nn.ModuleDict, batch: Batch) -> Tensor:
    step = Step(model, batch)
    outcomes = [objective(step, {}) for objective in objectives.values()]
    return torch.stack([mean.value() for outcome in outcomes for mean in outcome.losses.values()]).sum()


def port_feed(batch: Batch) -> dict[str, object]:
    """The batch as the port wants it, padded to 20."""
    view = batch.views["corrupted"]
    assert view.text is not None
    assert view.images is not None
    assert view.images.regions is not None
    text, regions, more = view.text, view.images.regions, LENGTH - view.text.ids.shape[1]
    labels = torch.nn.functional.pad(view.marks["masked_words"], (0, more), value=-1)
    return {
        "input_ids": torch.nn.functional.pad(text.ids, (0, more)),
        "attention_mask": torch.nn.functional.pad(text.mask, (0, more)).float(),
        "token_type_ids": torch.zeros(len(text.ids), LENGTH, dtype=torch.long),
        "visual_feats": regions.features,
        "visual_pos": regions.boxes,
        "labels": labels.masked_fill(labels < 0, -100),
        "matched_label": view.marks["matched"],
        "obj_labels": {
            "obj": (regions.classes, regions.class_scores),
            "attr": (regions.attributes, regions.attribute_scores),
            "feat": (regions.features, view.marks["masked_regions"].float()),
        },
    }


def main() -> None:
    args = arguments()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    tokenizer = Tokenizer.load(args.vocabulary)
    facts = Facts()
    model, objectives, port = build(args, facts)
    own = [*model.parameters(), *objectives.parameters()]
    optimizers = [torch.optim.AdamW(p, lr=1e-5, fused=True) for p in (own, [*port.parameters()])]
    batches = [make_batch(args, model, facts, tokenizer, number) for number in range(args.steps + 1)]
    times: list[list[float]] = [[], []]
    for number, batch in enumerate(batches):
        feed = port_feed(batch)
        losses = []
        runs = (lambda b=batch: our_loss(model, objectives, b), lambda f=feed: port(**f).loss)
        for which, (run, optimizer) in enumerate(zip(runs, optimizers, strict=True)):
            start = time.process_time()
            loss = run()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            times[which].append(time.process_time() - start)
            losses.append(loss.item())
        print(f"step {number}: loss {losses[0]:.5f} / {losses[1]:.5f}, {times[0][-1]:.2f} s / {times[1][-1]:.2f} s")
    middle = [statistics.median(found[1:]) for found in times]
    print(f"vlcli {middle[0]:.3f} s, transformers {middle[1]:.3f} s a step: ratio {middle[0] / middle[1]:.3f}")


if __name__ == "__main__":
    main()
