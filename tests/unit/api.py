"""A server over HTTP whose answers a test writes down: by route, from what was asked."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from safe_vllm.plan.endpoint import Endpoint

Said = tuple[int, object]
Answering = Callable[[Any], Said]


@dataclass
class Api:
    """What the server says, and what it was asked."""

    routes: Mapping[str, Answering]
    asked: list[tuple[str, Any]] = field(default_factory=list)

    def paths(self) -> list[str]:
        """Return what was asked for, in order, without the names of the models."""
        return [path for path, _ in self.asked if path != "/v1/models"]


def models(length: int | None = 4096) -> Answering:
    """Say which model there is."""
    return lambda asked: (200, {"data": [{"id": "m", "max_model_len": length}]})


def always(status: int, said: object = None) -> Answering:
    """Say the same to everybody."""
    return lambda asked: (status, said)


@contextmanager
def serving(routes: Mapping[str, Answering], tls: ssl.SSLContext | None = None) -> Iterator[tuple[Api, Endpoint]]:
    """Serve these routes, and nothing else."""
    api = Api({"/v1/models": models(), **routes})

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            is_json = self.headers.get("Content-Type") == "application/json"
            asked = json.loads(body) if body and is_json else body
            api.asked.append((self.path, asked))
            status, said = api.routes.get(self.path, always(404))(asked)
            text = said if isinstance(said, bytes) else json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def get_request(self) -> tuple[socket.socket, Any]:
            client, address = super().get_request()
            if tls is None:
                return client, address
            try:
                return tls.wrap_socket(client, server_side=True), address
            except ssl.SSLError:
                with suppress(OSError):
                    client.close()
                raise

        def handle_error(self, request: object, client_address: object) -> None:
            pass  # a client that goes away

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield api, Endpoint("127.0.0.1", server.server_port, uses_tls=tls is not None)
        server.shutdown()
        thread.join()
