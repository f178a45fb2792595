"""Heads, formats and worlds of vlcli itself: entries as an entry point has them, so that listing imports nothing."""

from __future__ import annotations

BUILT_IN: dict[str, dict[str, str]] = {
    "heads": {
        "linear": "vlcli.nn.heads:linear",
        "bert-mlm": "vlcli.nn.heads:TiedWordHead",
        "bert-matching": "vlcli.nn.heads:linear",
        "lxmert-answer": "vlcli.nn.heads:lxmert_answer",
        "lxmert-pair": "vlcli.nn.heads:lxmert_pair",
        "vlmo-mlm": "vlcli.nn.heads:OwnWordHead",
        "vlmo-answer": "vlcli.nn.heads:vlmo_answer",
        "vlmo-pair": "vlcli.nn.heads:vlmo_pair",
    },
    "formats": {
        "obj36": "vlcli.features.formats.tsv:Obj36",
        "butd": "vlcli.features.formats.tsv:Butd",
        "npz": "vlcli.features.formats.npz:Npz",
        "vlp": "vlcli.features.formats.vlp:Vlp",
        "concepts": "vlcli.features.formats.concepts:ConceptFormat",
        "mattnet": "vlcli.features.formats.mattnet:Mattnet",
    },
    "worlds": {"shapes": "vlcli.data.shapes.component:Shapes"},
}
"""``module:attribute`` of each, by kind and name; other packages add theirs as entry points of the same groups."""
