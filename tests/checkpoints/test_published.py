"""Every published file at full size on the meta device: each tensor is read or excused by a rule."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from vlcli.checkpoints.load import Checkpoint, every
from vlcli.checkpoints.trial import Trial, attempt

ROOT = Path(__file__).parents[2]
EVERY = [one for one in every() if one.file.loads]
QUICK = ("model_LXRT.pth", "unc-nlp/lxmert-vqa-uncased", "vlmo_base_patch16_224.pt", "microsoft/beit-base-patch16-224")
QUICK += ("deit_tiny_patch16_224_ctx_product_50_shared_k.pth", "albef_snli_ve_lavis.pt", "bua-d2-frcn-r50.pth")
QUICK += ("beit3_base_patch16_480_coco_captioning.pth",)
FILES = {
    "lxmert": 17,
    "vlmo": 18 + 11 + 9 + 4,
    "irpe": 6 + 3,
    "albef": 7 + 5,
    "dimbert": 2 + 5,
    "bottom-up": 6 + 3 + 1 + 1,
    "beit3": 2 + 5 + 4 + 6 + 4,
}
PARAMETERS = {
    "model_LXRT.pth": 228_051_752,  # 912,207,008 bytes of float32: the 870 MB of the authors' README
    "unc-nlp/lxmert-vqa-uncased": 213_930_297,
    "unc-nlp/lxmert-gqa-uncased": 211_952_178,
    "unilm1-base-cased.bin": 108_934_468 + 7_004_928,  # BERT base with its word head, and VLP's layers for regions
    "bua-caffe-frcn-r101-k36.pth": 65_559_566,
    "e2e_faster_rcnn_X-101-64x4d-FPN_2x-vlp.pkl": 133_431_077 + 2 * 101_440 + 60,
}
"""Numbers in models with their heads."""
PLAIN = ("model_LXRT.pth", "faster_rcnn_from_caffe_attr_original.pkl")
"""Files to which their authors' pages link without TLS."""
MILLIONS = {
    "beit3_base_itc_patch16_224.pth": 222,
    "beit3_large_itc_patch16_224.pth": 674,
    "beit3_base_patch16_480_vqa.pth": 228,
    "beit3_large_patch16_480_vqa.pth": 683,
    "beit3_large_indomain_patch16_768_vgqaaug_vqa.pth": 684,
    "beit3_base_patch16_224_nlvr2.pth": 226,
    "beit3_large_patch16_224_nlvr2.pth": 681,
    "beit3_base_patch16_480_coco_captioning.pth": 271,
    "beit3_large_patch16_480_coco_captioning.pth": 739,
    "beit3_base_patch16_384_coco_retrieval.pth": 222,
    "beit3_large_patch16_384_coco_retrieval.pth": 675,
}
"""Parameters as the authors' page counts them."""


def check(one: Checkpoint) -> Trial:
    """Nothing of a file is lost, nothing of the model is new but by rule, and every rule excuses something."""
    trial = attempt(one)
    assert trial.lost == [], one.name
    assert trial.missing == [], one.name
    assert trial.mismatched == [], one.name
    assert trial.idle == [], one.name
    assert len(trial.read) + len(trial.excused) == trial.tensors
    return trial


def marked(one: Checkpoint) -> Any:
    marks = () if one.name in QUICK else pytest.mark.slow("papers")
    return pytest.param(one, id=one.name, marks=marks)


@pytest.mark.parametrize("one", map(marked, EVERY))
def test_every_published_file_is_read_whole(one):
    trial = check(one)
    assert trial.parameters == PARAMETERS.get(one.name, trial.parameters)


def test_how_many_files_each_family_published():
    families = [one.family.family for one in every()]
    assert {name: families.count(name) for name in FILES} == FILES


@pytest.mark.parametrize(("name", "millions"), MILLIONS.items())
def test_layouts_hold_as_many_numbers_as_the_authors_say(name, millions):
    (one,) = [one for one in every(("beit3",)) if one.name == name]
    assert abs(sum(entry.count for entry in one.tensors.values()) / 1e6 - millions) < 1


def test_every_file_says_where_it_is_and_under_which_licence():
    for one in every():
        assert one.file.url.startswith("https://") or one.name in PLAIN
        assert one.layout.code, one.name


def script() -> Any:
    """scripts/checkpoints.py as a module."""
    spec = importlib.util.spec_from_file_location("checkpoints_page", ROOT / "scripts" / "checkpoints.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_has_every_file_with_its_size():
    lines = (ROOT / "docs" / "checkpoints.md").read_text().splitlines()
    rows = {line.split("]")[0].removeprefix("| ["): line for line in lines if line.startswith("| [")}
    assert list(rows) == [one.name for one in every()]
    for one in every():
        count = f"{sum(entry.count for entry in one.tensors.values()):,}"
        assert f"| {one.file.layout} | {len(one.tensors)} | {count} |" in rows[one.name]


@pytest.mark.slow("papers")
def test_the_table_of_the_page_is_what_its_script_writes():
    module = script()
    assert module.page() == module.PAGE.read_text()
