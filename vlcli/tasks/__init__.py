"""Tasks: the base class that packages extend, what a benchmark asks, how it is scored, what its server wants."""

from typing import TYPE_CHECKING

from vlcli.lazy import lazily

if TYPE_CHECKING:
    from vlcli.tasks.base import Given, Result, Runner, Task
    from vlcli.tasks.heat import matching_maps
    from vlcli.tasks.outputs import logits_of, target, write_csv, write_json_lines


__getattr__ = lazily(__name__, __file__)
