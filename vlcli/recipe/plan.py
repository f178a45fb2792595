"""Plans what ``vlcli run`` does with every stage, and why.

A stage is *skipped* if its folder has a complete artifact with the same key and unchanged data; *reused* if another run
under the output folder made the same; *resumed* if a killed run left a part of it; *blocked* if an input is absent;
*passed over* if its data are absent and it says ``if_missing: skip``; else *run*.

The run folder is ``<output>/<recipe>``. Overrides or a seed add a short hash of the resolved recipe, and so does a
finished stage in that folder that this recipe would make differently: nothing finished is overwritten.
"""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

from vlcli.errors import UsageError, VlcliError
from vlcli.recipe import digests, keys, pictures, stage_record, wiring
from vlcli.recipe.locate import Resolved
from vlcli.recipe.rows import OF_TABLES
from vlcli.recipe.schema import STAGES
from vlcli.recipe.stage_record import StageRecord

Action = Literal["run", "resume", "skip", "reuse", "blocked", "passed", "outside"]


@dataclass(frozen=True)
class RunOptions:
    """Options of a run.

    Attributes:
        folder: this run's folder under ``output``; None: chosen.
        kind: run the stages of this kind, with those they build on.
        jobs: stages at a time; None: as the recipe says.
        plugins: files that register components, for worker processes.
        check: validate deeply before the first stage runs.
        key: that a stage must have; empty: any.
    """

    output: Path = Path("runs")
    folder: Path | None = None
    only: str | None = None
    first: str | None = None
    until: str | None = None
    kind: str | None = None
    force: bool = False
    resume: bool = True
    device: str | None = None
    jobs: int | None = None
    plugins: tuple[str, ...] = ()
    check: bool = True
    key: str = ""


@dataclass
class PlannedStage:
    """The plan of one stage.

    Attributes:
        key: empty while an input has not been made.
        artifact: folder of its artifact if it is finished, as ``record``.
        conflict: its folder has a finished artifact of another key.
        implied: extract stages it reads without naming them.
        lost: what of its finished artifact is gone or cut.
    """

    name: str
    kind: str
    action: Action
    why: str
    folder: Path
    key: str = ""
    artifact: Path | None = None
    record: StageRecord | None = None
    conflict: bool = False
    implied: tuple[str, ...] = ()
    lost: str = ""

    @property
    def ready(self) -> bool:
        return self.artifact is not None and self.record is not None

    @property
    def goes_on(self) -> bool:
        """True if a lost artifact is made again from the checkpoints in its folder."""
        return bool(self.lost) and STAGES[self.kind].continues

    @property
    def works(self) -> bool:
        return self.action in ("run", "resume")


