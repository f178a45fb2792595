"""Wraps verbs: errors end in one message and the right exit code; verbs that run stages share their options."""

import errno
import functools
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, get_origin, get_type_hints

from typer import Exit, Typer

from vlcli import stopping
from vlcli.cli import console, options
from vlcli.errors import DataError, VlcliError, shown
from vlcli.progress import Progress
from vlcli.recipe import stage_record
from vlcli.recipe.load import from_mapping, load, slug
from vlcli.recipe.locate import Resolved
from vlcli.recipe.plan import RunOptions
from vlcli.registry.contract import blame
from vlcli.registry.lookup import of_stranger


def _option(name: str, default: Any, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=annotation)


def with_options(
    wrapper: Callable[..., None], command: Callable[..., None], options: Sequence[inspect.Parameter]
) -> Callable[..., None]:
    """Gives the wrapper of a command the command's own options (but ``request``), then those that it lacks."""
    named = dict(inspect.signature(command, eval_str=True).parameters)
    named.pop("request", None)
    every = [*named.values(), *(option for option in options if option.name not in named)]
    wrapper.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {option.name: option.annotation for option in every}
    return wrapper


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """Wraps a command: loads its ``plugin`` files; what it raises ends in one message and an exit code.

    The options ``json_`` and ``verbose`` choose the form; a command that does not name ``verbose`` is given it.
    """
    takes_verbose = "verbose" in inspect.signature(command).parameters

    @functools.wraps(command)
    def wrapper(*args: Any, **kwargs: Any) -> None:
        as_json, verbose = bool(kwargs.get("json_")), int(kwargs.get("verbose") or 0)
        if not takes_verbose:
            kwargs.pop("verbose", None)
        with stopping.listening():
            try:
                if "plugin" in kwargs:
                    kwargs["plugin"] = options.load_plugins(kwargs["plugin"])
                command(*args, **kwargs)
            except stopping.Stopped as stop:
                stopping.conclude(stop)
                console.err(f"{stop}: run the same command again to go on")
                raise Exit(stop.code) from None
            except KeyboardInterrupt:
                console.err("interrupted: run the same command again to go on")
                raise Exit(130) from None
            except BrokenPipeError:  # the reader of our output has gone (``| head``): that is no failure
                sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
                raise Exit(0) from None
            except (Exception, SystemExit) as error:
                if type(error).__module__.startswith(("typer", "click")):
                    raise
                raise Exit(report(error, as_json, verbose)) from None

    return with_options(wrapper, command, [_option("verbose", 0, options.Verbose)])


