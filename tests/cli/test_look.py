"""The verbs that look: quick, without torch, exact about what is broken."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from vlcli.cli import app, doctor

HEAVY = ("torch", "numpy", "timm", "torchvision", "transformers", "h5py", "PIL")
PLUGIN = Path(__file__).parents[1] / "fixtures" / "fake_stages.py"


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["run", "--help"],
        ["--version"],
        ["ls"],
        ["ls", "models", "--json"],
        ["validate", "RECIPE"],
        ["show", "RECIPE"],
        ["cp", "RECIPE", "-"],
        ["run", "RECIPE", "--dry-run", "--only", "make"],
    ],
)
def test_light_verbs_import_nothing_heavy(tmp_path, words):
    recipe = tmp_path / "light.yaml"
    recipe.write_text(
        "model: lxmert\nstages:\n  make: {}\n  pretrain: {root: make, data: coco-captions, objectives: [mlm]}\n"
    )
    words = [str(recipe) if word == "RECIPE" else word for word in words]
    script = f"""
import sys
sys.argv = ["vlcli", *{words!r}]
from vlcli.cli import main
try:
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
heavy = [name for name in {HEAVY!r} if name in sys.modules]
assert not heavy, heavy
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert ended.returncode == 0, ended.stderr + ended.stdout


def test_completion_imports_nothing_heavy(tmp_path):
    script = f"""
import sys
from vlcli.cli import options as o
assert "quickstart" in o.complete_recipes("quick") and "lxmert" in o.complete_all("lx")
assert o.complete_kinds("mod") == ["models"] and "nlvr2" in o.complete_tasks("")
assert not [name for name in {HEAVY!r} if name in sys.modules]
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def test_completion_at_the_shell(cli):
    ended = cli(
        env={
            "_VLCLI_COMPLETE": "complete_bash",
            "COMP_WORDS": "vlcli run quick",
            "COMP_CWORD": "2",
            "_PYTHON__M_VLCLI_COMPLETE": "complete_bash",
        }
    )
    assert "quickstart" in ended.out


def test_an_up_to_date_run_imports_no_torch(cli, tmp_path):
    (tmp_path / "w.yaml").write_text(
        "stages:\n  make: {world: {name: shapes, images: 20, size: 64, parts: [coco], captions: 1}}\n"
    )
    assert cli("run", "w.yaml").code == 0
    script = """
import sys
sys.argv = ["vlcli", "run", "w.yaml"]
from vlcli.cli import main
try:
    main()
except SystemExit as ended:
    assert not ended.code
assert "torch" not in sys.modules
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "skip" in ended.stdout


