"""What whoever carries on relies on: the picture, the targets of the Makefile, the site, and the legal files."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib

import pytest
import yaml

import vlcli

from .pages import PROJECT, run

PYPROJECT = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
PAPERS = ("LXMERT", "DiMBERT", "VLMo", "Relative Position Encoding", "Anchor-based Relative Position")


def read(name: str) -> str:
    return (PROJECT / name).read_text(encoding="utf-8")


def test_the_picture_is_that_of_the_code():
    pytest.importorskip("grimp")
    ended = run([sys.executable, "scripts/architecture.py", "--check"], PROJECT)
    assert ended.code == 0, ended.err


def test_the_picture_is_refused_where_the_code_is_another(tmp_path):
    pytest.importorskip("grimp")
    for name in ("scripts", "vlcli", "plugins", "pyproject.toml", "docs"):
        source = PROJECT / name
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, tmp_path / name)
    (tmp_path / "vlcli" / "errors.py").write_text("import vlcli.engine.trainer\n" + read("vlcli/errors.py"))
    ended = run([sys.executable, "scripts/architecture.py", "--check"], tmp_path)
    assert ended.code == 1
    assert "architecture.py" in ended.err


def test_no_plugin_has_a_circle_of_imports_for_annotations_neither():
    grimp, networkx = pytest.importorskip("grimp"), pytest.importorskip("networkx")
    plugins = [name for name in PYPROJECT["tool"]["importlinter"]["root_packages"] if name != "vlcli"]
    graph = grimp.build_graph(*plugins, exclude_type_checking_imports=False, cache_dir=None)
    arrows = [(name, other) for name in graph.modules for other in graph.find_modules_directly_imported_by(name)]
    assert ("vlcli_albef.model", "vlcli_albef.weights") in arrows
    circles = networkx.strongly_connected_components(networkx.DiGraph(arrows))
    assert [sorted(circle) for circle in circles if len(circle) > 1] == []


def test_every_package_is_described():
    described = set(re.findall(r"`([\w/]+)`", read("ARCHITECTURE.md")))
    packages = {path.parent.name for path in (PROJECT / "vlcli").glob("*/__init__.py")}
    assert packages - described == set()


def test_what_the_guides_name_is_there():
    for page in ("ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"):
        named = re.findall(r"`((?:vlcli|plugins|recipes|tests|docs|scripts|benchmarks)/[\w./]*)`", read(page))
        assert [name for name in named if not (PROJECT / name).exists() and "NAME" not in name] == []


def targets() -> set[str]:
    return set(re.findall(r"^([a-z]+):", read("Makefile"), re.M))


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize("target", sorted(targets()))
def test_a_target_of_the_makefile_names_what_is_there(target):
    shown = subprocess.run(["make", "-n", target], capture_output=True, text=True, cwd=PROJECT, check=False)
    assert shown.returncode == 0, shown.stderr
    for path in re.findall(r"(?:scripts|benchmarks)/\w+\.py", shown.stdout):
        assert (PROJECT / path).is_file()
    groups = re.findall(r"--group (\w+)", shown.stdout)
    assert all(f"GROUP={name}" in read("CONTRIBUTING.md") for name in groups)


def test_every_target_is_declared_and_every_one_shown_exists():
    declared = set(re.search(r"^\.PHONY: (.*)", read("Makefile"), re.M)[1].split())
    assert declared == targets()
    shown = {word for line in re.findall(r"`?make ([a-z ]+)", read("CONTRIBUTING.md")) for word in line.split()}
    assert {"setup", "test", "lint", "docs", "slow", "wheel"} <= shown


def test_every_slow_test_belongs_to_a_group_that_contributing_names():
    from tests.conftest import GROUPS

    named = set(re.findall(r"GROUP=(\w+)", read("CONTRIBUTING.md")))
    assert named == {"core", "quickstart", "seeds", "rehearsals", *GROUPS.values()}


def test_the_site_has_no_broken_link_or_anchor(tmp_path):
    pytest.importorskip("mkdocs")
    pytest.importorskip("material")
    ended = run([sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path / "site"], PROJECT)
    assert ended.code == 0, ended.err
    pages = {path.relative_to(PROJECT / "docs").stem for path in (PROJECT / "docs").glob("*.md")} - {"index"}
    assert all((tmp_path / "site" / page / "index.html").is_file() for page in pages)


def test_the_index_names_every_page():
    linked = set(re.findall(r"\]\((\w[\w-]*\.md)", read("docs/index.md")))
    assert {path.name for path in (PROJECT / "docs").glob("*.md")} - linked == {"index.md"}


def test_the_legal_files_agree_with_the_metadata():
    assert PYPROJECT["project"]["license"] == "Apache-2.0"
    assert "Apache License" in read("LICENSE")
    assert "END OF TERMS AND CONDITIONS" in read("LICENSE")
    cited = yaml.safe_load(read("CITATION.cff"))
    assert cited["license"] == "Apache-2.0"
    assert cited["version"] == PYPROJECT["project"]["version"]
    assert vlcli.__version__ == PYPROJECT["project"]["version"]
    assert re.search(r"^## \[(.+)\]", read("CHANGELOG.md"), re.M).group(1) in ("Unreleased", cited["version"])
    assert len(cited["references"]) == len(PAPERS)
    assert all(any(paper in entry["title"] for entry in cited["references"]) for paper in PAPERS)
    assert all(entry["authors"] and entry["year"] for entry in cited["references"])


def test_the_hooks_of_pre_commit_run_what_ci_runs():
    hooks = [hook for repo in yaml.safe_load(read(".pre-commit-config.yaml"))["repos"] for hook in repo["hooks"]]
    commands = " ".join(hook["entry"] for hook in hooks)
    assert all(tool in commands for tool in ("ruff check", "ruff format", "lint-imports", "architecture.py --check"))
    assert "make lint" in read(".ci/run")
    assert "make docs" in read(".ci/run")


@pytest.mark.parametrize("page", sorted(path.name for path in (PROJECT / "docs").glob("*.md")))
def test_a_page_opens_with_what_it_is_for_and_an_example(page):
    opening = "\n".join(read(f"docs/{page}").splitlines()[:40])
    assert page in ("learning.md", "index.md", "glossary.md") or "After this page you" in opening
    assert page == "learning.md" or "```" in opening


def test_pages_are_free_of_riddles():
    riddles = re.compile(r"what is told|of one's own|\bof its own\b|\banother's\b|words alone ask", re.I)
    pages = {path.name: path.read_text(encoding="utf-8") for path in (PROJECT / "docs").glob("*.md")}
    left = {
        name: riddles.findall(text)
        for name, text in pages.items()
        if name not in ("glossary.md", "learning.md", "api.md")
    }
    assert {name: found for name, found in left.items() if found} == {}
