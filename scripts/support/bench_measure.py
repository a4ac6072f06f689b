"""What is measured of every supervisor, one function per question. Each returns cells of the table by column."""

from __future__ import annotations

import os
import select
import signal
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench_output import LAST_LINE
from bench_scene import Scene, cpu_s, family, memory_mib, running
from bench_systems import NOTHING, OURS, System

from leftovers import Process

COPY = "import os\nwhile (chunk := os.read(0, 262144)): os.write(1, chunk)"
SETTLE_S = 3.0
"""Until a supervisor has calmed down after a start: supervisord trusts a child after one second."""
SLOW_S = 20.0
"""What relays so slowly is not asked again."""
CALM_S = 40.0
"""Until safe-vllm looks for new processes as seldom as it ever does."""
STOP_S = 45.0
LEFT_S = 5.0
"""How long what was left may take to end by itself."""
NEVER = "never"
Cells = dict[str, str]


@dataclass(frozen=True)
class Settings:
    """What was asked for."""

    megabytes: int
    gigabytes: float
    """To pass on before memory is measured again."""
    runs: int
    idle_s: float
    log: Path
    """Ordinary output of so many megabytes."""
    interpreter: str
    """That of the vLLM on PATH, so that its installation is looked at."""
    baseline_s: float = 0.0
    """How long the child takes to begin when nobody is in front of it."""


def start(system: System, settings: Settings) -> Cells:
    """Measure the time until the child has begun, without what it takes to begin by itself."""
    taken_s = statistics.median(started_s(system, settings) for _ in range(2 * settings.runs + 1))
    return {"start ms": f"{(taken_s - (0 if system is NOTHING else settings.baseline_s)) * 1000:.0f}"}


def started_s(system: System, settings: Settings) -> float:
    """Return the time until the child has begun, once."""
    with running(system, "begin", interpreter=settings.interpreter) as scene:
        return scene.needed("leader").at - scene.started_at


def relay(system: System, settings: Settings) -> Cells:
    """Measure how fast output passes, from the first of it to the last line; without a supervisor, that of ``cat``."""
    if not system.relays and system is not NOTHING:
        return {"relay MB/s": "its own"}
    taken = [relayed_s(system, settings.log)]
    while len(taken) < settings.runs and taken[0] < SLOW_S:
        taken.append(relayed_s(system, settings.log))
    return {"relay MB/s": f"{settings.log.stat().st_size / 1e6 / statistics.median(taken):.0f}"}


def copied(settings: Settings) -> Cells:
    """Measure what a loop of reads and writes in Python relays, which looks at nothing."""
    size, taken = settings.log.stat().st_size, []
    for _ in range(settings.runs):
        with subprocess.Popen(("cat", settings.log), stdout=subprocess.PIPE) as cat:
            copy = subprocess.Popen((sys.executable, "-c", COPY), stdin=cat.stdout, stdout=subprocess.PIPE)
            assert copy.stdout is not None
            first_at, last_at = _read(copy.stdout.fileno())
            taken.append(last_at - first_at)
            copy.communicate()
    return {"relay MB/s": f"{size / 1e6 / statistics.median(taken):.0f}"}


def relayed_s(system: System, log: Path) -> float:
    """Return how long a file takes through a supervisor that is there to read it; read as a log collector would."""
    with running(system, "talk", str(log), stdout=subprocess.PIPE) as scene:
        assert scene.process.stdout is not None
        first_at, last_at = _read(scene.process.stdout.fileno())
        # What came before the child began was the supervisor's own.
        return last_at - max(first_at, scene.needed("leader").at)


def _read(descriptor: int) -> tuple[float, float]:
    """Return when something and when the last line came. There may be no end of file: a supervisor may go on."""
    before = os.read(descriptor, 1 << 20)
    first_at = time.monotonic()
    while LAST_LINE.rstrip() not in before:
        if not (chunk := os.read(descriptor, 1 << 20)):
            raise EOFError("the output ended before its last line")
        before = before[-len(LAST_LINE) :] + chunk
    return first_at, time.monotonic()


