"""Waits on conditions, never on a clock, and finds a port to listen at."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import TypeVar

DEADLINE_S = 60.0

T = TypeVar("T")


def wait_for(what: str, condition: Callable[[], T], deadline_s: float = DEADLINE_S) -> T:
    """Return the first true value of ``condition``; fail at the deadline."""
    until = time.monotonic() + deadline_s
    while not (value := condition()):
        if time.monotonic() > until:
            raise AssertionError(f"waited {deadline_s:g} s in vain for: {what}")
        time.sleep(0.05)
    return value


def free_port() -> int:
    """Return a port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
