"""Finding the cause of an end among what was observed."""

from __future__ import annotations

from dataclasses import dataclass, replace

from safe_vllm.verdict import ends
from safe_vllm.verdict.evidence import Evidence, Observations, ProcessEnd
from safe_vllm.verdict.scan import ANSWERED, UP
from safe_vllm.verdict.signatures import GUESS

DEATH = "death-"
"""Echoes with names that begin so say that an engine process is gone."""
STOPPING = "shutdown-triggered"
ORDERLY = "orderly-shutdown"
STALLED = "no-tokens"
WAITING = "shm-broadcast-wait"

LETHAL = frozenset(
    (
        "illegal-memory-access illegal-instruction misaligned-address launch-failure device-assert "
        "gpu-coredump library-exec-failed engine-signal"
    ).split()
)
"""Faults that no process survives."""
FROM_CLIENTS = frozenset(["bad-argument", "bad-config", "bad-model", "hub", "port-in-use", "permission"])
"""Faults of the start: in service the same words are the answer to somebody's bad request."""
_BEFORE_SERVICE = frozenset({"init", "autotune", "capture", "first-inference"})
_NEAR_S = 60.0
_STALL_S = 60.0


@dataclass(frozen=True)
class Cause:
    """What ended an attempt."""

    fault: str
    line: Evidence | None = None
    end: ProcessEnd | None = None
    suspect: str | None = None

    @classmethod
    def of(cls, line: Evidence) -> Cause:
        """Return the cause that ``line`` names."""
        return cls(line.fault or "unknown", line, suspect=line.suspect)


@dataclass(frozen=True)
class Reading:
    """The evidence of an attempt, sorted by what it can prove."""

    roots: tuple[Evidence, ...]
    """Causes that no answered request followed."""
    weak: tuple[Evidence, ...]
    """Lines that name a fault but are no cause by themselves, since the last answered request."""
    deaths: tuple[Evidence, ...]
    """Reports that an engine process is gone, since then."""
    stopping: Evidence | None
    """vLLM's note that it was told to stop, or that it winds itself down."""
    frames: tuple[Evidence, ...]
    """Frames of tracebacks that read the model."""
    earlier: tuple[Evidence, ...]
    """Lethal faults that an answer followed: of another engine, perhaps."""


def read(seen: Observations) -> Reading:
    """Sort the evidence of ``seen``."""
    lines = seen.evidence
    last = max((place for place, e in enumerate(lines) if e.signature in (ANSWERED, UP)), default=-1)
    before, after = lines[: last + 1], lines[last + 1 :]
    stopping = next((e for e in lines if e.signature in (STOPPING, ORDERLY)), None)
    return Reading(
        roots=tuple(e for e in after if e.kind == "root" and _counts(e)),
        weak=tuple(e for e in after if e.kind == "echo" and e.fault and _counts(e)),
        deaths=tuple(e for e in after if e.signature.startswith(DEATH) and not _follows(e, stopping)),
        stopping=stopping,
        frames=tuple(e for e in after if e.signature == "model-frame"),
        earlier=tuple(e for e in before if e.kind == "root" and e.fault in LETHAL),
    )


def _follows(line: Evidence, stopping: Evidence | None) -> bool:
    # an engine that is wound down in order is reported dead all the same
    return stopping is not None and line.number > stopping.number


def _counts(line: Evidence) -> bool:
    return bool(line.fault) and (line.fault not in FROM_CLIENTS or line.phase in _BEFORE_SERVICE)


def root(reading: Reading, seen: Observations) -> Evidence | None:
    """Return the root line: the hardware before all, else the first that nothing contradicts."""
    for fault in ("board", "host-oom"):
        if first := next((e for e in reading.roots if e.fault == fault), None):
            return first
    if reading.roots:
        return reading.roots[0]
    died_at_s = reading.deaths[0].at_s if reading.deaths else seen.uptime_s
    if reading.deaths or seen.leader_status is not None or seen.ended_by_us:
        return next((e for e in reading.earlier if died_at_s - e.at_s <= _NEAR_S), None)
    return None


