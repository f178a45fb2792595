"""The page in a real browser, and the command that serves it."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import socket
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from browsers import Watched
from PIL import Image
from small_run import SENTENCES, make_bundle
from tiny_contrast import make_model
from typer.testing import CliRunner

import vlcli
from vlcli.builders.extractions import extractions_of
from vlcli.cli import app
from vlcli.data.vocabulary import Tokenizer
from vlcli.demo.asking import Demo
from vlcli.demo.samples import of_folder
from vlcli.engine.bundle import save_bundle
from vlcli.engine.training_module import build_training_module
from vlcli.nn.model import DataSpec

from .conftest import serving


def opened(browser, client, width=1200, height=850):
    """A tab with the page, ready."""
    tab = Watched(browser, width, height)
    tab.page.set_default_timeout(30_000)
    tab.page.goto(client.server.url)
    tab.page.wait_for_selector("body[data-ready]")
    return tab


def settled(tab):
    """Wait until the page has got its answer; the answer's words."""
    tab.page.wait_for_selector("body:not([aria-busy])")
    return tab.page.inner_text("#answer")


def until(tab, condition):
    """Wait until an expression holds; the page's own rules forbid playwright's way, which evaluates strings in it."""
    end = time.monotonic() + 30
    while not tab.page.evaluate(condition):
        assert time.monotonic() < end, condition
        time.sleep(0.05)


LOADED = "[...document.images].every(image => image.complete && image.naturalWidth > 0)"


def clean(tab, client, expected=()):
    """No request left the page, and nothing but ``expected`` was told on the console."""
    assert all(url.startswith(client.server.url) for url in tab.requests), tab.requests
    assert [line for line in tab.messages if not any(word in line for word in expected)] == []


def test_a_picture_a_question_an_answer_within_the_time_that_the_page_prints(browser, vqa, studio, tmp_path):
    tab = opened(browser, vqa)
    page = tab.page
    page.set_input_files("#file", studio.photo(1))
    page.wait_for_selector(".frame img")
    within = float(page.get_attribute("#expect", "data-seconds"))
    page.fill("#text", "two red circles")
    begun = time.monotonic()
    page.keyboard.press("Enter")
    page.wait_for_selector("#answer")
    assert time.monotonic() - begun <= within
    assert tab.violations() == []
    expected = vlcli.load(studio.run / "vqa").predict("two red circles", studio.photo(1))
    assert settled(tab) == expected.words()
    labels = page.locator("#bars dt").all_inner_texts()
    assert labels == [choice.label for choice in expected.choices if choice.probability >= 0.0005][: len(labels)]
    assert "answered in" in page.inner_text("#time")
    assert page.locator(".frame svg rect").count() == 6
    page.check("#show-regions")
    assert page.locator(".frame svg rect").count() == 12
    shades = "[...document.querySelectorAll('.frame svg rect')].map(one => one.getAttribute('fill-opacity')).join()"
    before = page.evaluate(shades)
    page.select_option("#view", label="layer 1, head 2")
    page.locator("#words button").nth(2).click()
    assert page.locator("#words button[aria-pressed=true]").count() == 1
    assert page.evaluate(shades) != before
    broken = tmp_path / "broken.png"
    broken.write_bytes(Path(studio.photo(1)).read_bytes()[:200])
    page.set_input_files("#file", str(broken))
    page.wait_for_selector("#message:not([hidden])")
    told = page.inner_text("#message")
    assert "The picture cannot be used." in told
    assert "broken.png" in told
    page.keyboard.press("Escape")
    page.click("#ask")  # the former picture is still there
    page.wait_for_selector("#message", state="hidden")
    assert settled(tab) == expected.words()
    clean(tab, vqa, ["400 (Bad Request)"])


@pytest.mark.slow("pages")
def test_bad_input_is_told_on_the_page(browser, vqa, large, tmp_path):
    tab = opened(browser, vqa)
    page = tab.page
    page.click("#ask")
    assert "Choose a picture first." in page.inner_text("#message")
    page.set_input_files("#file", str(large))
    page.wait_for_selector("#message:has-text('cannot be used')")
    assert "too large" in page.inner_text("#message")
    huge = tmp_path / "huge.jpg"
    huge.write_bytes(b"x" * (21 * 2**20))
    page.set_input_files("#file", str(huge))
    page.wait_for_selector("#message:has-text('at most 20,971,520 bytes')")
    page.click("#samples li:nth-child(1) button")
    page.wait_for_selector(".frame img")
    page.wait_for_selector("#message", state="hidden")
    page.evaluate("document.getElementById('text').value = 'a '.repeat(2 ** 19)")
    page.click("#ask")
    page.wait_for_selector("#message:has-text('The text is too long.')")
    page.fill("#text", "<img src=x onerror=alert(1)>")
    page.click("#ask")
    page.wait_for_selector("#answer")
    assert page.inner_text("#result .asked") == "<img src=x onerror=alert(1)>"
    assert page.locator("#result img").count() == 0
    clean(tab, vqa, ["400 (Bad Request)"])


