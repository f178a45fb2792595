"""A pre-training step of VLMo beside the released plan of passes: forward, backward, fused AdamW.

    python benchmarks/vlmo_step.py --captions captions_val2017.json --vocabulary bert-base-uncased-vocab.txt

The plan of the released code, written on the same modules: text padded to 40 pieces, one pass for masked words with its
head at every place, three passes for matching that begin at pixels and ids, two passes of one modality each with the
extra vision-language layers, all to the last token. Ours: texts as long as the batch's longest, one pass for the
matching triples, the vocabulary head at masked places, the last layer for the tokens that are read. Same weights,
words hidden, negatives (the highest scores) and losses, which must agree; float32, no dropout, steps in turn. Prints
the processor time of both and the ratio of the medians; ``--device cuda`` measures seconds of the clock instead.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parent))
from device import now

from vlcli.data.vocabulary import Tokenizer
from vlcli.engine.allocator import keep_freed_memory
from vlcli.engine.training_module import TrainingModule, build_training_module
from vlcli.nn import Batch, DataSpec, EncoderOutput, Images, Pixels, Text, View
from vlcli.nn.heads import HeadTransform
from vlcli.objectives.mlm import MARK

LENGTH = 40
OBJECTIVES = [{"name": "mlm", "weight": 0.25}, "contrast", {"name": "contrast-matching", "sampler": "best"}]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--captions", type=Path, required=True, help="COCO captions file: real sentence lengths")
    parser.add_argument("--vocabulary", type=Path, required=True)
    parser.add_argument("--size", default="base")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--steps", type=int, default=3, help="timed steps of each, after one to warm up")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--pixels", type=int, default=224, help="a side")
    parser.add_argument("--device", default="cpu")
    return parser.parse_args()


def make_batch(sentences: list[str], tokenizer: Tokenizer, data_spec: DataSpec, size: int) -> Batch:
    """Real captions, drawn pictures, 15 % of the words hidden."""
    encoded = [tokenizer.encode(sentence, sentence, LENGTH) for sentence in sentences]
    length, count = max(len(one.ids) for one in encoded), len(encoded)
    ids = torch.full((count, length), data_spec.pad_id)
    special = torch.zeros(count, length, dtype=torch.bool)
    for row, one in enumerate(encoded):
        ids[row, : len(one.ids)] = torch.tensor(one.ids)
        special[row, : len(one.ids)] = torch.tensor(one.special)
    mask = ids != data_spec.pad_id
    hide = (torch.rand(ids.shape) < 0.15) & mask & ~special
    hide[:, 1] = True  # both sides hide a word of every sentence
    pictures = Images(
        [f"i{i}" for i in range(count)], pixels=Pixels(torch.randn(count, 3, size, size), torch.full((count, 2), size))
    )
    rows = torch.arange(count)
    shared = (mask, special, ids * 0)
    clean = Text(ids, *shared, keys=sentences, raw=sentences)
    masked = Text(ids.masked_fill(hide, data_spec.mask_id), *shared, keys=sentences, raw=sentences)
    marks = {MARK: ids.masked_fill(~hide, -1)}
    views = {
        "clean": View(clean, pictures, rows, rows[:, None], aligned=True),
        "corrupted": View(masked, pictures, rows, rows[:, None], aligned=True, mask_labels=marks),
    }
    return Batch(views, {}, sentences, rows)


def padded(text: Text) -> Text:
    """To 40 pieces, as the released code's tokenizer does."""
    more = LENGTH - text.ids.shape[1]
    ids, mask, special, words = (F.pad(t, (0, more)) for t in (text.ids, text.mask, text.special, text.words))
    return Text(ids, mask, special, words, keys=text.keys, raw=text.raw)


