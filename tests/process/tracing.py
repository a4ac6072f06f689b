"""Traces processes as a debugger does, and does nothing with them."""

from __future__ import annotations

import os
import time
from ctypes import CDLL, c_long, get_errno

import pytest
from launch import DEADLINE_S

PTRACE_SEIZE = 0x4206
PTRACE_INTERRUPT = 0x4207
_WALL = 0x40000000


def seize(pid: int) -> None:
    """Become the tracer of a process: from now on its end is told to us first."""
    _ptrace(PTRACE_SEIZE, pid)


def interrupt(pid: int) -> None:
    """Make a seized process stand still, so that no SIGCONT helps."""
    _ptrace(PTRACE_INTERRUPT, pid)
    os.waitpid(pid, _WALL)


def reap(pid: int) -> None:
    """Wait for the end of a seized process, and let the one know whose child it is."""
    until = time.monotonic() + DEADLINE_S
    while time.monotonic() < until:
        ended, status = os.waitpid(pid, _WALL | os.WNOHANG)
        if ended and (os.WIFEXITED(status) or os.WIFSIGNALED(status)):
            return
        time.sleep(0.02)
    raise AssertionError(f"waited {DEADLINE_S:g} s in vain for the end of process {pid}")


def _ptrace(request: int, pid: int) -> None:
    ptrace = CDLL(None, use_errno=True).ptrace
    ptrace.argtypes = [c_long] * 4
    if ptrace(request, pid, 0, 0) == -1:
        pytest.skip(f"no process may be traced here: {os.strerror(get_errno())}")
