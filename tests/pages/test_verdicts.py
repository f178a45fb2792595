"""The page of verdicts: every claim with its difference on a line, escaped text, filters in a real browser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from browsers import Watched

from tests.claims.studies import UNTESTED, claim, looker, registered
from vlcli.claims.verdicts import Judged, judge
from vlcli.pages.verdicts import render_verdicts, write_verdicts

VALUES = {
    "high": [0.80, 0.82, 0.81, 0.83, 0.80],
    "base": [0.50, 0.51, 0.50, 0.52, 0.50],
    "wide": [0.10, 0.90, 0.45, 0.60, 0.52],
}
SHOWN = "() => [...document.querySelectorAll('[data-claim]')].filter(row => !row.hidden).map(row => row.id)"


def verdicts(tmp_path: Path) -> list[Judged]:
    """One reproduced, one opposite, one undecided, one that failed, one that has not run, one that cannot be tested."""
    claims = [
        claim("up", ("high", "base")),
        claim("down", ("high", "base"), "lower", table=2),
        claim("open", ("wide", "base"), table=3),
        claim("broken", ("bad", "base"), table=4),
        claim("later", ("missing", "base"), table=5),
        UNTESTED,
    ]
    look = looker({**VALUES, "bad": "out of <memory>"})
    return judge(registered(tmp_path, *claims), look)


def row_of(html: str, name: str) -> str:
    found = re.search(rf'<tr id="{name}".*?</tr>', html, re.DOTALL)
    assert found is not None
    return found[0]


def places(row: str) -> tuple[float, float, float, float]:
    """Of no difference, the lower end, the upper end, and the dot."""
    zero, low, high = (float(re.search(pattern, row)[1]) for pattern in ZERO_LOW_HIGH)
    return zero, low, high, float(re.search(r'cx="([^"]+)"', row)[1])


ZERO_LOW_HIGH = (r'class="baseline" x1="([^"]+)"', r'class="whisker" x1="([^"]+)"', r'class="whisker".*?x2="([^"]+)"')


def test_every_claim_has_its_verdict_its_numbers_and_its_command(tmp_path: Path) -> None:
    html = render_verdicts(verdicts(tmp_path), "vlcli reproduce mine", 5400)
    words = {"up": "reproduced", "down": "opposite", "open": "undecided", "broken": "failed", "later": "not run"}
    for name, word in {**words, "large": "not in small"}.items():
        assert f'data-verdict="{word}"' in row_of(html, f"mine-{name}")
    assert "+0.306" in row_of(html, "mine-up")
    assert "vlcli reproduce mine --claims mine-up" in row_of(html, "mine-up")
    assert "80.9, 79.9" in row_of(html, "mine-up")
    assert "seeds would decide" in row_of(html, "mine-open")
    assert "0 of 5 seeds have run" in row_of(html, "mine-later")
    assert "There is one size of model in small." in row_of(html, "mine-large")
    assert "--claims" not in row_of(html, "mine-large")
    assert "2 of 5 (40%) decided" in html
    assert "1.5 hours of work" in html
    assert ">vlcli reproduce mine</code>" in html


def test_text_of_others_stays_text(tmp_path: Path) -> None:
    html = render_verdicts(verdicts(tmp_path), "vlcli reproduce '<mine>'")
    assert "out of &lt;memory&gt;" in row_of(html, "mine-broken")
    assert "<mine>" not in html
    assert 'style="' not in html  # the page's policy allows no style in elements


def test_the_published_direction_is_to_the_right(tmp_path: Path) -> None:
    html = render_verdicts(verdicts(tmp_path), "vlcli reproduce")
    zero, low, high, dot = places(row_of(html, "mine-up"))
    assert zero < low < dot < high
    zero, low, high, dot = places(row_of(html, "mine-down"))
    assert low < dot < high < zero
    zero, low, high, _ = places(row_of(html, "mine-open"))
    assert low < zero < high
    assert "<circle" not in row_of(html, "mine-later")


def test_a_page_on_which_nothing_has_run(tmp_path: Path) -> None:
    judged = judge(registered(tmp_path, claim("up", ("high", "base"))), lambda _: None)
    html = render_verdicts(judged, "vlcli reproduce")
    assert "0 of 1 (0%) decided" in html
    assert "<circle" not in html


def test_the_page_names_the_seeds_that_were_run(tmp_path: Path) -> None:
    listed = registered(tmp_path, claim("up", ("high", "base")))
    more = {name: [*values, *values] for name, values in VALUES.items()}
    row = row_of(render_verdicts(judge(listed, looker(more), 7), "vlcli reproduce --seeds 7"), "mine-up")
    assert "<dd>0, 1, 2, 3, 4, 5, 6</dd>" in row
    assert "--claims mine-up --seeds 7" in row


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_filters_choose_claims(browser: Any, tmp_path: Path, width: int, scheme: str) -> None:
    """No error, no request, no sideways scrolling; verdict, table and words choose, and say how many are left."""
    page = write_verdicts(verdicts(tmp_path), tmp_path / "page.html", "vlcli reproduce mine")
    tab = Watched(browser, width, color_scheme=scheme)
    tab.page.goto(page.as_uri())
    assert tab.violations() == []
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= width
    assert len(tab.page.evaluate(SHOWN)) == 6
    tab.page.select_option("[data-claim-filter=verdict]", "opposite")
    assert tab.page.evaluate(SHOWN) == ["mine-down"]
    assert tab.page.inner_text("[data-claim-count]") == "1 of 6 claims shown"
    tab.page.select_option("[data-claim-filter=table]", "Table 1")
    assert tab.page.evaluate(SHOWN) == []
    assert tab.page.is_visible("[data-claim-none]")
    assert not tab.page.is_visible("#paper-mine")
    tab.page.select_option("[data-claim-filter=verdict]", "")
    tab.page.fill("[data-claim-filter=text]", "LARGE")
    assert tab.page.evaluate(SHOWN) == ["mine-large"]
    tab.page.fill("[data-claim-filter=text]", "")
    tab.page.click("#mine-up summary")
    assert "nine cells" not in tab.page.inner_text("#mine-up")
    assert "published high against published base" in tab.page.inner_text("#mine-up dl")
    assert tab.messages == []
    assert tab.requests == []