def memory(system: System, settings: Settings) -> Cells:
    """Measure the memory of the supervisor of an idle server; ours also after much output."""
    if system is NOTHING:
        return {}
    with _serving(system, settings) as scene:
        pids = scene.supervisors(scene.needed("leader").pid)
        cells = {"memory MiB": _memory(pids)}
        return cells | {"after output": _memory_after(scene, pids, settings)} if system is OURS else cells


@contextmanager
def _serving(system: System, settings: Settings, escapes: str = "") -> Iterator[Scene]:
    """Start a server, and wait until its supervisor has calmed down."""
    with running(system, "serve", str(settings.log), escapes, interpreter=settings.interpreter) as scene:
        time.sleep(SETTLE_S)
        yield scene


def _memory(pids: list[int]) -> str:
    pss, rss = memory_mib(pids)
    return f"{pss:.1f} ({rss:.1f})"


def _memory_after(scene: Scene, pids: list[int], settings: Settings) -> str:
    """Return what it takes after so many gigabytes, in portions of the file."""
    times = max(1, round(settings.gigabytes * 1e9 / settings.log.stat().st_size))
    urllib.request.urlopen(f"http://127.0.0.1:{scene.port}/talk/{times}", timeout=3600).close()
    return _memory(pids)


def idle(systems: Sequence[System], settings: Settings) -> dict[str, Cells]:
    """Measure what idle supervisors of idle servers compute, all at the same time."""
    with ExitStack() as stack:
        scenes = {system.name: stack.enter_context(_serving(system, settings)) for system in systems}
        time.sleep(CALM_S)
        pids = {name: scene.supervisors(scene.needed("leader").pid) for name, scene in scenes.items()}
        before, began = {name: cpu_s(each) for name, each in pids.items()}, time.monotonic()
        time.sleep(settings.idle_s)
        taken_s = time.monotonic() - began
        return {name: {"idle CPU %": f"{(cpu_s(pids[name]) - before[name]) / taken_s * 100:.3f}"} for name in pids}


def restart(system: System, settings: Settings) -> Cells:
    """Measure the time from the end of the old tree to the beginning of the next, after a SIGSEGV in the engine."""
    if not system.restarts:
        return {"restart ms": "–"}
    taken = [_restarted_s(system, settings) for _ in range(settings.runs)]
    known = [each for each in taken if each is not None]
    return {"restart ms": f"{statistics.median(known) * 1000:.0f}" if len(known) == len(taken) else NEVER}


def _restarted_s(system: System, settings: Settings) -> float | None:
    with _serving(system, settings) as scene:
        leader, engine = scene.needed("leader").pid, scene.needed("engine").pid
        pidfds = [os.pidfd_open(pid) for pid in (leader, engine)]
        os.kill(engine, signal.SIGSEGV)
        for pidfd in pidfds:
            select.select([pidfd], [], [])
            os.close(pidfd)
        gone_at = time.monotonic()
        replacement = scene.wait_for("leader")
        return replacement.at - gone_at - settings.baseline_s if replacement else None


def leftovers(system: System, settings: Settings) -> Cells:
    """Count what is left of a server, its engine and a descendant in a session of its own, when a supervisor ends."""
    if system is NOTHING:
        return {}
    endings = {"left after TERM": signal.SIGTERM, "left after KILL": signal.SIGKILL}
    return {column: _left_after(system, settings, number) for column, number in endings.items()}


def _left_after(system: System, settings: Settings, number: signal.Signals) -> str:
    with _serving(system, settings, "escapes") as scene:
        members = family(scene, "leader", "engine", "escapee")
        scene.process.send_signal(number)
        try:
            scene.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            return "did not end"
        return f"{_lasting(members)} of {len(members)}"


def _lasting(members: list[Process]) -> int:
    until = time.monotonic() + LEFT_S
    while (left := sum(member.is_alive for member in members)) and time.monotonic() < until:
        time.sleep(0.05)
    return left


SECTIONS: dict[str, Callable[[System, Settings], Cells]] = {
    "start": start,
    "relay": relay,
    "memory": memory,
    "restart": restart,
    "leftovers": leftovers,
}