@pytest.mark.slow("pages")
@pytest.mark.parametrize(("width", "height"), [(1200, 850), (390, 844)])
def test_two_files_chosen_at_once_are_the_two_pictures(browser, studio, pairs, width, height):
    tab = opened(browser, pairs, width, height)
    page = tab.page
    assert "both at once" in page.inner_text("#slots")
    page.set_input_files("#file", [studio.photo(0), studio.photo(1)])
    until(tab, "document.querySelectorAll('.frame img').length == 2")
    page.fill("#text", "two red circles")
    page.press("#text", "Enter")
    page.wait_for_selector("#answer")
    model = vlcli.load(studio.run / "nlvr2")
    expected = model.predict("two red circles", [studio.photo(0), studio.photo(1)])
    assert settled(tab) == expected.words()
    sources = "[...document.querySelectorAll('.frame img')].map(one => one.getAttribute('src'))"
    before = page.evaluate(sources)
    page.click("text=Swap")
    assert page.evaluate(sources) == before[::-1]
    page.click("#ask")
    page.wait_for_selector("#answer")
    assert settled(tab) == model.predict("two red circles", [studio.photo(1), studio.photo(0)]).words()
    page.set_input_files("#file", [studio.photo(number) for number in range(3)])
    page.wait_for_selector("#message:has-text('This task takes 2 pictures.')")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    until(tab, LOADED)
    clean(tab, pairs)


@pytest.mark.slow("pages")
@pytest.mark.parametrize(("width", "height"), [(1200, 850), (390, 844)])
def test_two_pictures_samples_and_keyboard_at_desktop_and_phone_width(browser, studio, width, height):
    demo = Demo(vlcli.load(studio.run / "nlvr2"), samples=of_folder(studio.photos))
    with serving(demo) as client:
        tab = opened(browser, client, width, height)
        page = tab.page
        page.set_input_files("#file", [studio.photo(0)])
        page.wait_for_selector(".frame img")
        page.get_by_label("choose a file for picture 2").click()
        page.set_input_files("#file", [studio.photo(1)])
        until(tab, "document.querySelectorAll('.frame img').length == 2")
        page.fill("#text", "two red circles")
        page.press("#text", "Enter")
        page.wait_for_selector("#answer")
        assert settled(tab) in ("True", "False")
        assert page.locator(".frame svg").nth(1).locator("rect").count() == 6
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        wide = page.locator("#left").bounding_box(), page.locator("#right").bounding_box()
        assert (wide[1]["y"] > wide[0]["y"]) == (width < 760)
        page.locator("#samples li").last.scroll_into_view_if_needed()
        until(tab, LOADED)
        page.click("h1")
        reached = set(tab.focused(30))
        assert {"textarea.text", "button.ask", "select.view"} <= reached
        clean(tab, client)


def captioner(folder, studio):
    """A small DiMBERT that writes captions, with random weights and the extractor of the studio's store."""
    spec = {"name": "dimbert", "hidden": 16, "heads": 2, "layers": 1, "concepts": 0}
    tokenizer = Tokenizer.train(SENTENCES, 80)
    sizes = DataSpec(text_length=12, region_dim=128, regions=6, **tokenizer.data_spec_fields())
    module = build_training_module(spec, ["s2slm"], sizes, seed=3)
    made = [one.as_dict() for one in extractions_of([studio.run / "regions"])]
    options = {"tokenizer": tokenizer, "data_spec": sizes, "model_spec": spec, "objectives_specs": ["s2slm"]}
    task = {"name": "captioning", "max_length": 6}
    save_bundle(folder / "model", module, **options, task_spec=task, extraction=made, text_options={"length": 12})
    return folder