class Released:
    """The plan of passes of the released code, on the training module's own modules.

    Args:
        module: whose weights it uses.
    """

    def __init__(self, module: TrainingModule) -> None:
        self.model = module.model
        self.heads = module.objectives

    def loss(self, batch: Batch) -> Tensor:
        """The same total as the training module's."""
        clean, hidden = batch.clean, batch.views["corrupted"]
        images, text, masked = clean.images, padded(clean.text), padded(hidden.text)
        labels = F.pad(hidden.mask_labels[MARK], (0, LENGTH - hidden.mask_labels[MARK].shape[1]), value=-1)
        contrast, texts_to_images = self._contrast(text, images)
        return 0.25 * self._mlm(masked, images, labels) + contrast + self._matching(text, images, texts_to_images)

    def _fuse(self, text: Text, images: Images) -> tuple[Tensor, Tensor]:
        fused = self.model.fuse(self.model.embed_text(text), self.model.embed_image(images))
        return fused.text.hidden, fused.pooled

    def _mlm(self, text: Text, images: Images, labels: Tensor) -> Tensor:
        scores = self.heads["mlm"].head(self._fuse(text, images)[0], None)  # at every place
        return F.cross_entropy(scores.flatten(0, 1), labels.flatten(), ignore_index=-1)

    def _alone(self, states: EncoderOutput, expert: str, kind: int) -> tuple[Tensor, Tensor]:
        """First tokens by the modality's path and by the vision-language path, all tokens computed."""
        stack, x = self.model.stack, states.hidden + self.model.types.weight[kind]
        parts, start = [(expert, x.shape[1])], stack.fused_from
        own, kept = stack(x, states.layout, parts, fused=False, keep={start})
        again, _ = stack(kept[start], states.layout, parts, fused=True, first=start)
        return own[:, 0], again[:, 0]

    def _contrast(self, text: Text, images: Images) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        head = self.heads["contrast"]
        texts = self._alone(self.model.embed_text(text), "text", 0)
        pictures = self._alone(self.model.embed_image(images), "image", 1)
        losses, scores = [], []
        pairs = ((head.text, head.image, head.scale), (head.fused_text, head.fused_image, head.fused_scale))
        for (of_text, of_image, scale), left, right in zip(pairs, texts, pictures, strict=True):
            similar = scale.exp() * F.normalize(of_image(right), dim=-1) @ F.normalize(of_text(left), dim=-1).T
            truth = torch.arange(len(similar), device=similar.device)
            losses.append((F.cross_entropy(similar, truth) + F.cross_entropy(similar.T, truth)) / 2)
            scores.append(similar.detach())
        return sum(losses) / 2, (scores[0], scores[0].T)

    def _matching(self, text: Text, images: Images, scores: tuple[Tensor, Tensor]) -> Tensor:
        same = torch.eye(len(text.ids), dtype=torch.bool, device=text.ids.device)
        sentence, picture = (found.masked_fill(same, -torch.inf).argmax(1) for found in scores)
        plan = [(text, images), (text, images.select(picture)), (text.select(sentence), images)]
        pooled = torch.cat([self._fuse(left, right)[1] for left, right in plan])
        truth = (torch.arange(len(pooled), device=pooled.device) < len(text.ids)).long()
        return F.cross_entropy(self.heads["contrast-matching"].head(pooled), truth)


def timed(run: Callable[[], Tensor], optimizer: torch.optim.Optimizer, device: str) -> tuple[float, float]:
    """The loss and the seconds of one step."""
    begun = now(device)
    loss = run()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.item(), now(device) - begun


def main() -> None:
    args = arguments()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    tokenizer, data_spec = Tokenizer.load(args.vocabulary), DataSpec(text_length=LENGTH)
    spec = {"name": "vlmo", "size": args.size, "drop_path": 0.0, "image_size": args.pixels}
    twins = [build_training_module(spec, OBJECTIVES, data_spec).to(args.device).train() for _ in range(2)]
    keep_freed_memory()  # as the trainer does; for both
    twins[1].load_state_dict(twins[0].state_dict())
    twins[1].model.stack.packed = False
    released = Released(twins[1])
    assert isinstance(twins[0].objectives["mlm"].head.transform, HeadTransform)
    optimizers = [torch.optim.AdamW(t.parameters(), lr=1e-5, fused=True) for t in twins]
    sentences = [row["caption"] for row in json.loads(args.captions.read_text())["annotations"]]
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(args.steps + 1):
        chosen = sentences[number * args.batch : (number + 1) * args.batch]
        batch = make_batch(chosen, tokenizer, data_spec, args.pixels).to(args.device)
        ours, seconds = timed(lambda b=batch: twins[0](b).total, optimizers[0], args.device)
        theirs, naive = timed(lambda b=batch: released.loss(b), optimizers[1], args.device)
        assert abs(ours - theirs) < 1e-3 * abs(theirs), (ours, theirs)
        if number:
            times[0].append(seconds)
            times[1].append(naive)
        print(f"step {number}: loss {ours:.5f} and {theirs:.5f}; {seconds:.2f} s and {naive:.2f} s", flush=True)
    own, other = (statistics.median(found) for found in times)
    print(f"VLMo {args.size}, batch {args.batch}: {own:.2f} s against {other:.2f} s of the released plan")
    print(f"ratio {own / other:.3f}")


if __name__ == "__main__":
    main()
