"""Every number of a recipe has bounds, which the message names; documents and patterns have limits."""

from __future__ import annotations

import copy
import time
from typing import Annotated

import pytest
from pydantic import Field
from typer.testing import CliRunner

from vlcli import registry
from vlcli.cli import app
from vlcli.errors import RecipeError, UsageError
from vlcli.recipe import patterns, yaml
from vlcli.recipe.load import from_mapping, load

STAGES = {
    "world": {"kind": "make"},
    "regions": {"kind": "extract", "extractor": "backbone", "root": "world", "data": {"name": "coco-captions"}},
    "train": {
        "kind": "pretrain",
        "root": "world",
        "model": "lxmert",
        "data": {"name": "coco-captions"},
        "objectives": [{"name": "mlm"}],
    },
    "mean": {"kind": "average", "from": "train"},
    "test": {"kind": "evaluate", "from": "train", "task": "nlvr2"},
}

WRONG = [
    ("schema=99", "from 1 to 1"),
    ("jobs=0", "from 1 to 1,024"),
    ("seed=-1", "from 0 to 2^63 - 1"),
    (f"seed={2**70}", "from 0 to 2^63 - 1"),
    ("text.length=0", "from 1 to 65,536"),
    ("stages.regions.batch_size=-1", "from 1 to 1,000,000"),
    ("stages.regions.batch_size=0", "from 1 to 1,000,000"),
    ("stages.regions.limit=-1", "from 1 to"),
    ("stages.regions.workers=-1", "from 0 to 1,024"),
    ("stages.test.batch_size=0", "from 1 to 1,000,000"),
    ("stages.mean.last=0", "from 1 to"),
    ("stages.train.steps=-1", "from 0 to"),
    ("stages.train.epochs=0", "from 1 to"),
    ("stages.train.epochs=true", "whole number from 1"),
    ("stages.train.accumulate=-1", "from 1 to"),
    ("stages.train.batch_size=0", "from 1 to 1,000,000"),
    ("stages.train.threads=100000", "from 1 to 1,024"),
    ("stages.train.workers=-1", "from 0 to 1,024"),
    ("stages.train.log_every=0", "from 1 to"),
    ("stages.train.keep=0", "from 1 to"),
    ("stages.train.clip=0", "above 0 and to 1,000,000"),
    ("stages.train.repeats=0", "from 1 to"),
    ("stages.train.evaluate_every=0", "from 1 to"),
    ("stages.train.save_every=-5", "from 1 to"),
    ("stages.train.optimizer.lr=.nan", "from 0 to 1,000,000"),
    ("stages.train.optimizer.lr=-1", "from 0 to 1,000,000"),
    ("stages.train.optimizer.betas=[2, 2]", "from 0 and below 1"),
    ("stages.train.optimizer.eps=-1", "from 0 to 1"),
    ("stages.train.optimizer.weight_decay=.inf", "from 0 to 1,000,000"),
    ("stages.train.optimizer.layer_decay=0", "above 0 and to 10"),
    ("stages.train.schedule.end=.nan", "from 0 to 1"),
    ("stages.train.schedule.warmup=-1", "from 0 to"),
    ("stages.train.schedule.power=1e9", "above 0 and to 100"),
    ("stages.train.schedule.drops=[2]", "from 0 to 1"),
    ("stages.train.ema={decay: .nan}", "from 0 to 1"),
    ("stages.train.ema={decay: 1.5}", "from 0 to 1"),
    ("stages.train.objectives.mlm.weight=1e12", "from -1,000,000 to 1,000,000"),
    ("stages.train.objectives.mlm.from_epoch=-1", "from 0 to"),
    ("stages.train.objectives.mlm.probability=.nan", "finite"),
    ("stages.train.data.weight=-1", "from 0 to 1,000,000"),
    ("stages.train.data.weight=many", "from 0 to 1,000,000"),
    ("stages.train.model={name: lxmert, text_layers: .inf}", "finite"),
]


@pytest.mark.parametrize(("word", "bound"), WRONG)
def test_a_number_out_of_bounds_is_refused(word, bound):
    with pytest.raises(RecipeError) as caught:
        from_mapping("r", {"stages": copy.deepcopy(STAGES)}, [word])
    assert caught.value.exit_code == 3
    problems = caught.value.problems
    assert len(problems) == 1 + ("betas" in word), str(caught.value)
    assert bound in problems[0].expected
    assert word in problems[0].where


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("stages.train.steps=0", lambda recipe: recipe.stages["train"].steps == 0),
        ("stages.train.ema={decay: 1}", lambda recipe: recipe.stages["train"].ema.decay == 1),
        ("seed=0", lambda recipe: recipe.seed == 0),
        (f"seed={2**63 - 1}", lambda recipe: recipe.seed == 2**63 - 1),
    ],
)
def test_the_ends_are_allowed(word, found):
    assert found(from_mapping("r", {"stages": copy.deepcopy(STAGES)}, [word]).recipe)


