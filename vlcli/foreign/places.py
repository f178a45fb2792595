"""Where the tokens of a foreign model stand: cells of a grid, patches with coordinates, words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from vlcli.errors import ComponentError
from vlcli.foreign.equipper import bound
from vlcli.nn import IMAGE, TEXT, Layout, Slot, Sort

Forget = Callable[[], None]


class TokenPlaces:
    """Base: how a stack's tokens are known, and the layouts of its queries and keys.

    Attributes:
        holds: sorts of tokens in the stack; in cross-attention those of the queries.
        keys: sorts of the keys, where they are another sequence.
        told_by: what tells where they stand, in words.
        both_ways: whether one module of cross-attention serves both directions.
    """

    holds: frozenset[Sort] = frozenset()
    keys: frozenset[Sort] = frozenset()
    told_by: str = ""
    both_ways = False

    def slot(self, name: str) -> Slot:
        """The stack as a slot, which encodings judge whether they have an effect in it."""
        return Slot(name, frozenset({"pairs"}), self.holds, self.keys)

    def watch(self, forget: Forget) -> None:
        """Hook what tells where tokens stand; ``forget`` is to be called when new tokens are made. Called once."""

    def turned(self, x: Tensor, y: Tensor) -> bool:
        """Whether queries ``x`` and keys ``y`` have changed places, where one module serves both directions."""
        return False

    def layouts(self, x: Tensor, y: Tensor, turned: bool) -> tuple[Layout, Layout]:
        """The layouts of queries and of keys. Subclasses define it; called once a forward pass and direction.

        Args:
            x: (B, Tq, dim) tokens that ask.
            y: (B, Tk, dim) tokens that are asked; of those in a cache only the number is right.
            turned: what :meth:`turned` said.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say where tokens stand")


def own_layouts(layout: Layout, x: Tensor) -> tuple[Layout, Layout]:
    """Queries and keys of self-attention: the keys' layout, and its last tokens where earlier ones are cached."""
    count, whole = x.shape[1], layout.route.shape[1]
    return (layout if count == whole else layout.cut(whole - count, whole)), layout


def missing(what: str) -> ComponentError:
    """The error for an attention that is called before its tokens were seen."""
    return ComponentError(f"The model has not seen {what} yet.", hint="call the whole model, not a part of it")


class Watcher:
    """Forward hook, after or before a module, that hands the call's arguments by name to ``see``.

    Args:
        see: called with the module, the arguments by name, and the output (None before the module).
        forget: called afterwards.
    """

    def __init__(self, see: Callable[[Any, dict[str, Any], Any], None], forget: Forget) -> None:
        self.see, self.forget = see, forget

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any = None) -> None:
        """Called by torch."""
        self.see(module, bound(module, args, kwargs), output)
        self.forget()

    def before(self, module: nn.Module) -> None:
        """Watch the arguments of a module."""
        module.register_forward_pre_hook(self, with_kwargs=True)

    def after(self, module: nn.Module) -> None:
        """Watch the output of a module, too."""
        module.register_forward_hook(self, with_kwargs=True)


class GridPlaces(TokenPlaces):
    """One full grid behind special tokens: the map of a convolution, flattened.

    Args:
        convolution: that cuts the patches.
        name: of it, for messages.
    """

    holds = frozenset({"cell"})

    def __init__(self, convolution: nn.Module, name: str) -> None:
        self.convolution, self.told_by = convolution, f"the map of {name}"
        self.grid: tuple[int, int] | None = None
        self._layouts: dict[tuple[Any, ...], Layout] = {}

    def watch(self, forget: Forget) -> None:
        """Read the grid from every map."""
        Watcher(self.see, forget).after(self.convolution)

    def see(self, module: nn.Module, arguments: dict[str, Any], output: Any) -> None:
        """Called with every map (B, dim, rows, columns)."""
        self.grid = (output.shape[-2], output.shape[-1])

    def layouts(self, x: Tensor, y: Tensor, turned: bool) -> tuple[Layout, Layout]:
        """One layout for both, kept for the next picture of this size."""
        layout = self.of(y)
        return own_layouts(layout, x)

    def of(self, tokens: Tensor) -> Layout:
        """The layout of all tokens (B, T, dim) of the picture at hand."""
        if self.grid is None:
            raise missing("a picture")
        rows, columns = self.grid
        skip = tokens.shape[1] - rows * columns
        if skip < 0:
            raise ComponentError(
                "The model leaves out or merges patches, so its tokens are no full grid.",
                where="vlcli.foreign.equip",
                got=f"{tokens.shape[1]} tokens",
                expected=f"{rows}x{columns} and special tokens before them",
            )
        return self._kept(rows, columns, skip, tokens.device)

    def _kept(self, rows: int, columns: int, skip: int, device: torch.device) -> Layout:
        key = (rows, columns, skip, device)
        if key in self._layouts:
            return self._layouts[key]
        if torch.compiler.is_exporting():  # what is made now would be part of the graph, and encodings read its values
            raise ComponentError("An equipped model is exported after its first call.", hint="call it once before")
        with torch.inference_mode(False):  # it is kept, and training may be next
            made = Layout.for_grid(rows, columns, skip=skip, device=device)
        if type(made.centre) is Tensor:  # tensors of a tracer must not outlive it
            self._layouts[key] = made
        return made


