"""What the server answers, what it refuses, and how requests wait."""

from __future__ import annotations

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from small_run import make_bundle
from tiny_contrast import make_model

import vlcli
from vlcli.demo.asking import Demo, Limits
from vlcli.demo.server import FILES, Server
from vlcli.demo.turns import Busy, Turns
from vlcli.errors import UsageError
from vlcli.prediction.looking import MOST, views_of

from .conftest import serving


def asked(client, keys, text="two red circles", task="vqa"):
    return client("/api/ask", {"task": task, "pictures": keys, "text": text})


def test_an_answer_has_probabilities_regions_and_attention(vqa, studio):
    key = vqa.upload(Path(studio.photo(1)))
    found = asked(vqa, [key]).json
    expected = vlcli.load(studio.run / "vqa").predict("two red circles", studio.photo(1))
    assert [choice["label"] for choice in found["choices"]] == [choice.label for choice in expected.choices]
    chances = [choice.probability for choice in expected.choices]
    assert [choice["probability"] for choice in found["choices"]] == pytest.approx(chances, abs=1e-4)
    assert found["words"] == expected.words()
    picture = found["pictures"][0]
    assert len(picture["regions"]) == len(expected.regions[0]) == 6
    assert all(0 <= value <= 1 for box in picture["regions"] for value in box)
    seen = found["attention"]
    assert "".join(seen["words"]).replace("##", "") == "tworedcircles"
    views = seen["views"]
    assert views[0] == "all layers, all heads"
    weights = seen["pictures"][0]["weights"]
    assert len(weights) == len(views)
    assert [len(row) for row in weights[0]] == [6] * len(seen["words"])
    assert all(sum(row) == pytest.approx(1, abs=1e-2) for row in weights[0])
    heads = [weights[views.index(f"layer 1, head {head}")][0][0] for head in (1, 2)]
    assert weights[0][0][0] == pytest.approx(sum(heads) / 2, abs=1e-3)
    assert found["seconds"] > 0
    assert found["within"] >= 1


def test_regions_of_an_upload_are_extracted_once_and_two_pictures_stay_apart(pairs, studio):
    model = pairs.server.demo.model
    read, names = model.reader._reader.read, []
    model.reader._reader.read = lambda pictures, given=(): names.append(list(given)) or read(pictures, given)
    keys = [pairs.upload(Path(studio.photo(number))) for number in (0, 1)]
    first = asked(pairs, keys, task="nlvr2").json
    again = asked(pairs, keys[::-1], task="nlvr2").json
    assert sorted(name for some in names for name in some) == sorted(keys)
    regions = [picture["regions"] for picture in first["pictures"]]
    assert [picture["regions"] for picture in again["pictures"]] == regions[::-1]
    fresh = vlcli.load(studio.run / "nlvr2")
    for found, order in ((first, (0, 1)), (again, (1, 0))):
        expected = fresh.predict("two red circles", [studio.photo(number) for number in order])
        chances = [choice.probability for choice in expected.choices]
        assert [choice["probability"] for choice in found["choices"]] == pytest.approx(chances, abs=1e-4)
    same = asked(pairs, [keys[0], keys[0]], task="nlvr2")
    assert same.status == 200
    assert len(first["attention"]["pictures"]) == 2


def test_the_page_its_samples_and_thumbnails(vqa, studio):
    for path in FILES:
        answer = vqa(path)
        assert answer.status == 200
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert "Access-Control-Allow-Origin" not in answer.headers
    page = vqa("/api/page").json
    assert [use["name"] for use in page["uses"]] == ["vqa"]
    assert len(page["samples"]) == 6
    assert page["model"] == "small/vqa"
    assert vqa("/thumbnails/samples/0/0").body[:2] == b"\xff\xd8"
    taken = vqa("/api/samples/2", {}).json
    assert (taken["pictures"][0]["width"], taken["pictures"][0]["height"]) == Image.open(studio.photo(2)).size
    shown = vqa(f"/pictures/{taken['pictures'][0]['key']}")
    assert shown.body[:2] == b"\xff\xd8"
    assert asked(vqa, [taken["pictures"][0]["key"]]).status == 200


