"""Package folders that metadata alone cannot map: the plugins, and recipes as ``vlcli_recipes``."""

import gzip
import os
import tarfile
from pathlib import Path

from setuptools import find_namespace_packages, find_packages, setup
from setuptools.command.sdist import sdist

# Equal sources give equal bytes: archives carry this time (2020-02-02, as hatchling's do), not that of the checkout.
EPOCH = int(os.environ.setdefault("SOURCE_DATE_EPOCH", "1580601600"))


class Sdist(sdist):
    """An sdist whose bytes follow from the files' names and contents alone."""

    def make_archive(
        self, base_name: str, format: str, root_dir: str | None = None, base_dir: str | None = None, **_: object
    ) -> str:
        path = f"{base_name}.tar.gz"
        with (
            Path(path).open("wb") as raw,
            gzip.GzipFile("", "wb", fileobj=raw, mtime=EPOCH) as packed,
            tarfile.open(mode="w", fileobj=packed) as archive,
        ):
            for file in sorted(Path(base_dir).rglob("*")):
                archive.add(file, recursive=False, filter=_plain)
        return path


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.mtime, member.uid, member.gid, member.uname, member.gname = EPOCH, 0, 0, "", ""
    member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
    return member


core = find_packages(include=["vlcli", "vlcli.*"])
plugins = find_packages("plugins")
folders = find_namespace_packages("recipes", exclude=["*__pycache__*"])  # of YAML files alone: no __init__.py
recipes = ["vlcli_recipes", *(f"vlcli_recipes.{name}" for name in folders)]

listed = [Path("vlcli"), *(Path("plugins", name) for name in plugins if "." not in name)]
if missing := [str(file) for folder in listed if not (file := folder / "components.toml").is_file()]:
    raise SystemExit(f"these sources are incomplete: no {', '.join(missing)}; unpack the archive again")

setup(
    cmdclass={"sdist": Sdist},
    packages=[*core, *plugins, *recipes],
    package_dir={"vlcli_recipes": "recipes", **{name: f"plugins/{name}" for name in plugins if "." not in name}},
    package_data={
        "": ["py.typed", "*.yaml", "*.toml", "*.json", "*.txt"],
        "vlcli.pages": ["templates/*"],
        "vlcli.plugin_kit": ["package_template/*"],
        "vlcli.tools": ["templates/*"],
        "vlcli.demo": ["page/*"],
        "vlcli.prediction": ["small/*.json", "small/*/model/*", "small/*/model/vocab/*"],
    },
    include_package_data=False,
)