@pytest.mark.parametrize(
    ("kind", "spec", "bound"),
    [
        ("models", {"name": "lxmert", "text_layers": 1_000_000}, "from 0 to 1,000"),
        ("models", {"name": "lxmert", "text_layers": -1}, "from 0 to 1,000"),
        ("models", {"name": "lxmert", "hidden": 10**9}, "a whole number from 1 to 65,536"),
        ("models", {"name": "lxmert", "hidden": 0}, "a whole number from 1 to 65,536"),
        ("models", {"name": "lxmert", "heads": 0}, "from 1 to 1,024"),
        ("models", {"name": "lxmert", "dropout": 1.5}, "from 0 to 1"),
        ("models", {"name": "swin", "layers": [2, 2, 10**6]}, "from 0 to 1,000"),
        ("models", {"name": "lxmert", "image_position": {"name": "box", "eps": 1e300}}, "from 0 to 1,000"),
        ("objectives", {"name": "mlm", "probability": 3}, "a number from 0 to 1"),
        ("extractors", {"name": "backbone", "batch_size": -1}, "from 1 to 1,000,000"),
        ("datasets", {"name": "jsonl", "limit": -1}, "from 0 to"),
    ],
)
def test_components_numbers_have_bounds(kind, spec, bound):
    problems = [p for p in registry.check(kind, spec, "key") if p.expected and "number" in p.expected]
    assert problems, registry.check(kind, spec, "key")
    assert bound in problems[0].expected
    assert problems[0].code == 3


def test_a_component_may_say_its_own_bounds():
    class Mine:
        """A component with bounds of its own."""

        def __init__(self, *, layers: Annotated[int, Field(ge=2, le=5000)] = 2, heads: int | None = None) -> None:
            self.layers, self.heads = layers, heads

    registry.register("models", "bounded-test", Mine)
    assert not registry.check("models", {"name": "bounded-test", "layers": 5000}, "m")
    assert "5000" in registry.check("models", {"name": "bounded-test", "layers": 5001}, "m")[0].expected
    assert "2" in registry.check("models", {"name": "bounded-test", "layers": 1}, "m")[0].expected
    assert registry.check("models", {"name": "bounded-test", "heads": 5000}, "m")[0].expected.endswith("1 to 1,024")


def test_bounds_of_a_signature_are_shown_in_words():
    parameters = registry.parameters(registry.load("models", "noisy-or"))
    assert parameters["width"].type_text == "int (from 0 to 65,536)"


def test_every_default_of_an_installed_component_is_within_bounds():
    from vlcli.registry.bounds import number_fault

    for entry in registry.entries():
        if entry.kind in registry.FILES:
            continue
        for parameter in registry.parameters(registry.load(entry.kind, entry.name)).values():
            if not parameter.required:
                fault = number_fault(parameter.name, parameter.annotation, parameter.default)
                assert fault is None, (entry.kind, entry.name, parameter.name, fault)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: " + "7" * 5000, "5,000 digits"),
        ("a: &a [1, *a]", "alias refers to the value that contains it"),
        ("&a {b: *a}", "alias refers to the value that contains it"),
        ("[" * 3000 + "]" * 3000, "deeper than 100"),
        ("[" * 101 + "]" * 101, "deeper than 100"),
        ("a: &a [" + "1, " * 400 + "]\nb: &b [" + "*a, " * 400 + "]\n", "too large once its aliases"),
        ("# " + "x" * 2_000_001, "at most 2,000,000 bytes"),
        ('a: "\\ud800"', "invalid Unicode character"),
        ('"\\udc00": 1', "invalid Unicode character"),
    ],
)
def test_limits_of_a_document(tmp_path, text, says):
    file = tmp_path / "r.yaml"
    file.write_text(text)
    start = time.perf_counter()
    with pytest.raises(RecipeError) as caught:
        yaml.read(file)
    assert says in caught.value.problems[0].what
    assert caught.value.problems[0].where.startswith(f"{file}:")
    assert time.perf_counter() - start < 10
    with pytest.raises(ValueError, match=says):
        yaml.scalar(text)


