"""Dual encoders of public towers, ``two-tower`` (CLIP, SigLIP), and METER-like fusion on them, ``two-tower-fused``."""

from vlcli_two_tower.fused import TwoTowerFused
from vlcli_two_tower.model import TwoTower
