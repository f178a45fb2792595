"""``vlcli doctor``: what is odd about this installation, each finding with its remedy."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer

from vlcli.cli import options as o
from vlcli.cli.guard import guarded

PAIR = """
import json, torch
found = {"torch": torch.__version__, "threads": torch.get_num_threads(), "devices": ["cpu"]}
found["devices"] += [f"cuda:{i} ({torch.cuda.get_device_name(i)})" for i in range(torch.cuda.device_count())]
if torch.backends.mps.is_available():
    found["devices"].append("mps")
import torchvision
found["torchvision"] = torchvision.__version__
torchvision.ops.nms(torch.zeros(1, 4), torch.zeros(1), 0.5)
import timm
found["timm"] = timm.__version__
print(json.dumps(found))
"""
MISMATCH = (
    "operator torchvision::nms does not exist",
    "compiled with different CUDA",
    "undefined symbol",
    "torchvision::nms",
)
EXTRAS = {
    "hf": ("transformers",),
    "onnx": ("onnx", "onnxscript", "onnxruntime"),
    "coco": ("pycocotools", "scipy"),
    "plots": ("matplotlib",),
    "tensorboard": ("tensorboard",),
    "faiss": ("faiss",),
    "parquet": ("pyarrow",),
    "ray": ("ray",),
}
WAITS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
"""Variables that say how OpenMP's threads wait for one another; vlcli sets the last two where the first is not set."""
LEAST_DISK, LEAST_FILES = 5 * 2**30, 1024


@dataclass(frozen=True)
class Finding:
    """One thing looked at.

    Attributes:
        what: which.
        state: ``ok``, ``note`` or ``wrong``.
        detail: what was seen.
        remedy: what to do.
    """

    what: str
    state: str
    detail: str
    remedy: str = ""


@guarded
def doctor(
    output: Annotated[Path, typer.Option("--output", help="Folder of all runs, for the free disk.")] = Path("runs"),
    plugin: o.Plugin = None,
    json_: o.Json = False,
    verbose: o.Verbose = 0,
) -> None:
    """Look for known traps: a torch that does not fit torchvision, broken plugins, missing extras, little disk."""
    from vlcli.cli import console

    findings = [
        finding for look in (_python, _pair, _extras, _components(plugin), _shadows, _limits) for finding in look()
    ]
    findings += list(_disk(output))
    if json_:
        console.out_json({"findings": [asdict(finding) for finding in findings]})
    else:
        console.table(["what", "state", "detail"], [[f.what, f.state, f.detail] for f in findings])
        for finding in findings:
            if finding.remedy and finding.state != "ok":
                console.out(f"{finding.what}: {finding.remedy}")
    if any(finding.state == "wrong" for finding in findings):
        raise typer.Exit(4)


def _python() -> Iterator[Finding]:
    from vlcli.version import __version__

    state = "ok" if sys.version_info >= (3, 11) else "wrong"
    yield Finding("python", state, f"{sys.version.split()[0]} at {sys.executable}", "Python 3.11 or newer is needed")
    yield Finding("vlcli", "ok", f"{__version__} at {Path(__file__).parents[1]}")


def _pair() -> Iterator[Finding]:
    """Import torch, torchvision and timm in a process of their own: a bad pair can bring one down."""
    ended = subprocess.run([sys.executable, "-c", PAIR], capture_output=True, text=True, check=False)
    yield from pair_findings(ended.returncode, ended.stdout, ended.stderr)


def pair_findings(code: int, out: str, err: str) -> list[Finding]:
    """What the trial import tells: versions and devices, or the known mismatch with its one-line remedy."""
    if code == 0:
        facts = json.loads(out.strip().splitlines()[-1])
        versions = ", ".join(f"{name} {facts[name]}" for name in ("torch", "torchvision", "timm"))
        waits = [f"{name}={os.environ[name]}" for name in WAITS if name in os.environ]
        return [
            Finding("torch and torchvision", "ok", versions),
            Finding("devices", "ok", ", ".join(facts["devices"]) + f"; {facts['threads']} threads"),
            Finding("waits of threads", "ok", ", ".join(waits) or "as OpenMP has them"),
        ]
    cause = (err.strip().splitlines() or [f"ended with code {code}"])[-1]
    if any(mark in err for mark in MISMATCH):
        pair = f"torch {_version('torch')} and torchvision {_version('torchvision')} were not built for one another"
        remedy = (
            "install a matching pair from one index in one command, e.g. "
            "pip install --force-reinstall torch torchvision"
        )
        return [Finding("torch and torchvision", "wrong", pair, remedy)]
    return [
        Finding("torch and torchvision", "wrong", cause, "reinstall them together: pip install torch torchvision timm")
    ]


def _version(module: str) -> str:
    """Of the distribution that brings a module; the two may have different names."""
    names = _distributions().get(module, [module])
    try:
        return metadata.version(names[0])
    except metadata.PackageNotFoundError:
        return "(no version)"


