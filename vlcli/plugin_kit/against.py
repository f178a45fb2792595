"""Compares a model's outputs with those of a class of transformers that has the same weights."""

import importlib
import inspect
from typing import Any

import torch
from torch import Tensor

from vlcli import registry
from vlcli.engine.state_dict import load_state_dict
from vlcli.errors import ComponentError, UsageError
from vlcli.nn.forward_passes import ForwardPasses
from vlcli.nn.model import EncoderOutput, Model
from vlcli.plugin_kit.checks import batch_of, built
from vlcli.plugin_kit.conformance import chosen
from vlcli.plugin_kit.trials import small
from vlcli.registry import Entry
from vlcli.registry.contract import in_a_line

# The field of transformers' configurations by an option of a model.
_FIELDS = {
    **dict.fromkeys(("hidden", "width", "dim"), "hidden_size"),
    **dict.fromkeys(("layers", "depth"), "num_hidden_layers"),
    **{"heads": "num_attention_heads", "intermediate": "intermediate_size", "length": "max_position_embeddings"},
    **{"image_size": "image_size", "patch": "patch_size"},
    **{"text_layers": "l_layers", "image_layers": "r_layers", "cross_layers": "x_layers"},
}
# Arguments of transformers' `forward` by an input of vlcli.
_INPUTS = {
    **{"ids": ("input_ids",), "text_mask": ("attention_mask",), "pixels": ("pixel_values",), "boxes": ("visual_pos",)},
    **{"features": ("visual_feats", "visual_embeds"), "region_mask": ("visual_attention_mask",)},
}


def compare(what: str, against: str) -> dict[str, float]:
    """Returns the largest absolute difference of each output on random inputs, with random weights that both have.

    Args:
        against: ``transformers:CLASS``; its configuration takes the model's sizes, and ``adapt`` its state dict.

    Raises:
        UsageError: there is not one such model, or no such class.
        ComponentError: the class cannot be built or run with the inputs of the model, or has other outputs.
        DataError: its weights do not fit the model.
    """
    kind, entry = _class_of(against), _model_of(what)
    module = built(entry)
    network = _network(kind, entry, module.model)
    load_state_dict(module.model, network.state_dict(), allow_unmatched=[r"^model\.head"])  # of classes
    form, inputs, batch = batch_of(module)
    step = ForwardPasses(module.model, batch, training=False)
    with torch.no_grad():
        try:
            theirs = network(**_arguments(kind, dict(zip(form.names(), inputs, strict=True)), form.alone))
        except Exception as error:
            what = f"{kind.__name__} does not run on the inputs of {entry.name}."
            raise ComponentError(what, got=in_a_line(error), expected=", ".join(form.names())) from error
        return _differences(step, dict(theirs), kind.__name__)


def _class_of(against: str) -> Any:
    package, _, name = against.partition(":")
    kind = getattr(importlib.import_module("transformers"), name, None) if package == "transformers" and name else None
    if not isinstance(kind, type) or getattr(kind, "config_class", None) is None:
        raise UsageError("There is no such class to compare with.", got=against, expected="transformers:ViltModel")
    return kind


def _model_of(what: str) -> Entry:
    models = [entry for entry in chosen(what) if entry.kind == "models"]
    if len(models) != 1:
        got = ", ".join(entry.name for entry in models) or "no model"
        raise UsageError("One model is compared at a time.", where=what, got=got, expected="the name of one model")
    return models[0]


def _network(kind: Any, entry: Entry, model: Model) -> Any:
    options = {name: one.default for name, one in registry.parameters(type(model)).items()}
    options |= small(entry.name, entry.distribution)
    if options.get("intermediate") is None:
        options["intermediate"] = 4 * model.dim
    spec, usual = model.data_spec, kind.config_class()
    fields = dict.fromkeys(("visual_feat_dim", "visual_embedding_dim"), spec.region_dim)
    fields |= {"vocab_size": spec.vocab_size}
    fields |= {name: options[key] for key, name in _FIELDS.items() if options.get(key) is not None}
    fields = {name: value for name, value in fields.items() if hasattr(usual, name)}
    try:
        network = kind(kind.config_class(**fields)).eval()
    except Exception as error:
        got = f"{', '.join(f'{name}={value}' for name, value in fields.items())}: {in_a_line(error)}"
        raise ComponentError(f"{kind.__name__} has no such sizes.", where=f"model {entry.name}", got=got) from error
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in network.parameters():  # zeros and ones would hide what is left out
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return network


def _arguments(kind: Any, inputs: dict[str, Tensor], alone: bool) -> dict[str, Tensor]:
    known = inspect.signature(kind.forward).parameters
    read: dict[str, Tensor] = {}
    for name, value in inputs.items():
        first = value if alone or name in ("ids", "text_mask") else value[:, 0]  # one picture of each example
        read |= {theirs: first for theirs in _INPUTS.get(name, ()) if theirs in known}
    return {name: value.long() if value.dtype == torch.bool else value for name, value in read.items()}


def _differences(step: ForwardPasses, theirs: dict[str, Any], name: str) -> dict[str, float]:
    able = step.model.capabilities
    fused = step.fused() if "fuse" in able else None
    text = fused.text if fused else step.text() if "text" in able else None
    image = fused.image if fused else step.image() if "image" in able else None
    one, first = fused or text or image, text or image
    states, words = theirs.get("last_hidden_state"), text.hidden.shape[1] if text else 0
    wanted = {
        "words": (text, theirs.get("language_output", states[:, :words] if states is not None else None)),
        "image": (image, theirs.get("vision_output", states[:, words:] if states is not None else None)),
    }
    pairs = {key: _apart(ours, other, key, name) for key, (ours, other) in wanted.items() if ours and other is not None}
    pooled = theirs.get("pooler_output", theirs.get("pooled_output"))
    vectors = None if one is None else one.pooled
    pools = vectors is not None and first is not None and not torch.equal(vectors, first.hidden[:, 0])
    if vectors is not None and pools and pooled is not None:  # a model without a pooler returns the first token
        _same_shape(vectors, pooled, "pooled", name)
        pairs["pooled"] = float((vectors - pooled).abs().max())
    if not pairs:
        expected = "last_hidden_state, language_output, vision_output, pooler_output or pooled_output"
        raise ComponentError(f"{name} returns nothing to compare.", got=", ".join(theirs), expected=expected)
    return pairs


def _apart(ours: EncoderOutput, theirs: Tensor, what: str, name: str) -> float:
    _same_shape(ours.hidden, theirs, what, name)
    hidden, valid = ours.hidden, ours.layout.valid.expand(ours.hidden.shape[:2])[..., None]  # (P, T, 1)
    apart = (hidden - theirs).masked_fill(~valid, 0).abs().max()
    if what == "image" and bool(valid.all()):
        apart = torch.minimum(apart, (hidden.sort(1).values - theirs.sort(1).values).abs().max())
    return float(apart)


def _same_shape(ours: Tensor, theirs: Tensor, what: str, name: str) -> None:
    if ours.shape != theirs.shape:
        got, expected = f"{what}: {tuple(ours.shape)}", f"{tuple(theirs.shape)}, as {name} returns"
        raise ComponentError("The outputs have other shapes.", got=got, expected=expected)