def invoke(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_ls_counts_kinds_and_ls_all_lists_every_component():
    kinds = invoke("ls").stdout.splitlines()
    listed = invoke("ls", "all").stdout.splitlines()
    every = json.loads(invoke("ls", "--json").stdout)["components"]
    assert len(listed) == len(every) + 1
    counts = {line.split()[0]: int(line.split()[1].replace(",", "")) for line in kinds[1:]}
    assert counts == {kind: sum(row["kind"] == kind for row in every) for kind in counts}
    assert sum(counts.values()) == len(every)
    models = next(line for line in kinds if line.startswith("models "))
    assert "albef, " in models
    assert models.endswith(" ...")
    assert json.loads(invoke("ls", "all", "--json").stdout)["components"] == every


def test_ls_lists_kinds_and_refuses_others():
    rows = json.loads(invoke("ls", "--json").stdout)["components"]
    assert {"models", "recipes", "tasks"} <= {row["kind"] for row in rows}
    wrong = invoke("ls", "modles")
    assert wrong.exit_code == 4
    assert "'models'" in wrong.stderr


def test_show_component_and_recipe(tmp_path):
    shown = invoke("show", "fake-model", "--plugin", PLUGIN)
    assert "A model of nothing." in shown.stdout
    assert "Nobody, 2026" in shown.stdout
    assert "hidden" in shown.stdout
    found = json.loads(invoke("show", "fake-model", "--plugin", PLUGIN, "--json").stdout)
    assert found["components"][0]["parameters"] == [{"name": "hidden", "type": "int", "required": False, "default": 8}]
    shown = invoke("show", "lxmert", "--kind", "models").stdout
    assert "capabilities: fuse, image, text\n" in shown
    assert "text_position takes pairs and tokens; " in shown
    assert "needs a model that can: fuse\n" in invoke("show", "nlvr2", "--kind", "tasks").stdout
    recipe = json.loads(invoke("show", "quickstart", "--kind", "recipes", "--json").stdout)["recipe"]
    assert recipe["sources"][0]["name"] == "quickstart"
    unknown = invoke("show", "lxmrt")
    assert unknown.exit_code == 4
    assert "'lxmert'" in unknown.stderr


def test_cp_keeps_comments_and_replaces_nothing(tmp_path):
    target = tmp_path / "mine.yaml"
    assert invoke("cp", "quickstart", target).stdout.strip() == str(target)
    assert target.read_text().startswith("#")
    refused = invoke("cp", "quickstart", target)
    assert refused.exit_code == 2
    assert invoke("cp", "quickstart", target, "--force").exit_code == 0
    heir = tmp_path / "heir.yaml"
    heir.write_text("extends: ./mine.yaml\nseed: 1\n")
    merged = invoke("cp", heir, "-").stdout
    assert "extends" not in merged
    assert "seed: 1\n" in merged


def test_validate_tells_everything(tmp_path):
    recipe = tmp_path / "r.yaml"
    recipe.write_text("model: lxmrt\nroot: nowhere\nstages:\n  pretrain: {data: coco-caption, objectives: [mlmm]}\n")
    ended = invoke("validate", recipe, "--json")
    problems = json.loads(ended.stdout)["error"]["problems"]
    assert {p["key"]: p["code"] for p in problems} == {
        "model.name": 4,
        "stages.pretrain.data[0].name": 4,
        "stages.pretrain.objectives[0].name": 4,
        "root": 5,
    }
    assert all(p["where"].startswith(str(recipe)) for p in problems)
    assert ended.exit_code == 4
    recipe.write_text("stages:\n  make: {world: {name: shapes, images: 3, imags: 2}}\n")
    assert invoke("validate", recipe).exit_code == 0
    deep = invoke("validate", recipe, "--deep")
    assert deep.exit_code == 3
    assert "imags" in deep.stderr


def test_features_verbs_tell_what_is_missing(tmp_path):
    for verb in ("info", "verify"):
        ended = invoke("features", verb, tmp_path / "none.h5")
        assert ended.exit_code == 5, ended.output
        assert "none.h5" in ended.stderr


def test_data_make_and_stats(tmp_path):
    ended = invoke(
        "data",
        "make",
        "shapes",
        tmp_path / "w",
        "captions=1",
        "parts=[coco]",
        "--images",
        20,
        "--size",
        64,
        "--json",
        "-q",
    )
    assert ended.exit_code == 0, ended.output
    assert json.loads(ended.stdout)["counts"]["pictures"] == 20
    recipe = tmp_path / "r.yaml"
    recipe.write_text(
        f"root: {tmp_path}/w\nmodel: lxmert\nstages:\n"
        "  pretrain: {data: {name: coco-captions, split: val}, objectives: [mlm]}\n"
        "text: {vocabulary: vocab.txt}\n"
    )
    rows = json.loads(invoke("data", "stats", recipe, "--json").stdout)["data"]
    assert rows[0]["examples"] == 2
    assert invoke("data", "make", "shapes", tmp_path / "x", "imags=1").exit_code == 3


MISMATCH = "Traceback\n  File x\nRuntimeError: operator torchvision::nms does not exist\n"


def test_doctor_knows_the_mismatched_pair():
    (finding,) = doctor.pair_findings(1, "", MISMATCH)
    assert finding.state == "wrong"
    assert "pip install" in finding.remedy
    good = doctor.pair_findings(
        0, json.dumps({"torch": "2", "torchvision": "0", "timm": "1", "devices": ["cpu"], "threads": 1}), ""
    )
    assert {f.state for f in good} == {"ok"}


def test_doctor_names_broken_and_double_components():
    rows = [
        {"kind": "models", "name": "a", "distribution": d, "broken": b}
        for d, b in (("x", ""), ("y", "ImportError: no"))
    ]
    found = doctor.component_findings(0, json.dumps({"components": rows}), "")
    assert [(f.what, f.state) for f in found] == [("model a", "wrong"), ("model a", "note")]


def test_doctor_tells_a_plugin_file_that_raises(tmp_path):
    (tmp_path / "bad.py").write_text("x = 1\nraise ValueError('no')\n")
    listed = CliRunner().invoke(app, ["ls", "--check", "--json", "--plugin", str(tmp_path / "bad.py")])
    (finding,) = doctor.component_findings(listed.exit_code, listed.stdout, listed.stderr)
    assert finding.state == "wrong"
    assert "bad.py:2 ValueError: no" in finding.detail


def test_doctor_finds_a_leftover_egg_info(tmp_path):
    info = tmp_path / "vlcli.egg-info"
    info.mkdir()
    (info / "entry_points.txt").write_text("")
    assert [(f.what, f.state) for f in doctor.shadows([tmp_path])] == [("metadata", "note")]


@pytest.fixture(scope="module")
def strangers(tmp_path_factory):
    """A folder with strangers' packages as pip installs them: sound, without base class or method, raising."""
    site = tmp_path_factory.mktemp("site")
    bodies = {
        "sound": '"""Sound."""\n\nfrom vlcli import nn\n\n\nclass Model(nn.Model):\n    """A stranger\'s model."""\n\n'
        "    dim = 4\n\n    def __init__(self, data_spec, *, size: int = 3):\n        super().__init__(data_spec)\n"
        "        self.size = size\n\n    def input_spec(self):\n        return nn.InputSpec()\n",
        "bare": '"""Bare."""\n\n\nclass Model:\n    """No model."""\n',
        "hollow": '"""Hollow."""\n\nfrom vlcli import nn\n\n\nclass Model(nn.Model):\n    """Cannot fuse."""\n\n'
        "    dim, capabilities = 4, frozenset({'fuse'})\n\n    def input_spec(self):\n        return nn.InputSpec()\n",
        "broken": 'raise RuntimeError("the moon is wrong")\n',
    }
    for name, body in bodies.items():
        (site / f"stranger_{name}.py").write_text(body)
        facts = site / f"stranger_{name}-1.2.dist-info"
        facts.mkdir()
        (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: stranger-{name}\nVersion: 1.2\n")
        (facts / "entry_points.txt").write_text(f"[vlcli.models]\nodd-{name} = stranger_{name}:Model\n")
    return {"PYTHONPATH": os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])}


