"""Weights from elsewhere in ALBEF's model: its own files and LAVIS', timm's ViT, transformers' BERT."""

from __future__ import annotations

from typing import Any

import pytest
import timm
import torch
import torch.nn.functional as F
from timm.models.deit import VisionTransformerDistilled
from torch import Tensor
from transformers import BertConfig, BertForMaskedLM, BertModel
from vlcli_albef.weights import to_albef

from tests.plugins.albef.reference import DATA_SPEC, IDS, MODEL, batch, close, released, uniform, value
from vlcli.engine.training_module import TrainingModule, build_training_module
from vlcli.engine.weights import LoadReport, WeightLoader
from vlcli.errors import ComponentError, DataError

PRETRAINING: list[dict[str, Any]] = [
    {"name": "distilled-mlm"},
    {"name": "momentum-contrast", "width": 12, "queue": 24},
    {"name": "contrast-matching"},
]


def pretrained() -> dict[str, Tensor]:
    """A file of ALBEF's pre-training, momentum copies included."""
    return released(build_training_module(MODEL, PRETRAINING, DATA_SPEC).double())


def filled(
    model: dict[str, Any], objectives: list[dict[str, Any]], state: dict[str, Tensor], allow: list[str] | None = None
) -> tuple[TrainingModule, LoadReport]:
    module = build_training_module({**MODEL, **model}, objectives, DATA_SPEC).double()
    loader = WeightLoader(module, allow or [])
    loader.add(state, "weights", ours=False)
    return module, loader.finish()


def test_a_file_goes_where_it_came_from() -> None:
    state = pretrained()
    module, report = filled({}, PRETRAINING, state)
    assert not report.mismatched
    assert not report.left_over
    assert set(report.new) == {
        f"objectives.momentum-contrast.{name}" for name in ("image_ids", "text_ids", "filled", "place")
    }
    contrast = module.objectives["momentum-contrast"]
    close(contrast.image_copy.weight, state["vision_proj_m.weight"])
    close(module.teacher.cls_token, state["visual_encoder_m.cls_token"])
    close(module.teacher.cross.text[0].other.attention.key.weight,
          state["text_encoder_m.bert.encoder.layer.2.crossattention.self.key.weight"])  # fmt: skip


def test_heads_go_by_their_kind_whatever_a_recipe_calls_them() -> None:
    state = pretrained()
    called = [
        {**PRETRAINING[0], "as": "words"},
        {**PRETRAINING[1], "as": "contrast"},
        {**PRETRAINING[2], "as": "matching"},
    ]
    module, report = filled({}, called, state)
    assert not report.left_over
    close(module.objectives["contrast"].text.weight, state["text_proj.weight"])
    close(module.objectives["matching"].head.bias, state["itm_head.bias"])
    close(module.objectives["words"].head_copy.transform.dense.bias,
          state["text_encoder_m.cls.predictions.transform.dense.bias"])  # fmt: skip


@pytest.mark.parametrize("prefix", ["", "module."])
def test_downstream_and_lavis_names(prefix: str) -> None:
    state = pretrained()
    stripped = {prefix + name.replace("bert.", ""): value for name, value in state.items()}
    first, second = (filled({}, PRETRAINING, one)[0].state_dict() for one in (state, stripped))
    assert all(torch.equal(first[name], second[name]) for name in first if "ids" not in name)


def test_every_cross_layer_serves_both_pictures() -> None:
    state = pretrained()
    module, report = filled({"images": 2}, [{"name": "text-assignment", "width": 12}], state)
    for number, layer in enumerate(module.model.cross.text):
        stem = f"text_encoder.bert.encoder.layer.{2 + number // 2}."
        close(layer.other.attention.query.weight, state[f"{stem}crossattention.self.query.weight"])
        close(layer.feed_forward.inner.weight, state[f"{stem}intermediate.dense.weight"])
    assert module.model.cross.text[1].other.attention.key is module.model.cross.text[0].other.attention.key
    assert "2 cross layers, each used for 2 pictures" in report.reshaped
    close(module.objectives["text-assignment"].image.weight, state["vision_proj.weight"])


