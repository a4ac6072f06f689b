"""A rung turned into something that can be executed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from safe_vllm.plan.ladder import Rung

OURS_ALONE = (
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
)
"""Variables that systemd meant for the launcher: a child that answered them would speak for us."""


@dataclass(frozen=True)
class Command:
    """An argument vector and a complete environment."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]


def command(rung: Rung, vllm: tuple[str, ...], environment: Mapping[str, str]) -> Command:
    """Return what runs ``rung`` with the ``vllm`` words in front, on top of the operator's ``environment``."""
    inherited = {name: value for name, value in environment.items() if name not in OURS_ALONE}
    return Command((*vllm, "serve", *rung.words), {**inherited, **dict(rung.environment)})
