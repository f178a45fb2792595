"""What a recipe may say: one strict model per stage kind.

Components (``model``, ``objectives``) stay mappings: ``vlcli.registry.check`` checks them. Torch is never imported.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from vlcli.recipe.fields import (
    DataField,
    ModelField,
    Names,
    OptionalSpec,
    OptionalSpecs,
    Places,
    Section,
    SpecField,
    SpecList,
)
from vlcli.recipe.training_options import EmaOptions, OptimizerOptions, ScheduleOptions, StopOptions
from vlcli.registry.bounds import (
    BatchSize,
    Between,
    Count,
    CountOrNone,
    NotNegative,
    Positive,
    Processes,
    Seed,
    Threads,
    Weight,
)


class TrainVocabulary(Section):
    """A WordPiece vocabulary to be trained on one's own texts."""

    train: DataField
    size: Annotated[int, Between(1, 10**7)] = 1000
    min_frequency: Count = 1


class TextOptions(Section):
    """How sentences become ids: ``vocabulary`` is a folder, a file, a hub name, or ``{train: DATA, size: N}``.

    ``prepare`` is a published model's preparation of sentences, cut after ``words`` words (None: as that model cuts
    them); ``end: none`` leaves out the ``[SEP]`` behind a sentence.
    """

    vocabulary: str | TrainVocabulary = "bert-base-uncased"
    lowercase: bool = True
    length: Annotated[int, Between(1, 65_536)] = 20
    prepare: Literal["as-written", "albef-caption", "albef-question", "blip-caption", "blip-question", "siglip"] = (
        "as-written"
    )
    words: Annotated[int, Between(1, 65_536)] | None = None
    end: Literal["sep", "none"] = "sep"


class ObjectiveChange(BaseModel):
    """What of an objective is different from an epoch on: its weight, and parameters of its own beside these keys."""

    model_config = ConfigDict(extra="allow", protected_namespaces=(), frozen=True)

    from_epoch: Count
    weight: Weight | None = None

    @property
    def own(self) -> dict[str, Any]:
        """The objective's own parameters among what changes."""
        return dict(self.model_extra or {})


def _rising(changes: list[ObjectiveChange]) -> list[ObjectiveChange]:
    epochs = [change.from_epoch for change in changes]
    if epochs != sorted(set(epochs)):
        raise ValueError("changes one after another, each from a later epoch")
    return changes


class ObjectiveOptions(Section):
    """When and how much an objective counts: keys that stand beside its own parameters in a recipe.

    ``changes`` says what is different from an epoch on, one change after another; what a change does not name stays as
    the one before left it.
    """

    weight: Weight = 1.0
    from_epoch: CountOrNone = 0
    until_epoch: CountOrNone | None = None
    changes: Annotated[list[ObjectiveChange], AfterValidator(_rising)] = []

    def weight_in(self, epoch: int) -> float:
        """The weight in an epoch of its own."""
        said = [change.weight for change in self.changes if change.from_epoch <= epoch and change.weight is not None]
        return said[-1] if said else self.weight

    def phases(self) -> list[tuple[int, int | None, dict[str, Any]]]:
        """First epoch, first epoch behind it (None: to the end) and changed parameters of each stretch of epochs."""
        own: dict[str, Any] = {}
        found: list[tuple[int, dict[str, Any]]] = [(self.from_epoch, {})]
        for change in self.changes:
            if change.own:
                own = {**own, **change.own}
                found.append((max(change.from_epoch, self.from_epoch), own))
        ends = [*(start for start, _ in found[1:]), self.until_epoch]
        if self.until_epoch is not None:
            ends = [min(end, self.until_epoch) for end in ends if end is not None]
        return [(start, end, own) for (start, own), end in zip(found, ends, strict=True) if end is None or start < end]


class CurriculumStep(Section):
    """Which examples an epoch before ``until_epoch`` draws from: the easy ones; an epoch keeps its length.

    ``words`` and ``regions`` are the most an example may have; ``targets`` are values that its targets must have;
    ``without`` are words that its sentence must not have.
    """

    until_epoch: Count
    words: Count | None = None
    regions: Count | None = None
    targets: dict[str, list[str | int | bool]] = {}
    without: list[str] = []


class ReaderOptions(Section):
    """Keys that stand beside a reader's own parameters: how it takes part in a mixture, and what image ids are."""

    weight: NotNegative = 1.0
    if_missing: Literal["error", "skip"] = "error"
    augments: bool = False
    ids: Literal["name", "path", "file"] = "name"


