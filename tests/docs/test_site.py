"""The documentation site as files in a browser: no network, search, keyboard, contrast by axe, narrow windows."""

from __future__ import annotations

import sys

import pytest
from browsers import Watched

from .pages import PROJECT, run

pytestmark = pytest.mark.slow
PAGES = ["index", "overview", "tutorial", "init", "irpe", "reproduction", "performance", "cli"]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("site") / "site"
    ended = run([sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder], PROJECT)
    assert ended.code == 0, ended.err
    return folder


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_accessible_and_fetches_nothing(browser, site, name, width):
    tab = Watched(browser, width)
    tab.page.goto((site / f"{name}.html").as_uri())
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= width
    assert (
        tab.page.evaluate("[...document.images].filter(image => !(image.complete && image.naturalWidth)).length") == 0
    )
    assert tab.violations() == []
    assert (tab.messages, tab.requests) == ([], [])


def test_the_search_works_from_files(browser, site):
    tab = Watched(browser)
    tab.page.goto((site / "index.html").as_uri())
    tab.page.keyboard.press("/")
    tab.page.keyboard.type("anchor loss")
    tab.page.wait_for_selector(".md-search-result__item a", timeout=60_000)
    links = tab.page.eval_on_selector_all(".md-search-result__item a", "all => all.map(one => one.href)")
    assert any("ace-rpe.html" in link for link in links)
    assert (tab.messages, tab.requests) == ([], [])


def test_the_keyboard_alone_reaches_pages_and_tables(browser, site):
    tab = Watched(browser)
    tab.page.goto((site / "reproduction.html").as_uri())
    reached = tab.focused(60)
    assert reached[0].startswith("a.md-skip")
    assert any("md-nav__link" in name for name in reached)
    tab.page.focus(".md-skip")
    tab.page.keyboard.press("Enter")
    content = [tab.page.evaluate("document.activeElement.closest('article') !== null") for _ in tab.focused(1)]
    assert content == [True]
    assert tab.page.eval_on_selector_all(".md-typeset__scrollwrap", "all => all.every(one => one.tabIndex === 0)")
