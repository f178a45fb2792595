"""Finds a tower's configuration and weights by name, folder or mapping, and builds its network."""

import inspect
import json
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from vlcli.errors import ComponentError, DataError
from vlcli.files import cached_repository
from vlcli.foreign import transformers_model
from vlcli.nn import quiet_transformers

# Files that may hold a tower's weights
WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
Choice = str | dict[str, Any]
"""What a recipe says of a tower: a name or folder, or a configuration."""


@dataclass(frozen=True)
class Source:
    """A tower before it is built; ``config`` has ``architecture`` (timm) or ``model_type`` (transformers)."""

    config: dict[str, Any]
    folder: Path | None  # of the weights, of timm also the file; None: they are drawn
    where: str

    @property
    def library(self) -> str:
        return "timm" if "architecture" in self.config else "transformers"


def find(choice: Choice, where: str) -> Source:
    """Returns the source of a timm name, a folder, a cached hub repository, or a mapping.

    Raises ComponentError for a mapping that is no configuration, and DataError for an unknown name or an incomplete
    folder.
    """
    if isinstance(choice, Mapping):
        config = dict(choice)
        if "architecture" in config or "model_type" in config:
            return Source(config, None, where)
        what, got = "The tower's configuration does not say of which kind it is.", ", ".join(map(str, config))
        expected = "model_type (transformers: bert, vit, ...) or architecture (timm: vit_tiny_patch16_224, ...)"
        raise ComponentError(what, where=where, got=f"the keys {got or 'of an empty mapping'}", expected=expected)
    folder, plain = Path(choice).expanduser(), choice.removeprefix("timm/")
    if folder.is_dir():
        return _in_folder(folder, where)
    import timm
    from huggingface_hub import try_to_load_from_cache

    repository, sought = choice, "a folder, and a repository in the hub's cache"
    if "/" not in plain and timm.is_model(plain):
        repository = getattr(timm.get_pretrained_cfg(plain), "hf_hub_id", None) or plain
        sought = f"the weights of {repository} in the hub's cache"
        file = try_to_load_from_cache(repository, WEIGHTS[0])
        if isinstance(file, str):
            return Source({"architecture": choice}, Path(file), where)
    elif (cached := cached_repository(choice)) is not None:
        return _in_folder(cached, where)
    raise DataError(
        "This tower is neither a folder here nor in the local cache, and vlcli downloads nothing.",
        where=f"model.{where}",
        got=choice,
        expected=f"looked for: {sought}",
        hint=f"fetch it where there is a network: hf download {repository}; for random weights name a configuration, "
        "such as {model_type: vit} or {architecture: vit_tiny_patch16_224}",
    )


def _in_folder(folder: Path, where: str) -> Source:
    config = read_json(folder / "config.json", where)
    if not {"architecture", "model_type"} & config.keys():
        what, got = "The folder's config.json names no architecture that can be built.", ", ".join(list(config)[:8])
        where, expected = str(folder / "config.json"), "model_type (transformers) or architecture (timm)"
        raise DataError(what, where=where, got=f"the keys {got or 'none'}", expected=expected)
    if not any((folder / name).is_file() for name in WEIGHTS):
        raise DataError(
            "The folder holds no weights.",
            where=str(folder),
            got=", ".join(sorted(path.name for path in folder.iterdir())[:10]) or "nothing",
            expected=" or ".join(WEIGHTS),
            hint="fetch the whole repository, or write the configuration into the recipe for random weights",
        )
    return Source(config, folder, where)


