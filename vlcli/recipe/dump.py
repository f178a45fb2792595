"""Writes plain data as YAML 1.2 that reads back the same."""

from __future__ import annotations

from typing import Any

from vlcli.recipe.yaml import plain_scalar


def to_yaml(value: Any) -> str:
    """Returns block style, keys in order."""
    import yaml

    class Writer(yaml.SafeDumper):
        def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
            # Strings that the core schema reads as another type are quoted; the words of YAML 1.1 alone are not.
            if kind is yaml.ScalarNode and implicit[0]:
                return super().represent_data(plain_scalar(value)).tag
            return super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]

        def represent_float(self, data: float) -> Any:
            node = super().represent_float(data)
            node.value = node.value.replace(".0e", "e")
            return node

    Writer.add_representer(float, Writer.represent_float)
    return str(yaml.dump(value, Dumper=Writer, sort_keys=False, allow_unicode=True, width=120))
