"""FiLM against its equations written out, and what it learns."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from vlcli_backbone import FiLM

from vlcli.engine.training_module import build_training_module
from vlcli.errors import ComponentError
from vlcli.nn import Batch, DataSpec, ForwardPasses, Images, Pixels, Text, View

SPEC = DataSpec(vocab_size=20, unk_id=1, cls_id=2, sep_id=3, mask_id=4, text_length=5, answers=("yes", "no"))


def batch_of(pixels: torch.Tensor, ids: list[list[int]], image_rows: list[int]) -> Batch:
    count = len(pixels)
    images = Images([str(n) for n in range(count)], pixels=Pixels(pixels, torch.full((count, 2), pixels.shape[-1])))
    padded = torch.tensor([row + [0] * (5 - len(row)) for row in ids])
    keys = [str(row) for row in ids]
    text = Text(padded, padded > 0, torch.zeros_like(padded, dtype=torch.bool), padded - 1, keys=keys)
    rows = torch.arange(len(ids))
    view = View(text, images, rows, torch.tensor(image_rows)[:, None])
    return Batch({"clean": view}, {}, keys, rows)


@pytest.mark.parametrize(("side", "grid"), [(64, (8, 8)), (50, (7, 7)), ((24, 40), (3, 5))])
def test_cells_have_their_places_whatever_the_size(side, grid):
    model = FiLM(SPEC, image_size=side)
    height, width = model.input_spec().size
    batch = batch_of(torch.randn(2, 3, height, width), [[2, 5, 3], [2, 6, 7, 3]], [0, 1])
    image = ForwardPasses(model, batch).image()
    assert model.grid == grid == image.layout.grid
    assert image.hidden.shape == (2, grid[0] * grid[1], 64)
    assert image.pooled.shape == ForwardPasses(model, batch).fused().pooled.shape == (2, 128)


def test_pairs_are_modulated_as_the_equations_say():
    torch.manual_seed(0)
    model = FiLM(SPEC, image_size=16, convolutions=[8, 16], hidden=12, words=6, blocks=1).eval()
    torch.nn.init.normal_(model.place.weight)
    batch = batch_of(torch.randn(2, 3, 16, 16), [[2, 5, 3], [2, 6, 7, 8, 3], [2, 9, 3]], [1, 0, 1])
    fused = ForwardPasses(model, batch).fused().pooled
    for row, (ids, picture) in enumerate([([2, 5, 3], 1), ([2, 6, 7, 8, 3], 0), ([2, 9, 3], 1)]):
        question = model.question(model.words(torch.tensor([ids])))[1][0, 0]
        first, second, third, fourth = model.modulate(question).split(16)
        x = model.stem(batch.clean.images.pixels.images[picture : picture + 1])[0]  # (16, 4, 4)
        line = torch.linspace(-1, 1, 4)
        places = torch.stack([line[:, None].expand(4, 4), line.expand(4, 4)], -1)
        x = x + model.place(places).permute(2, 0, 1)
        x = F.relu(x * (1 + first[:, None, None]) + second[:, None, None])
        normal = F.group_norm(model.blocks[0](x[None]), 8)[0]
        x = x + F.relu(normal * (1 + third[:, None, None]) + fourth[:, None, None])
        mixed = F.relu(model.mix(x.flatten(1).T))
        expected = F.relu(model.out(mixed.max(0).values))
        torch.testing.assert_close(fused[row], expected)


def test_a_picture_is_read_once_for_all_its_questions():
    model, read = FiLM(SPEC, image_size=16), []
    model.stem.register_forward_hook(lambda module, given, out: read.append(len(out)))
    batch = batch_of(torch.randn(2, 3, 16, 16), [[2, 5, 3], [2, 6, 3], [2, 7, 3]], [0, 0, 1])
    ForwardPasses(model, batch).fused()
    assert read == [2]


def test_without_words_it_has_no_part_that_reads_texts():
    model = FiLM(SPEC, image_size=16, words=0)
    assert not model.input_spec().text
    assert not [name for name, _ in model.named_parameters() if name.startswith(("words", "question", "modulate"))]


def test_it_learns_whether_a_colour_is_there():
    torch.manual_seed(0)
    module = build_training_module({"name": "film", "image_size": 16, "hidden": 32, "words": 16}, ["answering"], SPEC)
    optimizer = torch.optim.AdamW(module.parameters(), lr=5e-3)
    draw = torch.Generator().manual_seed(1)

    def drawn(count: int = 64) -> Batch:
        channel = torch.randint(3, (count,), generator=draw)
        asked = torch.randint(3, (count,), generator=draw)
        pixels = torch.randn(count, 3, 16, 16, generator=draw) * 0.1
        corner = torch.randint(12, (count, 2), generator=draw)
        for row in range(count):
            top, left = corner[row]
            pixels[row, channel[row], top : top + 4, left : left + 4] += 2
        batch = batch_of(pixels, [[2, 5 + int(word), 3] for word in asked], list(range(count)))
        batch.targets["answers"] = [{"yes" if same else "no": 1.0} for same in (channel == asked).tolist()]
        return batch

    for _ in range(120):
        module(drawn()).total.backward()
        optimizer.step()
        optimizer.zero_grad()
        module.close_step()
    batch = drawn(200)
    chosen = module.eval().predict(module.step(batch))["answering"]["logits"].argmax(1)
    expected = [("yes", "no").index(*answers) for answers in batch.targets["answers"]]
    assert (chosen == torch.tensor(expected)).float().mean() > 0.9


def test_a_model_without_convolutions_is_refused():
    with pytest.raises(ComponentError, match="needs a convolution"):
        FiLM(SPEC, convolutions=[])