def weak(reading: Reading) -> Evidence | None:
    """Return the best line where there is no root: what names a fault before what only says that nothing moves."""
    named = [e for e in reading.weak if e.fault != "hang" and not e.signature.startswith(GUESS)]
    if named:
        return named[0]
    waits = [e for e in reading.weak if e.signature == WAITING]
    stalls = [e for e in reading.weak if e.signature == STALLED]
    others = [e for e in reading.weak if e.signature not in (WAITING, STALLED)]
    if len(waits) > 1 or others:
        return waits[0] if len(waits) > 1 else others[0]
    if stalls and stalls[-1].at_s - stalls[0].at_s >= _STALL_S:
        return stalls[0]
    return _guess(reading)


def _guess(reading: Reading) -> Evidence | None:
    """Return the exception that may tell most: the first of an engine, else the last, which nobody caught."""
    guesses = [e for e in reading.weak if e.signature.startswith(GUESS)]
    of_engine = [e for e in guesses if ends.is_engine(e.process)]
    chosen = of_engine[0] if of_engine else guesses[-1] if guesses else None
    if chosen is None or chosen.fault == "unknown":
        return chosen
    if chosen.phase != "init":
        return replace(chosen, fault="unknown")
    frames = [e for e in reading.frames if e.process == chosen.process and e.number < chosen.number]
    return replace(chosen, fault="bad-model") if frames else chosen


def was_told_to_stop(reading: Reading, seen: Observations) -> bool:
    """Whether somebody else ended the server: a signal to the leader, or an orderly end that vLLM was told to make."""
    if ends.signal_of(seen.leader_status) in ends.ASKED_SIGNALS:
        return True
    if seen.leader_status not in (0, None) or seen.ended_by_us or reading.stopping is None or reading.deaths:
        return False
    killed = ends.by_fault(seen.ends)
    return killed is None or killed.at_s > reading.stopping.at_s


def find(seen: Observations) -> Cause | None:
    """Return the cause of the end, or ``None`` where nothing tells."""
    reading = read(seen)
    first = root(reading, seen)
    told = was_told_to_stop(reading, seen)
    if first and not (told and reading.stopping and reading.stopping.number < first.number):
        return Cause.of(first)
    if told:
        is_quiet = reading.stopping and reading.stopping.signature == ORDERLY and not seen.leader_status
        return Cause("none" if is_quiet else "stopped", reading.stopping)
    if end := ends.by_fault(seen.ends):
        return Cause(_signal_fault(end.status, seen), end=end)
    if ends.signal_of(seen.leader_status) in ends.FAULT_SIGNALS:
        return Cause(_signal_fault(seen.leader_status, seen))
    if line := weak(reading):
        return _weak_cause(line, reading, seen)
    return _silent(seen, reading)


def _weak_cause(line: Evidence, reading: Reading, seen: Observations) -> Cause | None:
    has_ended = seen.leader_status is not None or seen.ended_by_us or reading.deaths
    return Cause.of(line) if has_ended or line.fault == "hang" else None


def _silent(seen: Observations, reading: Reading) -> Cause | None:
    if seen.leader_status == 2 and not seen.was_ready:
        return Cause("bad-argument")
    if seen.ended_by_us:
        return Cause("hang")
    if seen.leader_status is None and not reading.deaths:
        last = seen.evidence[-1] if seen.evidence else None
        # a log that just ends where servers are known to get stuck
        return Cause.of(last) if last and last.kind == "marker" and last.fault == "hang" else Cause("none")
    return Cause("unknown", reading.deaths[0] if reading.deaths else None, ends.by_kill(seen.ends))


def _signal_fault(status: int | None, seen: Observations) -> str:
    return "shm" if ends.signal_of(status) == ends.BUS and not seen.was_ready else "engine-signal"
