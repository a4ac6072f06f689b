"""Asking the server over HTTP. Every function blocks, and is meant for a thread of its own."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass

from safe_vllm.plan.endpoint import Endpoint

HEALTH_TIMEOUT_S = 10.0
NO_ANSWER = (OSError, http.client.HTTPException, ValueError, ArithmeticError, RecursionError)
"""What an address that leads nowhere, or a server that talks nonsense, ends in."""
ANSWER_LIMIT_BYTES = 1024 * 1024


@dataclass(frozen=True)
class Answer:
    """What the server said."""

    status: int
    body: bytes

    def json(self) -> object:
        """Return the body as JSON, or ``None`` when it is not."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _connection(endpoint: Endpoint, timeout_s: float) -> http.client.HTTPConnection:
    if endpoint.uds:
        return _UnixConnection(endpoint.uds, timeout_s)
    if endpoint.uses_tls:
        # The certificate is made out to the public name, and this is our own child on this machine.
        context = ssl._create_unverified_context()
        return http.client.HTTPSConnection(endpoint.host, endpoint.port, timeout=timeout_s, context=context)
    return http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=timeout_s)


def ask(endpoint: Endpoint, path: str, timeout_s: float, content: Mapping[str, object] | None = None) -> Answer:
    """Send one request. Raises OSError or http.client.HTTPException when there is no answer."""
    connection = _connection(endpoint, timeout_s)
    headers: dict[str, str | bytes] = {"Content-Type": "application/json"}
    if endpoint.api_key:
        # A key from a file often brings its newline along; a header cannot hold one.
        headers["Authorization"] = f"Bearer {endpoint.api_key.strip()}".encode()
    try:
        method, body = ("GET", None) if content is None else ("POST", json.dumps(content))
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return Answer(response.status, response.read(ANSWER_LIMIT_BYTES))
    finally:
        connection.close()


def is_healthy(endpoint: Endpoint) -> bool:
    """Return whether ``/health`` says 200."""
    try:
        return ask(endpoint, "/health", HEALTH_TIMEOUT_S).status == 200
    except NO_ANSWER:
        return False
