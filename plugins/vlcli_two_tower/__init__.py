"""Dual encoders of public towers: any image encoder of timm or transformers, any text encoder of transformers.

``two-tower`` compares projected vectors (CLIP, SigLIP); ``two-tower-fused`` adds METER-like co-attention layers.
"""

from vlcli_two_tower.fused import TwoTowerFused
from vlcli_two_tower.model import TwoTower
