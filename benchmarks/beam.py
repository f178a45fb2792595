"""Beam search with cached keys and values beside the same search computed anew for every word.

    python benchmarks/beam.py

The model is DiMBERT with random weights, the pictures are random regions; sentences are held to the full length, so
that every one of both ways' steps is taken. Both ways take each batch in turn. Captions must be identical and scores
equal to 1e-5; the figure is the cached way's share of the other's processor time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import torch
from torch import Tensor

from vlcli.nn import DataSpec, EncoderOutput, Images, Regions
from vlcli.nn.generation import Generated, Generation, Recomputed, generate


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--batch", type=int, default=20)
    parser.add_argument("--beams", type=int, default=5)
    parser.add_argument("--words", type=int, default=20)
    parser.add_argument("--regions", type=int, default=36)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--vocabulary", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    return parser.parse_args()


def pictures(model: torch.nn.Module, data_spec: DataSpec, args: argparse.Namespace) -> Iterator[EncoderOutput]:
    """Embedded random pictures, batch by batch."""
    rng = torch.Generator().manual_seed(1)
    for start in range(0, args.images, args.batch):
        rows = min(args.batch, args.images - start)
        corners = torch.rand(rows, args.regions, 2, 2, generator=rng).sort(2).values.flatten(2)
        features = torch.randn(rows, args.regions, data_spec.region_dim, generator=rng)
        mask = torch.ones(rows, args.regions, dtype=torch.bool)
        regions = Regions(features, corners, mask, torch.full((rows, 2), 224))
        images = Images([str(start + row) for row in range(rows)], regions).to(args.device)
        yield model.embed_image(images)  # type: ignore[operator]


def main() -> None:
    from vlcli_dimbert import DiMBERT

    args = arguments()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    data_spec = DataSpec(vocab_size=args.vocabulary, region_dim=256, region_classes=0)
    std = 0.55 / args.hidden**0.5
    options = {"hidden": args.hidden, "heads": args.hidden // 64 or 1, "layers": args.layers, "concepts": 0}
    model = DiMBERT(data_spec, **options, init_std=std).eval().to(args.device)
    ways = {"cached": model, "anew": Recomputed(model)}
    asked = Generation(beams=args.beams, max_length=args.words, min_length=args.words - 1, no_repeat_ngram=3)
    seconds = dict.fromkeys(ways, 0.0)
    different, gap, said = 0, 0.0, set[tuple[int, ...]]()
    with torch.no_grad():
        for number, image in enumerate([*pictures(model, data_spec, args)]):
            found = {}
            for way in list(ways) if number % 2 else reversed(ways):
                begun = _now(args.device)
                found[way] = generate(ways[way], image, asked)
                seconds[way] += _now(args.device) - begun
            different += _different(found["cached"], found["anew"])
            gap = max(gap, float((found["cached"].scores - found["anew"].scores).abs().max()))
            said |= {tuple(row) for row in found["cached"].ids[:, 0].tolist()}
    share = seconds["cached"] / seconds["anew"]
    print(f"{args.images} images, beam {args.beams}, {args.words} words, {len(said)} different captions")
    print(f"cached {seconds['cached']:.1f} s, anew {seconds['anew']:.1f} s: {share:.3f} of the time (goal 0.25)")
    print(f"captions that differ: {different}; largest difference of scores {gap:.1e}")


def _now(device: str) -> float:
    if device.startswith("cuda"):
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time()


def _different(one: Generated, other: Generated) -> int:
    same: Tensor = (one.ids == other.ids).all(-1).all(-1) if one.ids.shape == other.ids.shape else torch.zeros(1)
    return int((same == 0).sum())


if __name__ == "__main__":
    main()
