"""ACE-RPE on VLMo, and on a cross encoder in which both modalities ask."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from vlcli_vlmo.blocks import Later

from vlcli import registry
from vlcli.engine.training_module import build_training_module
from vlcli.nn import AttentionContext, AttentionMask, DataSpec, ForwardPasses
from vlcli.nn.fake import fake_batch

DATA_SPEC = DataSpec(vocab_size=50, unk_id=1, cls_id=2, sep_id=3, mask_id=4, text_length=6)
VLMO = {
    "name": "vlmo", "hidden": 16, "heads": 4, "layers": 3, "fused_layers": 2, "image_size": 48, "drop_path": 0.0,
    "length": 8, "init_std": 0.2,
}  # fmt: skip
ALBEF = {
    "name": "albef", "hidden": 16, "heads": 4, "image_layers": 1, "text_layers": 1, "cross_layers": 2, "image_size": 48,
    "dropout": 0.0, "init_std": 0.2,
}  # fmt: skip


def fed(model: Any, rows: int = 3) -> Any:
    batch = fake_batch(model.input_spec(), DATA_SPEC, rows)
    torch.manual_seed(3)
    batch.clean.images.pixels.images = torch.randn(rows, 3, 48, 48)
    batch.clean.text.ids = torch.randint(5, 50, (rows, 6))
    batch.clean.text.mask[1, 4:] = False
    batch.clean.text.special[:, 0] = True
    return batch


@pytest.mark.parametrize("options", [{}, {"mode": "bias"}])
def test_vlmo_measures_where_its_fused_layers_begin(options: dict[str, Any]) -> None:
    position = {"name": "ace-rpe", "groups": 4, "init_std": 0.5, **options}
    module = build_training_module({**VLMO, "fused_position": position}, [{"name": "mlm"}], DATA_SPEC).eval()
    plain = build_training_module(VLMO, [{"name": "mlm"}], DATA_SPEC).eval()
    same = {n: v for n, v in module.model.state_dict().items() if "fused_position" not in n}
    plain.model.load_state_dict(same)
    batch, seen = fed(module.model), list[torch.Tensor]()
    encoding = module.model.stack.fused_position
    assert encoding.shape.layers == 2
    measured = encoding.prepare
    encoding.prepare = lambda x, *rest: seen.append(x) or measured(x, *rest)
    fused, without = (ForwardPasses(one.model, batch).fused() for one in (module, plain))
    entering = plain.model.stack
    words, patches = ForwardPasses(plain.model, batch)._fuse_inputs("clean", "clean")
    x = torch.cat([words.hidden + plain.model.types.weight[0], patches.hidden + plain.model.types.weight[1]], 1)
    parts = [("text", words.hidden.shape[1]), ("image", patches.hidden.shape[1])]
    kept = entering(x, words.layout + patches.layout, parts, fused=True, keep=[1])[1][1]
    assert len(seen) == 1
    real = (words.layout + patches.layout).valid
    torch.testing.assert_close(seen[0][real], kept[real])
    assert not torch.allclose(fused.pooled, without.pooled)
    pooled = ForwardPasses(module.model, batch).fused(rows="pooled").pooled
    torch.testing.assert_close(pooled, fused.pooled)
    alone = [ForwardPasses(one.model, batch).text().pooled for one in (module, plain)]
    torch.testing.assert_close(*alone)  # a sentence alone has nothing to measure
    fused.pooled.square().sum().backward()
    grads = [p.grad for p in encoding.parameters()]
    assert all(grad is not None and grad.isfinite().all() and grad.abs().sum() > 0 for grad in grads)


def test_layers_are_counted_from_the_first_fused_one() -> None:
    model = registry.build("models", {**VLMO, "fused_position": {"name": "ace-rpe", "groups": 4}}, DATA_SPEC)
    inner = model.stack.fused_position
    later = Later(inner, 1)
    layout = model.embed_image(fed(model).clean.images).layout
    words = model.embed_text(fed(model).clean.text).layout.map(lambda t: t[:1])
    both = words + layout
    x = torch.randn(1, len(both), 16)
    state = later.prepare(x, x, both, both)
    q = torch.zeros_like(x)
    torch.testing.assert_close(later.inputs(q, q, q, state, 2)[0], inner.inputs(q, q, q, state, 1)[0])


def test_vlmo_trains_with_it() -> None:
    spec = {**VLMO, "fused_position": {"name": "ace-rpe", "groups": 4}, "drop_path": 0.2}
    objectives = [{"name": "contrast", "width": 8}, {"name": "contrast-matching"}]
    module = build_training_module(spec, objectives, DATA_SPEC).train()
    optimizer = torch.optim.AdamW(module.parameters(), 1e-3)
    before = module.model.stack.fused_position.embeddings["key"].clone()
    for _ in range(2):
        result = module(fed(module.model))
        optimizer.zero_grad()
        result.total.backward()
        optimizer.step()
    assert result.total.isfinite()
    assert not torch.equal(before, module.model.stack.fused_position.embeddings["key"])


@pytest.mark.parametrize("mode", ["contextual", "bias"])
def test_both_modalities_ask(mode: str) -> None:
    sides = {"cross_position": {"name": "ace-rpe", "groups": 4, "mode": mode, "init_std": 0.5}}
    within = {"joint_text_position": "learned", "joint_image_position": ["learned"]}
    model = registry.build("models", {**ALBEF, "bidirectional": True, **sides, **within}, DATA_SPEC).eval()
    batch = fed(model)
    step = ForwardPasses(model, batch)
    fused = step.fused()
    assert not torch.allclose(fused.image.hidden, step.image().hidden)
    # Layer by layer: each direction reads what the layer before left.
    text, image = step.text(), step.image()
    words = model._placed(text, model.joint_text)
    patches = model._placed(image, model.joint_image)
    forth = model.cross.position.prepare(words.hidden, patches.hidden, words.layout, patches.layout)
    back = model.cross.position.prepare(patches.hidden, words.hidden, patches.layout, words.layout)
    torch.testing.assert_close(forth.paths, back.paths.transpose(1, 2))
    x, y = words.hidden, patches.hidden
    masks = AttentionMask(words.layout.valid), AttentionMask(patches.layout.valid)
    for number in range(2):
        one = AttentionContext(position=model.cross.position, layer=number)
        of_words = AttentionContext(masks[0], words.layout)
        of_patches = AttentionContext(masks[1], patches.layout)
        seen = model.cross.text[number](x, y, of_words, replace(one, state=forth, mask=masks[1]))
        y = model.cross.image[number](y, x, of_patches, replace(one, state=back, mask=masks[0]))
        x = seen
    torch.testing.assert_close(fused.text.hidden, x)
    torch.testing.assert_close(fused.image.hidden, y)


@pytest.mark.parametrize("on", ["image", "fused"])
def test_masked_patches_are_guessed_by_either_encoder(on: str) -> None:
    objective = {"name": "masked-image", "target": "pixels", "loss": "l1", "mask": "random", "ratio": 0.6, "on": on}
    spec = {**ALBEF, "bidirectional": on == "fused", "cross_position": {"name": "ace-rpe", "groups": 4}}
    module = build_training_module(spec, [objective], DATA_SPEC).train()
    batch = fed(module.model)
    result = module(batch)
    result.total.backward()
    assert module.objectives["masked-image"].blank.grad.abs().sum() > 0
    reached = module.model.cross.image[0].other if on == "fused" else module.model.image.layers[0]
    assert all(part.grad is not None for part in reached.parameters())
    clean, hidden = module.step(batch).image().hidden, module.step(batch)
    module.objectives["masked-image"].masked(hidden)
    assert not torch.allclose(clean, hidden.image("masked-image").hidden)
