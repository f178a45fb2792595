"""``vlcli.foreign.equip``: masks, caches, copies, exports, other implementations, and what an encoding is for."""

from __future__ import annotations

import copy
import re
import sys
from pathlib import Path

import foreign_models as fm
import pytest
import timm
import torch
from torch import nn
from transformers import PreTrainedConfig

from vlcli import registry
from vlcli.errors import ComponentError
from vlcli.foreign import AttentionEquipper, PictureInText, equip, stacks
from vlcli.nn import Layout


def drawn(name: str, encoding: str, implementation: str | None = None) -> fm.Foreign:
    foreign = fm.equipped(name, encoding, implementation)
    fm.draw(fm.added(foreign, name))
    return foreign


@pytest.mark.parametrize(
    ("name", "encoding"), [("DINOv3", "shaw"), ("timm EVA-02", "log-cpb"), ("Llama with a picture", "rope-2d")]
)
def test_eager_and_sdpa_agree(name, encoding):
    with torch.no_grad():
        eager, sdpa = (drawn(name, encoding, kind)() for kind in ("eager", "sdpa"))
        plain = fm.made(name)()
    assert torch.allclose(eager, sdpa, atol=1e-5)
    assert not torch.allclose(eager, plain, atol=1e-2)


@pytest.mark.parametrize("name", [name for name in fm.MODELS if hasattr(fm.made(name).model, "config")])
def test_the_callers_configuration_stays_as_it_was(name):
    """And makes the next model, which has no encoding."""
    encoding = next((one for one in fm.ENCODINGS if fm.cell(fm.made(name), one) not in fm.REASONS), None)
    assert encoding is not None
    foreign, plain = fm.made(name), fm.made(name)
    config, before = foreign.model.config, copy.deepcopy(foreign.model.config)
    equip(foreign.model, fm.ENCODINGS[encoding], **foreign.options)
    assert settings(config) == settings(before)
    torch.manual_seed(0)
    plain.model = type(foreign.model)(config)
    fm.enliven(plain.model)
    plain.model.eval()
    with torch.no_grad():
        assert torch.equal(plain(), fm.made(name)())
        foreign()


def settings(config):
    """All of a configuration, what is never written to its file too."""
    parts = {
        key: settings(value) if isinstance(value, PreTrainedConfig) else value for key, value in vars(config).items()
    }
    return {**parts, "attention": config._attn_implementation}


def test_an_implementation_chosen_afterwards_keeps_the_encoding():
    foreign = drawn("DINOv3", "irpe")
    with torch.no_grad():
        before = foreign()
        foreign.model.set_attn_implementation("eager")
        assert torch.allclose(foreign(), before, atol=1e-5)
        foreign.model.config._attn_implementation = "flex_attention"
        with pytest.raises(ComponentError, match="attention function"):
            foreign()


def test_padding_and_other_pictures_change_nothing():
    """SigLIP 2: a picture alone has the features that it has in a batch with a larger one."""
    foreign = drawn("SigLIP 2", "irpe")
    with torch.no_grad():
        both = foreign.model(**foreign.inputs).last_hidden_state[1, :10]
        alone = foreign.model(**{key: value[1:, :10] if key != "spatial_shapes" else value[1:]
                                 for key, value in foreign.inputs.items()})  # fmt: skip
    assert torch.allclose(both, alone.last_hidden_state[0], atol=1e-5)


