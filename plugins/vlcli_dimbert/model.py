"""DiMBERT: one transformer over regions, visual concepts and words, which generates as well as it understands."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from vlcli.nn import DataSpec, InitStd
from vlcli.registry import AttentionSpec, PositionSpec
from vlcli_dimbert.decoding import Generating
from vlcli_dimbert.embedding import PaperRegions, VLPRegions
from vlcli_dimbert.stream import Core
from vlcli_dimbert.weights import adapt


class DiMBERT(Generating):
    """DiMBERT: regions, visual concepts and words in one transformer with disentangled attention.

    The sequence is [CLS] regions [SEP] concepts [SEP] words [SEP]; with several pictures regions and concepts of each
    follow one another, ranks beginning anew. Rows whose text is ``causal`` are read as sequence to sequence: the prefix
    up to the words sees itself, a word sees the prefix and the words up to itself. The mask is built once a batch.
    Attention is recorded under ``fuse.N``.

    Args:
        data_spec: vocabulary, feature sizes, the concepts' word pieces.
        hidden: width.
        heads: attention heads.
        layers: depth.
        intermediate: width inside the feed-forward; None: four times ``hidden``.
        dropout: of embeddings, blocks and attention probabilities.
        attention: any registered attention; ``standard`` makes it the paper's ESABERT (Table 5).
        position: pairwise encodings of all tokens, one or several, besides the learned places.
        regions: how regions are embedded: as the paper prints it, or as VLP's code does.
        appearance: a region feature through fc7 anew and a linear layer (VLP), or one linear layer.
        weighted: learned weights in the sum of a region's embeddings; they start at 1.
        segments: a row for regions, concepts and sentence each (``roles``), or VLP's six rows by mode (``modes``).
        position_ids: positions begin anew in every part (``restart``: a concept's is its rank), or run on through the
            whole sequence (``running``, VLP); regions have none.
        rank: pieces of a concept share its rank (``concept``) or count on (``piece``).
        concepts: most concepts of a picture; 0: none, and no separator for them.
        specials: class token and separators take the words' route (``text``) or one of their own (``own``).
        length: rows of the position table.
        images: rows of a table that tells an example's pictures apart; 0: none. Regions have no place and ranks begin
            anew, so that without it the order of a story's pictures is not told.
        eps: of every layer norm.
        init_std: deviation of freshly drawn weights; ``auto``: 0.02 at width 768, more in a narrower model.
        packed: leave padding out of all that is done token by token.
    """

    paper = "DiMBERT, Liu et al., ACM TKDD 2021, arXiv:2210.16431; VLP, Zhou et al., AAAI 2020, for what it leaves open"

    def __init__(
        self,
        data_spec: DataSpec,
        *,
        hidden: int = 768,
        heads: int = 12,
        layers: int = 12,
        intermediate: int | None = None,
        dropout: float = 0.1,
        attention: AttentionSpec = "disentangled",
        position: PositionSpec | list[PositionSpec] | None = None,
        regions: Literal["paper", "vlp"] = "paper",
        appearance: Literal["fc7", "linear"] = "fc7",
        weighted: bool = False,
        segments: Literal["roles", "modes"] = "roles",
        position_ids: Literal["restart", "running"] = "restart",
        rank: Literal["concept", "piece"] = "concept",
        concepts: int = 20,
        specials: Literal["text", "own"] = "text",
        length: int = 512,
        images: int = 0,
        eps: float = 1e-5,
        init_std: InitStd = "auto",
        packed: bool = True,
    ) -> None:
        options = {"appearance": appearance, "dropout": dropout}
        embed: nn.Module
        if regions == "paper":
            embed = PaperRegions(data_spec, hidden, eps=eps, weighted=weighted, **options)  # type: ignore[arg-type]
        else:
            embed = VLPRegions(data_spec, hidden, **options)  # type: ignore[arg-type]
        core = Core(
            hidden,
            heads,
            layers,
            intermediate,
            dropout,
            attention,
            position,
            by_mode=segments == "modes",
            running=position_ids == "running",
            by_piece=rank == "piece",
            concepts=concepts,
            specials=specials == "own",
            length=length,
            images=images,
            eps=eps,
            init_std=init_std,
            packed=packed,
        )
        super().__init__(data_spec, embed, core)
        self.initialise()

    def adapt(self, state: dict[str, Tensor], report: list[str]) -> dict[str, Tensor]:
        return adapt(self, state, report)
