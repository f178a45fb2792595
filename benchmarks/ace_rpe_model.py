"""What ACE-RPE costs in the whole model: forward and backward with the encoding (queries, keys, values) and without.

    python benchmarks/ace_rpe_model.py --sizes 256 384

Both models are ACE-RPE's (6 + 6 + 6 layers, width 768) with the same weights; one pass is text encoder, image encoder,
cross encoder and the gradient of everything, no dropout. Passes are taken in turn, so that whatever else the machine
does meets both. Prints the processor time of both and the ratio of the medians, and of the quickest.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time
from collections.abc import Callable

import torch

from vlcli import registry
from vlcli.nn import DataSpec, Images, Model, Pixels, Text


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[256, 384], help="pixels a side")
    parser.add_argument("--words", type=int, default=30)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5, help="timed passes of each, after one to warm up")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--mode", default="contextual", choices=["contextual", "bias"])
    parser.add_argument("--bidirectional", action="store_true")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--bf16", action="store_true")
    return parser.parse_args()


def build(size: int, words: int, position: dict[str, object] | None, args: argparse.Namespace) -> Model:
    """A model at one resolution."""
    torch.manual_seed(0)
    spec = {"name": "albef", "image_size": size, "dropout": 0.0, "bidirectional": args.bidirectional}
    data_spec = DataSpec(text_length=words)
    model: Model = registry.build("models", {**spec, "cross_position": position}, data_spec)
    return model.to(args.device).train()


def twins(size: int, args: argparse.Namespace) -> tuple[Model, Model]:
    """Without and with the encoding, all other weights alike."""
    plain = build(size, args.words, None, args)
    other = build(size, args.words, {"name": "ace-rpe", "mode": args.mode}, args)
    report = other.load_state_dict(plain.state_dict(), strict=False)
    assert not report.unexpected_keys, report.unexpected_keys
    assert all("position.embeddings" in name for name in report.missing_keys), report.missing_keys
    return plain, other


def inputs(size: int, args: argparse.Namespace) -> tuple[Text, Images]:
    """Sentences of full length and pictures of noise."""
    ids = torch.randint(1000, 30000, (args.batch, args.words))
    ids[:, 0], ids[:, -1] = 101, 102
    special = torch.zeros_like(ids, dtype=torch.bool)
    special[:, 0] = special[:, -1] = True
    names = [str(number) for number in range(args.batch)]
    text = Text(ids, torch.ones_like(special), special, ids * 0, keys=names, raw=names)
    pixels = Pixels(torch.randn(args.batch, 3, size, size), torch.full((args.batch, 2), size))
    return text.to(args.device), Images(names, pixels=pixels).to(args.device)


def passes(model: Model, text: Text, images: Images, args: argparse.Namespace) -> Callable[[], float]:
    """One pass forward and back; returns its seconds of processor time (on a GPU: of the clock)."""
    half = torch.autocast(args.device.split(":")[0], torch.bfloat16) if args.bf16 else contextlib.nullcontext()
    cuda = args.device.startswith("cuda")

    def once() -> float:
        if cuda:
            torch.cuda.synchronize()
        begun = time.perf_counter() if cuda else time.process_time()
        with half:
            fused = model.fuse(model.encode_text(text), model.encode_image(images))
            loss = fused.text.hidden.float().square().mean() + fused.image.hidden.float().square().mean()
        loss.backward()
        if cuda:
            torch.cuda.synchronize()
        spent = (time.perf_counter() if cuda else time.process_time()) - begun
        model.zero_grad(set_to_none=True)
        return spent

    return once


def main() -> None:
    args = arguments()
    torch.set_num_threads(args.threads)
    for size in args.sizes:
        text, images = inputs(size, args)
        plain, other = (passes(model, text, images, args) for model in twins(size, args))
        times: tuple[list[float], list[float]] = ([], [])
        for number in range(args.steps + 1):
            pair = (plain(), other()) if number % 2 else (other(), plain())[::-1]
            if number:
                times[0].append(pair[0])
                times[1].append(pair[1])
                print(f"{size} px, pass {number}: {pair[0]:.3f} s and {pair[1]:.3f} s", flush=True)
        middle, least = ([choose(found) for found in times] for choose in (statistics.median, min))
        print(f"{size} px, batch {args.batch}, {args.mode}: {middle[0]:.3f} s without, {middle[1]:.3f} s with ACE-RPE")
        print(f"ratio {middle[1] / middle[0]:.3f}; of the quickest {least[1] / least[0]:.3f}", flush=True)


if __name__ == "__main__":
    main()