def test_naflex_coordinates_and_a_picture_agree():
    """The same picture as pixels and as patches with coordinates, in an order of their own."""
    torch.manual_seed(0)
    foreign = drawn("timm NaFlexViT, one size", "irpe")
    nn.init.zeros_(foreign.model.embeds.pos_embed)  # timm resizes it in two ways
    pixels = fm.pictures()
    patches = pixels.unflatten(-1, (4, 16)).unflatten(-3, (4, 16)).permute(0, 2, 4, 3, 5, 1).flatten(1, 2).flatten(2)
    place, order = torch.cartesian_prod(torch.arange(4), torch.arange(4)), torch.randperm(16)
    batch = {"patches": patches[:, order], "patch_coord": place[order].expand(2, -1, -1)}
    batch["patch_valid"] = torch.ones(2, 16, dtype=torch.bool)
    with torch.no_grad():
        assert torch.allclose(foreign.model(pixels), foreign.model(batch), atol=1e-5)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize(
    ("name", "encoding"),
    [("Llama with a picture", "irpe"), ("Llama", "shaw, line"), ("ModernBERT decoder", "transformer-xl, line")],
)
def test_generating_with_a_cache_is_generating_without(name, encoding, implementation):
    """A growing cache, and one of fixed size; ModernBERT's windows of four words are full after a few steps."""
    foreign = drawn(name, encoding, implementation)
    chosen = {"max_new_tokens": 9, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    chosen |= {"output_logits": True, "return_dict_in_generate": True}
    caches = ({"use_cache": False}, {"use_cache": True}, {"use_cache": True, "cache_implementation": "static"})
    with torch.no_grad():
        made = [torch.stack(foreign.model.generate(**foreign.inputs, **chosen, **cache).logits) for cache in caches]
    assert torch.allclose(made[1], made[0], atol=1e-4)
    assert torch.allclose(made[2], made[0], atol=1e-4)


def test_captions_with_a_cache_are_those_without():
    """BLIP writes its attention out, and keeps the keys of a picture in a cache too."""
    torch.manual_seed(0)
    foreign = fm.blip(writes=True)
    fm.enliven(foreign.model.eval())
    chosen = {"max_new_tokens": 8, "min_new_tokens": 8, "do_sample": False}
    chosen |= {"output_logits": True, "return_dict_in_generate": True}

    def logits(cached: bool) -> torch.Tensor:
        with torch.no_grad():
            return torch.stack(foreign.model.generate(**foreign.inputs, **chosen, use_cache=cached).logits)

    known, plain = dict(foreign.model.named_parameters()), logits(True)
    equip(foreign.model, fm.ENCODINGS["shaw, line"], stack="text_decoder.*attention.self", start="zero")
    assert torch.allclose(logits(True), plain, atol=1e-5)
    fm.draw({name: one for name, one in foreign.model.named_parameters() if name not in known})
    assert torch.allclose(logits(True), logits(False), atol=1e-5)
    assert not torch.allclose(logits(True), plain, atol=1e-2)


def test_an_encoding_that_reads_tokens_refuses_a_cache():
    foreign = drawn("Llama with a picture", "ace-rpe")
    with pytest.raises(ComponentError, match="use_cache=False"):
        foreign.model.generate(**foreign.inputs, max_new_tokens=3, use_cache=True, pad_token_id=0)


def test_causal_decoders_stay_causal():
    foreign = drawn("Llama with a picture", "shaw")
    tokens = foreign.inputs["inputs_embeds"]
    with torch.no_grad():
        whole = foreign.model(inputs_embeds=tokens).logits
        changed = torch.cat([tokens[:, :-1], torch.randn(2, 1, 32)], 1)
        assert torch.allclose(foreign.model(inputs_embeds=changed).logits[:, :-1], whole[:, :-1], atol=1e-5)


def test_copies_are_independent_and_remember_nothing():
    foreign = drawn("LXMERT", "ace-rpe")
    foreign().sum().backward()
    twin = fm.Foreign(copy.deepcopy(foreign.model), foreign.inputs)
    with torch.no_grad():
        assert torch.allclose(twin(), foreign())
        for table in fm.added(twin, "LXMERT").values():
            table.zero_()
        assert not torch.allclose(twin(), foreign(), atol=1e-3)


def test_one_stack_by_name_and_tables_beside_it():
    foreign = fm.made("LXMERT")
    names = [stack.name for stack in stacks(foreign.model, "irpe") if not stack.refusal]
    assert names == ["encoder.x_layers.*.visn_self_att.self", "encoder.r_layers.*.attention.self"]
    equip(foreign.model, "irpe", stack=names[1])
    assert set(fm.added(foreign, "LXMERT")) == {
        f"encoder.r_layers.{layer}.attention.self.rpe_k.lookup_table_weight" for layer in (0, 1)
    }


def test_refusals_name_layers_and_reasons():
    with pytest.raises(ComponentError, match="BertModel cannot be equipped with 'ace-rpe'") as caught:
        equip(fm.made("BERT looking at patches").model, "ace-rpe", groups=4)
    assert "encoder.layer.*.crossattention.self (BertCrossAttention)" in caught.value.got
    assert "give `keys`" in caught.value.got
    foreign = fm.made("Llama with a picture")
    equip(foreign.model, "irpe", tokens=PictureInText(9, 9))
    with pytest.raises(ComponentError, match="fewer tokens"):
        foreign()
    foreign = fm.made("BERT")
    equip(foreign.model, "irpe", tokens=Layout.for_grid(2, 2))
    with pytest.raises(ComponentError, match="not that of the tokens"):
        foreign()
    with pytest.raises(ComponentError, match="no tables"):
        equip(fm.made("ViT").model, "rope-2d", start="zero")


def test_a_stranger_s_style_is_found(monkeypatch):
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.both, self.values = nn.Linear(8, 16), nn.Linear(8, 8)

        def forward(self, x):
            q, k = self.both(x).unsqueeze(1).chunk(2, -1)
            place = getattr(self, "place", None)
            if place is None:
                return nn.functional.scaled_dot_product_attention(q, k, self.values(x)[:, None])[:, 0]
            return place.attend(q, k, self.values(x)[:, None], None, scale=8**-0.5, dropout=0.0)[0][:, 0]

    class OwnEquipper(AttentionEquipper):
        """An attention of this test."""

        looks_for = "the attention of this test"

        def takes(self, module):
            return isinstance(module, Own)

        def heads(self, module):
            return 1, 8

        def install(self, module, place):
            module.__dict__["place"] = place

    monkeypatch.setattr(sys.modules["vlcli.registry.entries"], "_session", {})
    registry.register("equippers", "own", OwnEquipper)
    torch.manual_seed(0)
    model, tokens = nn.Sequential(Own(), Own()), torch.randn(2, 5, 8)
    plain = model(tokens)
    equip(model, "irpe", tokens=Layout.for_grid(2, 2, skip=1))
    assert torch.allclose(model(tokens), plain, atol=1e-6)
    nn.init.normal_(model[1].rpe_k.lookup_table_weight)
    assert not torch.allclose(model(tokens), plain, atol=1e-3)


def above(rows, columns):
    """Pictures of two marks in different rows of 3x3 patches, and whether the first is above the second."""
    first, second = torch.randint(3, (rows,)), torch.randint(2, (rows,))
    second = second + (second >= first)
    cells, number = torch.zeros(rows, 3, 3, 3), torch.arange(rows)
    for channel, row in enumerate((first, second)):
        cells[number, channel, row, columns[:, channel]] = 3
    return cells.repeat_interleave(8, 2).repeat_interleave(8, 3), (first < second).long()


@pytest.mark.slow
@pytest.mark.parametrize(("encoding", "steps"), [(None, 400), ("irpe", 800)])
def test_places_are_learned_that_content_does_not_tell(encoding, steps):
    """Which of two marks is above the other: without positions both answers look alike."""
    torch.manual_seed(200)
    sizes = {"img_size": 24, "patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 2, "num_classes": 2}
    model = timm.create_model("vit_tiny_patch16_224", **sizes, pos_embed="none", class_token=False, global_pool="avg")
    model = equip(model, encoding, sides=["key", "value"]) if encoding else model
    training = torch.optim.AdamW(model.parameters(), lr=1e-3)
    right = []
    while len(right) < steps and (len(right) < 50 or torch.stack(right[-50:]).mean() < 0.98):
        pixels, label = above(64, torch.randint(3, (64, 2)))
        scores = model(pixels)
        right.append((scores.argmax(1) == label).float().mean())
        training.zero_grad()
        nn.functional.cross_entropy(scores, label).backward()
        training.step()
    reached = float(torch.stack(right[-50:]).mean())
    assert reached < 0.6 if encoding is None else reached > 0.95


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in fm.MODELS if name not in ("timm BEiT", "timm Swin")])
def test_exports_still_pass(name):
    foreign = fm.made(name)
    with torch.no_grad():
        try:
            torch.export.export(foreign.model, foreign.args, foreign.inputs)
        except Exception as error:
            pytest.skip(f"nor does it export without an encoding: {type(error).__name__}")
        encoding = next(one for one in fm.ENCODINGS if set(fm.cell(foreign, one)) - set(fm.REASONS))
        foreign = drawn(name, encoding)
        wanted = fm.flat(foreign.model(*foreign.args, **foreign.inputs))
        program = torch.export.export(foreign.model, foreign.args, foreign.inputs)
        assert torch.allclose(fm.flat(program.module()(*foreign.args, **foreign.inputs)), wanted, atol=1e-5)