@pytest.mark.slow("pages")
@pytest.mark.parametrize("task", ["captioning", "referring", "grounding"])
def test_captions_and_boxes_of_expressions_on_the_page(browser, studio, tmp_path, task):
    if task == "captioning":
        captioner(tmp_path, studio)
    else:
        made = [one.as_dict() for one in extractions_of([studio.run / "regions"])]
        objective = {"referring": "region-selection", "grounding": "matching"}[task]
        make_bundle(tmp_path, {"name": task}, [{"name": objective}], made, region_dim=128, regions=6)
    with serving(Demo(vlcli.load(tmp_path))) as client:
        tab = opened(browser, client)
        page = tab.page
        page.set_input_files("#file", [studio.photo(0)])
        page.wait_for_selector(".frame img")
        if task == "captioning":  # the picture alone is the question
            assert not page.locator("#text").is_visible()
            page.click("#ask")
        else:
            page.fill("#text", "the red circle")
            page.press("#text", "Enter")
        page.wait_for_selector("#answer")
        said = settled(tab)
        assert said.startswith("box ") is (task != "captioning")
        assert ("the red circle" in page.locator(".frame svg").first.text_content()) is (task != "captioning")
        page.screenshot(path=str(tmp_path / f"{task}.png"), full_page=True)
        until(tab, LOADED)
        clean(tab, client)


@pytest.mark.slow("pages")
def test_a_folder_is_searched_on_the_page(browser, studio, tmp_path):
    model = vlcli.load(make_model(tmp_path / "model"))
    with serving(Demo(model, index=model.index(studio.photos, store=tmp_path / "vectors.h5"))) as client:
        tab = opened(browser, client)
        page = tab.page
        page.fill("#text", "a red wall")
        page.click("#search")
        page.wait_for_selector("#found li")
        assert page.locator("#found li").count() == 6
        until(tab, LOADED)
        page.locator("#found li button").first.click()
        page.wait_for_selector(".frame img")
        clean(tab, client)


def test_the_command_tells_what_is_wrong_before_it_serves(studio, monkeypatch):
    monkeypatch.chdir(studio.photos.parent)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        taken = CliRunner().invoke(app, ["demo", "small/vqa", "--port", str(port)])
    assert taken.exit_code == 2
    assert f"Port {port} is in use by another program." in taken.stderr
    checked = CliRunner().invoke(app, ["demo", "small/vqa", "--port", "0", "--check", "--samples", str(studio.photos)])
    assert checked.exit_code == 0, checked.stderr
    assert checked.stdout.startswith("small/vqa: vqa; an answer takes at most about")
    missing = CliRunner().invoke(app, ["demo", "small/other", "--port", "0"])
    assert missing.exit_code == 5
    nothing = CliRunner().invoke(app, ["demo", "small/vqa", "--port", "0", "--samples", "nowhere"])
    assert "There is no such folder of samples." in nothing.stderr


def told_until(terminal, words=None):
    """What the command writes to its terminal, until it has written ``words`` or has ended."""
    told = b""
    with contextlib.suppress(OSError):  # the other side of the terminal has closed
        while (words is None or words not in told) and (more := os.read(terminal, 4096)):
            told += more
    return told.decode()


@pytest.mark.slow("pages")
@pytest.mark.parametrize("busy", [False, True])
def test_ctrl_c_in_a_terminal_ends_the_command_and_the_port_is_free_afterwards(studio, busy):
    """While nothing is asked, and while the model has eight requests to answer."""
    words = [sys.executable, "-m", "vlcli", "demo", "small/vqa", "--port", "0"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    child, terminal = pty.fork()  # Ctrl-C is a byte that the terminal turns into a signal
    if child == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a job of a script's background ignores it
        os.chdir(studio.photos.parent)
        os.execve(sys.executable, words, environment)
    url = re.search(r"http://[\d.:]+/", told_until(terminal, b"Ctrl-C"))[0]
    port = int(url.rstrip("/").rpartition(":")[2])
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(9)]
    silent[0].send(b"GET / HTTP/1.1\r\n")  # a client that never says a word more
    if busy:
        picture = urllib.request.urlopen(url + "api/pictures", Path(studio.photo(1)).read_bytes()).read()
        question = json.dumps({"task": "vqa", "text": "two red circles " * 5, "pictures": [json.loads(picture)["key"]]})
        head = f"POST /api/ask HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: {len(question)}\r\n\r\n"
        for one in silent[1:]:
            one.sendall((head + question).encode())
    os.write(terminal, b"\x03")
    begun = time.monotonic()
    told = told_until(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 130
    assert time.monotonic() - begun < 10
    assert "the page has ended" in told
    assert "Traceback" not in told
    os.close(terminal)
    for one in silent:
        one.close()
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))


def test_samples_of_a_folder_are_its_first_pictures(studio):
    samples = of_folder(studio.photos, 3)
    assert [sample.pictures[0].name for sample in samples] == ["photo0.png", "photo1.png", "photo2.png"]
    assert Image.open(samples[0].pictures[0]).size
