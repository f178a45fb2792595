"""Position encodings and attentions of vlcli in models of other libraries.

    from vlcli.foreign import equip, stacks

    for stack in stacks(model):                                   # what can be equipped, and what cannot and why
        print(stack)
    equip(model, "irpe", method="product", sides=["key"])         # in place; weights and names stay as they are

Attention is found by its style, one :class:`AttentionEquipper` each (the kind ``equippers``): ``timm``,
``transformers``, ``transformers-inline``, ``torch``. Where the tokens of a stack stand is told by a
:class:`TokenPlaces`, found by what makes the tokens (a patch convolution, a table of words) or given by the caller.
"""

from vlcli.foreign.adding import equip
from vlcli.foreign.choice import stacks
from vlcli.foreign.equipment import EquippedAttention
from vlcli.foreign.equipper import AttentionEquipper
from vlcli.foreign.given import GivenPlaces, PictureInText
from vlcli.foreign.places import TokenPlaces
from vlcli.foreign.stacks import AttentionStack

__all__ = [
    "AttentionEquipper",
    "AttentionStack",
    "EquippedAttention",
    "GivenPlaces",
    "PictureInText",
    "TokenPlaces",
    "equip",
    "stacks",
]
