"""What a log that already exists lets one observe."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from safe_vllm.verdict.evidence import Evidence, Observations
from safe_vllm.verdict.lines import parse
from safe_vllm.verdict.phase import STARTING
from safe_vllm.verdict.scan import Scan
from safe_vllm.verdict.signatures import Signatures

_DAY_S = 86400


def observe_log(data: bytes, exit_status: int | None, signatures: Signatures) -> Observations:
    """Return what ``data`` shows; ``exit_status`` is that of ``vllm serve``, ``None`` where nobody knows."""
    return observe_chunks((data,), exit_status, signatures)


def observe_chunks(chunks: Iterable[bytes], exit_status: int | None, signatures: Signatures) -> Observations:
    """Like ``observe_log``, for a log that is read piece by piece."""
    scan = Scan(signatures, from_start=False)
    for chunk in chunks:
        scan.feed("stdout", chunk, 0.0)
    scan.close(0.0)
    lines = tuple(_timed(_phased(scan)))
    return Observations(
        leader_status=exit_status,
        evidence=lines,
        phase=scan.phase,
        backend=scan.backend,
        was_ready=scan.phase in ("serving", "shutdown"),
        uptime_s=lines[-1].at_s if lines else 0.0,
    )


def _phased(scan: Scan) -> Iterator[Evidence]:
    """Yield the evidence; lines before the first that tells the phase get the phase that must have been."""
    number, phase = scan.known_from
    before = "init" if phase in (*STARTING, "first-inference") else "serving"
    for line in scan.evidence:
        yield replace(line, phase=before) if number and line.number < number else line


def _timed(lines: Iterable[Evidence]) -> Iterator[Evidence]:
    """Yield ``lines`` with seconds since the first line that has a clock. The log names no year."""
    first: int | None = None
    now = 0.0
    for line in lines:
        if clock := parse(line.text).clock:
            month, day, hour, minute, second = (int(clock[place : place + 2]) for place in (0, 3, 6, 9, 12))
            at = (month * 31 + day) * _DAY_S + hour * 3600 + minute * 60 + second
            first = at if first is None else first
            now = max(now, float(at - first))
        yield replace(line, at_s=now)