class Stage(Section):
    """What every stage may say.

    ``from`` names stages (or folders) whose results it uses; ``if_missing: skip`` skips a stage whose data files are
    missing, and the stages that build on it. ``seed`` sets the seed of this stage alone.
    """

    gives_weights: ClassVar[bool] = True
    """Whether ``from`` may name a stage of this kind for its weights; else for its features or data."""
    needs_source: ClassVar[bool] = False
    """Whether ``from`` must be given: a trained model is what the stage works on."""
    joint: ClassVar[bool] = False
    """Whether every process of a run takes part (evaluation: if the task is joint); else the first alone."""
    reads_root: ClassVar[bool] = False
    """Whether the data root decides its result, and so its key."""
    seeded: ClassVar[bool] = False
    """Whether the run's seed decides its result; a made world has a seed among its parameters."""
    continues: ClassVar[bool] = False
    """Whether it leaves checkpoints from which a lost result is made again."""

    kind: str
    about: str = ""
    source: Annotated[Places, Field(alias="from")] = []
    root: str | None = None
    seed: Seed | None = None
    if_missing: Literal["error", "skip"] = "error"
    device: str | None = None
    threads: Threads | None = None


class Make(Stage):
    """Make a data root."""

    gives_weights: ClassVar[bool] = False
    kind: Literal["make"]
    world: SpecField = {"name": "shapes"}


class Extract(Stage):
    """Turn images into region features: an HDF5 store.

    ``boxes`` names box files; without it the data's own boxes are used where it has any, else the extractor's.
    ``from`` gives the extractor the weights that a training stage made; ``features`` the regions, where it reads those
    of another extraction instead of pictures. ``images`` is a folder, or a text file with a picture a line, also at a
    remote address; ``set`` the box set written and ``batch_size`` the images at a time, both the extractor's own where
    they are not said. ``engine: ray`` extracts on a cluster, whose ``workers`` extract.
    """

    gives_weights: ClassVar[bool] = False
    joint: ClassVar[bool] = True
    reads_root: ClassVar[bool] = True

    kind: Literal["extract"]
    extractor: SpecField
    data: DataField = []
    images: str | None = None
    features: Places = []
    boxes: Places = []
    dtype: Literal["float16", "float32"] = "float16"
    set: str | None = None
    compression: Literal["gzip", "lzf"] | None = None
    batch_size: BatchSize | None = None
    engine: Literal["local", "ray"] = "local"
    workers: Processes = 0
    limit: Count | None = None
    strict: bool = False


class Training(Stage):
    """What pre-training and fine-tuning share; ``steps: 0`` only imports what it starts from."""

    joint: ClassVar[bool] = True
    reads_root: ClassVar[bool] = True
    seeded: ClassVar[bool] = True
    continues: ClassVar[bool] = True

    model: ModelField = None
    text: TextOptions | None = None
    features: Places = []
    data: DataField = []
    objectives: OptionalSpecs = None
    task: OptionalSpec = None
    validation: DataField = []
    transform: OptionalSpec = None
    repeats: BatchSize = 1
    curriculum: list[CurriculumStep] = []
    group: Literal["image"] | None = None
    epochs: Count | None = None
    steps: CountOrNone | None = None
    stop: StopOptions | None = None
    batch_size: BatchSize = 32
    accumulate: BatchSize = 1
    optimizer: OptimizerOptions = OptimizerOptions()
    schedule: ScheduleOptions = ScheduleOptions()
    clip: Positive | None = 1.0
    precision: Literal["float32", "bf16", "fp16"] = "float32"
    ema: EmaOptions | None = None
    compile: bool = False
    checkpointing: bool = False
    sharding: Literal["none", "full", "hybrid"] = "none"
    trainable: list[str] | None = None
    frozen: list[str] = []
    evaluate_every: Count | None = None
    save_every: Count | None = None
    keep: Count = 2
    workers: Processes = 0
    log_every: Count = 10
    trackers: SpecList = [{"name": "jsonl"}]
    missing: Literal["error", "drop"] = "error"
    allow_unmatched: list[str] = []
    state_dict: str | None = None
    rename: dict[str, str] = {}

    @field_validator("stop")
    @classmethod
    def _has_validation(cls, stop: StopOptions | None, given: ValidationInfo) -> StopOptions | None:
        if stop is not None and stop.patience is not None and not given.data.get("validation"):
            raise ValueError("`validation` beside `patience`, which counts validations; or `stop: {minutes: N}` alone")
        return stop

    @field_validator("sharding")
    @classmethod
    def _has_range(cls, sharding: str, given: ValidationInfo) -> str:
        if sharding != "none" and given.data.get("precision") == "fp16":
            raise ValueError("precision bf16 or float32 beside it: the loss scaler of fp16 knows no shared parameters")
        return sharding