@dataclass
class Planner:
    """Decides stage by stage, again when an input was made; ``changed`` says how finished stages differ, by name."""

    resolved: Resolved
    options: RunOptions
    folder: Path
    changed: dict[str, str] = field(default_factory=dict)
    graph: dict[str, wiring.Inputs] = field(init=False)
    chosen: set[str] = field(init=False)

    def __post_init__(self) -> None:
        self.graph = wiring.inputs(self.resolved.recipe)
        self.chosen = select(self.resolved, self.options)

    @cached_property
    def elsewhere(self) -> dict[str, list[tuple[Path, StageRecord]]]:
        stages: dict[str, list[tuple[Path, StageRecord]]] = {}
        for folder, record in stage_record.finished_stages(self.options.output):
            stages.setdefault(record.key, []).append((folder, record))
        return stages

    def plan(self) -> list[PlannedStage]:
        pictures.forget()
        wanted = wiring.ancestors(self.graph, self.chosen)
        steps: dict[str, PlannedStage] = {}
        for name in filter(wanted.__contains__, self.graph):
            steps[name] = self.decide(name, steps)
        return list(steps.values())

    def decide(self, name: str, steps: dict[str, PlannedStage]) -> PlannedStage:
        """Plans the stage ``name``; ``steps`` has the stages before it."""
        stage, inputs = self.resolved.stages[name], self.graph[name]
        implied = tuple(n for n in inputs.implied if steps[n].action != "passed")
        step = PlannedStage(name, stage.kind, "run", "not made yet", self.folder / name, implied=implied)
        before = {n: steps[n] for n in (*inputs.named, *implied)}
        for other in before.values():
            if other.action == "passed":
                return _with(step, "passed", f"{other.name} is passed over")
            if other.action in ("blocked", "outside"):
                why = other.why if other.action == "outside" else f"{other.name} is blocked"
                return _with(step, "blocked" if name in self.chosen else "outside", why)
        waiting = [n for n, other in before.items() if not other.ready]
        if waiting:
            return _with(step, "run", f"after {', '.join(waiting)}")
        prints = {n: other.record.fingerprint for n, other in before.items() if other.record is not None}
        step.key = keys.stage_key(self.resolved.recipe, name, prints, implied, list(self.graph))
        return self._look_for_finished(step) or self._lacks(step, before) or self._to_run(step)

    def _look_for_finished(self, step: PlannedStage) -> PlannedStage | None:
        chosen = step.name in self.chosen
        if not (chosen and self.options.force):
            done = stage_record.finished(step.folder)
            if done is not None:
                same = done[1].key == step.key
                changed = digests.changed(done[1].data, done[0]) if same else ""
                step.lost = stage_record.lost(*done) if same and not changed else ""
                if same and not changed and not step.lost:
                    step.artifact, step.record = done
                    return _with(step, "skip", "unchanged")
                step.conflict = chosen and not step.lost
                changed = changed or ("" if same else keys.differs(done[1], self.resolved.recipe, step.name))
                self.changed |= {step.name: changed} if changed else {}
            for folder, record in self.elsewhere.get(step.key, []):
                other = folder.absolute() != step.folder.absolute()
                if other and not digests.changed(record.data, folder) and not stage_record.lost(folder, record):
                    step.artifact, step.record = folder, record
                    return _with(step, "reuse", f"made in {folder}")
        return None

    def _lacks(self, step: PlannedStage, before: dict[str, PlannedStage]) -> PlannedStage | None:
        missing = self.missing_data(step.name, {n: s.artifact for n, s in before.items() if s.artifact is not None})
        if missing and self.resolved.stages[step.name].if_missing == "skip":
            return _with(step, "passed", missing)
        if step.name not in self.chosen:
            return _with(step, "outside", f"{step.name}: {step.lost}" if step.lost else f"{step.name} has not been run")
        return _with(step, "blocked", missing) if missing else None

    def _to_run(self, step: PlannedStage) -> PlannedStage:
        record = stage_record.read(step.folder)
        if self.options.force and step.name in self.chosen:
            return _with(step, "run", "forced")
        if step.lost:
            return _with(step, "resume" if step.goes_on else "run", f"made again: {step.lost}")
        if record is not None and record.status in ("running", "failed"):
            changed = digests.changed(record.data, step.folder) if record.key == step.key else ""
            if record.key == step.key and self.options.resume and not changed:
                return _with(step, "resume", f"{record.status} before")
            return _with(step, "run", f"starts anew: {changed}" if changed else "starts anew")
        why = "changed" if step.conflict else "not made yet"
        if step.name in self.changed:
            why = f"changed: {self.changed[step.name]}"
        elif record is None and stage_record.has_record(step.folder):
            why = f"its {stage_record.FILE} cannot be read"
        return _with(step, "run", why)

    def missing_data(self, name: str, artifacts: dict[str, Path]) -> str:
        recipe = self.resolved.recipe
        root = wiring.root_folder(recipe, recipe.stages[name], artifacts)
        if absent := wiring.missing_places(recipe, recipe.stages[name], self.graph[name].paths, artifacts):
            return f"missing: {absent[0]}"
        try:
            files = keys.data_files(recipe, name, root)
        except VlcliError as error:  # a reader that refuses its parameters: the deep validation tells all of it
            return f"{error.what} {error.where}".strip() if error.exit_code == 5 else ""
        lacking = next((file for file in files if not file.exists()), None)
        return "" if lacking is None else f"missing: {lacking}{keys.where_to_get(recipe, name, lacking)}"


def _with(step: PlannedStage, action: Action, why: str) -> PlannedStage:
    step.action, step.why = action, why
    return step


def select(resolved: Resolved, options: RunOptions) -> set[str]:
    """Returns the stages that this command may run. Raises UsageError: no such stage, or none of the verb's kind."""
    order = list(resolved.stages)
    for name in (options.only, options.first, options.until):
        if name is not None and name not in order:
            known = ", ".join(order)
            raise UsageError("The recipe has no such stage.", where=resolved.reference, got=name, expected=known)
    if options.only is not None:
        return {options.only}
    if options.kind is not None:
        of_kind = resolved.of_kind(options.kind)
        if not of_kind:
            kinds = ", ".join(f"{n} ({s.kind})" for n, s in resolved.stages.items())
            what, hint = f"The recipe has no {options.kind} stage.", "choose another: --recipe NAME (vlcli ls recipes)"
            raise UsageError(what, where=resolved.reference, expected=kinds, hint=hint)
        return wiring.ancestors(wiring.inputs(resolved.recipe), of_kind)
    start = order.index(options.first) if options.first else 0
    end = order.index(options.until) if options.until else len(order) - 1
    if start > end:
        got, expected = f"--from {options.first} --until {options.until}", f"stages in the order {', '.join(order)}"
        raise UsageError("No stage lies between these two.", where=resolved.reference, got=got, expected=expected)
    return set(order[start : end + 1])


def make(resolved: Resolved, options: RunOptions) -> tuple[Planner, list[PlannedStage]]:
    """Chooses the run's folder and plans every stage."""
    candidates = [options.folder] if options.folder else [options.output / name for name in _folder_names(resolved)]
    changed: dict[str, str] = {}
    for folder in candidates:
        planner = Planner(resolved, options, folder, changed)
        steps = planner.plan()
        if not any(step.conflict for step in steps):
            break
    return planner, steps


_HOW = {"jobs", "hang_timeout"}  # overrides that do not change what a run computes: they lead to no other folder


def _folder_names(resolved: Resolved) -> list[str]:
    said = {"about", "paper", "jobs", "hang_timeout", "stages", "report", "defaults", *OF_TABLES}
    dump = resolved.recipe.model_dump(by_alias=True, mode="json", exclude=said)
    dump["stages"] = {name: keys.plain(stage) for name, stage in resolved.stages.items()}
    hashed = [f"{resolved.name}-{stage_record.digest([dump, n] if n else dump)[:8]}" for n in range(16)]
    telling = [word for word in resolved.words if word.partition("=")[0] not in _HOW]
    return hashed if telling else [resolved.name, *hashed]
