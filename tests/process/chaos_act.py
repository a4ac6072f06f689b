"""Draws a random act: what each attempt of the fake plays, and what happens to safe-vllm meanwhile."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from chaos_attempt import STOPS, Attempt, draw_attempt
from chaos_voice import ATTEMPTS
from scenes import ENGINE, WORKER

ENDINGS: dict[str, tuple[int, ...]] = {
    "argparse": (2, 78),
    "missing-model": (78,),
    "little-memory": (78,),
    "refused-backend": (78,),
    "port-in-use": (75,),
    "leader-dies SIGTERM": (0,),
    "leader-dies SIGINT": (0,),
    "leader-dies SIGBUS": (78,),
    "engine-dies SIGBUS": (78,),
    "first-inference SIGBUS": (78,),
    "shut-down-by-others": (0,),
}
"""The statuses with which a launch may end after such an attempt, besides 70. SIGBUS: a small /dev/shm."""


VICTIMS = tuple(
    f"{title} {signal}"
    for title in ("leader", ENGINE, WORKER, "escapee", "holder")
    for signal in ("SIGKILL", "SIGSEGV", "SIGTERM", "SIGSTOP")
)


@dataclass(frozen=True)
class Deed:
    """Something that happens to a launch."""

    what: str
    which: str = ""
    moment: str = "attempt-started"
    """The event, or the mark of the fake, after which it happens."""
    count: int = 1
    """The so-many-th of them."""
    after_s: float = 0.0


@dataclass(frozen=True)
class Act:
    """A random scene."""

    number: int
    attempts: tuple[Attempt, ...]
    options: tuple[str, ...]
    policy: tuple[tuple[str, float], ...]
    """Limits that only a profile can set."""
    address: str
    """``port``, ``uds``, or ``headless``."""
    streams: str
    has_sidecar: bool
    is_port_taken: bool
    deeds: tuple[Deed, ...]
    rest_s: float
    """How long it may go on when all was done, before it is asked to stop; less once it serves."""

    def __str__(self) -> str:
        """Return it without the scenes, which are long."""
        kinds = ", ".join(attempt.kind for attempt in self.attempts)
        facts = f"{' '.join(self.options)}; {dict(self.policy)}; {self.address}; {self.streams}"
        extras = ("; a sidecar" if self.has_sidecar else "") + ("; the port is taken" if self.is_port_taken else "")
        return f"attempts: {kinds}\n{facts}{extras}\n" + "\n".join(map(str, self.deeds))


def draw(number: int) -> Act:
    """Return the act of that number, always the same."""
    dice = random.Random(number)
    attempts = tuple(draw_attempt(dice, attempt) for attempt in range(1, ATTEMPTS + 1))
    address = dice.choices(("port", "uds", "headless"), (8, 3, 1))[0]
    kind = dice.choices(("files", "one-file", "pipes", "one-pipe", "slow", "lost", "sockets", "terminal"),
                        (6, 2, 3, 3, 3, 2, 2, 2))[0]  # fmt: skip
    return Act(
        number,
        attempts,
        _options(dice),
        tuple((name, dice.choice((1.0, 2.0))) for name in ("start_silence_s", "stall_s") if dice.random() < 0.3),
        address,
        kind,
        dice.random() < 0.15,
        address == "port" and dice.random() < 0.06,
        _deeds(dice, kind),
        dice.choices((0.0, 0.3, 1.0, 3.0), (1, 2, 3, 4))[0],
    )


def _options(dice: random.Random) -> tuple[str, ...]:
    given = ["--backoff", dice.choice(("0.01", "0.01", "0.3")), "--fault-grace", str(dice.choice((0.0, 0.1, 0.3, 20)))]
    given += ["--max-attempts", str(dice.randint(1, 4)), "--stop-timeout", str(dice.choice((0.0, 0.3, 0.6, 60)))]
    given += ["--start-timeout", "1.5"] if dice.random() < 0.15 else []
    given += ["--proving-window", "0"] if dice.random() < 0.1 else []
    given += ["--no-canary"] if dice.random() < 0.2 else []
    return (*given, "--output", "json") if dice.random() < 0.15 else tuple(given)


def _deeds(dice: random.Random, streams: str) -> tuple[Deed, ...]:
    """At most one of the deeds after which nobody can look after the rest."""
    common: list[tuple[str, tuple[str, ...], int]] = [
        ("stop", STOPS, 12),
        ("poke", ("SIGUSR1", "SIGUSR2", "SIGWINCH"), 4),
        ("suspend", ("SIGTSTP", "SIGSTOP"), 3),
        ("kill", VICTIMS, 8),
        ("hold-pipes", (), 3),
        ("ask", (), 3),
        ("take-port", (), 1),
    ]
    last = [("kill-launcher", (), 4), ("kill-guardian", (), 3), ("stop-guardian", (), 1)]
    chosen = [_deed(dice, common) for _ in range(dice.choices((0, 1, 2, 3), (3, 5, 3, 2))[0])]
    chosen += [_deed(dice, last)] if dice.random() < 0.25 else []
    chosen += [_deed(dice, [("lose-reader", (), 1)])] if streams == "lost" else []
    dice.shuffle(chosen)
    return tuple(chosen)


def _deed(dice: random.Random, among: Sequence[tuple[str, tuple[str, ...], int]]) -> Deed:
    what, which, _ = dice.choices(among, [weight for *_, weight in among])[0]
    moments = ("awake", "launch-started", "attempt-started", "start", "serving", "ready", "attempt-ended", "step")
    moment = dice.choices(moments, (1, 1, 2, 4, 4, 6, 3, 5))[0]
    count = dice.choices((1, 2, 3), (7, 2, 1))[0] if moment not in moments[:2] else 1
    return Deed(what, dice.choice(which) if which else "", moment, count, dice.choice((0, 0, 0.02, 0.1, 0.3)))
