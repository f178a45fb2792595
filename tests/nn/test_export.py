"""Models with lengths that vary can be exported: nothing in the blocks turns a length into a number."""

from __future__ import annotations

import pytest
import torch
from tiny_batches import SMALL, make_batch
from vlcli_lxmert import LXMERT

from vlcli import registry
from vlcli.errors import ComponentError
from vlcli.nn import Images, Layout, Regions, Text

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


SIZES = {"hidden": 16, "heads": 2, "text_layers": 1, "image_layers": 1, "cross_layers": 1}
IRPE = [
    {"name": "irpe", "method": "product", "sides": ["query", "key", "value"]},
    {"name": "irpe", "method": "cross", "sides": ["query", "key", "value"], "off_plane": "nothing"},
    {"name": "irpe", "method": "euclidean", "mode": "bias", "sides": ["query", "key"]},
]


def encodings():
    """Every registered encoding of regions, iRPE in three forms."""
    for name in registry.names("positions"):
        if registry.find("positions", name).distribution == "vlcli":
            try:
                LXMERT(SMALL, **SIZES, image_position=["box", name])
            except ComponentError:
                continue  # of words, or of grids alone
            yield name
    yield from IRPE


OFTEN = ("box", "rope-2d", "swin-bias", "irpe")
"""Encodings whose export every change tries; the others are slow tests."""
CELLS = [one if one in OFTEN else pytest.param(one, marks=pytest.mark.slow) for one in ("box", *encodings())]


@pytest.mark.parametrize("position", CELLS, ids=str)
def test_lxmert_exports_with_dynamic_rows_words_and_regions(position):
    torch.manual_seed(0)
    model = Pooled(LXMERT(SMALL, **SIZES, image_position=["box", *([position] * (position != "box"))]).eval())
    for table in (one for name, one in model.named_parameters() if "lookup_table" in name):
        torch.nn.init.normal_(table)
    rows, words, regions = (torch.export.Dim(name) for name in ("rows", "words", "regions"))
    shapes = [{0: rows, 1: words}] * 2 + [{0: rows, 1: regions}] * 3
    program = torch.export.export(model, inputs(rows=3), dynamic_shapes=tuple(shapes))
    other = inputs(rows=2, length=7, regions=4, seed=5)
    torch.testing.assert_close(program.module()(*other), model(*other), atol=1e-6, rtol=1e-6)


class Joined(torch.nn.Module):
    def forward(self, words, boxes, boxed):
        layout = Layout.for_text(words) + Layout.for_boxes(boxes, boxed)
        return layout.valid, layout.boxes


def test_the_sum_of_two_layouts_keeps_the_batch_free():
    """A single-stream model joins the layouts of text and image."""

    def given(rows, words, regions):
        return torch.ones(rows, words, dtype=torch.bool), torch.rand(rows, regions, 4), torch.ones(rows, regions).bool()

    rows, words, regions = (torch.export.Dim(name) for name in ("rows", "words", "regions"))
    shapes = ({0: rows, 1: words}, {0: rows, 1: regions}, {0: rows, 1: regions})
    program = torch.export.export(Joined(), given(3, 4, 5), dynamic_shapes=shapes)
    other = given(2, 6, 7)
    for found, wanted in zip(program.module()(*other), Joined()(*other), strict=True):
        torch.testing.assert_close(found, wanted)
    shared = Layout.for_grid(2, 2) + Layout.for_text(torch.ones(3, 4, dtype=torch.bool))
    assert shared.valid.shape == (3, 8)
    assert (Layout.for_text(torch.ones(3, 4, dtype=torch.bool)) + Layout.for_grid(2, 2)).valid.shape == (3, 8)