def test_what_is_no_request_of_the_page_is_refused(vqa):
    paths = ("/demo.py", "/../setup.py", "/page/demo.js", "/pictures/../x", "/thumbnails/samples/0/0/..", "/api/ask")
    assert [vqa(path).status for path in paths] == [404, 404, 404, 404, 404, 404]
    for path, message in (("/thumbnails/samples/9/0", "no such sample"), ("/thumbnails/folder/0/0", "no such picture")):
        assert message in vqa(path).error["what"]
    for host in ("evil.example", "evil.example:80", "127.0.0.1", f"evil.example:{vqa.server.server_port}", ""):
        refused = vqa("/api/page", Host=host)
        assert (refused.status, refused.error["what"]) == (421, "This name is not the page's."), host
    for host in ("localhost", "127.0.0.1", "[::1]"):
        assert vqa("/api/page", Host=f"{host}:{vqa.server.server_port}").status == 200
    for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec_Fetch_Site": "cross-site"}):
        refused = vqa("/api/ask", {"text": "x"}, **headers)
        assert (refused.status, refused.error["what"]) == (403, "Another site sent this request.")
    bodies = (
        b"{",
        b"[]",
        b'"a"',
        b'{"text": 3}',
        b'{"pictures": "a"}',
        b'{"pictures": [1]}',
        b"[" * 20000,
        b"\xff",
        b'{"text": "\\ud800"}',
    )
    for body in bodies:
        assert vqa("/api/ask", body).status == 400, body
    assert "takes another number of images" in asked(vqa, []).error["what"]
    assert "no longer kept" in asked(vqa, ["unknown"]).error["what"]
    assert "cannot do" in asked(vqa, [], task="flying").error["what"]
    assert "no folder" in vqa("/api/search", {"text": "a dog"}).error["what"]


