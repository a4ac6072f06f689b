"""What must be done before anything slow is imported: a stop that comes meanwhile waits, and is not lost.

As PID 1 of a container the kernel drops a signal that has no handler yet, unless it is blocked.
"""

from __future__ import annotations

import signal

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)

NEEDED = (*STOP_SIGNALS, signal.SIGCHLD)
"""What must come for a launch to end at all."""

_given: set[signal.Signals | int] | None = None


def hold_signals() -> None:
    """Let stop signals wait until ``let_signals_come``.

    Whoever starts us with signals blocked, a program with threads, rarely means it: we could not be asked to stop, and
    would not notice vLLM's end. vLLM inherits the mask from us, and could not be asked to stop either.
    """
    global _given
    _given = set(signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)) - set(NEEDED)


def let_signals_come() -> None:
    """Put the signal mask back to what it was when we were started, but for what is needed; what has waited comes."""
    if _given is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _given)