def test_strangers_packages_are_listed_and_the_broken_one_named(cli, strangers):
    listed = cli("ls", "models", "--check", "--json", env=strangers)
    assert listed.code == 4
    rows = {row["name"]: row for row in json.loads(listed.out)["components"]}
    assert rows["odd-sound"]["broken"] == ""
    assert rows["odd-sound"]["distribution"] == "stranger-sound"
    assert rows["odd-broken"]["broken"] == "RuntimeError: the moon is wrong"
    assert rows["odd-broken"]["place"].endswith("stranger_broken.py:1")
    assert rows["odd-bare"]["broken"] == "its base class is not vlcli.nn.Model"
    assert rows["odd-bare"]["place"].endswith("stranger_bare.py:4")
    assert rows["odd-hollow"]["broken"] == "it does not define fuse"
    assert rows["odd-hollow"]["place"].endswith("stranger_hollow.py:6")
    assert rows["lxmert"]["broken"] == ""
    assert "A stranger's model." in cli("show", "odd-sound", env=strangers).out
    broken = cli("show", "odd-broken", env=strangers)
    assert broken.code == 4
    assert "the moon is wrong" in broken.err
    assert "Traceback" not in broken.err
    assert "vlcli ls --check" not in broken.err
    hollow = cli("show", "odd-hollow", env=strangers)
    assert (hollow.code, "Cannot fuse." in hollow.out) == (4, True)
    assert "got: it does not define fuse" in hollow.err
    assert "stranger_hollow.py:6" in hollow.err


def test_show_of_a_wrong_name_is_short_and_suggests_first():
    ended = CliRunner().invoke(app, ["show", "quikstart"])
    assert ended.exit_code == 4
    lines = ended.stderr.splitlines()
    assert lines[0].startswith("error: Nothing is called 'quikstart'; did you mean 'quickstart'")
    assert len(ended.stderr) < 200


def test_a_module_of_another_distributions_name_has_its_version(monkeypatch):
    monkeypatch.setattr(doctor, "_distributions", lambda: {"faiss": ["typer"]})
    monkeypatch.setattr(doctor, "EXTRAS", {"faiss": ("faiss",), "none": ("no_such_module",)})
    found_spec = doctor.importlib.util.find_spec
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: name == "faiss" or found_spec(name))
    there, absent = doctor._extras()
    assert there.state == "ok"
    assert there.detail == f"faiss {doctor.metadata.version('typer')}"
    assert (absent.state, absent.detail) == ("note", "missing: no_such_module (optional)")
    assert absent.remedy == "pip install 'vlcli[none]'"


def test_one_bad_data_set_does_not_hold_up_the_others(tmp_path):
    (tmp_path / "good.jsonl").write_text('{"text": "a b"}\n')
    (tmp_path / "bad.jsonl").write_text('[{"text": "a"},\n {"text": "b"}]\n')
    recipe = tmp_path / "r.yaml"
    data = "[{name: jsonl, file: bad.jsonl}, {name: jsonl, file: good.jsonl}]"
    recipe.write_text(f"root: {tmp_path}\nmodel: lxmert\nstages: {{pretrain: {{data: {data}, objectives: [mlm]}}}}\n")
    ended = CliRunner().invoke(app, ["data", "stats", str(recipe), "--json"])
    assert ended.exit_code == 5
    rows = json.loads(ended.stdout)["data"]
    assert rows[1]["words"] == 2
    assert rows[0]["error"]["what"] == "The file is one JSON document, not JSON lines."
    assert "jq -c" in rows[0]["error"]["next"]
    assert "{name: json, file: bad.jsonl}" in rows[0]["error"]["next"]
    ended = CliRunner().invoke(app, ["data", "stats", str(recipe)])
    assert (ended.exit_code, ended.stdout.count("cannot be read")) == (5, 4)
    assert ended.stderr.count("not JSON lines") == 1


def test_ls_with_check_lists_what_ls_lists(cli):
    plain, checked = (cli("ls", "all", "--json", *more) for more in ([], ["--check"]))
    names = [[(row["kind"], row["name"]) for row in json.loads(one.out)["components"]] for one in (plain, checked)]
    assert names[0] == names[1]
    assert len(names[0]) > 300
