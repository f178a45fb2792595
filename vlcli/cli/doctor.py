"""``vlcli doctor``: looks for faults of this installation, each with its remedy."""

import base64
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Annotated

from typer import Option

from vlcli.ahead import usable_cores
from vlcli.cli import console, options
from vlcli.cli.guard import guarded, leave
from vlcli.engine import allocator
from vlcli.plain import comma_list
from vlcli.version import __version__

PAIR = """
import json, timm, torch, torchvision
torchvision.ops.nms(torch.zeros(1, 4), torch.zeros(1), 0.5)
devices = ["cpu", *(f"cuda:{i} ({torch.cuda.get_device_name(i)})" for i in range(torch.cuda.device_count()))]
devices += ["mps"] if torch.backends.mps.is_available() else []
versions = {module.__name__: module.__version__ for module in (torch, torchvision, timm)}
print(json.dumps({**versions, "devices": devices, "threads": torch.get_num_threads()}))
"""
MISMATCH = ("compiled with different CUDA", "undefined symbol", "torchvision::nms")
EXTRAS = {
    "lora": ("peft",),
    "onnx": ("onnx", "onnxscript", "onnxruntime"),
    "coco": ("pycocotools",),
    "plots": ("matplotlib",),
    "tensorboard": ("tensorboard",),
    "wandb": ("wandb",),
    "mlflow": ("mlflow",),
    "comet": ("comet_ml",),
    "trackio": ("trackio",),
    "faiss": ("faiss",),
    "parquet": ("pyarrow",),
    "xlsx": ("openpyxl",),
    "ray": ("ray",),
}
# Variables that say how OpenMP's threads wait for one another; vlcli sets the last two where the first is not set
WAITS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
LEAST_DISK, LEAST_FILES = 5 * 2**30, 1024


@dataclass(frozen=True)
class Finding:
    """One thing looked at; ``state`` is ``ok``, ``note`` or ``wrong``."""

    what: str
    state: str
    detail: str
    remedy: str = ""


@guarded
def doctor(
    output: Annotated[Path, Option(help="Folder of all runs, for the free disk.")] = Path("runs"),
    files: options.Plugin = None,
    json_: options.Json = False,
) -> None:
    """Look for known traps: torch and torchvision that do not fit, damaged files, broken plugins, missing extras."""
    listing = ("-m", "vlcli", "ls", "--check", "--json", *(f"--plugin={file}" for file in files or ()))
    python = f"{sys.version.split()[0]} at {sys.executable}"
    findings = [
        Finding("python", "ok" if sys.version_info >= (3, 11) else "wrong", python, "Python 3.11 or newer is needed"),
        Finding("vlcli", "ok", f"{__version__} at {Path(__file__).parents[1]}"),
        *_files(),
        *pair_findings(*_run("-c", PAIR)),
        *_extras(),
        *component_findings(*_run(*listing)),
        *shadows([Path(entry or ".") for entry in sys.path]),
        *_limits(),
        _disk(output),
    ]
    if json_:
        console.out_json({"findings": [asdict(finding) for finding in findings]})
    else:
        console.table(["what", "state", "detail"], [[f.what, f.state, f.detail] for f in findings])
        console.out_lines(f"{f.what}: {f.remedy}" for f in findings if f.remedy and f.state != "ok")
    leave(4 if any(finding.state == "wrong" for finding in findings) else 0)


def _run(*words: str) -> tuple[int, str, str]:
    # a process of its own: a bad pair of torch and torchvision can bring one down
    ended = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    return ended.returncode, ended.stdout, ended.stderr


def _files() -> list[Finding]:
    changed = []
    for file in metadata.files("vlcli") or []:
        path = Path(str(file.locate()))
        digest = hashlib.sha256(path.read_bytes()).digest() if path.is_file() and file.hash else b""
        if file.hash and file.hash.value != base64.urlsafe_b64encode(digest).decode().rstrip("="):
            changed.append(str(file))
    remedy = "pip install --force-reinstall --no-deps vlcli"
    return [Finding("files", "wrong", f"damaged or missing: {comma_list(changed, 5)}", remedy)] if changed else []


def pair_findings(code: int, out: str, err: str) -> list[Finding]:
    """Returns what the trial import tells: versions and devices, or the known mismatch with its remedy."""
    if code == 0:
        facts = json.loads(out.strip().splitlines()[-1])
        versions = ", ".join(f"{name} {facts[name]}" for name in ("torch", "torchvision", "timm"))
        kept = "on a CPU, a step keeps what it frees" if allocator.can_keep_freed_memory() else "as malloc has it"
        return [
            Finding("torch and torchvision", "ok", versions),
            Finding("devices", "ok", ", ".join(facts["devices"]) + f"; {facts['threads']} threads"),
            Finding("waits of threads", "ok", _environment(WAITS) or "as OpenMP has them"),
            Finding("memory of a step", "ok", _environment(allocator.VARIABLES) or kept),
        ]
    if any(mark in err for mark in MISMATCH):
        detail = f"torch {_version('torch')} and torchvision {_version('torchvision')} were not built for one another"
        install = "pip install --force-reinstall torch torchvision"
        remedy = f"install a matching pair from one index in one command, e.g. {install}"
    else:
        detail = (err.strip().splitlines() or [f"ended with code {code}"])[-1]
        remedy = "reinstall them together: pip install torch torchvision timm"
    return [Finding("torch and torchvision", "wrong", detail, remedy)]