def test_a_decoder_starts_as_the_cross_encoder() -> None:
    state = pretrained()
    module, _ = filled({"decoder_layers": 2}, [{"name": "answer-generation"}], state)
    for model, copied in ((module.model, ""), (module.teacher, "_m")):
        stem = f"text_encoder{copied}."
        decoder = model.decoder
        close(decoder.embed.words.weight, state[f"{stem}bert.embeddings.word_embeddings.weight"])
        close(decoder.layers[1].other.attention.value.weight,
              state[f"{stem}bert.encoder.layer.3.crossattention.self.value.weight"])  # fmt: skip
        close(decoder.head.transform.dense.weight, state[f"{stem}cls.predictions.transform.dense.weight"])


def test_our_own_checkpoint_gives_decoder_and_second_picture_too() -> None:
    source, _ = filled({}, PRETRAINING, pretrained())
    state = {n: v.detach().clone() for n, v in source.state_dict().items() if not n.startswith("teacher.")}
    answering = build_training_module(
        {**MODEL, "decoder_layers": 2}, [{"name": "answer-generation"}], DATA_SPEC
    ).double()
    loader = WeightLoader(answering)
    loader.add(state, "a stage", ours=True)
    loader.finish()
    close(answering.model.decoder.head.bias, state["objectives.distilled-mlm.head.bias"])
    close(answering.model.decoder.layers[0].itself.norm.weight, state["model.cross.text.0.itself.norm.weight"])
    pairs = build_training_module(
        {**MODEL, "images": 2}, [{"name": "distilled-classification", "classes": 2}], DATA_SPEC
    )
    loader = WeightLoader(pairs.double())
    loader.add(state, "a stage", ours=True)
    loader.finish()
    close(pairs.model.cross.text[3].feed_forward.norm.weight, state["model.cross.text.1.feed_forward.norm.weight"])


def test_places_of_another_resolution() -> None:
    state = pretrained()
    module, report = filled({"image_size": 80}, PRETRAINING, state)
    for model, name in ((module.model, "visual_encoder.pos_embed"), (module.teacher, "visual_encoder_m.pos_embed")):
        front, cells = state[name][:, :1], state[name][:, 1:]
        grid = cells.reshape(1, 3, 3, -1).permute(0, 3, 1, 2)
        # ALBEF interpolates in the file's precision, float32.
        wide = F.interpolate(grid.float(), size=(5, 5), mode="bicubic", align_corners=False)
        wanted = torch.cat([front, wide.permute(0, 2, 3, 1).flatten(1, 2).double()], 1)[0]
        close(model.positions[0].table.weight, wanted, 1e-6)
    assert any("interpolated to 5x5" in line for line in report.reshaped)


def test_places_where_the_cross_layers_begin_are_interpolated_too() -> None:
    small = {**MODEL, "joint_image_position": "learned"}
    source = build_training_module(small, PRETRAINING, DATA_SPEC)
    large = build_training_module({**small, "image_size": 80}, PRETRAINING, DATA_SPEC)
    loader = WeightLoader(large)
    loader.add({n: v for n, v in source.state_dict().items() if not n.startswith("teacher.")}, "a stage", ours=True)
    report = loader.finish()
    for part in ("joint_image", "positions"):
        wide, narrow = getattr(large.model, part)[0], getattr(source.model, part)[0]
        cells = narrow.table.weight[1:].T.reshape(1, -1, 3, 3)
        wanted = F.interpolate(cells, size=(5, 5), mode="bicubic", align_corners=False).flatten(2)[0].T.detach()
        close(wide.table.weight[1:], wanted, 1e-6)
        close(wide.table.weight[:1], narrow.table.weight[:1].detach())
    assert sum("interpolated to 5x5" in line for line in report.reshaped) == 2


def test_a_lacking_weight_is_an_error() -> None:
    state = pretrained()
    del state["text_encoder.bert.encoder.layer.3.crossattention.self.key.bias"]
    with pytest.raises(DataError, match="not in what it starts from"):
        filled({}, PRETRAINING, state)


