"""A server in this process, over small models with random weights and real extraction."""

from __future__ import annotations

import json
import struct
import threading
import urllib.error
import urllib.request
import zlib
from contextlib import contextmanager

import pytest

import vlcli
from vlcli.demo.asking import Demo
from vlcli.demo.samples import of_folder
from vlcli.demo.server import Server

from ..prediction.conftest import studio

__all__ = ["studio"]


class Answer:
    """What the server answered.

    Attributes:
        status: HTTP status.
        headers: of the answer.
        body: its content.
    """

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        return self.json["error"]


class Client:
    """Sends requests to a server."""

    def __init__(self, server):
        self.server = server

    def __call__(self, path, data=None, **headers):
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        body = json.dumps(data).encode() if isinstance(data, dict) else data
        request = urllib.request.Request(self.server.url + path.lstrip("/"), body, given)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return Answer(answer.status, answer.headers, answer.read())
        except urllib.error.HTTPError as error:
            return Answer(error.code, error.headers, error.read())

    def upload(self, file):
        """The key of a picture."""
        return self("/api/pictures", file.read_bytes()).json["key"]


@contextmanager
def serving(demo):
    """A client of a server for this demo."""
    server = Server(demo, "127.0.0.1", 0)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield Client(server)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(scope="package")
def vqa(studio):
    """A page that answers questions, with the pictures of the studio as samples."""
    demo = Demo(vlcli.load(studio.run / "vqa"), samples=of_folder(studio.photos))
    demo.warm_up()
    with serving(demo) as client:
        yield client


@pytest.fixture(scope="package")
def pairs(studio):
    """A page that judges pairs of pictures."""
    with serving(Demo(vlcli.load(studio.run / "nlvr2"))) as client:
        yield client


@pytest.fixture
def large(tmp_path):
    """A small file whose header says 30,000 x 30,000 pixels."""

    def chunk(name, content):
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 30_000, 30_000, 8, 2, 0, 0, 0))
    file = tmp_path / "large.png"
    file.write_bytes(b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b""))
    return file
