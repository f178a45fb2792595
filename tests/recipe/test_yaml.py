"""YAML 1.2 core: what a recipe's words mean, where they stand, what is refused."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlcli.errors import RecipeError
from vlcli.recipe import yaml
from vlcli.recipe.yaml import to_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", "on"),
        ("no", "no"),
        ("Yes", "Yes"),
        ("1e-4", 1e-4),
        ("5E3", 5000.0),
        ("1:2:8", "1:2:8"),
        (".5", 0.5),
        ("0o17", 15),
        ("0x1F", 31),
        ("010", 10),
        ("1_000", "1_000"),
        ("2001-01-01", "2001-01-01"),
        ("~", None),
        ("", None),
        ("null", None),
        ("True", True),
        ("tRue", "tRue"),
        ("-.inf", -math.inf),
        ("+1", 1),
        ("1.", 1.0),
        ("'1'", "1"),
        ('"on"', "on"),
        ("!!str 1", "1"),
        ("[1, a, 2.5]", [1, "a", 2.5]),
        ("{a: {b: no}}", {"a": {"b": "no"}}),
    ],
)
def test_core_schema(text, value):
    found = yaml.scalar(text)
    assert found == value
    assert type(found) is type(value)


def test_nan():
    assert math.isnan(yaml.scalar(".nan"))


def test_every_key_has_its_line():
    document = yaml.parse("a: 1\nb:\n  - x: 2\n  - y:\n      z: 3\n", "r.yaml")
    assert document.place(("a",)) == "r.yaml:1"
    assert document.place(("b", 0, "x")) == "r.yaml:3"
    assert document.place(("b", 1, "y", "z")) == "r.yaml:5"
    assert document.place(("b", 1, "y", "nowhere")) == "r.yaml:4"


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        ("b: &b {a: 1}\nc:\n  <<: *b\n", 3, "no merge keys"),
        ("a: 1\na: 2\n", 2, "twice"),
        ("a: !!python/object/apply:os.system [ls]\n", 1, "not allowed"),
        ("a: !mine 3\n", 1, "not allowed"),
        ("a: [1, 2\nb: 3\n", 2, "not YAML"),
        ("? [1]\n: 2\n", 1, "plain word"),
        ("&k a: 1\n*k : 2\n", 1, "twice"),
    ],
)
def test_refused_with_line(tmp_path, text, line, word):
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    with pytest.raises(RecipeError) as caught:
        yaml.read(file)
    assert caught.value.problems[0].where == f"{file}:{line}"
    assert word in caught.value.problems[0].what


def test_aliases_cannot_explode(tmp_path):
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    file = tmp_path / "bomb.yaml"
    file.write_text("\n".join(rows))
    with pytest.raises(RecipeError, match="problem") as caught:
        yaml.read(file)
    assert "too large" in caught.value.problems[0].what


def test_binary_file_is_one_message(tmp_path):
    file = tmp_path / "r.yaml"
    file.write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(RecipeError):
        yaml.read(file)


_plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**6), 10**6)
    | st.floats(allow_nan=False)
    | st.text("abcdefghijklmnopqrstuvwxyz0123456789 .:-~#'\"{}[]@!%&*|>", max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abcxyz01", min_size=1, max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text("abcxyz", min_size=1, max_size=4), _plain, min_size=1, max_size=4))
def test_dump_reads_back_the_same(value):
    assert yaml.parse(to_yaml(value)).value == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('a: ["image/*", \'^(?!x)|y\', "it\\"s #!"]', {"a": ["image/*", "^(?!x)|y", 'it"s #!']}),
        ("a: 1  # is it? --- 100 %!\n# & * |\nb: it's\n", {"a": 1, "b": "it's"}),
        ('a: &x [1, "*"]\nb: *x\n', {"a": [1, "*"], "b": [1, "*"]}),
        ('a: {"a|b": 1}\nb:\n  "c | d": &x "e?"\n', {"a": {"a|b": 1}, "b": {"c | d": "e?"}}),
        ("a: >-\n  b c\n  it's\nb: 1\n", {"a": "b c it's", "b": 1}),
        ('{"a":1,"b":[.5e1]}', {"a": 1, "b": [5.0]}),
        ("a: |2\n  b", {"a": "b"}),
        ("a: [b ? c]", {"a": ["b ? c"]}),
        ("a: &x 1\nb: &x 2\nc: *x", {"a": 1, "b": 2, "c": 2}),
        ("a: &x 1\nb: &y [*x]\nc: &x 2\nd: *y", {"a": 1, "b": [1], "c": 2, "d": [1]}),
        ("%YAML 1.2\n---\na: no\n", {"a": "no"}),
        ("! 1", "1"),
        ("# nothing", None),
    ],
)
def test_a_document_has_the_values_of_yaml_1_2(text, value):
    assert yaml.scalar(text) == value


@pytest.mark.parametrize(
    ("text", "what", "line"),
    [
        ("a: 1\nb: *x", "undefined alias 'x'", 2),
        ("a: 1\n---\nb: 2", "a single document", 2),
        ("a: 'b' | c", "not YAML", 1),
        ("a: 1\n\tb: 1", "not YAML", 2),
    ],
)
def test_a_fault_has_its_line(text, what, line):
    with pytest.raises(yaml._YamlError) as caught:
        yaml.parse(text)
    assert what in caught.value.what
    assert caught.value.line == line


def test_a_document_that_was_read_before_is_not_what_another_reader_changed():
    text = "a: {b: [1, 2]}"
    first = yaml.parse(text, "r.yaml")
    first.value["a"]["b"].append(3)
    first.places.clear()
    second = yaml.parse(text, "r.yaml")
    assert second.value == {"a": {"b": [1, 2]}}
    assert second.place(("a", "b")) == "r.yaml:1"
    assert yaml.parse(text, "other.yaml").place(("a",)) == "other.yaml:1"


def test_deep_nesting_is_a_message():
    for text in ("[" * 100_000, "- " * 100_000 + "a", "{a: " * 100_000):
        with pytest.raises(ValueError, match=r"not YAML|deeper"):
            yaml.scalar(text)
