"""DeiT (Touvron et al., ICML 2021) and plain ViT: an image classifier, and its weights by timm's names."""

from vlcli_deit.model import DeiT, from_timm, to_timm
