"""Finding the cause of an end among what was observed."""

from __future__ import annotations

from dataclasses import dataclass

from safe_vllm.verdict import ends, xids
from safe_vllm.verdict.evidence import Evidence, Observations, ProcessEnd
from safe_vllm.verdict.guesses import guess
from safe_vllm.verdict.reading import (
    BY_HAND,
    INTERRUPTED,
    KILLED,
    ORDERLY,
    TERMINATED,
    Reading,
    credible,
    named,
    read,
    root,
)


@dataclass(frozen=True)
class Cause:
    """What ended an attempt."""

    fault: str
    line: Evidence | None = None
    end: ProcessEnd | None = None
    suspect: str | None = None
    was_killed: bool = False
    """Whether someone unknown sent SIGKILL."""


def find(seen: Observations) -> Cause:
    """Return the cause of the end, or the fault ``none`` where nothing tells of one."""
    reading = credible(read(seen.evidence), seen)
    first = root(reading, seen)
    told = _was_told_to_stop(reading, seen)
    if first and not (told and reading.stopping and reading.stopping.number < first.number):
        end = ends.by_fault(seen.ends) if first.fault in ("engine-signal", "shm") else None
        return Cause(first.fault or "unknown", first, end, first.suspect)
    if told:
        is_quiet = reading.stopping and reading.stopping.signature == ORDERLY and not seen.leader_status
        return Cause("none" if is_quiet else "stopped", reading.stopping)
    by_signal = _by_signal(reading, seen)
    return by_signal or _by_weaker_lines(reading, seen) or _as_said(seen) or _by_silence(reading, seen)


def _was_told_to_stop(reading: Reading, seen: Observations) -> bool:
    """Whether somebody else ended the server: a signal to the leader, or an orderly end that vLLM was told to make."""
    if ends.signal_of(seen.leader_status) in ends.ASKED_SIGNALS:
        return True
    told = reading.stopping
    if told is None or seen.ended_by_us or (reading.deaths and not _was_torn_down(reading, told, seen)):
        return False
    if seen.leader_status not in (0, None) and told.signature != INTERRUPTED:
        return False
    if told.signature == BY_HAND and (named(reading) or guess(reading, seen)):
        return False  # whoever gave up on it
    killed = ends.by_fault(seen.ends)
    return killed is None or killed.at_s > told.at_s


def _was_torn_down(reading: Reading, told: Evidence, seen: Observations) -> bool:
    """Whether the deaths are those of a stop that reached the workers first: nothing else tells why."""
    by_stop = told.signature in (INTERRUPTED, BY_HAND) or reading.deaths[0].signature == TERMINATED
    return by_stop and not (named(reading) or guess(reading, seen))


def _by_signal(reading: Reading, seen: Observations) -> Cause | None:
    end = ends.by_fault(seen.ends)
    signal = ends.signal_of(end.status if end else seen.leader_status)
    # with SIGABRT native code gives up on the GPU; the other signals are faults of the CPU, and speak for themselves
    if signal not in ends.FAULT_SIGNALS or (signal == ends.ABORT and any(map(xids.is_xid, reading.weak))):
        return None
    # mapped memory that is not there: at the start that is nearly always a small /dev/shm
    return Cause("shm" if signal == ends.BUS and not seen.was_ready else "engine-signal", end=end)


def _by_weaker_lines(reading: Reading, seen: Observations) -> Cause | None:
    has_ended = bool(seen.has_ended or reading.deaths)
    line = named(reading)
    if line and (has_ended or line.fault == "hang"):
        return Cause(line.fault or "unknown", line, suspect=line.suspect)
    killed = ends.by_kill(seen.ends)
    report = next((e for e in reading.deaths if e.signature.startswith(KILLED)), None)
    if killed or report or ends.signal_of(seen.leader_status) == ends.KILL:
        return Cause("unknown", report, killed, was_killed=True)
    line = guess(reading, seen) if has_ended else None
    return Cause(line.fault or "unknown", line, suspect=line.suspect) if line else None


def _as_said(seen: Observations) -> Cause | None:
    if seen.said is None or seen.said[0] in ("none", "unknown", "stopped"):
        return None
    return Cause(seen.said[0], suspect=seen.said[1])


def _by_silence(reading: Reading, seen: Observations) -> Cause:
    if seen.leader_status == 2 and not seen.was_ready:
        return Cause("bad-argument")  # argparse
    if seen.ended_by_us:
        return Cause("unknown" if seen.canary == "failed" else "hang")
    if seen.has_ended or reading.deaths:
        return Cause("unknown", reading.deaths[0] if reading.deaths else None)
    last = next((e for e in reversed(seen.evidence) if e.kind == "marker"), None)
    # a log that just ends where servers are known to get stuck
    return Cause("hang", last, suspect=last.suspect) if last and last.fault == "hang" else Cause("none")
