"""Adds position encodings and attentions of vlcli to models of other libraries.

    from vlcli.foreign import equip, stacks

    for stack in stacks(model):                                   # the attentions, and why some cannot be equipped
        print(stack)
    equip(model, "irpe", method="product", sides=["key"])         # in place; weights and names stay as they are

One :class:`AttentionEquipper` for each style finds attention: ``timm``, ``transformers``, ``transformers-inline``,
``torch``. A :class:`TokenPlaces` gives the positions of a stack's tokens: it reads them from what makes the tokens (a
patch convolution, word embeddings), or the caller passes it.

``transformers_model`` and its kin load what ``save_pretrained`` wrote into a folder.
"""

from vlcli.foreign.adding import equip, stacks
from vlcli.foreign.equipment import AttentionEquipper, EquippedAttention
from vlcli.foreign.places import GivenPlaces, PictureInText, TokenPlaces
from vlcli.foreign.stacks import AttentionStack
from vlcli.foreign.transformers_folder import (
    transformers_model,
    transformers_processor,
    transformers_tokenizer,
    transformers_type,
)
