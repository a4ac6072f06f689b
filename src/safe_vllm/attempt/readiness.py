"""Asking the server over HTTP. Every function blocks, for a limited time, and is meant for a thread of its own."""

from __future__ import annotations

import errno
import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from safe_vllm.attempt.calls import Calls
from safe_vllm.attempt.tree import SHORTAGES
from safe_vllm.plan.endpoint import Endpoint

HEALTH_TIMEOUT_S = 10.0
NO_ANSWER = (OSError, http.client.HTTPException, ValueError, ArithmeticError, RecursionError)
"""What an address that leads nowhere, or a server that talks nonsense, ends in."""
NO_ROOM = (*SHORTAGES, errno.ENOBUFS)
ANSWER_LIMIT_BYTES = 1024 * 1024
JSON = "application/json"


class NotAdmitted(ConnectionError):
    """The server listens, and talks to nobody without a client certificate that it trusts."""


def had_no_room(error: Exception) -> bool:
    """Return whether this machine had no room for the question, which tells nothing of the server."""
    return isinstance(error, OSError) and error.errno in NO_ROOM


@dataclass(frozen=True)
class Answer:
    """What the server said."""

    status: int
    body: bytes
    is_whole: bool = True
    """Whether ``body`` is all of it."""

    def json(self) -> object:
        """Return the body as JSON, or ``None`` when it is not."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None


@dataclass(frozen=True)
class Content:
    """What a request brings along."""

    body: bytes
    type: str = JSON


class _Connection(http.client.HTTPConnection):
    """Reaches the server wherever it listens: at an address or at a socket file, with TLS or without."""

    def __init__(self, endpoint: Endpoint, timeout_s: float) -> None:
        super().__init__("localhost" if endpoint.uds else endpoint.host, endpoint.port or None, timeout=timeout_s)
        self._endpoint, self._timeout_s = endpoint, timeout_s

    def connect(self) -> None:
        plain = _socket(self._endpoint, self._timeout_s)
        self.sock = _trusting(self._endpoint).wrap_socket(plain) if self._endpoint.uses_tls else plain


def _socket(endpoint: Endpoint, timeout_s: float) -> socket.socket:
    if not endpoint.uds:
        # To vLLM a name is an IPv4 address; on the IPv6 address of that name somebody else may answer.
        host = endpoint.host if ":" in endpoint.host else socket.gethostbyname(endpoint.host)
        return socket.create_connection((host, endpoint.port), timeout_s)
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        client.settimeout(timeout_s)
        client.connect(endpoint.uds)
    except OSError:
        client.close()
        raise
    return client


def _trusting(endpoint: Endpoint) -> ssl.SSLContext:
    # The certificate is made out to the public name, and this is our own child on this machine.
    context = ssl._create_unverified_context()
    if endpoint.certificate:
        with suppress(OSError):  # without one we shall be turned away, which is an answer too
            context.load_cert_chain(*endpoint.certificate, password="")  # a password would be asked for on the terminal
    return context


def ask(
    endpoint: Endpoint, route: str, timeout_s: float, content: Content | None = None, calls: Calls | None = None
) -> Answer:
    """Send one request, as one of these ``calls``.

    Raises TimeoutError when the time is over, else what ``NO_ANSWER`` lists or NotAdmitted.
    """
    if timeout_s <= 0:
        raise TimeoutError
    until = time.monotonic() + timeout_s
    connection = _Connection(endpoint, timeout_s)
    try:
        with _admitted(endpoint):
            connection.connect()
            left_s = max(0.0, until - time.monotonic())
            with _limited(connection.sock, left_s), (calls or Calls()).open(connection.sock):
                return _exchange(connection, endpoint, route, content)
    finally:
        connection.close()


def _exchange(
    connection: http.client.HTTPConnection, endpoint: Endpoint, route: str, content: Content | None
) -> Answer:
    headers: dict[str, str | bytes] = {"Content-Type": content.type if content else JSON}
    if endpoint.api_key:
        # A key from a file often brings its newline along; a header cannot hold one.
        headers["Authorization"] = f"Bearer {endpoint.api_key.strip()}".encode()
    method, body = ("POST", content.body) if content else ("GET", None)
    connection.request(method, endpoint.path(route), body, headers)
    response = connection.getresponse()
    said = response.read(ANSWER_LIMIT_BYTES + 1)
    return Answer(response.status, said[:ANSWER_LIMIT_BYTES], len(said) <= ANSWER_LIMIT_BYTES)


@contextmanager
def _limited(connected: socket.socket, seconds: float) -> Iterator[None]:
    """Cut the connection when the time is over; a socket's own limit is on the silence between two bytes."""
    is_over = threading.Event()

    def cut() -> None:
        is_over.set()
        with suppress(OSError):
            connected.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, cut)
    timer.daemon = True  # a launcher that ends waits for no server
    with suppress(RuntimeError):  # no thread is to be had: the socket's own limit must do
        timer.start()
    try:
        yield
    except NO_ANSWER as error:
        if is_over.is_set():
            raise TimeoutError from error
        raise
    finally:
        timer.cancel()
    if is_over.is_set():
        raise TimeoutError


@contextmanager
def _admitted(endpoint: Endpoint) -> Iterator[None]:
    """Tell a server that turns us away from one that is not there: vLLM listens only when its engine is up."""
    try:
        yield
    except (ssl.SSLError, ConnectionResetError, BrokenPipeError) as error:
        if endpoint.certificate:
            raise NotAdmitted("the server wants a client certificate") from error
        raise


def content(value: Mapping[str, object]) -> Content:
    """Return JSON to send."""
    return Content(json.dumps(value).encode())


def is_healthy(endpoint: Endpoint, calls: Calls | None = None) -> bool:
    """Return whether ``/health`` says 200 at every port, as far as it lets us in.

    Raises OSError where this machine has no room for the question.
    """
    return all(_is_healthy(place, calls) for place in endpoint.each())


def _is_healthy(place: Endpoint, calls: Calls | None) -> bool:
    try:
        return ask(place, "/health", HEALTH_TIMEOUT_S, calls=calls).status == 200
    except NotAdmitted:
        return True
    except NO_ANSWER as error:
        if had_no_room(error):
            raise
        return False
