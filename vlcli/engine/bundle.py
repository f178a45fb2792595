"""Writes and reads bundles: the weights, configuration and tokenizer of a trained model.

    model/  config.json          components, data spec, text options, versions; size and checksum of the weights
            model.safetensors    model.* and objectives.NAME.* (weights and buffers)
            vocab/               tokenizer files, where the model reads text
            load_report.json     which weights were loaded from where, if any were

It has no momentum copy, which starts again from the weights.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from torch import Tensor

from vlcli.engine.checkpoint import Checkpoints, read_state
from vlcli.engine.training_module import TrainingModule, build_training_module
from vlcli.engine.weights import LoadReport, load_exactly, read_tensors, refuse_not_finite, save_tensors
from vlcli.errors import DataError, VlcliError, shown
from vlcli.files import facts_of, new_folder, write_json
from vlcli.nn.model import DataSpec, Model
from vlcli.recipe import stage_record
from vlcli.registry import Spec
from vlcli.version import __version__

FORMAT = "vlcli-bundle"
VERSION = 2
CONFIG = "config.json"
WEIGHTS = "model.safetensors"


@dataclass
class Bundle:
    """A trained model; specs are entries of its recipe.

    Attributes:
        module: model and objectives in evaluation mode; None: only the configuration was read.
        tokenizer: a ``vlcli.data.vocabulary.Tokenizer``; None for a model without text.
        text_options: ``lowercase``, ``length``, ``prepare``, ``words``, ``end``.
        info: stage, step, seed, version of vlcli.
        extraction: of the regions and concepts, as ``vlcli.builders.extractions`` writes it.
    """

    module: TrainingModule | None
    tokenizer: Any
    data_spec: DataSpec
    task_spec: Spec | None
    model_spec: Spec
    objectives_specs: list[Spec]
    text_options: dict[str, Any]
    folder: Path
    info: dict[str, Any] = field(default_factory=dict)
    transform_spec: Spec | None = None
    extraction: list[dict[str, Any]] = field(default_factory=list)

    @property
    def model(self) -> Model:
        assert self.module is not None, "only the config of this bundle was read"
        return self.module.model


def save_bundle(
    folder: Path,
    module: TrainingModule,
    *,
    report: LoadReport | None = None,
    state: dict[str, Tensor] | None = None,
    **parts: Any,
) -> None:
    """Write a bundle as ``folder``, complete or not at all.

    Args:
        state: weights instead of the module's.
        parts: the other attributes of :class:`Bundle`; ``task_spec`` and ``text_options`` may be left out.

    Raises:
        VlcliError: weights are not finite, or the disk is full; a bundle that was there is intact.
    """
    bundle = Bundle(module=module, folder=folder, **{"task_spec": None, "text_options": {}, **parts})
    tensors = {n: v for n, v in (state or module.state_dict()).items() if not n.startswith("teacher.")}
    buffers = {name for name, _ in module.named_buffers()}
    refuse_not_finite(tensors, str(folder), buffers, "train again from an earlier checkpoint with a lower optimizer.lr")
    config = {
        "format": FORMAT,
        "version": VERSION,
        "vlcli": __version__,
        "model": {**bundle.model_spec, **module.model.bundle_options()},
        "objectives": bundle.objectives_specs,
        "task": bundle.task_spec,
        "facts": asdict(bundle.data_spec),
        "text": bundle.text_options,
        "transform": bundle.transform_spec,
        "info": bundle.info,
        **({"extraction": bundle.extraction} if bundle.extraction else {}),
    }
    with new_folder(folder) as beside:
        save_tensors(beside / WEIGHTS, tensors)
        if bundle.tokenizer is not None:
            bundle.tokenizer.save(beside / "vocab")
        if report is not None:
            write_json(beside / "load_report.json", asdict(report))
        write_json(beside / CONFIG, {**config, "files": {WEIGHTS: facts_of(beside / WEIGHTS)}})


def find_bundle(path: str | Path) -> Path | None:
    """Return the folder of the bundle at ``path`` (a bundle or a stage, perhaps of another run), if there is one."""
    for folder in (Path(path), Path(path) / "model", stage_record.made_in(Path(path)) / "model"):
        if (folder / CONFIG).is_file() and _config(folder).get("format") == FORMAT:
            return folder
    return None


def load_bundle(folder: str | Path, device: str = "cpu") -> Bundle:
    """Build the model of a bundle (or of a stage's folder) and load its weights.

    Raises:
        DataError: there is no bundle, it is damaged or changed, or a newer vlcli wrote it.
        ComponentError: a component is not installed.
    """
    bundle = read_bundle(folder)
    module = build_training_module(bundle.model_spec, bundle.objectives_specs, bundle.data_spec)
    state = read_weights(bundle.folder)
    copies = {n: v for n, v in module.state_dict(keep_vars=True).items() if n.startswith("teacher.")}
    teacher = {n: state.get(n.replace("teacher.", "model.", 1), v.detach()) for n, v in copies.items()}
    load_exactly(module, state | teacher, str(bundle.folder / WEIGHTS))
    bundle.module = module.to(device).eval()
    return bundle


def read_bundle(folder: str | Path) -> Bundle:
    """Read configuration and tokenizer. Raises DataError: no bundle, a damaged one, or one of a newer vlcli."""
    path = find_bundle(folder)
    if path is None:
        raise _no_bundle(Path(folder))
    config = _config(path)
    if not isinstance(version := config.get("version", 0), int):
        raise _damaged(path, f"version: {shown(version)}")
    if version > VERSION:
        got, hint = f"version {version} (vlcli {config.get('vlcli', '?')})", "pip install -U vlcli"
        raise DataError("A newer vlcli wrote this model.", where=str(path), got=got, expected=str(VERSION), hint=hint)
    try:
        _Config.model_validate(config)
        return Bundle(
            module=None,
            tokenizer=_tokenizer(path, config["text"]),
            data_spec=_data_spec(config["facts"]),
            task_spec=config["task"],
            model_spec=config["model"],
            objectives_specs=config["objectives"],
            text_options=config["text"],
            folder=path,
            info={**config["info"], "vlcli": config["vlcli"]},
            transform_spec=config.get("transform"),
            extraction=config.get("extraction", []),
        )
    except ValidationError as error:
        fault = error.errors()[0]
        key = ".".join(map(str, fault["loc"]))
        raise _damaged(path, f"{key}: {shown(fault['input'])} ({fault['msg']})") from error
    except (KeyError, TypeError) as error:
        raise _damaged(path, repr(error)) from error


def _no_bundle(folder: Path) -> DataError:
    record = stage_record.read(folder)
    again = f"vlcli run {(record and record.recipe) or 'RECIPE'}"
    if record is not None and record.artifact:
        what, hint = "The run that made this stage is gone or has changed since.", f"make the stage again: {again}"
        return DataError(what, where=str(folder), got=str(stage_record.artifact(folder, record)), hint=hint)
    if record is not None and record.status != "done":
        what, got = "This stage is not finished: it has no model yet.", f"status: {record.status}"
        return DataError(what, where=str(folder), got=got, hint=f"finish it: {again}")
    # the stages whose model an evaluation judged, or those of a run's folder
    judged = [folder.parent / str(name) for name in (record.config.get("from") or [] if record else [])]
    near = [path for path in (judged or sorted(folder.glob("*"))) if find_bundle(path) not in (None, path)]
    expected = f"a folder with {CONFIG} and {WEIGHTS}, or a stage's folder that holds one as model/"
    hint = f"did you mean {' or '.join(map(str, near[:3]))}?" if near else "make one: vlcli run RECIPE"
    return DataError("There is no trained model here.", where=str(folder), expected=expected, hint=hint)


class _Config(BaseModel):
    model_config = ConfigDict(strict=True, protected_namespaces=())

    vlcli: str
    model: dict[str, Any]
    objectives: list[dict[str, Any] | str]
    task: dict[str, Any] | None
    transform: dict[str, Any] | None = None
    facts: dict[str, Any]
    text: dict[str, Any]
    info: dict[str, Any]
    files: dict[str, dict[str, int]] | None = None
    extraction: list[dict[str, Any]] = []


_MOST = 10**8  # a table of so many rows fits no memory


def _data_spec(facts: dict[str, Any]) -> DataSpec:
    # ValidationError or TypeError for types and sizes of which no model can be built; strict: "5" is no number.
    data_spec = TypeAdapter(DataSpec).validate_json(json.dumps(facts), strict=True)
    for name, value in vars(data_spec).items():
        wrong = [one for one in _leaves(value) if not isinstance(one, str) and not 0 <= one < _MOST]
        if wrong:
            raise TypeError(f"facts.{name}: {shown(wrong[0])}")
    return data_spec


def _leaves(value: Any) -> list[Any]:
    return [one for item in value for one in _leaves(item)] if isinstance(value, list | tuple) else [value]


def _damaged(path: Path, got: str) -> DataError:
    what, hint = "The model's config is damaged.", "make the model again: vlcli run RECIPE --force --only STAGE"
    return DataError(what, where=str(path / CONFIG), got=got, expected="a file as vlcli writes it", hint=hint)


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Return the tensors of a bundle. Raises DataError: the file is missing, damaged or changed."""
    return read_tensors(verified(folder / WEIGHTS))


def record_weights(folder: Path) -> None:
    """Write size and checksum of a bundle's weights to its configuration, which :func:`verified` reads."""
    write_json(folder / CONFIG, {**_config(folder), "files": {WEIGHTS: facts_of(folder / WEIGHTS)}})


def verified(path: Path) -> Path:
    """Return ``path``, a file of weights, checked if the configuration of its bundle has ``files``.

    Raises:
        DataError: size or checksum differ.
    """
    files = _config(path.parent).get("files") if path.is_file() and find_bundle(path.parent) == path.parent else None
    if files is not None and not (isinstance(files, dict) and all(isinstance(one, dict) for one in files.values())):
        raise _damaged(path.parent, f"files: {shown(files)}")
    recorded = (files or {}).get(path.name)
    actual = None if recorded is None else facts_of(path)
    if actual != recorded:
        what = "These weights cannot be read: they are not those that were written."
        hint = f"{_remedy(path.parent)}; weights that were changed on purpose: remove `files` from {CONFIG}"
        got, expected = _in_words(actual or {}), f"{_in_words(recorded or {})} (`files` of {CONFIG})"
        raise DataError(what, where=str(path), got=got, expected=expected, hint=hint)
    return path


def _in_words(facts: Mapping[str, Any]) -> str:
    return f"{shown(facts.get('bytes'))} bytes with CRC-32 {shown(facts.get('crc32'))}"


def _remedy(folder: Path) -> str:
    # From the checkpoints of its stage, if those are whole.
    with suppress(VlcliError):
        kept = [read_state(path) for path in Checkpoints(folder.parent / "checkpoints").lasting()]
        if folder.name == "model" and kept:
            again = "run its recipe again (vlcli run RECIPE): it is written again from the checkpoints"
            return f"delete {folder} and {again}"
    return "fetch the model again, or make it again: vlcli run RECIPE --force --only STAGE"


def _config(folder: Path) -> dict[str, Any]:
    try:
        value = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError("The model's config cannot be read.", where=str(folder / CONFIG), got=str(error)) from error
    return value if isinstance(value, dict) else {}


def _tokenizer(path: Path, text: Mapping[str, Any]) -> Any:
    if not (path / "vocab").is_dir():
        return None
    from vlcli.data.vocabulary import Tokenizer

    return Tokenizer.load(path / "vocab", lowercase=bool(text.get("lowercase", True))).reading(text)