class Pretrain(Training):
    """Train a model on objectives."""

    kind: Literal["pretrain"]


class Finetune(Training):
    """Train a model on a task's objectives."""

    kind: Literal["finetune"]


class Average(Stage):
    """Average the last checkpoints of a training stage."""

    needs_source: ClassVar[bool] = True
    kind: Literal["average"]
    last: Count = 20


class Reading(Stage):
    """What stages that read data with a trained model share."""

    reads_root: ClassVar[bool] = True

    task: OptionalSpec = None
    data: DataField = []
    transform: OptionalSpec = None
    split: str | None = None
    features: Places = []
    batch_size: BatchSize = 64
    workers: Processes = 0
    precision: Literal["float32", "bf16", "fp16"] = "float32"
    missing: Literal["error", "drop"] = "error"


class Evaluate(Reading):
    """Score a trained model on a task; or, on the data ``fit`` names, a task that is fitted without a model."""

    needs_source: ClassVar[bool] = True
    joint: ClassVar[bool] = True

    kind: Literal["evaluate"]
    fit: DataField = []


class Draw(Reading):
    """Draw pictures: of data, of trained models, of what stages measured."""

    kind: Literal["draw"]
    drawing: SpecField


class Export(Stage):
    """Write a trained model in another format."""

    needs_source: ClassVar[bool] = True
    kind: Literal["export"]
    format: SpecField = {"name": "safetensors"}


STAGES: dict[str, type[Stage]] = {
    "make": Make,
    "extract": Extract,
    "pretrain": Pretrain,
    "finetune": Finetune,
    "average": Average,
    "evaluate": Evaluate,
    "export": Export,
    "draw": Draw,
}


STAGE_KINDS = tuple(STAGES)


def kind_of(name: str, stage: Any) -> str:
    """A stage's kind: what it says, else its name where that is a kind; empty where neither."""
    said = stage.get("kind", name) if isinstance(stage, dict) else name
    kind = "evaluate" if said == "eval" else str(said)
    return kind if kind in STAGES or (isinstance(stage, dict) and "kind" in stage) else ""


class TableOptions(Section):
    """The table a run ends with: ``rows`` maps labels to evaluate stages, ``metrics`` are patterns (``accuracy/*``)."""

    title: str = ""
    rows: dict[str, str]
    metrics: Names = []


class ImageOptions(Section):
    """How pictures of more than 8 bits become 8-bit: the values that are black and white."""

    range: tuple[float, float] | None = None

    @field_validator("range")
    @classmethod
    def _rises(cls, given: tuple[float, float] | None) -> tuple[float, float] | None:
        if given is not None and not given[0] < given[1]:
            raise ValueError("the first number must be below the second")
        return given


class Recipe(Section):
    """A whole recipe; ``stages`` holds one of :data:`STAGES` per name, in order.

    ``rows``, ``reference``, ``skip``, ``published`` and ``seeds`` make it a table (``vlcli.recipe.rows``); ``defaults``
    says what the stages of a kind share (``vlcli.recipe.defaults``). A resolved recipe has none of them. A training
    that does not get on for ``hang_timeout`` seconds counts as hung.
    """

    schema_version: Annotated[int, Between(1, 1), Field(alias="schema")] = 1
    extends: str | None = None
    name: Annotated[str, Field(max_length=100)] = ""
    about: str = ""
    paper: str = ""
    seed: Seed = 9595
    plugins: list[str] = []
    root: str = "."
    jobs: Threads = 1
    hang_timeout: Annotated[float, Between(1, 86_400 * 30)] = 600.0
    model: OptionalSpec = None
    text: TextOptions = TextOptions()
    images: ImageOptions = ImageOptions()
    datasets: dict[str, DataField] = {}
    defaults: dict[str, Any] = {}
    stages: dict[str, Any]
    table: TableOptions | None = None
    report: bool = False
    rows: dict[str, Any] = {}
    reference: str | int | float | None = None
    skip: dict[str, Any] | list[str] | str | None = None
    published: dict[str, Any] = {}
    seeds: Annotated[int, Between(1, 1000)] = 1
