"""Defines the schema of recipes: a strict model per stage kind; components stay mappings (``vlcli.registry.check``)."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from vlcli.recipe import fields
from vlcli.registry import bounds


class TrainVocabulary(fields.Section):
    """A WordPiece vocabulary that is trained on the texts of data sets."""

    train: fields.DataField
    size: Annotated[int, bounds.Between(1, 10**7)] = 1000
    min_frequency: bounds.Count = 1


Preparation = Literal["as-written", "albef-caption", "albef-question", "blip-caption", "blip-question", "siglip"]


class TextOptions(fields.Section):
    """Tokenization: ``vocabulary`` is a folder, a file, a hub name, or ``{train: DATA, size: N}``.

    ``prepare`` is a published model's preparation of sentences, cut after ``words`` words (None: as that model does);
    ``end: none`` leaves out the ``[SEP]`` behind a sentence.
    """

    vocabulary: str | TrainVocabulary = "bert-base-uncased"
    lowercase: bool = True
    length: Annotated[int, bounds.Between(1, 65_536)] = 20
    prepare: Preparation = "as-written"
    words: Annotated[int, bounds.Between(1, 65_536)] | None = None
    end: Literal["sep", "none"] = "sep"


class ObjectiveChange(BaseModel):
    """Weight and parameters of an objective that change from an epoch on."""

    model_config = ConfigDict(extra="allow", protected_namespaces=(), frozen=True)

    from_epoch: bounds.Count
    weight: bounds.Weight | None = None

    @property
    def parameters(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


def _rising(changes: list[ObjectiveChange]) -> list[ObjectiveChange]:
    epochs = [change.from_epoch for change in changes]
    if epochs != sorted(set(epochs)):
        raise ValueError("changes one after another, each from a later epoch")
    return changes


class ObjectiveOptions(fields.Section):
    """Keys beside an objective's parameters: its weight, its epochs, and changes from an epoch on.

    A key that a change does not name keeps its value.
    """

    weight: bounds.Weight = 1.0
    from_epoch: bounds.CountOrNone = 0
    until_epoch: bounds.CountOrNone | None = None
    changes: Annotated[list[ObjectiveChange], AfterValidator(_rising)] = []

    def weight_in(self, epoch: int) -> float:
        weights = [change.weight for change in self.changes if change.from_epoch <= epoch and change.weight is not None]
        return weights[-1] if weights else self.weight

    def phases(self) -> list[tuple[int, int | None, dict[str, Any]]]:
        """Returns first epoch, end (None: to the end) and changed parameters of each stretch of epochs."""
        starts: list[tuple[int, dict[str, Any]]] = [(self.from_epoch, {})]
        for change in self.changes:
            if change.parameters:
                changed = {**starts[-1][1], **change.parameters}
                starts.append((max(change.from_epoch, self.from_epoch), changed))
        ends = [*(start for start, _ in starts[1:]), self.until_epoch]
        if self.until_epoch is not None:
            ends = [min(end, self.until_epoch) for end in ends if end is not None]
        stretches = zip(starts, ends, strict=True)
        return [(start, end, changed) for (start, changed), end in stretches if end is None or start < end]


class CurriculumStep(fields.Section):
    """The examples that epochs before ``until_epoch`` draw from; an epoch keeps its length.

    ``words`` and ``regions`` are upper limits; ``targets`` are required values of the example's targets; ``without``
    are words that its sentence must not have.
    """

    until_epoch: bounds.Count
    words: bounds.Count | None = None
    regions: bounds.Count | None = None
    targets: dict[str, list[str | int | bool]] = {}
    without: list[str] = []


class ReaderOptions(fields.Section):
    """Keys beside a reader's parameters: its part in a mixture, and the kind of its image ids."""

    weight: bounds.NotNegative = 1.0
    if_missing: Literal["error", "skip"] = "error"
    augments: bool = False
    ids: Literal["name", "path", "file"] = "name"