def test_bad_pictures_and_long_texts_are_one_message_each(vqa, studio, large, tmp_path):
    whole = Path(studio.photo(0)).read_bytes()
    vector = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"
    cases = {
        b"": "empty",
        b"no picture at all": "not an image",
        whole[: len(whole) // 2]: "cannot be decoded",
        vector: "not an image",
        large.read_bytes(): "too large: 900,000,000 pixels",
    }
    begun = time.monotonic()
    for data, reason in cases.items():
        refused = vqa("/api/pictures", data)
        assert refused.status == 400, reason
        assert refused.error["what"] == "The picture cannot be used."
        assert reason in refused.error["got"]
        assert refused.error["next"]
    assert time.monotonic() - begun < 5
    too_much = vqa("/api/pictures", b"x" * (20 * 2**20 + 1))
    assert (too_much.status, too_much.error["expected"]) == (413, "at most 20,971,520 bytes")
    megabyte = asked(vqa, [vqa.upload(Path(studio.photo(0)))], text="a" * 2**20)
    assert (megabyte.status, megabyte.error["what"]) == (413, "The text is too large.")
    long = asked(vqa, [vqa.upload(Path(studio.photo(0)))], text="a " * 10_000)
    assert (long.status, long.error["what"]) == (400, "The text is too long.")
    assert asked(vqa, [vqa.upload(Path(studio.photo(0)))]).status == 200  # the page goes on


def test_twenty_clients_at_once_are_answered_one_after_another(vqa, studio):
    demo, inside, most = vqa.server.demo, [], []
    predict = demo.model.predict

    def watched(*args, **options):
        inside.append(1)
        most.append(len(inside))
        try:
            return predict(*args, **options)
        finally:
            inside.pop()

    demo.model.predict = watched
    files = [Path(studio.photo(number % 6)) for number in range(20)]
    try:
        with ThreadPoolExecutor(20) as pool:
            answers = list(pool.map(lambda file: asked(vqa, [vqa.upload(file)]), files))
    finally:
        demo.model.predict = predict
    assert [answer.status for answer in answers] == [200] * 20
    assert max(most) == 1
    by_picture = [answer.json["choices"] for answer in answers]
    assert all(by_picture[number] == by_picture[number % 6] for number in range(20))


def test_a_full_queue_is_told_at_once(studio):
    demo = Demo(vlcli.load(studio.run / "vqa"), Limits(waiting=2))
    with serving(demo) as client:
        key = client.upload(Path(studio.photo(0)))
        with ThreadPoolExecutor(6) as pool, demo.turns.turn():
            running = [pool.submit(asked, client, [key]) for _ in range(6)]
            until = time.monotonic() + 20
            while sum(one.done() for one in running) < 4 and time.monotonic() < until:
                time.sleep(0.02)
            refused = [one.result() for one in running if one.done()]
            page = client("/api/page")  # what needs no model does not wait
        assert page.status == 200
        assert [answer.status for answer in refused] == [503] * 4
        assert refused[0].error["what"] == "The model is busy."
        assert int(refused[0].headers["Retry-After"]) >= 1
        assert sorted(one.result().status for one in running) == [200] * 2 + [503] * 4


def test_turns_are_given_in_the_order_of_arrival():
    turns, order, threads = Turns(9), [], []

    def come(number):
        with turns.turn():
            order.append(number)

    with turns.turn():
        for number in range(5):
            threads.append(threading.Thread(target=come, args=(number,)))
            threads[-1].start()
            while turns.waiting < number + 2:
                time.sleep(0.002)
    for thread in threads:
        thread.join()
    assert order == [0, 1, 2, 3, 4]
    few = Turns(1)
    with few.turn():
        thread = threading.Thread(target=lambda: few.turn().__enter__())
        thread.start()
        while few.waiting < 2:
            time.sleep(0.002)
        with pytest.raises(Busy), few.turn():
            pass
    thread.join()


def test_a_folder_is_searched_by_a_sentence_and_by_a_picture(studio, tmp_path):
    model = vlcli.load(make_model(tmp_path / "model"))
    index = model.index(studio.photos, store=tmp_path / "vectors.h5")
    with serving(Demo(model, index=index)) as client:
        page = client("/api/page").json
        assert page["folder"] == {"name": "photos", "pictures": 6}
        found = client("/api/search", {"text": "a red wall"}).json["found"]
        expected = index.nearest(model.embed_text("a red wall")[0])
        assert [row["name"] for row in found] == [path.name for path, _ in expected]
        key = client.upload(Path(studio.photo(3)))
        like = client("/api/search", {"pictures": [key]}).json["found"]
        assert like[0]["name"] == "photo3.png"
        taken = client(f"/api/folder/{like[0]['number']}", {}).json
        assert taken["pictures"][0]["width"] == Image.open(studio.photo(3)).width
        assert client(f"/thumbnails/folder/{like[0]['number']}/0").status == 200
        assert "what to look for" in client("/api/search", {"text": " "}).error["what"]


def test_a_model_that_has_nothing_to_show_is_refused(studio):
    make_bundle(studio.run / "words", None, [{"name": "mlm"}])
    with pytest.raises(UsageError, match="nothing to show") as caught:
        Demo(vlcli.load(studio.run / "words"))
    assert "objectives: mlm" in caught.value.got


def test_a_port_in_use_names_a_free_one(vqa):
    with pytest.raises(UsageError, match=f"Port {vqa.server.server_port} is in use") as caught:
        Server(None, "127.0.0.1", vqa.server.server_port)
    free = int(caught.value.hint.rpartition(" ")[2])
    with socket.socket() as other:
        other.bind(("127.0.0.1", free))
    for host in ("nowhere.invalid", "192.0.2.1"):
        with pytest.raises(UsageError, match="cannot be served"):
            Server(None, host, 0)


def test_attention_of_a_large_model_is_cut_to_what_a_page_can_draw():
    layers = {f"cross.{n}": np.full((12, 20, 36), 1 / 36, np.float32) for n in range(24)}
    views = views_of(list(layers.values()))
    assert len(views) == 25
    assert sum(view.size for view in views.values()) <= MOST
    assert list(views) == ["all layers, all heads", *(f"layer {n}, all heads" for n in range(1, 25))]