@cache
def _distributions() -> Mapping[str, list[str]]:
    """Reads the file list of every installed package: half a second."""
    return metadata.packages_distributions()


def _extras() -> Iterator[Finding]:
    for extra, modules in EXTRAS.items():
        missing = [name for name in modules if importlib.util.find_spec(name) is None]
        detail = f"missing: {', '.join(missing)}" if missing else ", ".join(f"{m} {_version(m)}" for m in modules)
        detail += " (optional)" if missing else ""
        yield Finding(f"extra {extra}", "note" if missing else "ok", detail, f"pip install 'vlcli[{extra}]'")


def _components(plugin: list[str] | None) -> Callable[[], Iterator[Finding]]:
    def look() -> Iterator[Finding]:
        words = [sys.executable, "-m", "vlcli", "ls", "--check", "--json"]
        for file in plugin or []:
            words += ["--plugin", file]
        ended = subprocess.run(words, capture_output=True, text=True, check=False)
        yield from component_findings(ended.returncode, ended.stdout, ended.stderr)

    return look


def component_findings(code: int, out: str, err: str) -> list[Finding]:
    """Broken and doubly registered components."""
    if code not in (0, 4) or not out.strip():  # 4: listed, and some are broken
        cause = (err.strip().splitlines() or [f"code {code}"])[-1]
        return [Finding("components", "wrong", f"listing them fails: {cause}", "see vlcli ls --check -vv")]
    document = json.loads(out)
    if "components" not in document:  # a plugin file that raises: the listing is an error itself
        error = document.get("error", {})
        what = " ".join(error.get(key, "") for key in ("what", "where", "got")).strip() or f"code {code}"
        return [Finding("components", "wrong", what, error.get("next") or "see vlcli ls --check -vv")]
    rows = document["components"]
    found = []
    for row in rows:
        if row.get("broken"):
            where = f"{row['kind'][:-1]} {row['name']}"
            told = f"{row['broken']} ({row['place']})" if row.get("place") else row["broken"]
            found.append(Finding(where, "wrong", told, f"update, reinstall or remove {row['distribution']}"))
        elif row.get("lacks"):
            missing, _, install = row["lacks"].partition("; ")
            found.append(Finding(f"{row['kind'][:-1]} {row['name']}", "note", missing, install))
    found += _duplicates(rows)
    found += _private(rows)
    if not any(finding.state == "wrong" for finding in found):
        found.append(Finding("components", "ok", f"{len(rows)} components, none broken"))
    return found


def _private(rows: list[dict[str, Any]]) -> list[Finding]:
    """One finding for each package that imports private names of vlcli."""
    packages = {row["distribution"]: row["private"] for row in rows if row.get("private")}
    return [
        Finding(f"package {name}", "note", "; ".join(private), f"for the author of {name}: docs/api.md")
        for name, private in packages.items()
    ]


def _duplicates(rows: list[dict[str, Any]]) -> list[Finding]:
    holders: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        holders.setdefault((row["kind"], row["name"]), []).append(row["distribution"])
    return [
        Finding(f"{kind[:-1]} {name}", "note", f"registered by {' and '.join(dists)}", f"write {dists[0]}:{name}")
        for (kind, name), dists in holders.items()
        if len(dists) > 1
    ]


def _shadows() -> Iterator[Finding]:
    """A leftover egg-info on the path hides an installed package's entry points."""
    found = list(shadows([Path(entry or ".") for entry in sys.path]))
    yield from found or [Finding("metadata", "ok", "no leftover egg-info hides an installed package")]


def shadows(folders: list[Path]) -> Iterator[Finding]:
    """Egg-info folders whose package is also installed properly."""
    installed = {
        str(d.metadata["Name"]).lower().replace("_", "-")
        for d in metadata.distributions()
        if str(getattr(d, "_path", "")).endswith(".dist-info")
    }
    for folder in folders:
        for info in sorted(folder.glob("*.egg-info")) if folder.is_dir() else []:
            name = info.name.removesuffix(".egg-info").split("-")[0].lower().replace("_", "-")
            if name in installed and (info / "entry_points.txt").exists():
                yield Finding(
                    "metadata",
                    "note",
                    f"{info} may hide the entry points of the installed {name}",
                    f"remove it, or reinstall: rm -r {info}",
                )


def _limits() -> Iterator[Finding]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    yield Finding("processors", "ok", f"{cores} cores{load}")
    try:
        import resource
    except ImportError:
        return
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    state = "ok" if soft >= LEAST_FILES or soft < 0 else "note"
    yield Finding("open files", state, f"limit {soft}", f"raise it: ulimit -n {4 * LEAST_FILES}")


def _disk(output: Path) -> Iterator[Finding]:
    folder = next((p for p in (output.absolute(), *output.absolute().parents) if p.exists()), Path.cwd())
    free = shutil.disk_usage(folder).free
    state = "ok" if free >= LEAST_DISK else "note"
    yield Finding("free disk", state, f"{free / 2**30:.1f} GiB at {folder}", "give runs another place: --output DIR")
