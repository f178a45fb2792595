"""Opens the data sets that a recipe names, and the stores that a stage reads."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from vlcli import registry
from vlcli.builders.context import StageContext
from vlcli.data.answers import AnswerList
from vlcli.data.reader import Reader
from vlcli.errors import DataError, Problem, RecipeError
from vlcli.features import FeatureStore
from vlcli.features.concepts import ConceptStore, sort_files
from vlcli.nn.model import InputSpec
from vlcli.plain import as_list
from vlcli.progress import Progress, Silent
from vlcli.recipe.components import split_options
from vlcli.recipe.digests import read_files
from vlcli.recipe.schema import ReaderOptions
from vlcli.registry import Spec, as_spec


@dataclass
class Stores:
    """Stores of region features and of visual concepts that a model reads."""

    regions: FeatureStore | None = None
    concepts: ConceptStore | None = None


def open_stores(files: Sequence[Path], needs: InputSpec) -> Stores:
    """Opens what the model reads of these files; what no file holds is None."""
    if not files or not (needs.regions or needs.concepts):
        return Stores()
    regions, concepts = sort_files(files)
    return Stores(
        FeatureStore(regions) if regions and needs.regions else None,
        ConceptStore(concepts) if concepts and needs.concepts else None,
    )


def require_stores(stores: Stores, needs: InputSpec, stage: str, who: str = "model") -> None:
    """Raises DataError if a model (or ``who``, a task without one) reads regions or concepts that no store has."""
    for what, needed, store, held in (
        ("region features", needs.regions, stores.regions, "them"),
        ("visual concepts", needs.concepts, stores.concepts, "concepts"),
    ):
        if needed and store is None:
            lack, where = f"The {who} reads {what}, and there is no store of them.", f"stages.{stage}"
            expected = f"`features: STAGE` or a file that holds {held}, or an extract stage before this one"
            raise DataError(lack, where=where, expected=expected, hint="make one: vlcli extract")


def region_sample(store: FeatureStore, readers: Sequence[Reader]) -> Tensor:
    """Returns region features (N, F) of training images chosen evenly by name; N is about 20,000 at most."""
    images = sorted({name for reader in readers for example in reader.examples() for name in example.images})
    known = [name for name in images if name in store]
    batch = store.read_batch(known[:: max(1, len(known) * store.max_regions // 20_000)], ("features",))
    return torch.from_numpy(batch["features"][batch["mask"]].astype(np.float32))


def open_readers(
    specs: Sequence[Spec | str], root: Path, progress: Progress | None = None, cache: Path | None = None
) -> list[Reader]:
    """Opens data sets; those with ``if_missing: skip`` are left out if files are missing, unless none would remain.

    Args:
        specs: with the options that every reader has.
        cache: the run's folder for examples in columns; None: in memory.

    Raises:
        DataError: a file is missing.
    """
    readers, absent = [], []
    for entry in specs:
        spec, reader = as_spec(entry), build_reader(entry, root)
        wanted = read_files(reader) if spec.get("if_missing") == "skip" else ()
        if (lacking := next((file for file in wanted if not file.exists()), None)) is not None:
            (progress or Silent()).warn(f"{spec['name']} is left out: {lacking} is not there")
            absent.append(lacking)
            continue
        reader.cache = cache
        reader.require()
        readers.append(reader)
    if absent and not readers:
        hint = "point `root` at the data: root=DATA"
        raise DataError("None of the stage's data is there.", where=str(absent[0]), hint=hint)
    return readers


def build_reader(entry: Spec | str, root: Path) -> Reader:
    """Builds a data set with the options that every reader has; its files need not exist."""
    spec, written = split_options("datasets", as_spec(entry))
    reader, options = registry.of(Reader).build(spec, root), ReaderOptions(**written)
    reader.weight, reader.augments, reader.ids = options.weight, options.augments, options.ids
    return reader


def keep_answered(reader: Reader, answers: Sequence[str]) -> None:
    """Keeps questions and answers in a table of ``answers`` (as written, else normalised as by LXMERT)."""
    table, kept = AnswerList(tuple(answers)), []
    for example in reader.examples():
        targets = example.targets.get("answers")
        scores = targets.items() if isinstance(targets, dict) else ()
        known = {answers[row]: score for answer, score in scores if (row := table.find(answer)) is not None}
        if known:
            kept.append(replace(example, targets={**example.targets, "answers": known}))
    if dropped := len(reader.examples()) - len(kept):
        reader.left_out["questions none of whose answers is in the answer table"] += dropped
    reader.restrict(kept)


def refuse_held_out(context: StageContext, specs: list[Spec]) -> None:
    """Raises RecipeError if a split that is for validation or testing is pre-trained on."""
    problems = []
    for number, spec in enumerate(specs):
        held: tuple[str, ...] = getattr(registry.of(Reader).load(spec["name"]), "held_out_splits", ())
        named = sorted(set(as_list(spec.get("split"))) & set(held))
        if named:
            what = "a split for validation or testing is pre-trained on"
            key = f"stages.{context.name}.data[{number}].split"
            problems.append(Problem(key, what, got=", ".join(named), hint="name it in `validation` instead"))
    if problems:
        raise RecipeError(problems)
