"""Transformer parts that models, objectives and position encodings are built from: pure torch, no files.

The public names, by module:

    batch           Batch, View, Text, Images, Regions, Pixels, Concepts: what a model is fed
    layout          Layout: where each token stands
    mask            AttentionMask: who may look at whom
    position        AttentionShape, TokenPosition, PairwisePosition: the seam of position encodings
    positions       build_positions, and the encodings none, learned, sinusoid, box
    attention       Attention (override ``project``), AttentionContext, StandardAttention
    cache           KeyValueCache: incremental decoding
    packing         Packing: batches without their padding
    blocks          AttentionBlock, FeedForward, TransformerLayer, Stack, BlockStyle
    cross           CrossEncoder: words look at an image, and by option the image at words
    fitting         fit_weights: weights of a checkpoint fitted to a model
    names           translate, from_public, to_public, from_vit: weights of published files under our names
    embeddings      TextEmbeddings, FeatureEmbeddings, Pooler
    heads           build_head, register_head
    model           Model, DataSpec, InputSpec, EncoderOutput, FusionOutput, Recorder, initialise, init_scale
    folders         quiet_transformers: without the bars and warnings of another library
    forward_passes  ForwardPasses: passes over a batch, computed once and shared
    count           count_model: parameters and multiply-accumulates
"""

from vlcli.nn.attention import NO_CONTEXT, Attention, AttentionContext, Projected, StandardAttention
from vlcli.nn.batch import Batch, Concepts, Images, Pixels, Regions, Text, View
from vlcli.nn.blocks import (
    BERT_STYLE,
    VIT_STYLE,
    AttentionBlock,
    BlockStyle,
    DropPath,
    FeedForward,
    Residual,
    Stack,
    TransformerLayer,
    activation,
    drops_paths,
    packable,
    run_layer,
)
from vlcli.nn.cache import KeyValueCache
from vlcli.nn.count import model_macs
from vlcli.nn.cross import CrossEncoder, CrossLayer
from vlcli.nn.embeddings import FeatureEmbeddings, Pooler, TextEmbeddings, embed_grid, hide, text_layout
from vlcli.nn.fake import fake_batch
from vlcli.nn.fitting import fit_weights, initialise_model
from vlcli.nn.folders import quiet_transformers
from vlcli.nn.forward_passes import ForwardPasses
from vlcli.nn.heads import HeadTransform, TiedWordHead, build_head, register_head
from vlcli.nn.layout import CONCEPT, IMAGE, SPECIAL, TEXT, Layout, Runs
from vlcli.nn.mask import AttentionMask
from vlcli.nn.model import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    PUBLISHED_STD,
    BoxProjection,
    DataSpec,
    DetectionOutput,
    EncoderOutput,
    FusionOutput,
    InitStd,
    InputSpec,
    Model,
    Recorder,
    init_scale,
    initialise,
)
from vlcli.nn.names import (
    BERT_NAMES,
    PROJECTIONS,
    TIMM_NAMES,
    State,
    from_public,
    from_vit,
    has_vit_names,
    layer_number,
    modern_norms,
    substitute,
    to_public,
    translate,
    without_prefix,
)
from vlcli.nn.packing import Packing
from vlcli.nn.position import WORDS, AttentionShape, PairwisePosition, Slot, Sort, TokenPosition, between, within
from vlcli.nn.positions import (
    BoxPosition,
    CombinedPairwise,
    LearnedPosition,
    NoPosition,
    PositionChoice,
    SinusoidPosition,
    build_positions,
    chosen,
    geometry,
    match_normalised,
    with_grid,
)
from vlcli.nn.shape import NetworkShape
from vlcli.nn.slots import build_model
from vlcli.nn.weights import WeightsReport, file_sha256, load_tensors, read_weights
from vlcli.nn.whitening import Whitening

__all__ = [
    "BERT_NAMES",
    "BERT_STYLE",
    "CONCEPT",
    "IMAGE",
    "IMAGENET_MEAN",
    "IMAGENET_STD",
    "NO_CONTEXT",
    "PROJECTIONS",
    "PUBLISHED_STD",
    "SPECIAL",
    "TEXT",
    "TIMM_NAMES",
    "VIT_STYLE",
    "WORDS",
    "Attention",
    "AttentionBlock",
    "AttentionContext",
    "AttentionMask",
    "AttentionShape",
    "Batch",
    "BlockStyle",
    "BoxPosition",
    "BoxProjection",
    "CombinedPairwise",
    "Concepts",
    "CrossEncoder",
    "CrossLayer",
    "DataSpec",
    "DetectionOutput",
    "DropPath",
    "EncoderOutput",
    "FeatureEmbeddings",
    "FeedForward",
    "ForwardPasses",
    "FusionOutput",
    "HeadTransform",
    "Images",
    "InitStd",
    "InputSpec",
    "KeyValueCache",
    "Layout",
    "LearnedPosition",
    "Model",
    "NetworkShape",
    "NoPosition",
    "Packing",
    "PairwisePosition",
    "Pixels",
    "Pooler",
    "PositionChoice",
    "Projected",
    "Recorder",
    "Regions",
    "Residual",
    "Runs",
    "SinusoidPosition",
    "Slot",
    "Sort",
    "Stack",
    "StandardAttention",
    "State",
    "Text",
    "TextEmbeddings",
    "TiedWordHead",
    "TokenPosition",
    "TransformerLayer",
    "View",
    "WeightsReport",
    "Whitening",
    "activation",
    "between",
    "build_head",
    "build_model",
    "build_positions",
    "chosen",
    "drops_paths",
    "embed_grid",
    "fake_batch",
    "file_sha256",
    "fit_weights",
    "from_public",
    "from_vit",
    "geometry",
    "has_vit_names",
    "hide",
    "init_scale",
    "initialise",
    "initialise_model",
    "layer_number",
    "load_tensors",
    "match_normalised",
    "model_macs",
    "modern_norms",
    "packable",
    "quiet_transformers",
    "read_weights",
    "register_head",
    "run_layer",
    "substitute",
    "text_layout",
    "to_public",
    "translate",
    "with_grid",
    "within",
    "without_prefix",
]