class Stage(fields.Section):
    """Keys of every stage.

    ``from`` names stages (or folders) whose results it uses; ``if_missing: skip`` skips a stage whose data files are
    missing, and the stages that build on it; ``seed`` is for this stage alone.
    """

    gives_weights: ClassVar[bool] = True
    """``from`` may name a stage of this kind for its weights; else for its features or data."""
    needs_source: ClassVar[bool] = False
    """``from`` is required."""
    joint: ClassVar[bool] = False
    """Every process of a run takes part (evaluation: if the task is joint); else the first alone."""
    reads_root: ClassVar[bool] = False
    """The data root is part of its key."""
    seeded: ClassVar[bool] = False
    """The run's seed is part of its key; a made world has a seed among its parameters."""
    continues: ClassVar[bool] = False
    """Its checkpoints can restore a lost result."""

    kind: str
    about: str = ""
    source: Annotated[fields.Places, Field(alias="from")] = []
    root: str | None = None
    seed: bounds.Seed | None = None
    if_missing: Literal["error", "skip"] = "error"
    device: str | None = None
    threads: bounds.Threads | None = None


class Make(Stage):
    """Make a data root."""

    gives_weights: ClassVar[bool] = False
    kind: Literal["make"]
    world: fields.SpecField = {"name": "shapes"}


class Extract(Stage):
    """Extract region features of images to an HDF5 store.

    ``boxes`` names box files; without it the data's boxes are used, else the extractor's. ``from`` names a training
    stage for the extractor's weights; ``features`` another extraction whose regions it reads instead of pictures.
    ``images`` is a folder, or a text file with a picture a line, also at a remote address; ``set`` (the box set that is
    written) and ``batch_size`` are the extractor's by default. With ``engine: processes`` the ``workers`` run the
    network too, on this machine's processors; ``engine: ray`` extracts on a cluster by ``workers``.
    """

    gives_weights: ClassVar[bool] = False
    joint: ClassVar[bool] = True
    reads_root: ClassVar[bool] = True

    kind: Literal["extract"]
    extractor: fields.SpecField
    data: fields.DataField = []
    images: str | None = None
    features: fields.Places = []
    boxes: fields.Places = []
    dtype: Literal["float16", "float32"] = "float16"
    set: str | None = None
    compression: Literal["gzip", "lzf"] | None = None
    batch_size: bounds.BatchSize | None = None
    engine: Literal["local", "processes", "ray"] = "local"
    workers: bounds.Processes = 0
    limit: bounds.Count | None = None
    strict: bool = False


class Training(Stage):
    """Keys of pre-training and fine-tuning; ``steps: 0`` only imports the model that it starts from."""

    joint: ClassVar[bool] = True
    reads_root: ClassVar[bool] = True
    seeded: ClassVar[bool] = True
    continues: ClassVar[bool] = True

    model: fields.ModelField = None
    text: TextOptions | None = None
    features: fields.Places = []
    data: fields.DataField = []
    objectives: fields.OptionalSpecs = None
    task: fields.OptionalSpec = None
    validation: fields.DataField = []
    transform: fields.OptionalSpec = None
    repeats: bounds.BatchSize = 1
    curriculum: list[CurriculumStep] = []
    group: Literal["image"] | None = None
    epochs: bounds.Count | None = None
    steps: bounds.CountOrNone | None = None
    stop: fields.StopOptions | None = None
    batch_size: bounds.BatchSize = 32
    accumulate: bounds.BatchSize = 1
    optimizer: fields.OptimizerOptions = fields.OptimizerOptions()
    schedule: fields.ScheduleOptions = fields.ScheduleOptions()
    clip: bounds.Positive | None = 1.0
    precision: Literal["float32", "bf16", "fp16"] = "float32"
    ema: fields.EmaOptions | None = None
    compile: bool = False
    checkpointing: bool = False
    sharding: Literal["none", "full", "hybrid"] = "none"
    trainable: list[str] | None = None
    frozen: list[str] = []
    evaluate_every: bounds.Count | None = None
    save_every: bounds.Count | None = None
    keep: bounds.Count = 2
    workers: bounds.Processes = 0
    log_every: bounds.Count = 10
    trackers: fields.SpecList = [{"name": "jsonl"}]
    missing: Literal["error", "drop"] = "error"
    allow_unmatched: list[str] = []
    state_dict: str | None = None
    rename: dict[str, str] = {}

    @field_validator("stop")
    @classmethod
    def _has_validation(cls, stop: fields.StopOptions | None, info: ValidationInfo) -> fields.StopOptions | None:
        if stop is not None and stop.patience is not None and not info.data.get("validation"):
            raise ValueError("`validation` beside `patience`, which counts validations; or `stop: {minutes: N}` alone")
        return stop

    @field_validator("sharding")
    @classmethod
    def _has_range(cls, sharding: str, info: ValidationInfo) -> str:
        if sharding != "none" and info.data.get("precision") == "fp16":
            raise ValueError("precision bf16 or float32 beside it: fp16's loss scaler does not support sharding")
        if sharding != "none" and (optimizer := info.data.get("optimizer")) and optimizer.name == "muon":
            raise ValueError("another optimizer beside it: `muon` needs whole matrices")
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
    last: bounds.Count = 20


