"""DETR (Carion et al., ECCV 2020): the model, its set loss, its sines, and its published weights."""

from vlcli_detr.model import DETR, DetrSine
from vlcli_detr.names import from_released, from_transformers, to_released