class PatchPlaces(TokenPlaces):
    """Patches of pictures of several sizes, side by side in one batch: each has coordinates, padding has none.

    Args:
        embeds: what embeds patches, of ``style``.
        name: of it, for messages.
        style: ``naflex`` (timm: coordinates a patch, or a picture) or ``shapes`` (SigLIP 2: rows and columns).
    """

    holds = frozenset({"cell"})

    def __init__(self, embeds: nn.Module, name: str, style: str) -> None:
        self.embeds, self.style = embeds, style
        self.told_by = f"the {'coordinates' if style == 'naflex' else 'spatial shapes'} given to {name}"
        self.grid: tuple[int, int] | None = None
        self.places: Tensor | None = None  # (B, N, 2), NaN at padding

    def __getstate__(self) -> dict[str, Any]:
        """Copies do not take the last batch with them."""
        return {**self.__dict__, "places": None}

    def watch(self, forget: Forget) -> None:
        """Read the coordinates of every batch."""
        Watcher(self.see_coordinates if self.style == "naflex" else self.see_shapes, forget).before(self.embeds)

    def see_coordinates(self, module: Any, arguments: dict[str, Any], output: Any) -> None:
        """Called with the arguments of timm's NaFlexEmbeds."""
        given, valid = arguments.get("patch_coord"), arguments.get("patch_valid")
        if given is None:
            self.places, self.grid = None, module.dynamic_feat_size(arguments["x"].shape[-2:])
            return
        places = given.float()
        self.places = places if valid is None else places.masked_fill(~valid.bool()[..., None], torch.nan)

    def see_shapes(self, module: nn.Module, arguments: dict[str, Any], output: Any) -> None:
        """Called with the arguments of transformers' Siglip2VisionEmbeddings."""
        count = arguments["pixel_values"].shape[1]
        shapes = arguments["spatial_shapes"].to(arguments["pixel_values"].device)  # (B, 2)
        number = torch.arange(count, device=shapes.device)[None]
        places = torch.stack([number // shapes[:, 1:], number % shapes[:, 1:]], -1).float()  # (B, N, 2)
        self.places = places.masked_fill((number >= shapes.prod(1, keepdim=True))[..., None], torch.nan)

    def layouts(self, x: Tensor, y: Tensor, turned: bool) -> tuple[Layout, Layout]:
        """One layout for both: by coordinates, or of a grid where the model was given pictures."""
        if self.places is None:
            if self.grid is None:
                raise missing("a picture")
            made = Layout.for_grid(*self.grid, skip=y.shape[1] - self.grid[0] * self.grid[1], device=y.device)
        else:
            made = patch_layout(self.places, y.shape[1])
        if made.route.shape[1] != y.shape[1]:
            raise ComponentError(
                "The model leaves out patches, so it is not known where its tokens stand.",
                where="vlcli.foreign.equip",
                got=f"{y.shape[1]} tokens",
                expected=f"{made.route.shape[1]}",
            )
        return own_layouts(made, x)


def patch_layout(places: Tensor, count: int) -> Layout:
    """Patches at ``places`` (B, N, 2), in cells, NaN where there is none, behind special tokens up to ``count``."""
    rows, patches = places.shape[:2]
    skip = max(count - patches, 0)
    centre = torch.cat([places.new_full((rows, skip, 2), torch.nan), places], 1)
    special = (torch.arange(skip + patches, device=places.device) < skip).expand(rows, -1)
    flat = torch.zeros_like(special, dtype=torch.long)
    valid = special | ~centre[..., 0].isnan()
    return Layout(flat + IMAGE, flat, flat - 1, centre, special, valid, runs=((IMAGE, skip + patches),))


class WordPlaces(TokenPlaces):
    """A sentence a row, numbered from its start.

    Args:
        owner: the module that is called with ``input_ids`` and ``attention_mask``.
        name: of its table of words, for messages.
        special: ids of tokens that have no place, such as those of separators.
    """

    holds = frozenset({"word"})

    def __init__(self, owner: nn.Module, name: str, special: tuple[int, ...] = ()) -> None:
        self.owner, self.told_by, self.special = owner, f"the words of {name or 'the model'}", special
        self.mask: Tensor | None = None
        self.ids: Tensor | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Copies do not take the last batch with them."""
        return {**self.__dict__, "mask": None, "ids": None}

    def watch(self, forget: Forget) -> None:
        """Read mask and ids of every batch."""
        Watcher(self.see, forget).before(self.owner)

    def see(self, module: nn.Module, arguments: dict[str, Any], output: Any) -> None:
        """Called with the arguments of the text model."""
        mask, ids = arguments.get("attention_mask"), arguments.get("input_ids")
        self.mask = mask if isinstance(mask, Tensor) and mask.dim() == 2 else None
        self.ids = ids if isinstance(ids, Tensor) and self.special else None

    def layouts(self, x: Tensor, y: Tensor, turned: bool) -> tuple[Layout, Layout]:
        """One layout for both."""
        return own_layouts(self.of(y.shape[1], y.device), x)

    def of(self, count: int, device: torch.device) -> Layout:
        """The layout of ``count`` words; those beyond what was given at once come one by one (generation)."""
        known = self.mask is not None and self.mask.shape[1] == count
        mask = self.mask.bool() if known and self.mask is not None else torch.ones(1, count, dtype=torch.bool)
        special = None
        if self.ids is not None and self.ids.shape[1] == count:
            special = torch.isin(self.ids, torch.tensor(self.special, device=self.ids.device))
            mask = mask.to(special.device).expand_as(special)
        return Layout.for_text(mask.to(device), special)


def numbered(layout: Layout, route: int, source: int) -> Layout:
    """The same places as another part of a joint sequence: its route and its source."""
    made = layout.with_route(route)
    return replace(made, source=torch.full_like(made.source, source))


PICTURE, SENTENCE = (IMAGE, 1), (TEXT, 0)
"""Route and source of the parts of a joint sequence."""
