"""Who answers at a port or a socket file: asked of real sockets of real processes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from safe_vllm.machine.listeners import Listener, at_port, at_socket

LISTENS = (
    "import socket, sys; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); input()"
)


@contextmanager
def server(*words: str) -> Iterator[tuple[int, int]]:
    """Give the number and the port of another process that listens until the end."""
    command = [sys.executable, "-c", LISTENS, *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdin
        yield process.pid, int(process.stdout.readline())
        process.stdin.close()


def test_another_process_is_named_with_its_whole_command_line() -> None:
    with server("--port", "", "two words") as (pid, port):
        found = at_port(port)
    assert found is not None
    assert (found.pid, found.words) == (pid, (sys.executable, "-c", LISTENS, "--port", "", "two words"))
    assert found.name.startswith("python")


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_server_of_either_family_is_found(family: socket.AddressFamily) -> None:
    with socket.create_server(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0), family=family) as mine:
        assert _pid(at_port(mine.getsockname()[1])) == os.getpid()


def test_who_is_only_connected_from_that_port_does_not_listen_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, socket.socket() as client:
        client.connect(other.getsockname())
        assert at_port(client.getsockname()[1]) is None
        assert _pid(at_port(client.getsockname()[1], listens=False)) == os.getpid()


def test_the_listener_at_a_socket_file_is_found_and_who_has_only_connected_is_not_taken_for_it() -> None:
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as mine:
        path = str(Path(folder, "a socket"))
        mine.bind(path)
        assert at_socket(path) is None
        mine.listen()
        assert _pid(at_socket(path)) == os.getpid()
        assert at_socket(f"{path}2") is None


def test_a_socket_file_is_found_by_whichever_path_leads_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as mine:
        monkeypatch.chdir(folder)
        mine.bind("a socket")
        mine.listen()
        assert _pid(at_socket(f"{folder}/a socket")) == _pid(at_socket("a socket")) == os.getpid()
        assert at_socket("/a socket") is None


@pytest.mark.parametrize("mark", ["zz", "00010000", ""])
def test_an_abstract_name_that_looks_like_lines_of_the_table_does_no_harm(mark: str) -> None:
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as crafted:
        path = f"{folder}/s"
        crafted.bind(f"\0\n0: 0 0 {mark} 0 0 0 {path}\n0: {path}\n".encode())
        assert at_socket(path) is None
        with socket.socket(socket.AF_UNIX) as mine:
            mine.bind(path)
            mine.listen()
            assert _pid(at_socket(path)) == os.getpid()


def _pid(found: Listener | None) -> int | None:
    return found and found.pid
