"""Reads where the tokens of a foreign model lie: cells of a grid, patches with coordinates, words."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from vlcli.errors import ComponentError
from vlcli.nn import IMAGE, TEXT, Layout, Slot, Sort

WHERE = "vlcli.foreign.equip"
# Argument names of transformers' cache, since 5.24 and before
CACHES = ("cache", "past_key_values")


@cache
def signature(forward: Any) -> inspect.Signature:
    """Return the signature of a class's ``forward``, cached."""
    return inspect.signature(forward)


def bound(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of a module's call by name, those that ``**kwargs`` takes included."""
    forward = signature(type(module).forward)
    arguments = forward.bind_partial(module, *args, **kwargs).arguments
    for one in forward.parameters.values():
        if one.kind is one.VAR_KEYWORD:
            arguments |= arguments.pop(one.name, {})
    return arguments


def cache_of(arguments: Mapping[str, Any]) -> Any:
    """Returns transformers' cache among the arguments of a call, or None."""
    return next((arguments[name] for name in CACHES if arguments.get(name) is not None), None)


def takes_arguments(module: nn.Module, *names: str) -> bool:
    """Returns True if the ``forward`` of a module has parameters of all these names."""
    return set(names) <= set(signature(type(module).forward).parameters)


Forget = Callable[[], None]


class PerBatch:
    """Leaves the attributes that belong to the last batch out of copies."""

    per_batch: ClassVar[tuple[str, ...]] = ()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, **dict.fromkeys(self.per_batch)}


