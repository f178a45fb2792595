"""Transformer parts that models, objectives and position encodings are built from: pure torch, no files.

The public names, by module:

    batch       Batch, View, Text, Images, Regions, Pixels, Concepts: what a model is fed
    layout      Layout: where each token stands
    mask        AttentionMask: who may look at whom
    position    AttentionShape, TokenPosition, PairwisePosition: the seam of position encodings
    positions   build_positions, and the encodings none, learned, sinusoid, box
    attention   Attention (override ``project``), AttentionContext, StandardAttention
    cache       KeyValueCache: incremental decoding
    packing     Packing: batches without their padding
    blocks      AttentionBlock, FeedForward, TransformerLayer, Stack, BlockStyle
    fitting     fit_weights: weights of a checkpoint fitted to a model
    embeddings  TextEmbeddings, FeatureEmbeddings, Pooler
    heads       build_head, register_head, HEADS
    model       Model, Facts, Needs, States, Fused, Recorder, initialise, init_scale
    step        Step: passes over a batch, computed once and shared
    count       count_model: parameters and multiply-accumulates
"""

from vlcli.nn.attention import NO_CONTEXT, Attention, AttentionContext, StandardAttention
from vlcli.nn.batch import Batch, Concepts, Images, Pixels, Regions, Text, View
from vlcli.nn.blocks import (
    BERT_STYLE,
    VIT_STYLE,
    AttentionBlock,
    BlockStyle,
    FeedForward,
    Residual,
    Stack,
    TransformerLayer,
    run_layer,
)
from vlcli.nn.cache import KeyValueCache
from vlcli.nn.embeddings import FeatureEmbeddings, Pooler, TextEmbeddings, hide, text_layout
from vlcli.nn.fitting import fit_weights
from vlcli.nn.heads import HEADS, HeadTransform, build_head, register_head
from vlcli.nn.layout import CONCEPT, IMAGE, TEXT, Layout
from vlcli.nn.mask import AttentionMask
from vlcli.nn.model import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    PUBLISHED_STD,
    BoxProjection,
    Detections,
    Facts,
    Fused,
    InitStd,
    Model,
    Needs,
    Recorder,
    States,
    init_scale,
    initialise,
)
from vlcli.nn.packing import Packing
from vlcli.nn.position import WORDS, AttentionShape, PairwisePosition, Slot, TokenPosition, between, within
from vlcli.nn.positions import PositionChoice, build_positions, chosen, geometry, with_grid
from vlcli.nn.slots import build_model
from vlcli.nn.step import Step

__all__ = [
    "BERT_STYLE",
    "CONCEPT",
    "HEADS",
    "IMAGE",
    "IMAGENET_MEAN",
    "IMAGENET_STD",
    "NO_CONTEXT",
    "PUBLISHED_STD",
    "TEXT",
    "VIT_STYLE",
    "WORDS",
    "Attention",
    "AttentionBlock",
    "AttentionContext",
    "AttentionMask",
    "AttentionShape",
    "Batch",
    "BlockStyle",
    "BoxProjection",
    "Concepts",
    "Detections",
    "Facts",
    "FeatureEmbeddings",
    "FeedForward",
    "Fused",
    "HeadTransform",
    "Images",
    "InitStd",
    "KeyValueCache",
    "Layout",
    "Model",
    "Needs",
    "Packing",
    "PairwisePosition",
    "Pixels",
    "Pooler",
    "PositionChoice",
    "Recorder",
    "Regions",
    "Residual",
    "Slot",
    "Stack",
    "StandardAttention",
    "States",
    "Step",
    "Text",
    "TextEmbeddings",
    "TokenPosition",
    "TransformerLayer",
    "View",
    "between",
    "build_head",
    "build_model",
    "build_positions",
    "chosen",
    "fit_weights",
    "geometry",
    "hide",
    "init_scale",
    "initialise",
    "register_head",
    "run_layer",
    "text_layout",
    "with_grid",
    "within",
]