def _environment(names: Iterable[str]) -> str:
    return ", ".join(f"{name}={os.environ[name]}" for name in names if name in os.environ)


def _version(module: str) -> str:
    # of the distribution that brings the module; the two may have different names
    names = _distributions().get(module, [module])
    try:
        return metadata.version(names[0])
    except metadata.PackageNotFoundError:
        return "(no version)"


_distributions = cache(metadata.packages_distributions)  # reads the file list of every package: half a second


def _extras() -> Iterator[Finding]:
    for extra, modules in EXTRAS.items():
        missing = [name for name in modules if importlib.util.find_spec(name) is None]
        if missing:
            detail = f"missing: {', '.join(missing)} (optional)"
            yield Finding(f"extra {extra}", "note", detail, f"pip install 'vlcli[{extra}]'")
        else:
            yield Finding(f"extra {extra}", "ok", ", ".join(f"{name} {_version(name)}" for name in modules))


def component_findings(code: int, out: str, err: str) -> list[Finding]:
    """Returns broken and doubly registered components, and packages that import private names."""
    if code not in (0, 4) or not out.strip():  # 4: listed, and some are broken
        cause = (err.strip().splitlines() or [f"code {code}"])[-1]
        return [Finding("components", "wrong", f"listing them fails: {cause}", "see vlcli ls --check -vv")]
    document = json.loads(out)
    if "components" not in document:  # a plugin file that raises: the listing is an error itself
        error = document.get("error", {})
        what = " ".join(error.get(key, "") for key in ("what", "where", "got")).strip() or f"code {code}"
        return [Finding("components", "wrong", what, error.get("next") or "see vlcli ls --check -vv")]
    rows = document["components"]
    findings = []
    holders: dict[str, list[str]] = {}
    for row in rows:
        what = f"{row['kind'][:-1]} {row['name']}"
        holders.setdefault(what, []).append(row["distribution"])
        if row.get("broken"):
            detail = f"{row['broken']} ({row['place']})" if row.get("place") else row["broken"]
            findings.append(Finding(what, "wrong", detail, f"update, reinstall or remove {row['distribution']}"))
        elif row.get("lacks"):
            missing, _, install = row["lacks"].partition("; ")
            findings.append(Finding(what, "note", missing, install))
    for what, packages in holders.items():
        if len(packages) > 1:
            detail = f"registered by {' and '.join(packages)}"
            findings.append(Finding(what, "note", detail, f"write {packages[0]}:{what.partition(' ')[2]}"))
    for name, lines in {row["distribution"]: row["private"] for row in rows if row.get("private")}.items():
        findings.append(Finding(f"package {name}", "note", "; ".join(lines), f"for the author of {name}: docs/api.md"))
    if not any(finding.state == "wrong" for finding in findings):
        findings.append(Finding("components", "ok", f"{len(rows)} components, none broken"))
    return findings


def shadows(folders: list[Path]) -> list[Finding]:
    """Returns egg-info folders that hide the entry points of a package which is also installed properly."""
    installed = {
        str(d.metadata["Name"]).lower().replace("_", "-")
        for d in metadata.distributions()
        if str(getattr(d, "_path", "")).endswith(".dist-info")
    }
    findings = []
    for folder in folders:
        for info in sorted(folder.glob("*.egg-info")):
            name = info.name.removesuffix(".egg-info").split("-")[0].lower().replace("_", "-")
            if name in installed and (info / "entry_points.txt").exists():
                detail = f"{info} may hide the entry points of the installed {name}"
                findings.append(Finding("metadata", "note", detail, f"remove it, or reinstall: rm -r {info}"))
    return findings or [Finding("metadata", "ok", "no leftover egg-info hides an installed package")]


def _limits() -> Iterator[Finding]:
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    yield Finding("processors", "ok", f"{len(usable_cores())} cores{load}")
    try:
        import resource
    except ImportError:
        return
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    state = "ok" if soft >= LEAST_FILES or soft < 0 else "note"
    yield Finding("open files", state, f"limit {soft}", f"raise it: ulimit -n {4 * LEAST_FILES}")


def _disk(output: Path) -> Finding:
    folder = next(path for path in (output.absolute(), *output.absolute().parents) if path.exists())
    free = shutil.disk_usage(folder).free
    state = "ok" if free >= LEAST_DISK else "note"
    return Finding("free disk", state, f"{free / 2**30:.1f} GiB at {folder}", "give runs another place: --output DIR")
