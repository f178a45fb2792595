"""Plain data as YAML 1.2 that reads back the same."""

from __future__ import annotations

import io
from typing import Any


def to_yaml(value: Any) -> str:
    """Block style, keys in order."""
    from ruamel.yaml import YAML

    writer = YAML(typ="safe", pure=True)
    writer.default_flow_style = False
    writer.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    writer.allow_unicode = True
    writer.width = 120
    text = io.StringIO()
    writer.dump(value, text)
    return text.getvalue()
