"""iRPE (Wu et al., ICCV 2021): image relative position encodings, and those they are compared with."""

from vlcli_irpe.buckets import BucketRule, clip, piecewise, ratio_for
from vlcli_irpe.earlier import SASA, Huang, Shaw, TransformerXL
from vlcli_irpe.equip import equip
from vlcli_irpe.irpe import IRPE
from vlcli_irpe.lookup import BucketPlan, BucketPosition
from vlcli_irpe.modern import ConvolutionalGenerator, LogCPB, RoPE2D, SwinBias
from vlcli_irpe.places import CACHE, GridPlace, Ids, bucket_ids, grid_ids
from vlcli_irpe.terms import bucket_sums, by_key, by_query

__all__ = [
    "CACHE",
    "IRPE",
    "SASA",
    "BucketPlan",
    "BucketPosition",
    "BucketRule",
    "ConvolutionalGenerator",
    "GridPlace",
    "Huang",
    "Ids",
    "LogCPB",
    "RoPE2D",
    "Shaw",
    "SwinBias",
    "TransformerXL",
    "bucket_ids",
    "bucket_sums",
    "by_key",
    "by_query",
    "clip",
    "equip",
    "grid_ids",
    "piecewise",
    "ratio_for",
]
