"""The report in a real browser, at desktop and phone width: it loads whole, fetches nothing, and answers to use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from browsers import Watched
from shown_run import make_run

from vlcli.pages.report import write_report

PICTURES = """async () => Promise.all([...document.querySelectorAll('svg.store image')].map(image => {
  const copy = new Image();
  copy.src = image.getAttribute('href');
  return copy.decode().then(() => copy.naturalWidth > 0, () => false);
}))"""
SHOWN = """() => [...document.querySelectorAll('.sample')].filter(card => !card.hidden)
  .map(card => [card.dataset.kind, card.dataset.right])"""
STATE = "() => [...document.querySelectorAll('#look .cell')].map(c => c.hole.getAttribute('fill-opacity'))"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a small run with its model."""
    base = tmp_path_factory.mktemp("page")
    return write_report([make_run(base)], base / "page.html")


@pytest.mark.parametrize(
    ("width", "scheme"), [(1280, "light"), pytest.param(390, "dark", marks=pytest.mark.slow("pages"))]
)
def test_page(browser: Any, page: Path, width: int, scheme: str) -> None:
    """No error, no request, all pictures, no sideways scrolling; Tab, filter, charts and attention work."""
    tab = Watched(browser, width, color_scheme=scheme)
    tab.page.goto(page.as_uri())
    loaded = tab.page.evaluate(PICTURES)
    assert len(loaded) == 16
    assert all(loaded)
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.page.title() == "small"
    assert tab.violations() == []
    filter_samples(tab.page)
    read_chart(tab.page)
    look(tab.page)
    reach(tab)
    assert tab.messages == []
    assert tab.requests == []


def filter_samples(page: Any) -> None:
    """Kinds, right and wrong, and words choose samples."""
    assert len(page.evaluate(SHOWN)) == 12
    page.click("[data-more]")
    assert len(page.evaluate(SHOWN)) == 16
    page.select_option("[data-filter=kind]", "one")
    assert {kind for kind, _ in page.evaluate(SHOWN)} == {"one"}
    page.select_option("[data-filter=state]", "wrong")
    assert {right for _, right in page.evaluate(SHOWN)} == {"0"}
    page.fill("[data-filter=text]", "no such word")
    assert page.is_visible("[data-none]")
    page.fill("[data-filter=text]", "")
    assert page.is_hidden(".box.region >> nth=0")
    page.check("[data-filter=regions]")
    assert "regions-on" in page.get_attribute(".samples", "class")


def read_chart(page: Any) -> None:
    """Arrow keys and the pointer read values."""
    page.focus(".chart >> nth=0")
    page.keyboard.press("ArrowRight")
    assert page.text_content(".chart [data-at] >> nth=0") == "step 10"
    page.keyboard.press("ArrowRight")
    assert page.text_content(".chart [data-at] >> nth=0") == "step 20"
    assert page.text_content(".chart [data-value] >> nth=0") == "0.15"
    page.hover(".chart svg >> nth=1")
    assert page.text_content(".chart [data-at] >> nth=1").startswith("step ")


def look(page: Any) -> None:
    """Words, heads, layers and examples change the shading; a click keeps it, also from the keyboard."""
    before = page.evaluate(STATE)
    assert any(float(value) > 0 for value in before)
    page.hover("#look .word >> nth=2")
    hovered = page.evaluate(STATE)
    assert hovered != before
    page.mouse.move(0, 0)
    assert page.evaluate(STATE) == before
    page.focus("#look .word >> nth=2")
    page.keyboard.press("Enter")
    page.evaluate("document.activeElement.blur()")
    assert page.evaluate(STATE) == hovered
    assert page.get_attribute("#look .word >> nth=2", "aria-pressed") == "true"
    page.select_option("[data-look=head]", "1")
    assert page.evaluate(STATE) not in (before, hovered)
    page.select_option("[data-look=map]", label="cross.0.image (from regions)")
    page.focus("#look .cell[tabindex] >> nth=0")
    assert page.get_attribute("#look .cell >> nth=0", "class") == "cell asked"
    page.select_option("[data-look=example]", "1")
    assert page.text_content("[data-look=best] li >> nth=0")


def reach(tab: Watched) -> None:
    """Tab reaches links, filters, words and charts."""
    tab.page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
    tab.page.reload()
    names = " ".join(tab.focused(60))
    for name in ("a.skip", "button.quiet", "select.", "input.", "button.word", "figure.chart"):
        assert name in names
