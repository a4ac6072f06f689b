"""What must hold before vLLM is started, and how to wait for it."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from safe_vllm.attempt.asking import answer
from safe_vllm.attempt.loop import Loop
from safe_vllm.machine.levels import GpuMemory
from safe_vllm.plan.endpoint import Endpoint

CONNECT_TIMEOUT_S = 1.0
LOOK_AGAIN_S = 0.5
GPU_TOLERANCE_MIB = 512

T = TypeVar("T")


@dataclass(frozen=True)
class Waited(Generic[T]):
    """What a wait came to."""

    answer: T | None
    """The last one; ``None``: there was none."""
    seconds: float
    is_met: bool


def wait(
    loop: Loop,
    question: Callable[[], T],
    is_met: Callable[[T], bool],
    limit_s: float,
    on_wait: Callable[[T], None] = lambda _: None,
) -> Waited[T]:
    """Ask again and again until the answer will do, for so long at most. Raises StopAsked; everything stays alive.

    ``on_wait`` is called with the first answer, where that will not do.
    """
    began, last = loop.now(), None
    while True:
        given = answer(loop, question, max(LOOK_AGAIN_S, began + limit_s - loop.now()))
        waited_s = loop.now() - began
        if given and is_met(given[0]):
            return Waited(given[0], waited_s, is_met=True)
        if given and not last:
            on_wait(given[0])
        last = given or last
        if not given or waited_s >= limit_s:
            return Waited(last[0] if last else None, waited_s, is_met=False)
        loop.sleep(min(LOOK_AGAIN_S, limit_s - waited_s))


def missing(before: Sequence[GpuMemory], now: Sequence[GpuMemory]) -> tuple[GpuMemory, ...]:
    """Return the GPUs, as they are now, that have less free than before the first attempt.

    One that cannot be read any more is left out: waiting does not bring it back.
    """
    free_before = {gpu.uuid: gpu.free_mib for gpu in before}
    return tuple(gpu for gpu in now if gpu.free_mib + GPU_TOLERANCE_MIB < free_before.get(gpu.uuid, 0))


def is_taken(endpoint: Endpoint) -> bool:
    """Return whether somebody already answers there: its ``/health`` would be mistaken for ours."""
    try:
        if endpoint.uds:
            return not _refuses(endpoint.uds)
        socket.create_connection((endpoint.host, endpoint.port), CONNECT_TIMEOUT_S).close()
    except (OSError, ValueError):  # also a name that no resolver takes
        return False
    return True


def _refuses(path: str) -> bool:
    """Return whether nobody listens at this socket file. Raises OSError where there is none to ask."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(CONNECT_TIMEOUT_S)
        try:
            client.connect(path)
        except ConnectionRefusedError:
            return True
    return False


def remove_left_socket(path: str) -> bool:
    """Remove the socket file that a killed server left, since vLLM binds and never removes; return whether it was one.

    https://github.com/vllm-project/vllm/blob/v0.32.0/vllm/entrypoints/launchers/launcher.py (create_server_unix_socket)
    """
    try:
        found = os.lstat(path)
        is_ours = stat.S_ISSOCK(found.st_mode) and found.st_uid == os.geteuid()
        if is_ours and not _is_bound(path) and _refuses(path):
            Path(path).unlink()
            return True
    except (OSError, ValueError):  # gone already, or not ours to change: vLLM will say so itself
        pass
    return False


def _is_bound(path: str) -> bool:
    """Return whether a socket of this network has this address: it may not listen yet, and refuse for that."""
    lines = Path("/proc/net/unix").read_text(errors="replace").splitlines()
    return any(line.endswith(f" {path}") for line in lines)
