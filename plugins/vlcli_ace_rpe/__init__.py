"""ACE-RPE: anchor-based relative positions between words and pictures."""

from vlcli_ace_rpe.alignment import AnchorAlignment
from vlcli_ace_rpe.encoding import ACERPE, distance, grouped_cosine, log_distance
from vlcli_ace_rpe.path import min_plus, shortest_paths, shortest_paths_between
