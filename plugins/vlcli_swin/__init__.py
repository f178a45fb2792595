"""Swin Transformer (Liu et al., ICCV 2021), with any pairwise encoding inside its windows."""

from vlcli_swin.model import Swin
