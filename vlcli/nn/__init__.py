"""Transformer parts that models, objectives and position encodings are built from: pure torch, no files."""

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
from vlcli.nn.embeddings import (
    FeatureEmbeddings,
    Pooler,
    TextEmbeddings,
    embed_grid,
    hide,
    image_grid,
    patch_embedding,
    text_layout,
)
from vlcli.nn.fake import fake_batch
from vlcli.nn.fitting import (
    PUBLISHED_STD,
    BoxProjection,
    InitStd,
    fit_weights,
    init_scale,
    initialise,
    initialise_model,
)
from vlcli.nn.folders import quiet_transformers
from vlcli.nn.forward_passes import ForwardPasses, Rows
from vlcli.nn.heads import HeadTransform, TiedWordHead, build_head, register_head
from vlcli.nn.layout import CONCEPT, IMAGE, SPECIAL, TEXT, Layout, Runs
from vlcli.nn.mask import AttentionMask, Packing
from vlcli.nn.model import Model
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
from vlcli.nn.records import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    DataSpec,
    DetectionOutput,
    EncoderOutput,
    FusionOutput,
    InputSpec,
    Recorder,
)
from vlcli.nn.recurrent import recurrent_states
from vlcli.nn.shape import NetworkShape
from vlcli.nn.slots import build_model
from vlcli.nn.weights import WeightsReport, file_sha256, load_tensors, read_weights
from vlcli.nn.whitening import Whitening
