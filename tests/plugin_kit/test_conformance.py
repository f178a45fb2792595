"""The conformance suite: over the built-in components, and over components that are wrong."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from vlcli.cli import app
from vlcli.data.transforms.imagenet import ImageNet
from vlcli.plugin_kit.checks import conform
from vlcli.plugin_kit.conformance import FAILED, PASSED, chosen, of_folder

QUICK = {
    ("models", "lxmert"),
    ("models", "uniter"),
    ("models", "deit"),
    ("datasets", "csv"),
    ("transforms", "imagenet"),
}
BUILT_IN = [entry for entry in chosen(None) if entry.distribution == "vlcli"]


def failures(entry, **options) -> list[str]:
    return [str(result) for result in conform(entry, **options) if result.state == FAILED]


@pytest.mark.parametrize(
    "entry", [e for e in BUILT_IN if (e.kind, e.name) in QUICK], ids=lambda e: f"{e.kind}-{e.name}"
)
def test_built_ins_pass_the_quick_part(entry):
    assert failures(entry, quick=True) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted({entry.kind for entry in BUILT_IN}))
def test_every_built_in_passes_every_check(kind):
    found = {entry.name: failures(entry) for entry in BUILT_IN if entry.kind == kind}
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A package as `plugin new` writes it."""
    folder = tmp_path_factory.mktemp("new") / "odd-paper"
    made = CliRunner().invoke(app, ["plugin", "new", "odd-paper", "--out", str(folder)])
    assert made.exit_code == 0, made.output
    return folder


def test_a_new_package_conforms_from_its_folder(package):
    found = [result for entry in of_folder(package) for result in conform(entry, quick=True)]
    assert {(result.kind, result.check) for result in found} >= {("models", "masks"), ("tasks", "interface")}
    assert [str(result) for result in found if result.state != PASSED] == []


def test_a_transform_that_borrows_generators_must_say_so(monkeypatch):
    (entry,) = [one for one in BUILT_IN if (one.kind, one.name) == ("transforms", "imagenet")]
    monkeypatch.setattr(ImageNet, "borrows_generators", False)
    (failed,) = failures(entry)
    assert "pictures" in failed
    assert "borrows_generators = True" in failed


WRONG = {
    "masks": ("layout.valid.to(hidden.dtype)[..., None]", "layout.valid.to(hidden.dtype)[..., None] * 0 + 1"),
    "shapes": ("text.pooled * image.pooled)", "(text.pooled * image.pooled)[:, :3])"),
    "interface": ("def input_spec", "def inputs"),
}


@pytest.mark.parametrize("check", ["masks", "shapes", "interface"])
def test_a_component_that_is_wrong_is_told_in_one_line(package, tmp_path, check):
    name = f"wrong-{check}"
    folder = tmp_path / name
    assert CliRunner().invoke(app, ["plugin", "new", name, "--out", str(folder)]).exit_code == 0
    model = folder / name.replace("-", "_") / "model.py"
    before, after = WRONG[check]
    assert before in model.read_text()
    model.write_text(model.read_text().replace(before, after))
    ended = CliRunner().invoke(app, ["plugin", "check", str(folder), "--quick"])
    assert ended.exit_code == 4
    (line,) = [line for line in ended.stderr.splitlines() if f"model {name}, {check}" in line]
    assert "model.py:" in line
    assert "expected" in line


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["new", "2nd"], 2, "no name for a package"),
        (["new", "import"], 2, "no name for a package"),
        (["new", "torch"], 2, "Python module torch"),
        (["new", "lxmert"], 2, "of vlcli"),
        (["check", "nobody"], 4, "no such package or component"),
        (["check", "EMPTY"], 2, "declares no components"),
    ],
)
def test_bad_input_ends_in_one_message(words, code, said, tmp_path):
    ended = CliRunner().invoke(app, ["plugin", *(str(tmp_path) if word == "EMPTY" else word for word in words)])
    assert ended.exit_code == code
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_folder_that_exists_is_left_alone(package):
    before = sorted(package.rglob("*"))
    ended = CliRunner().invoke(app, ["plugin", "new", "other-paper", "--out", str(package)])
    assert ended.exit_code == 1
    assert "The folder exists" in ended.stderr
    assert sorted(package.rglob("*")) == before
