"""Exports weights under the names of the published code, iRPE's tables among them (``irpe-names``)."""

from contextlib import suppress
from pathlib import Path
from typing import Literal

import torch
from safetensors.torch import save_file
from torch import Tensor

from vlcli.errors import ComponentError
from vlcli.export import Exported, Exporter, Trained, largest_difference
from vlcli.files import written
from vlcli.nn import Model, read_weights
from vlcli.progress import Progress


class ReleasedNames(Exporter):
    """One file that the iRPE authors' code loads: DeiT by timm's names, DETR by its release's, tables by theirs.

    ``blocks.N.attn.rpe_k.lookup_table_weight`` and, in a DETR,
    ``transformer.encoder.layers.N.self_attn.rpe_k.lookup_table_weight``; Cross has ``rp_rows`` and ``rp_cols`` between.
    A stage's ``from`` takes the file back.

    Args:
        file: ``safetensors``, or ``pth``: a dictionary with the key ``model``, as the released code saves it.
    """

    paper = "microsoft/Cream, iRPE"

    def __init__(self, *, file: Literal["safetensors", "pth"] = "safetensors") -> None:
        self.file = file

    def export(self, trained: Trained, folder: Path, progress: Progress) -> Exported:
        model, state = trained.model, trained.model.state_dict()
        named: dict[str, Tensor] = {}
        with suppress(NotImplementedError):
            named = model.released_state(state) if isinstance(model, Model) else {}
        if not named:
            what, hint = "The release has no names for this model.", "format: safetensors"
            got, expected = type(model).__name__, "model: deit or detr"
            raise ComponentError(what, where="exporter irpe-names", got=got, expected=expected, hint=hint)
        named = {name: value.detach().cpu().contiguous() for name, value in named.items()}
        final = folder / f"model.{self.file}"
        with written(final) as beside:
            if self.file == "pth":
                torch.save({"model": named}, beside)
            else:
                save_file(named, beside, {"format": "pt"})
        again = model.adapt(dict(read_weights(final)), [])
        lost = float("inf")  # a weight did not come back
        if state.keys() == again.keys():
            lost = largest_difference(*((value.cpu().float(), again[name].float()) for name, value in state.items()))
        tables = sum("lookup_table" in name for name in named)
        note = f"{final}: {len(named)} tensors, {tables} tables; largest change of a weight {lost:.2g}"
        return Exported({"model": final.name}, [note], {"max_weight_change": lost})
