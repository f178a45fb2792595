"""VLMo (Bao et al., NeurIPS 2022): one transformer as dual encoder and fusion encoder, with its relative bias."""

from vlcli_vlmo.beit3 import BEiT3
from vlcli_vlmo.bias import VLMoBias, resample
from vlcli_vlmo.exporter import Released
from vlcli_vlmo.model import VLMo
from vlcli_vlmo.vilt import ViLT
from vlcli_vlmo.weights import to_released
