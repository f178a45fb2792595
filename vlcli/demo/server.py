"""Serves the page by the standard library's HTTP server, on this machine alone unless told otherwise.

Every request is checked first: the Host header (a page of another site whose name leads to this machine is refused),
the Origin header, the size of the body, the pixels of a picture. The page may load nothing from elsewhere
(Content-Security-Policy), and other sites may read nothing here (no CORS headers).
"""

import contextlib
import ipaddress
import json
import re
import socket
import sys
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any, ClassVar

from vlcli.demo.asking import Demo, described
from vlcli.demo.turns import Busy
from vlcli.errors import UsageError, VlcliError
from vlcli.version import __version__

_CONNECTIONS = 128  # requests in progress at a time; further ones are answered by 503
# Seconds without a byte after which a connection is closed
QUIET = 30.0
# Bytes a second at which a body must come, beside :data:`QUIET` for all of it: who drips holds a place of others
SLOWEST = 100_000
JSON_BYTES = 256 * 1024
# Bytes of a body too large that are read and thrown away, so that the sender gets to read the answer
DISCARDED = 64 * 2**20
FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/demo.js": ("demo.js", "text/javascript; charset=utf-8"),
    "/demo.css": ("demo.css", "text/css; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Connection": "close",
}
_THUMBNAIL = re.compile(r"/thumbnails/(samples|folder)/(\d{1,6})/(\d)")
_TAKE = re.compile(r"/api/(samples|folder)/(\d{1,6})")
_PICTURE = re.compile(r"/pictures/([\w-]{1,40})")


class Refused(UsageError):  # noqa: N818 - an answer
    """A request that is answered by a status and a message alone."""

    def __init__(self, status: HTTPStatus, what: str, **more: str) -> None:
        super().__init__(what, **more)
        self.status = status


class Server(ThreadingHTTPServer):
    """Serves one demo, which may be set later, before :meth:`serve_forever`.

    Args:
        host: name or address to listen on.
        port: 0: any that is free.

    Raises:
        UsageError: the port is in use, or the host is not of this machine.
    """

    demo: Demo
    daemon_threads, block_on_close = True, False
    request_queue_size = 128

    def __init__(self, demo: Demo | None, host: str, port: int, log: Callable[[str], None] = lambda _: None) -> None:
        self.host, self.log = host, log
        if demo is not None:
            self.demo = demo
        self.places = threading.BoundedSemaphore(_CONNECTIONS)
        with contextlib.suppress(OSError, UnicodeError):
            self.address_family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        try:
            super().__init__((host, port), Handler)
        except (OSError, OverflowError, UnicodeError) as error:
            raise _unusable(host, port, error) from None

    @property
    def url(self) -> str:
        """Address of the page for a browser on this machine."""
        host = "127.0.0.1" if self.host in ("", "0.0.0.0", "::") else self.host  # noqa: S104 - compared, not bound
        return f"http://{f'[{host}]' if ':' in host else host}:{self.server_port}/"

    def knows(self, name: str) -> bool:
        """Return whether a Host header names this server.

        An address does: only names can be made to lead here by a stranger's name server.
        """
        host, _, port = name.rpartition(":") if re.search(r":[0-9]+$", name) else (name, "", "80")
        if int(port) != self.server_port:
            return False
        host = host.strip("[]").lower()
        with contextlib.suppress(ValueError):
            return ipaddress.ip_address(host).is_loopback or not self.is_local
        return host in {"localhost", self.host.lower()} or (not self.is_local and host == socket.gethostname().lower())

    @property
    def is_local(self) -> bool:
        with contextlib.suppress(ValueError):
            return ipaddress.ip_address(self.host).is_loopback
        return self.host == "localhost"

    def handle_error(self, request: Any, client_address: Any) -> None:
        fault = sys.exception()
        if not isinstance(fault, (ConnectionError, TimeoutError)):
            self.log(f"{client_address}: {fault!r}")


