"""Width, depth and norm placement of a network, from which the learning rate is chosen."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from torch import nn

# Names of the norm before the attention in layers of timm, transformers and open_clip
PRE_NORMS = ("norm1", "norm_1", "ln_1", "layer_norm1", "layernorm_before")


@dataclass(frozen=True)
class NetworkShape:
    """Shape of a network, for the engine's rule for the learning rate.

    Attributes:
        width: largest hidden size of the layers.
        depth: layers on the longest path from an input to the output; 0: no layer has a layer norm.
        post_norm: a layer normalises after its residual (BERT); deep ones then need small rates.
        factor: of the rule's rate, for models whose trials showed that they need another one.
    """

    width: int
    depth: int
    post_norm: bool
    factor: float = 1.0


class Shaped(nn.Module):
    """Base of :class:`~vlcli.nn.model.Model` with its shape."""

    @property
    def network_shape(self) -> NetworkShape:
        """Shape of the network; read when training starts without a stated learning rate.

        Layers are the innermost elements of lists that hold a layer norm. ``layer_of`` tells how many of them follow
        one another; without it all do. By default a layer normalises after its residual.
        """
        layers = {name: layer for name, layer in _layers(self) if any(p.requires_grad for p in layer.parameters())}
        widths = [norm.normalized_shape[-1] for layer in layers.values() for norm in _norms(layer)]
        firsts = [f"{name}.{next(layer.named_parameters())[0]}" for name, layer in layers.items()]
        depths = [self.layer_of(name) or 0 for name in firsts]
        width = max(widths, default=0) or cast("int", self.dim)
        return NetworkShape(width, max(depths, default=0) or len(layers), not all(map(_pre_norm, layers.values())))

    def layer_of(self, name: str) -> int | None:
        """Return the depth of a parameter by name: 0 for embeddings, n for the n-th layer; None without a depth.

        Called when training starts, for layer-wise decay of the learning rate.
        """
        return None


def _layers(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    # The innermost elements of lists that hold a layer norm.
    for name, part in module.named_modules():
        if isinstance(part, nn.ModuleList | nn.Sequential):
            for number, element in part.named_children():
                if next(_norms(element), None) is not None and next(_layers(element), None) is None:
                    yield f"{name}.{number}" if name else number, element


def _norms(module: nn.Module) -> Iterator[Any]:
    for part in module.modules():
        kind = type(part).__name__
        if part is not module and kind.endswith(("LayerNorm", "RMSNorm")) and hasattr(part, "normalized_shape"):
            yield part


def _pre_norm(layer: nn.Module) -> bool:
    flags = [getattr(part, name, None) for part in layer.modules() for name in ("pre", "norm_first")]
    stated = [value for value in flags if isinstance(value, bool)]
    return all(stated) if stated else any(hasattr(layer, name) for name in PRE_NORMS)