def verb(app: Typer, name: str, *shared: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Adds a guarded command, with shared options where some are named, to a group of commands."""
    return lambda command: app.command(name)(requested(*shared)(command) if shared else guarded(command))


def leave(code: int) -> None:
    """Ends a command with an exit code; 0 ends nothing."""
    if code:
        raise Exit(code)


def report(error: BaseException, as_json: bool = False, verbose: int = 0) -> int:
    """Tells an error on stderr (and on stdout as JSON); returns its exit code."""
    if verbose > 1:
        console.err("".join(traceback.format_exception(error)).rstrip())
    known = as_vlcli(error)
    console.err(f"error: {known}")
    if as_json:
        console.out_json({"error": known.as_dict()})
    return known.exit_code


_FILE_FAULTS = {
    errno.ENAMETOOLONG: ("A name is longer than the file system allows.", "shorten it: 255 bytes are the usual limit"),
    errno.EACCES: ("A file or folder may not be read or written.", "see its owner and permissions: ls -ld"),
    errno.EPERM: ("A file or folder may not be read or written.", "see its owner and permissions: ls -ld"),
    errno.EROFS: ("A folder lies on a file system that is read-only.", "choose another folder"),
    errno.ENOTDIR: ("A file stands where a folder is wanted.", "choose another name, or move the file"),
    errno.EEXIST: ("A file stands where a folder is wanted.", "choose another name, or move the file"),
    errno.EISDIR: ("A folder stands where a file is wanted.", "name a file"),
    errno.ENOENT: ("A file or folder is not there.", "check the path"),
    errno.ELOOP: ("Links lead back to themselves.", "see where they lead: ls -l"),
}


def as_vlcli(error: BaseException) -> VlcliError:
    """Returns any exception as one with a message for the user."""
    if isinstance(error, VlcliError):
        return error
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return VlcliError("The disk is full.", where=str(error.filename or ""), hint="free some space and run it again")
    if isinstance(error, OSError) and error.filename is not None:
        what, hint = _FILE_FAULTS.get(error.errno or 0, ("A file cannot be used.", "check the path and the disk"))
        where = shown(os.fsdecode(str(error.filename)))
        return DataError(what, where=where, got=error.strerror or str(error), hint=hint)
    text = str(error).strip().split("\n", 1)[0]
    if isinstance(error, RuntimeError) and "home directory" in text:  # of Path.expanduser
        what, hint = "A path begins with ~ and a name that is no user's.", "write the whole path, or ~/ for your own"
        path = [frame for frame, _ in traceback.walk_tb(error.__traceback__)][-1].f_locals.get("self", "")
        return DataError(what, got=str(path), hint=hint)
    if (stranger := of_stranger(error)) is not None:
        return stranger
    got = f"{type(error).__name__}: {text}" if text else type(error).__name__
    hint = "run with -vv for the traceback"
    what = "The code ends the program." if isinstance(error, SystemExit) else "Something unforeseen went wrong."
    return VlcliError(what, where=blame(error), got=got, hint=hint)


@dataclass(frozen=True)
class RunRequest:
    """Options that several verbs share; behind them, what ``vlcli run`` itself asks for."""

    only: options.Only = None
    jobs: options.Jobs = None
    processes: options.Processes = None
    dry_run: options.DryRun = False
    force: options.Force = False
    resume: options.Resume = True
    output: options.Output = Path("runs")
    device: options.Device = None
    seed: options.Seed = None
    plugin: options.Plugin = None
    trust: options.Trust = False
    json_: options.Json = False
    quiet: options.Quiet = False
    verbose: options.Verbose = 0
    first: str | None = None
    until: str | None = None
    kind: str | None = None
    folder: Path | None = None
    worker: bool = False
    key: str = ""

    @property
    def how(self) -> dict[str, bool]:
        return {"trust": self.trust, "deep": not (self.dry_run or self.worker)}

    @property
    def options(self) -> RunOptions:
        names = ("output", "folder", "only", "first", "until", "kind", "force", "resume", "device", "key")
        shared = {name: getattr(self, name) for name in names}
        jobs = 1 if self.worker else self.jobs
        return RunOptions(**shared, jobs=jobs, plugins=tuple(self.plugin or ()), check=not self.worker)

    def progress(self) -> Progress:
        return console.progress(self.verbose, self.quiet, self.worker)

    def words(self, overrides: list[str]) -> list[str]:
        return overrides if self.seed is None else [*overrides, f"seed={self.seed}"]

    def resolve(self, reference: str, overrides: list[str], verb: str | None = None) -> Resolved:
        return load(reference, self.words(overrides), verb=verb, only=self.only, **self.how)


_HINTS = get_type_hints(RunRequest, include_extras=True)
_SHARED = [_option(one.name, one.default, _HINTS[one.name]) for one in fields(RunRequest)]


def requested(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a guarded command shared options behind its own; it takes them together as ``request``.

    ``names`` are fields of :class:`RunRequest`; none: all those that are options.
    """
    shared = [one for one in _SHARED if (one.name in names if names else get_origin(one.annotation) is Annotated)]

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def wrapper(**values: Any) -> None:
            request = RunRequest(**{option.name: values.pop(option.name, option.default) for option in shared})
            if stopping.LAUNCHER in os.environ:
                stopping.end_with_parent()
            elif (request.processes or 1) > 1 and not request.dry_run and "WORLD_SIZE" not in os.environ:
                from vlcli.runner.launch import launch

                raise Exit(launch(request.processes or 1))
            command(**values, request=request)

        return guarded(with_options(wrapper, command, shared))

    return decorated


def one_stage(value: dict[str, Any], overrides: list[str], label: str, exclude: set[str] | None = None) -> Resolved:
    """Reads a recipe of one stage; names it by ``label`` and a hash of its keys but those of ``exclude``."""
    resolved = from_mapping(value["name"], value, overrides)
    stage = resolved.stages[next(iter(value["stages"]))]
    digest = stage_record.digest([resolved.recipe.root, stage.model_dump(mode="json", exclude=exclude)])
    name, (written,) = f"{slug(label)}-{digest[:8]}", resolved.document.value["stages"].values()
    resolved.recipe = resolved.recipe.model_copy(update={"stages": {name: stage}})
    resolved.document.value["stages"] = {name: written}  # as `recipe.yaml` of the folder says it
    return resolved