def _unusable(host: str, port: int, error: Exception) -> UsageError:
    reason, where = getattr(error, "strerror", None) or str(error), f"{host}:{port}"
    with contextlib.suppress(OSError), socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        if isinstance(error, OSError) and "in use" in reason.lower():
            hint = f"choose another port, such as one that is free now: --port {other.getsockname()[1]}"
            return UsageError(f"Port {port} is in use by another program.", where=where, hint=hint)
    what, got = "The page cannot be served there.", reason
    expected = "an address of this machine, and a port from 1 to 65535 (below 1024 for administrators)"
    return UsageError(what, where=where, got=got, expected=expected, hint="leave out --host and --port")


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: Server
    server_version, sys_version = f"vlcli/{__version__}", ""
    timeout = QUIET
    allowed: ClassVar[tuple[str, ...]] = ("GET", "HEAD", "POST")

    def do_GET(self) -> None:
        self._guarded(self._get)

    do_HEAD = do_GET  # noqa: N815 - the name that the standard library calls

    def do_POST(self) -> None:
        self._guarded(self._post)

    def log_message(self, format: str, *args: Any) -> None:
        self.server.log(f"{self.client_address[0]} {format % args}")

    def _guarded(self, answer: Callable[[], None]) -> None:
        """Check and answer; whatever goes wrong becomes one message."""
        if not self.server.places.acquire(blocking=False):
            self._error(HTTPStatus.SERVICE_UNAVAILABLE, Busy(_CONNECTIONS, 5))
            return
        try:
            self._check_origin()
            answer()
        except Refused as refused:
            self._error(refused.status, refused)
        except Busy as busy:
            self._error(HTTPStatus.SERVICE_UNAVAILABLE, busy)
        except VlcliError as error:
            self._error(HTTPStatus.BAD_REQUEST, error)
        except (ConnectionError, TimeoutError):
            self.close_connection = True
        except Exception as error:  # the page goes on for all others
            self.log_message("%s", repr(error))
            got, hint = type(error).__name__, "see the terminal: -v"
            known = VlcliError("Something unforeseen went wrong.", got=got, hint=hint)
            self._error(HTTPStatus.INTERNAL_SERVER_ERROR, known)
        finally:
            self.server.places.release()

    def _error(self, status: HTTPStatus, error: VlcliError) -> None:
        headers = {"Retry-After": str(max(1, round(error.seconds)))} if isinstance(error, Busy) else {}
        self._json({"error": error.as_dict()}, status, **headers)

    def _check_origin(self) -> None:
        host, origin = self.headers.get("Host", ""), self.headers.get("Origin")
        if not self.server.knows(host):
            what = "This name is not the page's."
            raise Refused(HTTPStatus.MISDIRECTED_REQUEST, what, got=host[:80], hint=f"open {self.server.url}")
        foreign = origin is not None and origin != f"http://{host}"
        elsewhere = self.headers.get("Sec-Fetch-Site") == "cross-site" and self.path not in FILES  # links may lead here
        if foreign or elsewhere:
            raise Refused(HTTPStatus.FORBIDDEN, "Another site sent this request.", got=(origin or "")[:80])

    def _get(self) -> None:
        demo, path = self.server.demo, self.path.partition("?")[0]
        if path in FILES:
            name, kind = FILES[path]
            self._send(resources.files("vlcli.demo").joinpath("page", name).read_bytes(), kind)
        elif path == "/api/page":
            self._json(demo.page())
        elif match := _THUMBNAIL.fullmatch(path):
            self._send(demo.thumbnail(match[1], int(match[2]), int(match[3])), "image/jpeg")
        elif match := _PICTURE.fullmatch(path):
            self._send(demo.uploads.get([match[1]])[0].preview, "image/jpeg")
        else:
            raise Refused(HTTPStatus.NOT_FOUND, "There is no such page.", got=path[:80], hint=f"open {self.server.url}")

    def _post(self) -> None:
        demo = self.server.demo
        if self.path == "/api/pictures":
            self._json(described(demo.uploads.add(self._body(demo.limits.upload, "picture"))))
        elif match := _TAKE.fullmatch(self.path):
            self._body(JSON_BYTES, "request")
            self._json(demo.take(match[1], int(match[2])))
        elif self.path in ("/api/ask", "/api/search"):
            task, text, pictures = _fields(self._body(JSON_BYTES, "text"))
            self._json(demo.ask(task, pictures, text) if self.path == "/api/ask" else demo.search(text, pictures))
        else:
            self._body(JSON_BYTES, "request")
            raise Refused(HTTPStatus.NOT_FOUND, "There is no such page.", got=self.path[:80])

    def _body(self, most: int, what: str) -> bytes:
        text = self.headers.get("Content-Length", "")
        if not (text.isascii() and text.isdigit()) or len(text) > 15:
            raise Refused(HTTPStatus.LENGTH_REQUIRED, "The request does not say how long it is.")
        length = int(text)
        if length > most:
            left = min(length, DISCARDED)
            while left > 0 and (discarded := self.rfile.read(min(left, 2**20))):
                left -= len(discarded)
            status, expected = HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {most:,} bytes"
            hint = "make the picture smaller" if what == "picture" else "shorten it"
            raise Refused(status, f"The {what} is too large.", got=f"{length:,} bytes", expected=expected, hint=hint)
        until, data = time.monotonic() + QUIET + length / SLOWEST, bytearray()
        while len(data) < length:
            part = self.rfile.read1(min(length - len(data), 2**20))
            if not part or time.monotonic() > until:
                raise ConnectionError("the sender has gone, or sends too slowly")
            data += part
        return bytes(data)

    def _json(self, value: Any, status: HTTPStatus = HTTPStatus.OK, **headers: str) -> None:
        self._send(json.dumps(value).encode(), "application/json", status, **headers)

    def _send(self, content: bytes, kind: str, status: HTTPStatus = HTTPStatus.OK, **headers: str) -> None:
        self.close_connection = True
        length = str(len(content))
        with contextlib.suppress(ConnectionError, TimeoutError):
            self.send_response(status)
            for name, value in {**HEADERS, **headers, "Content-Type": kind, "Content-Length": length}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)


def _fields(body: bytes) -> tuple[Any, str, list[str]]:
    try:
        fields = json.loads(body)
        task, text, pictures = fields.get("task"), fields.get("text") or "", fields.get("pictures") or []
    except (ValueError, AttributeError, RecursionError):
        raise Refused(HTTPStatus.BAD_REQUEST, "The request is no JSON object.") from None
    named = isinstance(pictures, list) and len(pictures) <= 10 and all(isinstance(one, str) for one in pictures)
    if not named or not isinstance(text, str) or not isinstance(task, str | None):
        expected = "task and text are strings, pictures a list of their keys"
        raise Refused(HTTPStatus.BAD_REQUEST, "The request has fields of a wrong kind.", expected=expected)
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise Refused(HTTPStatus.BAD_REQUEST, "The text holds half of a surrogate pair, which is no character.")
    return task, text, pictures
