"""What the loop asks in a thread of its own, since the answer may take its time. Each loads what it needs when asked.

``http.client`` and ``subprocess`` are slow to import, and vLLM is long started when they are needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from safe_vllm.attempt import event

if TYPE_CHECKING:
    from safe_vllm.attempt.calls import Calls
    from safe_vllm.attempt.stacks import Look
    from safe_vllm.plan.command import Command
    from safe_vllm.plan.endpoint import Endpoint


def health(endpoint: Endpoint, calls: Calls, is_strangers: Callable[[], bool]) -> event.Event:
    """Ask whether the server says that it is healthy, and whether it is another one."""
    # all of them now: later there may be no descriptor left to read a module with
    from safe_vllm.attempt import canary, metrics, readiness, stacks  # noqa: F401

    if not readiness.is_healthy(endpoint, calls):
        return event.HealthAnswered(False)
    return event.HealthAnswered(False, is_strangers=True) if is_strangers() else event.HealthAnswered(True)


def canary(endpoint: Endpoint, calls: Calls, *, is_thorough: bool) -> event.Event:
    """Send a real request, or a series of them."""
    from safe_vllm.attempt import canary

    return canary.send(endpoint, is_thorough, calls=calls)


def pulse(endpoint: Endpoint, calls: Calls, *, with_clients: bool) -> event.Event:
    """Ask how far the work has come."""
    from safe_vllm.attempt import metrics

    return metrics.take_pulse(endpoint, calls, with_clients=with_clients)


def moved(root: int) -> event.Event:
    """Find out how much data the processes below ``root`` have moved."""
    from safe_vllm.attempt import stacks

    return stacks.moved(root)


def look(root: int, command: Command) -> Look:
    """Return what can see where the processes below ``root`` are."""
    from safe_vllm.attempt import stacks

    return stacks.Look(root, command)
