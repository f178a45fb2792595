"""iRPE (Wu et al., ICCV 2021): image relative position encodings, and those they are compared with."""

from vlcli_irpe.baselines import SASA, Huang, Shaw, TransformerXL
from vlcli_irpe.buckets import BucketRule, clip, piecewise, ratio_for
from vlcli_irpe.irpe import IRPE, equip
from vlcli_irpe.lookup import BucketPosition, bucket_sums, by_key, by_query
from vlcli_irpe.modern import ConvolutionalGenerator, LogCPB, RoPE2D, SwinBias
from vlcli_irpe.relative_index import CACHE, RelativeIndex, TokenGrid, bucket_ids, grid_ids