def test_timm_s_vit_sees_as_it_did() -> None:
    vit = timm.models.VisionTransformer(img_size=48, embed_dim=24, depth=3, num_heads=4, num_classes=5).double().eval()
    allow, objectives = ["^model.(text|embed|cross)"], [{"name": "masked-image", "target": "pixels"}]
    module, report = filled({"image_layers": 3}, objectives, vit.state_dict(), allow)
    pixels = uniform("input.image_0", (3, 3, 48, 48))
    close(module.eval().step(batch()).image().hidden, vit.forward_features(pixels).detach().numpy())
    assert not [name for name in report.left_over if name.startswith("model.")]
    first, told = filled({"image_layers": 2}, objectives, vit.state_dict(), allow)
    assert "image encoder: the first 2 of 3 layers are taken" in told.reshaped
    vit.blocks = vit.blocks[:2]
    close(first.eval().step(batch()).image().hidden, vit.forward_features(pixels).detach().numpy())


def test_a_distilled_deit_loses_its_second_token() -> None:
    deit = VisionTransformerDistilled(img_size=48, embed_dim=24, depth=2, num_heads=4, num_classes=5).double()
    with torch.no_grad():
        deit.pos_embed.normal_()
    module, _ = filled({}, [{"name": "mlm"}], deit.state_dict(), ["^model.(text|embed|cross)"])
    table = module.model.positions[0].table.weight
    close(table[0], deit.pos_embed[0, 0].detach().numpy())
    close(table[1:], deit.pos_embed[0, 2:].detach().numpy())


def test_transformers_bert_reads_as_it_did() -> None:
    sizes = {"hidden_size": 24, "num_attention_heads": 4, "intermediate_size": 48, "max_position_embeddings": 16}
    config = BertConfig(vocab_size=41, num_hidden_layers=4, **sizes, attn_implementation="eager")
    allow = ["^model.(image|patch|cls_token|positions)", r"^model.cross.text.\d.other"]
    torch.manual_seed(0)
    bert = BertModel(config).double().eval()
    module, _ = filled({}, [{"name": "mlm"}], bert.state_dict(), allow)
    mask = (IDS != 0).long()
    states = bert(IDS, attention_mask=mask, output_hidden_states=True).hidden_states
    close(module.eval().step(batch()).text().hidden[mask.bool()], states[2][mask.bool()].detach().numpy())
    upper = bert.state_dict()["encoder.layer.3.attention.self.query.weight"]
    close(module.model.cross.text[1].itself.attention.query.weight, upper)
    whole = BertForMaskedLM(config).double()
    other, report = filled({}, [{"name": "distilled-mlm"}], whole.state_dict(), allow)
    head = other.objectives["distilled-mlm"]
    close(head.head.transform.dense.weight, whole.cls.predictions.transform.dense.weight.detach().numpy())
    close(head.head_copy.transform.dense.weight, whole.cls.predictions.transform.dense.weight.detach().numpy())
    assert not report.left_over


def test_albef_s_own_refuses_what_it_has_not() -> None:
    own = build_training_module(
        {"name": "albef", "as_albef": True, "hidden": 16, "heads": 2, "image_size": 32}, [], DATA_SPEC
    )
    assert len(own.model.image.layers) == 12
    with pytest.raises(ComponentError, match="ALBEF's own"):
        build_training_module({**MODEL, "as_albef": True, "cross_position": "ace-rpe"}, [], DATA_SPEC)


def test_text_assignment_keeps_its_projection_beside_a_head_of_its_own() -> None:
    """A file of ALBEF's preparation for NLVR2 holds ``ta_head`` and the pre-training's ``vision_proj``."""
    state = pretrained()
    state |= {
        "ta_head.weight": value("ta_head.weight", (3, MODEL["hidden"])),
        "ta_head.bias": value("ta_head.bias", (3,)),
    }
    module, report = filled({"images": 2}, [{"name": "text-assignment", "width": 12}], state)
    found = module.objectives["text-assignment"]
    close(found.head.weight, state["ta_head.weight"])
    close(found.image.weight, state["vision_proj.weight"])
    close(found.image.bias, state["vision_proj.bias"])
    assert not [name for name in report.new if name.startswith("objectives.")]


def test_a_file_without_token_types_is_read_with_types_that_add_nothing():
    module = build_training_module(MODEL, [], DATA_SPEC)
    state = to_albef(module.state_dict(), len(module.model.text.layers))
    types = state.pop("text_encoder.bert.embeddings.token_type_embeddings.weight")
    report: list[str] = []
    made = module.model.adapt(state, report)
    assert torch.equal(made["embed.segments.weight"], torch.zeros_like(types))
    assert set(made) == set(module.model.state_dict())
    assert any("no token types" in line for line in report)