def test_a_document_within_its_limits():
    assert yaml.parse("[" * 100 + "]" * 100).value
    assert yaml.parse(f"a: {'7' * 100}").value == {"a": int("7" * 100)}
    assert yaml.parse("a: &a [1]\nb: [*a, *a]").value == {"a": [1], "b": [[1], [1]]}


def test_an_endless_override_is_a_fault_of_the_command_line():
    with pytest.raises(UsageError) as caught:
        from_mapping("r", {"stages": copy.deepcopy(STAGES)}, ["seed=" + "9" * 5000])
    assert "5,000 digits" in caught.value.expected


@pytest.mark.parametrize("key", ["trainable", "frozen", "allow_unmatched", "optimizer.no_decay"])
@pytest.mark.parametrize("pattern", ["(", "x" * 1001, "((a{9999}){9999}){9999}", "(?R)", "(" * 900 + ")" * 900])
def test_what_is_no_pattern_is_refused_with_the_recipe(key, pattern):
    stages = copy.deepcopy(STAGES)
    section, _, last = key.rpartition(".")
    (stages["train"].setdefault(section, {}) if section else stages["train"])[last] = [pattern]
    with pytest.raises(RecipeError) as caught:
        from_mapping("r", {"stages": stages})
    assert "a regular expression" in caught.value.problems[0].expected


def test_a_pattern_cannot_backtrack_for_ever(monkeypatch):
    monkeypatch.setattr(patterns, "MOST_SECONDS", 0.2)
    search = patterns.Searcher("(a|aa)+$", "stages.train.frozen")
    assert search.search("aaa")
    assert not search.search("b")
    start = time.perf_counter()
    with pytest.raises(RecipeError) as caught:
        search.search("a" * 64 + "b")
    assert time.perf_counter() - start < 5
    assert caught.value.problems[0].key == "stages.train.frozen"
    assert "longer than 0.2 s" in caught.value.problems[0].what


def test_patterns_match_as_the_standard_library_does():
    import re

    names = [
        "model.text.norm.weight",
        "model.language.0.bias",
        "objectives.mlm.head.weight",
        "model.norm_2.weight",
    ]
    for pattern in [
        "bias$",
        "(^|[._])(norm|layer_norm|LayerNorm)[^.]*\\.weight$",
        r"^model\.(?!text\.|language\.)",
        "^model[.](?!text|lower|upper)",
        "",
    ]:
        search = patterns.Searcher(pattern, "k")
        assert [search.search(name) for name in names] == [bool(re.search(pattern, name)) for name in names]


def test_braces_mean_what_the_standard_library_reads():
    import re

    names = ["a", "b", "aa", "{e<=1}", "a{e}", "a{e<=1}", "ab{e<=1}", "a{,}", "{2}", "aaa", "\\{", "[{e}]", "x{e}"]
    for pattern in [
        "^a{e<=1}$",
        "a{e}",
        "^a{2}$",
        "^a{1,}$",
        "^a{,2}$",
        "^a{,}$",
        r"^a\{e\}$",
        "^[{e}]+$",
        "^(?:a|b){i}",
        "[]{]",
    ]:
        search = patterns.Searcher(pattern, "k")
        assert [search.search(name) for name in names] == [bool(re.search(pattern, name)) for name in names], pattern


def test_a_recipe_has_a_limit_of_stages():
    stages = {f"s{i}": {"kind": "make"} for i in range(1001)}
    with pytest.raises(RecipeError) as caught:
        from_mapping("wide", {"stages": stages})
    problem = caught.value.problems[0]
    assert (problem.key, problem.got, problem.expected) == ("stages", "1,001 stages", "at most 1,000")
    del stages["s0"]
    assert len(from_mapping("wide", {"stages": stages}).stages) == 1000


def test_the_command_line_ends_with_3_and_names_the_bound(tmp_path):
    file = tmp_path / "r.yaml"
    file.write_text("stages: {world: {kind: make}, train: {kind: pretrain, root: world, model: lxmert, epochs: 0}}\n")
    ended = CliRunner().invoke(app, ["validate", str(file), "stages.train.optimizer.lr=.nan"])
    assert ended.exit_code == 3
    assert "a whole number from 1 to" in ended.output
    assert "a number from 0 to 1,000,000" in ended.output
    with pytest.raises(RecipeError):
        load(str(file))
