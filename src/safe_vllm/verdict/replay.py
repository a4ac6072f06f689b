"""What a log that already exists lets one observe."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from safe_vllm.verdict.evidence import Evidence, Observations
from safe_vllm.verdict.last_words import is_uncaught
from safe_vllm.verdict.lines import clean, parse
from safe_vllm.verdict.phase import STARTING
from safe_vllm.verdict.scan import Scan
from safe_vllm.verdict.signatures import Signatures

_DAY_S = 86400
_TAIL_BYTES = 65536


class Replay:
    """What the log of one server shows, piece by piece."""

    def __init__(self, signatures: Signatures, after: Replay | None = None) -> None:
        """Begin, perhaps in the middle of what a server prints; ``after`` that of another, with the first line."""
        self.scan: Scan = Scan(signatures, from_start=after is not None, like=after.scan if after else None)
        self.scan.lines = after.scan.lines if after else 0
        self._tail = b""

    def feed(self, chunk: bytes) -> None:
        """Take the next piece."""
        self.scan.feed("stdout", chunk, 0.0)
        self._tail = (self._tail + chunk)[-_TAIL_BYTES:] if len(chunk) < _TAIL_BYTES else chunk[-_TAIL_BYTES:]

    @property
    def lines(self) -> int:
        """Lines of the log up to here, the last of which may not have ended."""
        return self.scan.lines + bool(self._tail and not self._tail.endswith(b"\n"))

    def observations(self) -> Observations:
        """Return what the whole log shows. How the server ended is not known from it."""
        scan = self.scan
        scan.close(0.0)
        lines = tuple(_timed(_phased(scan), clock := _Clock()))
        ended_at_s = clock.read(_last_clock(self._tail))
        return Observations(
            leader_status=None,
            evidence=lines,
            phase=scan.phase,
            backend=scan.backend,
            setup=scan.setup,
            was_ready=scan.phase in ("serving", "shutdown"),
            uptime_s=ended_at_s,
            ended_at_s=ended_at_s,
            is_over=scan.phase in STARTING and is_uncaught(self._tail),
        )


def _last_clock(tail: bytes) -> str | None:
    """Return the clock of the last line that has one: evidence may be much older than the end of the log."""
    lines = (clean(line) for line in reversed(re.split(rb"[\r\n]+", tail)))
    return next((clock for line in lines if (clock := parse(line).clock)), None)


def _phased(scan: Scan) -> Iterator[Evidence]:
    """Yield the evidence; lines before the first that tells the phase get the phase that must have been."""
    number, phase = scan.known_from
    before = "init" if phase in (*STARTING, "first-inference") else "serving"
    for line in scan.evidence:
        yield replace(line, phase=before) if number and line.number < number else line


@dataclass
class _Clock:
    """Seconds since the first line that has a clock. The log names no year."""

    first: int | None = None
    now: float = 0.0

    def read(self, clock: str | None) -> float:
        if clock:
            month, day, hour, minute, second = (int(clock[place : place + 2]) for place in (0, 3, 6, 9, 12))
            at = (month * 31 + day) * _DAY_S + hour * 3600 + minute * 60 + second
            self.first = at if self.first is None else self.first
            self.now = max(self.now, float(at - self.first))
        return self.now


def _timed(lines: Iterable[Evidence], clock: _Clock) -> Iterator[Evidence]:
    """Yield ``lines`` with the time at which they came."""
    for line in lines:
        yield replace(line, at_s=clock.read(parse(line.text).clock))
