"""What must be done before anything slow is imported: a stop that comes meanwhile waits, and is not lost.

As PID 1 of a container the kernel drops a signal that has no handler yet, unless it is blocked.
"""

from __future__ import annotations

import signal

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)

_given: set[signal.Signals | int] | None = None


def hold_signals() -> None:
    """Let stop signals wait until ``let_signals_come``."""
    global _given
    _given = set(signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS))


def let_signals_come() -> None:
    """Put the signal mask back to what it was when we were started; what has waited comes now."""
    if _given is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _given)