class Reading(Stage):
    """Keys of stages that read data with a trained model."""

    reads_root: ClassVar[bool] = True

    task: fields.OptionalSpec = None
    data: fields.DataField = []
    transform: fields.OptionalSpec = None
    split: str | None = None
    features: fields.Places = []
    batch_size: bounds.BatchSize = 64
    workers: bounds.Processes = 0
    precision: Literal["float32", "bf16", "fp16"] = "float32"
    missing: Literal["error", "drop"] = "error"


class Evaluate(Reading):
    """Score a trained model on a task; or, on the data ``fit`` names, a task that is fitted without a model."""

    needs_source: ClassVar[bool] = True
    joint: ClassVar[bool] = True

    kind: Literal["evaluate"]
    fit: fields.DataField = []


class Draw(Reading):
    """Draw pictures: of data, of trained models, of what stages measured."""

    kind: Literal["draw"]
    drawing: fields.SpecField


class Export(Stage):
    """Write a trained model in another format."""

    needs_source: ClassVar[bool] = True
    kind: Literal["export"]
    format: fields.SpecField = {"name": "safetensors"}


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


def kind_of(name: str, stage: Any) -> str:
    """Returns a stage's kind: its ``kind``, else its name if that is a kind; empty if neither."""
    word = stage.get("kind", name) if isinstance(stage, dict) else name
    kind = "evaluate" if word == "eval" else str(word)
    return kind if kind in STAGES or (isinstance(stage, dict) and "kind" in stage) else ""


class TableOptions(fields.Section):
    """The table at the end of a run: evaluate stages by label, and patterns of metrics (``accuracy/*``)."""

    title: str = ""
    rows: dict[str, str]
    metrics: fields.Names = []


class ImageOptions(fields.Section):
    """Black and white of pictures of more than 8 bits."""

    range: tuple[float, float] | None = None

    @field_validator("range")
    @classmethod
    def _rises(cls, ends: tuple[float, float] | None) -> tuple[float, float] | None:
        if ends is not None and not ends[0] < ends[1]:
            raise ValueError("the first number must be below the second")
        return ends


class Recipe(fields.Section):
    """A whole recipe; ``stages`` has one of :data:`STAGES` per name, in order.

    ``rows``, ``reference``, ``skip``, ``published``, ``published_in``, ``others`` and ``seeds`` make it a table
    (``vlcli.recipe.rows``); ``defaults`` are keys that the stages of a kind share (``vlcli.recipe.defaults``). A
    resolved recipe has none of them. A training without progress for ``hang_timeout`` seconds counts as hung.
    """

    schema_version: Annotated[int, bounds.Between(1, 1), Field(alias="schema")] = 1
    extends: str | None = None
    name: Annotated[str, Field(max_length=100)] = ""
    about: str = ""
    paper: str = ""
    seed: bounds.Seed = 9595
    plugins: list[str] = []
    root: str = "."
    jobs: bounds.Threads = 1
    hang_timeout: Annotated[float, bounds.Between(1, 86_400 * 30)] = 600.0
    model: fields.OptionalSpec = None
    text: TextOptions = TextOptions()
    images: ImageOptions = ImageOptions()
    datasets: dict[str, fields.DataField] = {}
    defaults: dict[str, Any] = {}
    stages: dict[str, Any]
    table: TableOptions | None = None
    report: bool = False
    rows: dict[str, Any] = {}
    reference: str | int | float | list[str | int | float] | None = None
    skip: dict[str, Any] | list[str] | str | None = None
    published: dict[str, Any] = {}
    published_in: dict[str, Any] = {}
    others: dict[str, Any] = {}
    seeds: Annotated[int, bounds.Between(1, 1000)] = 1
