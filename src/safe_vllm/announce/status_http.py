"""HTTP for the status server: few threads, little patience, and not a word on stderr."""

from __future__ import annotations

import io
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

from safe_vllm.announce.status_pages import TEXT, Page, Pages
from safe_vllm.plan.status_address import Address

MOST = 16
"""So many connections have a thread at the same time; when one more comes, the oldest of them is cut off."""
YIELD_S = 0.1
"""A thread that was cut off is gone much sooner, unless it has no answer yet."""
REQUEST_BYTES = 16 * 1024
REST_BYTES = 1 << 20
"""So much of a request that is too long is taken in after the answer to it."""
PAUSE_S = 0.5
"""Before the next connection, where there are no descriptors left for one."""
CLOSE_S = 1.0


class HttpServer(ThreadingHTTPServer):
    """Answers whoever asks. Those who take their time make room for those who do not."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    allow_reuse_port = False
    request_queue_size = 128

    def __init__(self, address: Address, pages: Pages, patience_s: float) -> None:
        """Bind, and answer from now on. Raises OSError, and RuntimeError where no thread can be had."""
        self.pages, self.patience_s = pages, patience_s
        self._served: dict[Any, None] = {}
        """Sockets that have a thread, the oldest first."""
        self._room = threading.Condition()
        self._is_closed = threading.Event()
        self.address_family = socket.AF_INET6 if address.is_ipv6 else socket.AF_INET
        super().__init__((address.host, address.port), Handler)
        self._thread = threading.Thread(target=self._serve, daemon=True, name="status")
        try:
            self._thread.start()
        except RuntimeError:
            self.server_close()
            raise

    def server_bind(self) -> None:
        """Bind; ``[::]`` takes in IPv4, whatever the system says. The base class would look up our own name."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        TCPServer.server_bind(self)

    def close(self) -> None:
        """Stop listening, and let the port go."""
        self._is_closed.set()
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # wakes the thread, which closes it
        self._thread.join(CLOSE_S)

    def _serve(self) -> None:
        while not self._is_closed.is_set():
            self.handle_request()
        self.server_close()

    def get_request(self) -> tuple[Any, Any]:
        """Accept a connection. Where that is not possible it would be tried again at once, and again."""
        try:
            return super().get_request()
        except OSError:
            self._is_closed.wait(PAUSE_S)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give the connection a thread, if there is one for it."""
        if not self._has_room():
            self.shutdown_request(request)
            return
        with self._room:
            self._served[request] = None
        super().process_request(request, client_address)

    def _has_room(self) -> bool:
        with self._room:
            for oldest in tuple(self._served) if len(self._served) >= MOST else ():
                with suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)
                if self._room.wait_for(lambda: len(self._served) < MOST, YIELD_S):
                    break
            return len(self._served) < MOST

    def shutdown_request(self, request: Any) -> None:
        """Close the connection, and make room."""
        super().shutdown_request(request)
        with self._room:
            self._served.pop(request, None)
            self._room.notify_all()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Pass over a client that went away. A bug of ours is told to who asked: it must not end the launch."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            told = f"this is a bug in safe-vllm; please report it: {type(error).__name__}: {error}\n"
            head = f"HTTP/1.0 500 Internal Server Error\r\nContent-Type: {TEXT}\r\n\r\n"
            with suppress(OSError):
                request.sendall((head + told).encode(errors="replace"))


class Handler(BaseHTTPRequestHandler):
    """One request on one connection."""

    server: HttpServer
    server_version, sys_version = "safe-vllm", ""
    error_content_type, error_message_format = TEXT, "%(message)s\n"

    def setup(self) -> None:
        """Read with a deadline for the whole request: a byte now and then would hold the thread for ever."""
        super().setup()
        self.rfile.close()
        self.rfile = io.BufferedReader(_Patient(self.connection, self.server.patience_s, REQUEST_BYTES))

    def handle_one_request(self) -> None:
        """Answer a request, be it that it is too long."""
        try:
            super().handle_one_request()
        except TooLong:
            self.command, self.requestline, self.request_version = "", "", "HTTP/1.0"
            self.close_connection = True
            self._send(Page(431, b"the request is too long\n"))
            self._take_rest()

    def _take_rest(self) -> None:
        """Take in what still comes: unread, it would reset the connection, and our answer with it."""
        rest = _Patient(self.connection, self.server.patience_s, REST_BYTES)
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            while rest.readinto(bytearray(1 << 16)):
                pass

    def do_GET(self) -> None:
        """Answer with the page."""
        page = self.server.pages.get(self._path())
        self._send(page() if page else self._nothing())

    do_HEAD = do_GET

    def __getattr__(self, name: str) -> Callable[[], None]:
        """Return how any other method is answered: they are looked up by ``do_`` and their name."""
        if name.startswith("do_"):
            return self._refuse
        raise AttributeError(name)

    def _refuse(self) -> None:
        length = self.headers.get("Content-Length", "")
        if length.isascii() and length.isdigit():  # unread, it would reset the connection, and our answer with it
            with suppress(TooLong):
                self.rfile.read(min(int(length), REQUEST_BYTES // 2))
        if self._path() in self.server.pages:
            self._send(Page(405, b"only GET and HEAD\n"), ("Allow", "GET, HEAD"))
        else:
            self._send(self._nothing())

    def _path(self) -> str:
        return self.path.partition("?")[0]

    def _nothing(self) -> Page:
        return Page(404, f"nothing here; there are {', '.join(self.server.pages)}\n".encode())

    def _send(self, page: Page, *more: tuple[str, str]) -> None:
        self.connection.settimeout(self.server.patience_s)
        self.send_response(page.status)
        head = (("Content-Type", page.type), ("Content-Length", str(len(page.body))), ("Cache-Control", "no-store"))
        for name, value in (*head, ("X-Content-Type-Options", "nosniff"), *more):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(page.body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: stderr is vLLM's."""


class TooLong(ConnectionAbortedError):
    """A client sends more than its share."""


class _Patient(io.RawIOBase):
    """What a client sends, until it has had its time or its share."""

    def __init__(self, connection: socket.socket, patience_s: float, share: int) -> None:
        self._connection, self._until, self._left = connection, time.monotonic() + patience_s, share

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left_s = self._until - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        if not self._left:
            raise TooLong
        self._connection.settimeout(left_s)
        count = self._connection.recv_into(memoryview(buffer)[: self._left])
        self._left -= count
        return count