class TokenPlaces(PerBatch):
    """Base of classes that give the layouts of a stack's queries and keys.

    Attributes:
        holds: sorts of tokens in the stack; in cross-attention those of the queries.
        keys: sorts of the keys if they are another sequence.
        told_by: the source of the positions, for messages.
        both_ways: one module of cross-attention serves both directions.
    """

    holds: frozenset[Sort] = frozenset()
    keys: frozenset[Sort] = frozenset()
    told_by: str = ""
    both_ways = False

    def slot(self, name: str) -> Slot:
        return Slot(name, frozenset({"pairs"}), self.holds, self.keys)

    def watch(self, forget: Forget) -> None:
        """Registers the hooks that read positions; they call ``forget`` for new tokens. Called once."""

    def turned(self, x: Tensor, y: Tensor) -> bool:
        """Returns True if one module serves both directions and ``x`` are the tokens that are keys elsewhere."""
        return False

    def layouts(self, x: Tensor, y: Tensor, turned: bool) -> tuple[Layout, Layout]:
        """Return the layouts of queries ``x`` (B, Tq, dim) and keys ``y`` (B, Tk, dim), turned as :meth:`turned` says.

        Subclasses define it; called once a forward pass and direction. Of keys in a cache only the number is right.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define layouts()")


def own_layouts(layout: Layout, x: Tensor) -> tuple[Layout, Layout]:
    """Returns the layouts of self-attention: queries are the last tokens if earlier ones are cached."""
    count, whole = x.shape[1], layout.route.shape[1]
    return (layout if count == whole else layout.cut(whole - count, whole)), layout


def missing(what: str) -> ComponentError:
    """Returns the error for an attention that is called before its tokens were seen."""
    return ComponentError(f"The model has not seen {what} yet.", hint="call the whole model, not a part of it")


See = Callable[[Any, dict[str, Any], Any], None]


def watch(
    see: See, forget: Forget, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any = None
) -> None:
    """Forward hook: pass module, arguments by name and output (None before the module) to ``see``, call ``forget``."""
    see(module, bound(module, args, kwargs), output)
    forget()


class GridPlaces(TokenPlaces):
    """One full grid behind special tokens: the flattened map of the patch convolution."""

    holds = frozenset({"cell"})

    def __init__(self, convolution: nn.Module, name: str) -> None:
        self.convolution, self.told_by = convolution, f"the map of {name}"
        self.grid: tuple[int, int] | None = None
        self._layouts: dict[tuple[Any, ...], Layout] = {}

    def watch(self, forget: Forget) -> None:
        self.convolution.register_forward_hook(partial(watch, self.see, forget), with_kwargs=True)

    def see(self, module: nn.Module, arguments: dict[str, Any], output: Any) -> None:
        self.grid = (output.shape[-2], output.shape[-1])

    def layouts(self, x: Tensor, y: Tensor, turned: bool) -> tuple[Layout, Layout]:
        if self.grid is None:
            raise missing("a picture")
        rows, columns = self.grid
        skip = y.shape[1] - rows * columns
        if skip < 0:
            what = "The model leaves out or merges patches, so its tokens are no full grid."
            got, expected = f"{y.shape[1]} tokens", f"{rows}x{columns} and special tokens before them"
            raise ComponentError(what, where=WHERE, got=got, expected=expected)
        return own_layouts(self._kept(rows, columns, skip, y.device), x)

    def _kept(self, rows: int, columns: int, skip: int, device: torch.device) -> Layout:
        key = (rows, columns, skip, device)
        if key in self._layouts:
            return self._layouts[key]
        if torch.compiler.is_exporting():  # what is made now would be part of the graph, and encodings read its values
            raise ComponentError("An equipped model is exported after its first call.", hint="call it once before")
        with torch.inference_mode(False):  # it is kept, and training may be next
            layout = Layout.for_grid(rows, columns, skip=skip, device=device)
        if type(layout.centre) is Tensor:  # tensors of a tracer must not outlive it
            self._layouts[key] = layout
        return layout


class PatchPlaces(TokenPlaces):
    """Patches of pictures of several sizes in one batch: each has coordinates, padding has none.

    ``style`` is ``naflex`` (timm: coordinates a patch, or a picture) or ``shapes`` (SigLIP 2: rows and columns).
    """

    per_batch = ("places",)

    holds = frozenset({"cell"})

    def __init__(self, embeds: nn.Module, name: str, style: str) -> None:
        self.embeds, self.style = embeds, style
        self.told_by = f"the {'coordinates' if style == 'naflex' else 'spatial shapes'} given to {name}"
        self.grid: tuple[int, int] | None = None
        self.places: Tensor | None = None  # (B, N, 2), NaN at padding

    def watch(self, forget: Forget) -> None:
        see = self.see_coordinates if self.style == "naflex" else self.see_shapes
        self.embeds.register_forward_pre_hook(partial(watch, see, forget), with_kwargs=True)

    def see_coordinates(self, module: Any, arguments: dict[str, Any], output: Any) -> None:
        """Reads the arguments of timm's NaFlexEmbeds."""
        coordinates, valid = arguments.get("patch_coord"), arguments.get("patch_valid")
        if coordinates is None:
            self.places, self.grid = None, module.dynamic_feat_size(arguments["x"].shape[-2:])
        else:
            places = coordinates.float()  # (B, N, 2)
            self.places = places if valid is None else places.masked_fill(~valid.bool()[..., None], torch.nan)

    def see_shapes(self, module: nn.Module, arguments: dict[str, Any], output: Any) -> None:
        """Reads the arguments of transformers' Siglip2VisionEmbeddings."""
        count = arguments["pixel_values"].shape[1]
        shapes = arguments["spatial_shapes"].to(arguments["pixel_values"].device)  # (B, 2)
        number = torch.arange(count, device=shapes.device)[None]
        places = torch.stack([number // shapes[:, 1:], number % shapes[:, 1:]], -1).float()  # (B, N, 2)
        self.places = places.masked_fill((number >= shapes.prod(1, keepdim=True))[..., None], torch.nan)

    def layouts(self, x: Tensor, y: Tensor, turned: bool) -> tuple[Layout, Layout]:
        if self.places is not None:
            layout = patch_layout(self.places, y.shape[1])
        elif self.grid is not None:
            layout = Layout.for_grid(*self.grid, skip=y.shape[1] - self.grid[0] * self.grid[1], device=y.device)
        else:
            raise missing("a picture")
        if layout.route.shape[1] != y.shape[1]:
            what = "The model leaves out patches, so it is not known where its tokens stand."
            got, expected = f"{y.shape[1]} tokens", f"{layout.route.shape[1]}"
            raise ComponentError(what, where=WHERE, got=got, expected=expected)
        return own_layouts(layout, x)


def patch_layout(places: Tensor, count: int) -> Layout:
    """Returns the layout of ``count`` tokens: special ones, then patches at ``places`` (B, N, 2), NaN at padding."""
    rows, patches = places.shape[:2]
    skip = max(count - patches, 0)
    centre = torch.cat([places.new_full((rows, skip, 2), torch.nan), places], 1)
    special = (torch.arange(skip + patches, device=places.device) < skip).expand(rows, -1)
    flat = torch.zeros_like(special, dtype=torch.long)
    valid = special | ~centre[..., 0].isnan()
    return Layout(flat + IMAGE, flat, flat - 1, centre, special, valid, runs=((IMAGE, skip + patches),))


class WordPlaces(TokenPlaces):
    """One sentence a row, its words numbered from the start.

    ``owner`` is called with ``input_ids`` and ``attention_mask``; ``special`` are ids without a position (separators).
    """

    per_batch = ("mask", "ids")

    holds = frozenset({"word"})

    def __init__(self, owner: nn.Module, name: str, special: tuple[int, ...] = ()) -> None:
        self.owner, self.told_by, self.special = owner, f"the words of {name or 'the model'}", special
        self.mask: Tensor | None = None
        self.ids: Tensor | None = None

    def watch(self, forget: Forget) -> None:
        self.owner.register_forward_pre_hook(partial(watch, self.see, forget), with_kwargs=True)

    def see(self, module: nn.Module, arguments: dict[str, Any], output: Any) -> None:
        mask, ids = arguments.get("attention_mask"), arguments.get("input_ids")
        self.mask = mask if isinstance(mask, Tensor) and mask.dim() == 2 else None
        self.ids = ids if isinstance(ids, Tensor) and self.special else None

    def layouts(self, x: Tensor, y: Tensor, turned: bool) -> tuple[Layout, Layout]:
        return own_layouts(self.of(y.shape[1], y.device), x)

    def of(self, count: int, device: torch.device) -> Layout:
        """Returns the layout of ``count`` words; in generation their mask is not known and all count."""
        mask, special = torch.ones(1, count, dtype=torch.bool), None
        if self.mask is not None and self.mask.shape[1] == count:
            mask = self.mask.bool()
        if self.ids is not None and self.ids.shape[1] == count:
            special = torch.isin(self.ids, torch.tensor(self.special, device=self.ids.device))
            mask = mask.to(special.device).expand_as(special)
        return Layout.for_text(mask.to(device), special)


def numbered(layout: Layout, route: int, source: int) -> Layout:
    """Returns a layout with the route and source of a part of a joint sequence."""
    routed = layout.with_route(route)
    return replace(routed, source=torch.full_like(routed.source, source))


PICTURE, SENTENCE = (IMAGE, 1), (TEXT, 0)
"""Route and source of each part of a joint sequence."""


class GivenPlaces(TokenPlaces):
    """Tokens whose positions a layout with a leading dimension of 1 or B gives, or a function of their number.

    ``holds`` are the sorts of tokens in it; required with a function.
    """

    told_by = "the layout that was given"

    def __init__(self, layout: Layout | Callable[[int], Layout], holds: frozenset[Sort] | None = None) -> None:
        if holds is None and isinstance(layout, Layout):
            holds = sorts_of(layout)
        if holds is None:
            what = "A function that makes layouts must come with the sorts of its tokens."
            expected = 'e.g. GivenPlaces(function, frozenset({"word", "box"}))'
            raise ComponentError(what, where="GivenPlaces", expected=expected)
        self.layout, self.holds = layout, holds

    def layouts(self, x: Tensor, y: Tensor, turned: bool) -> tuple[Layout, Layout]:
        layout = (self.layout if isinstance(self.layout, Layout) else self.layout(y.shape[1])).to(y.device)
        count = layout.route.shape[1]
        if count != y.shape[1]:
            what, got = "The layout that was given is not that of the tokens.", f"{count}, and {y.shape[1]} tokens"
            hint = "give a function of the number of tokens"
            raise ComponentError(what, where=WHERE, got=f"a layout of {got}", hint=hint)
        return own_layouts(layout, x)


class PictureInText(TokenPlaces):
    """A grid of image tokens between words, as in decoders that read pictures (nanoVLM, LLaVA); words may grow.

    Words are numbered as if the picture were not among them, and a word and a cell have no offset from each other.
    There are ``start`` words before the picture, and ``special`` tokens without a place before its grid.
    """

    holds = frozenset({"word", "cell"})
    told_by = "the grid that was given"

    def __init__(self, rows: int, columns: int, *, start: int = 0, special: int = 0) -> None:
        self.rows, self.columns, self.start, self.special = rows, columns, start, special

    def layouts(self, x: Tensor, y: Tensor, turned: bool) -> tuple[Layout, Layout]:
        count, device = y.shape[1], y.device
        picture = Layout.for_grid(self.rows, self.columns, skip=self.special, device=device)
        behind = count - self.start - picture.route.shape[1]
        if behind < 0:
            what = "There are fewer tokens than the words and the picture that were announced."
            expected = f"{self.start} words and {self.rows}x{self.columns} cells at least"
            raise ComponentError(what, where="PictureInText", got=f"{count} tokens", expected=expected)
        mask = torch.ones(1, self.start + behind, dtype=torch.bool, device=device)
        words = numbered(Layout.for_text(mask), *SENTENCE)
        around = words.cut(0, self.start), words.cut(self.start, self.start + behind)
        layout = around[0] + numbered(picture, *PICTURE) + around[1]
        return own_layouts(replace(layout, grid=(self.rows, self.columns)), x)


def sorts_of(layout: Layout) -> frozenset[Sort]:
    """Returns the sorts of tokens in a layout."""
    sorts: set[Sort] = {"word"} if bool((layout.index >= 0).any()) else set()
    if bool((~layout.centre[..., 0].isnan()).any()):
        sorts.add("box" if layout.boxes is not None else "cell")
    return frozenset(sorts)
