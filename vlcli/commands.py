"""Functions and options for commands of packages (entry points ``vlcli.commands``).

A command prints its product on stdout by :func:`out`, :func:`table`, :func:`counts` or :func:`out_json`, everything
else by the bar of :func:`progress`. ``Json``, ``Quiet`` and ``Verbose`` are the options that all commands share.
"""

from vlcli.cli.console import counts, err, out, out_json, progress, table
from vlcli.cli.options import Json, Quiet, Verbose
from vlcli.recipe.overrides import Override, parse

__all__ = ["Json", "Override", "Quiet", "Verbose", "counts", "err", "out", "out_json", "parse", "progress", "table"]