def test_the_page_s_examples_run(capsys):
    """docs/equip.md: every program runs, and the first prints what the page says."""
    page = (Path(__file__).parents[2] / "docs" / "equip.md").read_text(encoding="utf-8")
    programs = re.findall(r"```python\n(.*?)```", page, re.S)
    assert len(programs) == 4
    for number, program in enumerate(programs):
        exec(program, {})
        if number == 0:
            assert capsys.readouterr().out.strip() == re.findall(r"```text\n(.*?)```", page, re.S)[0].strip()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "encoding"), [("timm DINOv3", "irpe"), ("LXMERT", "ace-rpe"), ("Llama with a picture", "log-cpb")]
)
def test_onnx_computes_the_same(name, encoding, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    foreign = drawn(name, encoding)

    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = foreign.model

        def forward(self, *given):
            by_name = {} if foreign.args else dict(zip(foreign.inputs, given, strict=True))
            return fm.flat(self.inner(*given) if foreign.args else self.inner(**by_name))

    given = foreign.args or tuple(foreign.inputs.values())
    with torch.no_grad():
        wanted = Whole()(*given)
    torch.onnx.export(Whole().eval(), given, dynamo=True, verbose=False).save(tmp_path / "model.onnx")
    session = runtime.InferenceSession(tmp_path / "model.onnx")
    names = [one.name for one in session.get_inputs()]
    got = session.run(None, {name: one.numpy() for name, one in zip(names, given, strict=True)})[0]
    assert torch.allclose(torch.from_numpy(got), wanted, atol=1e-4)


@pytest.mark.parametrize(("name", "encoding"), [("ViT", "irpe"), ("BERT over words and regions", "ace-rpe")])
def test_gradient_checkpointing_gives_the_same_gradients(name, encoding):
    found = []
    for checkpointing in (False, True):
        foreign = drawn(name, encoding)
        if checkpointing:
            foreign.model.gradient_checkpointing_enable({"use_reentrant": False})
        foreign.model.train()
        for module in foreign.model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        foreign.model.config.attention_probs_dropout_prob = 0.0
        foreign.model.config.use_cache = False
        made_of = foreign()
        (made_of * torch.randn(made_of.shape, generator=torch.Generator().manual_seed(6))).sum().backward()
        found.append({key: one.grad for key, one in fm.added(foreign, name).items()})
    assert all(torch.allclose(found[0][key], found[1][key], atol=1e-4) for key in found[0])