def read_json(file: Path, where: str) -> dict[str, Any]:
    """Reads a JSON object of the tower ``where``. Raises DataError: the file is missing or holds none."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        got = f"{type(error).__name__}: {error}".split("\n", 1)[0]
        what = f"The configuration of the tower {where} cannot be read."
        raise DataError(what, where=str(file), got=got, expected="a JSON object") from None
    if not isinstance(content, dict):
        raise DataError("The tower's configuration is no JSON object.", where=str(file), got=type(content).__name__)
    return content


def on_meta() -> bool:
    """True while models are built without memory (checks before a run), so that no weights are read."""
    return torch.get_default_device().type == "meta"


@contextmanager
def quiet() -> Iterator[None]:
    """Silences transformers' progress bars and Python's warnings."""
    with quiet_transformers(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def configuration(source: Source) -> Any:
    """Returns transformers' configuration. Raises ComponentError: an unknown ``model_type``, or an unfit value."""
    with quiet():
        from transformers import AutoConfig

        options = {key: value for key, value in source.config.items() if key not in ("model_type", "auto_map")}
        try:
            return AutoConfig.for_model(source.config["model_type"], **options)
        except Exception as error:  # transformers raises ValueError, TypeError and classes of its validators
            got = f"{source.config['model_type']}: {str(error).split(chr(10))[0][:200]}"
            what, where = "Transformers cannot make this configuration.", f"model.{source.where}"
            expected = "a model_type of the installed transformers, with its own keys"
            raise ComponentError(what, where=where, got=got, expected=expected) from None


def part_of(config: Any, names: tuple[str, ...]) -> tuple[Any, str]:
    """Returns one tower's configuration and its name in a dual model (``text_config``), else ``config`` and ''."""
    for name in names:
        part = getattr(config, name, None)
        if part is not None and not isinstance(part, dict):
            return part, name
    return config, ""


def build(config: Any, where: str) -> Any:
    """Builds a network of transformers with drawn weights. Raises ComponentError: it has no plain encoder."""
    with quiet():
        kind = _class_of(config, where)
        try:
            return kind._from_config(config, **_options(kind)).eval()
        except (ValueError, TypeError, AssertionError) as error:
            what = "Transformers cannot build this tower."
            got = str(error).split("\n")[0][:200]
            raise ComponentError(what, where=f"model.{where}", got=got, expected="sizes that fit one another") from None


def network(source: Source, config: Any, part: str = "") -> Any:
    """Loads a network of transformers in float32; without a folder, or on the meta device, its weights are drawn.

    ``part``: its name in the configuration of a dual model (``text_config``) whose weights the folder holds. Raises
    DataError: weights are missing, of another shape, or damaged.
    """
    if source.folder is None or on_meta():
        return build(config, source.where)
    whole = configuration(source) if part else config
    with quiet():
        kind = _class_of(whole, source.where)
        loaded = transformers_model(kind, source.folder, trains=True, config=whole, **_options(kind))
    return loaded.get_submodule(part.replace("_config", "_model"))


# Text towers that transformers builds and AutoModel does not know.
_NOT_AUTO = {"siglip_text_model": "SiglipTextModel", "siglip2_text_model": "Siglip2TextModel"}


def _class_of(config: Any, where: str) -> Any:
    import transformers

    if config.model_type in _NOT_AUTO:
        return getattr(transformers, _NOT_AUTO[config.model_type])
    try:
        return transformers.MODEL_MAPPING[type(config)]
    except KeyError:
        what, got = "Transformers has no plain encoder for this configuration.", str(config.model_type)
        expected = "a model_type that AutoModel builds, such as bert, roberta, modernbert, vit, dinov2, clip, siglip"
        raise ComponentError(what, where=f"model.{where}", got=got, expected=expected) from None


def _options(kind: Any) -> dict[str, Any]:
    # No pooling layer where a tower may do without: BERT's is trained for sentence pairs, and often not at all.
    return {"add_pooling_layer": False} if "add_pooling_layer" in inspect.signature(kind.__init__).parameters else {}


def plain(config: Any) -> dict[str, Any]:
    """Returns a configuration as JSON with its ``model_type``, the inverse of :func:`configuration`."""
    dropped = ("transformers_version", "architectures", "dtype", "torch_dtype", "_name_or_path", "auto_map")
    settings = {key: value for key, value in json.loads(config.to_json_string()).items() if key not in dropped}
    return settings | {"model_type": config.model_type}
