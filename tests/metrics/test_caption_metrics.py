"""Caption metrics against pycocoevalcap on real captions, and what must hold for any captions."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlcli.errors import DataError
from vlcli.metrics.captions import Cider, DocumentFrequency, bleu, rouge_l, tokenize
from vlcli.metrics.captions.measure import lacking

WORDS = st.lists(st.sampled_from(["a", "red", "circle", "left", "of", "the", "square"]), min_size=1, max_size=9)
WHOLE = pytest.mark.slow


def split(shared: Path, count: int | None) -> tuple[list[str], list[list[str]]]:
    """Real captions: the fifth of each picture, and the other four."""
    content = json.loads((shared / "data/annotations/coco/captions_val2017.json").read_text())
    groups: dict[int, list[str]] = {}
    for row in content["annotations"]:
        groups.setdefault(row["image_id"], []).append(row["caption"])
    chosen = list(groups.values())[:count]
    return [group[4] for group in chosen], [[*group[:4], *group[5:]] for group in chosen]


def theirs(candidates: list[str], references: list[list[str]]) -> dict[str, float]:
    """What pycocoevalcap says of tokenised captions."""
    pytest.importorskip("pycocoevalcap")
    from pycocoevalcap.bleu.bleu_scorer import BleuScorer
    from pycocoevalcap.cider.cider import Cider as TheirCider
    from pycocoevalcap.rouge.rouge import Rouge

    known, own = dict(enumerate(references)), {number: [text] for number, text in enumerate(candidates)}
    scorer = BleuScorer(n=4)
    for text, group in zip(candidates, references, strict=True):
        scorer += (text, group)
    found = {f"bleu_{n}": value for n, value in enumerate(scorer.compute_score("closest")[0], 1)}
    found["rouge_l"] = Rouge().compute_score(known, own)[0]
    return found | {"cider_d": TheirCider().compute_score(known, own)[0]}


def ours(candidates: list[list[str]], references: list[list[list[str]]]) -> dict[str, float]:
    found = {f"bleu_{n}": value for n, value in enumerate(bleu(candidates, references), 1)}
    found["rouge_l"] = rouge_l(candidates, references)
    return found | {"cider_d": Cider.of(references).mean(candidates, references)}


@pytest.mark.parametrize("count", [600, pytest.param(None, marks=WHOLE)])
def test_equal_to_pycocoevalcap_given_the_same_words(shared: Path, count: int | None) -> None:
    raw, known = split(shared, count)
    candidates, references = [tokenize(text) for text in raw], [[tokenize(text) for text in group] for group in known]
    wanted = theirs([" ".join(words) for words in candidates], [[" ".join(words) for words in g] for g in references])
    found = ours(candidates, references)
    for name, value in wanted.items():
        assert found[name] == pytest.approx(value, abs=1e-8), name
    assert found["bleu_4"] > 0.1


@pytest.mark.skipif(shutil.which("java") is None, reason="their tokenizer needs Java")
@pytest.mark.parametrize("count", [600, pytest.param(None, marks=WHOLE)])
def test_our_words_give_the_scores_of_theirs(shared: Path, count: int | None) -> None:
    tokenizer = pytest.importorskip("pycocoevalcap.tokenizer.ptbtokenizer")
    raw, known = split(shared, count)
    flat = [text for text, group in zip(raw, known, strict=True) for text in (text, *group)]
    lines = tokenizer.PTBTokenizer().tokenize({number: [{"caption": text}] for number, text in enumerate(flat)})
    words = iter(lines[number][0] for number in range(len(flat)))
    candidates, references = [], []
    for group in known:
        candidates.append(next(words))
        references.append([next(words) for _ in group])
    wanted = theirs(candidates, references)
    found = ours([tokenize(text) for text in raw], [[tokenize(text) for text in group] for group in known])
    for name, value in wanted.items():
        assert found[name] == pytest.approx(value, abs=0.005), name
    same = sum(" ".join(tokenize(text)) == lines[number][0] for number, text in enumerate(flat))
    assert same >= 0.999 * len(flat)


@pytest.mark.parametrize(
    ("caption", "words"),
    [
        ("A man isn't sitting; they'll can't.", "a man is n't sitting they 'll ca n't"),
        ('The dog\'s "red" ball (small)...', "the dog 's red ball -lrb- small -rrb-"),
        ("Two-tone car at 8th Ave. No. 3,000", "two-tone car at 8th ave. no. 3,000"),
        ("", ""),
        # What Stanford's tokenizer gives for these, run through pycocoevalcap 1.2; its no-break space is a space here.
        ("A Ft. Spokane uniform, 6 ft. tall.", "a ft. spokane uniform 6 ft. tall"),
        ("The time of 5:54pm.", "the time of 5:54 pm"),
        ("From 10-29-2011, 1 -2 and 555-123-4567.", "from 10-29-2011 1 -2 and 555-123-4567"),
        ("At 22 3/4 St. and 3 1/2-inch", "at 22 3/4 st. and 3 1/2 inch"),
        ("A person I. A hood", "a person i a hood"),
        ("B. is in class A. The dog, A. b", "b. is in class a the dog a. b"),
        ("A sign that reads K.", "a sign that reads k"),
        ("wow!! what?! no! a!?b", "wow !! what ?! no a !? b"),
        ("No. 5 bus. no. Number No. here", "no. 5 bus no number no here"),
        (
            "Miss. and a young miss. on Oct. 5 in the mass. of Mass. etc.",
            "miss. and a young miss on oct. 5 in the mass of mass. etc.",
        ),
        (
            "3.5mm 1,000lb 5pm 1/2lb 3.5-inch 4-wheel 1st-base 10:30-ish",
            "3.5 mm 1,000 lb 5pm 1/2lb 3.5-inch 4-wheel 1st-base 10:30 ish",
        ),
        ("the '90s, 5'11", "the '90s 5 '11"),
        ("3:00a.m. on 9/11, 5,6", "3:00 a.m. on 9/11 5,6"),
        ("Dogs., cats.; an x-ray.: a_b., 3., 5pm.,", "dogs. cats. an x-ray. a_b. 3. 5pm."),
        ("1/2., a/b., 3.5., dogs., dogs. , it isn't., a dog's., end.", "1/2 a/b 3.5 dogs. dogs it is n't a dog 's end"),
    ],
)
def test_words(caption: str, words: str) -> None:
    assert " ".join(tokenize(caption)) == words


@given(st.text(max_size=80))
def test_any_text_gives_words_without_spaces(text: str) -> None:
    assert all(word and not any(c.isspace() for c in word) for word in tokenize(text))


@given(st.lists(WORDS.filter(lambda words: len(words) >= 4), min_size=1, max_size=4))
def test_a_caption_equal_to_its_reference_scores_one(captions: list[list[str]]) -> None:
    assert bleu(captions, [[words] for words in captions])[3] == pytest.approx(1, abs=1e-6)
    assert rouge_l(captions, [[words] for words in captions]) == pytest.approx(1)


@given(st.lists(st.tuples(WORDS, st.lists(WORDS, min_size=1, max_size=3)), min_size=1, max_size=4))
def test_any_captions_score_within_bounds(rows: list[tuple[list[str], list[list[str]]]]) -> None:
    candidates, references = [row[0] for row in rows], [row[1] for row in rows]
    assert all(0 <= value <= 1 + 1e-6 for value in [*bleu(candidates, references), rouge_l(candidates, references)])
    for d in (True, False):
        assert all(-1e-9 <= value <= 10 + 1e-6 for value in Cider.of(references, d=d).score(candidates, references))


def test_frequencies_are_kept(tmp_path: Path) -> None:
    references = [[["a", "red", "circle"], ["the", "circle"]], [["a", "square"]]]
    made = DocumentFrequency.of(iter(references))  # COCO's captions need not be in memory as words at once
    made.save(tmp_path / "df.json")
    assert DocumentFrequency.load(tmp_path / "df.json") == made
    assert made.counts["a",] == 2
    (tmp_path / "df.json").write_text("[]")
    with pytest.raises(DataError):
        DocumentFrequency.load(tmp_path / "df.json")


def test_a_number_with_a_fraction_is_one_word_of_rouge_alone() -> None:
    """By pycocoevalcap 1.2 with its tokenizer: ROUGE-L .75 (three words of four) and .5, BLEU-1 .8 (four of five)."""
    said, known = tokenize("cut 2 1/2 dogs today"), [tokenize("cut 2 1/2 cats today")]
    assert rouge_l([said], [known]) == pytest.approx(0.75)
    assert bleu([said], [known])[0] == pytest.approx(0.8)
    assert rouge_l([tokenize("2 1/2 dogs")], [[tokenize("2 dogs")]]) == pytest.approx(0.5)


def test_repeating_a_word_gains_nothing_with_d() -> None:
    references = [[["red", "circle"]], [["blue", "square"]]]
    once, often = [["red", "circle"], ["x"]], [["red", "red", "red", "circle"], ["x"]]
    d = Cider.of(references)
    assert d.score(often, references)[0] < d.score(once, references)[0]


def test_what_java_metrics_lack_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    told = lacking("meteor")
    assert told is not None
    assert "\n" not in told
