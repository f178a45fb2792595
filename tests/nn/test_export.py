"""Models with lengths that vary can be exported: nothing in the blocks turns a length into a number."""

from __future__ import annotations

import torch
from tiny_batches import SMALL, make_batch
from vlcli_lxmert import LXMERT

from vlcli.nn import Images, Regions, Text

torch.set_num_threads(1)


class Pooled(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids, mask, features, boxes, boxed):
        text = Text(ids, mask, torch.zeros_like(mask), torch.zeros_like(ids))
        images = Images([], Regions(features, boxes, boxed, torch.zeros(1)))
        return self.model.fuse(self.model.encode_text(text), self.model.encode_image(images)).pooled


def inputs(**sizes):
    view = make_batch(**sizes).clean
    regions = view.images.regions
    return view.text.ids, view.text.mask, regions.features, regions.boxes, regions.mask


def test_lxmert_exports_with_dynamic_rows_words_and_regions():
    torch.manual_seed(0)
    sizes = {"hidden": 16, "heads": 2, "text_layers": 1, "image_layers": 1, "cross_layers": 1}
    model = Pooled(LXMERT(SMALL, **sizes).eval())
    rows, words, regions = (torch.export.Dim(name) for name in ("rows", "words", "regions"))
    shapes = [{0: rows, 1: words}] * 2 + [{0: rows, 1: regions}] * 3
    program = torch.export.export(model, inputs(rows=3), dynamic_shapes=tuple(shapes))
    other = inputs(rows=2, length=7, regions=4, seed=5)
    torch.testing.assert_close(program.module()(*other), model(*other), atol=1e-6, rtol=1e-6)
