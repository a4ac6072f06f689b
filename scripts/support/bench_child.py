# ruff: noqa: PTH123 - pathlib takes as long to import as all of the rest
"""What stands in for vLLM in the bench. It says when it began, by the machine's clock. Standard library only."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    import socket

LONGEST_LIFE_S = 900
"""A bench that was killed must not leave anything behind for ever."""


def begin(fifo: str) -> None:
    """Say so and end."""
    _tell(fifo, "leader")


def talk(fifo: str, content: str) -> None:
    """Print a file."""
    _tell(fifo, "leader")
    os.execvp("cat", ["cat", content])


def serve(fifo: str, content: str, escapes: str) -> None:
    """Serve with an engine beside it, and end when that ends; ``/talk`` prints a file over and over."""
    _tell(fifo, "leader")
    signal.alarm(LONGEST_LIFE_S)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    engine = _fork(fifo, "engine")
    if escapes and os.fork() == 0:  # a second fork, and a session of its own: nobody's child
        os.setsid()
        _fork(fifo, "escapee")
        os._exit(0)

    def stop(number: int, frame: object) -> None:
        os.kill(engine, signal.SIGKILL)
        os._exit(0)

    def reap(number: int, frame: object) -> None:
        while (ended := os.waitpid(-1, os.WNOHANG)[0]) and ended != engine:
            pass
        if ended == engine:
            os._exit(1)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGCHLD, reap)
    _listen(content)


def _tell(fifo: str, role: str) -> None:
    began = time.monotonic()
    with open(fifo, "wb", buffering=0) as pipe:
        pipe.write(f"{role} {os.getpid()} {began}\n".encode())


def _fork(fifo: str, role: str) -> int:
    if child := os.fork():
        return child
    signal.alarm(LONGEST_LIFE_S)
    with open("/proc/self/comm", "w") as name:
        name.write("VLLM::EngineCor")  # as long as a name may be
    _tell(fifo, role)
    while True:
        signal.pause()


def _listen(content: str) -> NoReturn:
    import server  # that of the tests' vLLM

    options = (server.option(sys.argv, name) for name in ("--uds", "--host", "--port"))
    listener = server.bound(*options)
    listener.listen(64)
    while True:
        connection, _ = listener.accept()
        try:
            _answer(connection, content)
        except OSError:
            pass
        connection.close()


def _answer(connection: socket.socket, content: str) -> None:
    import counters
    import server

    _, path, _, body = server.read_request(connection)
    if path.startswith("/talk/"):
        _print(content, int(path.removeprefix("/talk/")))
    if path == "/v1/completions":
        import json

        server.respond(connection, 200, server.completion("model", json.loads(body)))
    elif path == "/v1/models":
        server.respond(connection, 200, {"data": [{"id": "model", "max_model_len": 256}]})
    else:
        server.respond(connection, 200, counters.page(0, 0, 1) if path == "/metrics" else {})


def _print(content: str, times: int) -> None:
    with open(content, "rb") as file:
        data = file.read()
    for _ in range(times):
        left = memoryview(data)
        while left:
            left = left[os.write(1, left) :]
