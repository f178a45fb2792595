"""ALBEF (Li et al., NeurIPS 2021): the model, its word decoder, its published weights, and distilled masked words."""

from vlcli_albef.distillation import DistilledMLM
from vlcli_albef.model import ALBEF
from vlcli_albef.weights import albef_name, to_albef
