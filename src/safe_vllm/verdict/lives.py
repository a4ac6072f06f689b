"""Taking a log apart into the starts of vLLM that it tells of: attempts of ours, or restarts by a supervisor."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain

from safe_vllm.verdict.evidence import PHASES, Observations
from safe_vllm.verdict.lines import LONGEST_BYTES, clean, parse
from safe_vllm.verdict.own_lines import PREFIX, Note, note
from safe_vllm.verdict.replay import Replay
from safe_vllm.verdict.signatures import Signatures

BANNERS = frozenset({"api-server-version", "banner"})
"""Signatures of what the parent of the API servers prints once, when it starts."""
_DEATH = "death-"
_PARENT = "APIServer"
_PID = re.compile(r" pid=(\d+)\)")
_VLLMS = (b"vllm", b"vLLM", b"VLLM", b"(EngineCore", b"(Worker", b"(APIServer")
"""What stands in the output of vLLM and of little else."""


@dataclass(frozen=True)
class Life:
    """One start of vLLM, and what a log shows of it."""

    observations: Observations
    number: int | None = None
    """Of the attempt, as safe-vllm counted."""
    rung: str | None = None
    lines: int = 0
    """Lines of the log up to its end; 0 where there is no log."""
    is_vllm: bool = True
    """Whether any line of it is like those of vLLM."""


def lives(chunks: Iterable[bytes], exit_status: int | None, signatures: Signatures) -> Iterator[Life]:
    """Yield the lives in a log, in order; at least one. ``exit_status`` is how the last of them ended."""
    log = _Log(signatures)
    held: _Life | None = None
    for life in chain.from_iterable(map(log.feed, _whole_lines(chunks))):
        if held:
            yield held.told(is_over=True)
        held = life
    if held and log.life.is_worth_telling:
        yield held.told(is_over=True)
        held = None
    yield (held or log.life).told(exit_status)


def _whole_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the same bytes, cut behind the ends of lines where these are not too far apart."""
    rest = b""
    for chunk in chunks:
        cut = chunk.rfind(b"\n") + 1
        if cut or len(rest) > LONGEST_BYTES:
            yield rest + chunk[:cut]
            rest = b""
        rest += chunk[cut:]
    yield rest


@dataclass
class _Life:
    """A life while it is being read."""

    replay: Replay
    notes: Note = field(default_factory=Note)
    pids: set[str] = field(default_factory=set)
    """Of those that printed a banner."""
    is_vllm: bool = False

    @property
    def is_worth_telling(self) -> bool:
        """Whether it is more than what stands around attempts."""
        return bool(self.pids or self.notes.rung or self.notes.is_over or self.replay.scan.evidence)

    def has_another(self, pid: str | None) -> bool:
        """Whether a banner of ``pid`` is that of another start: several servers may share a log, and start as one."""
        scan = self.replay.scan
        if pid in self.pids or scan.phase != "init":
            return True
        # what a start merely complains of before its banner belongs to it
        wrong = (e for e in scan.evidence if e.kind == "root" or e.signature.startswith(_DEATH))
        return any(self.pids or e.kind != "root" or e.arms for e in wrong)

    def told(self, exit_status: int | None = None, *, is_over: bool = False) -> Life:
        """Return what was found. What our own lines tell of the end counts before what others say."""
        seen, notes = self.replay.observations(), self.notes
        knows = notes.status is not None or notes.ended_by_us
        phase = max(seen.phase, notes.phase or "init", key=PHASES.index)
        ended = replace(
            seen,
            phase=phase,
            backend=seen.backend or notes.backend,
            was_ready=seen.was_ready or phase == "serving",
            said=(notes.fault, notes.suspect) if notes.fault else None,
            leader_status=notes.status if knows else exit_status,
            is_over=is_over or notes.is_over or seen.is_over,
            ends=tuple(replace(end, at_s=seen.ended_at_s) for end in notes.ends),
            ended_by_us=notes.ended_by_us,
            canary="failed" if notes.canary_failed else seen.canary,
            stop_requested=notes.stop_requested,
        )
        is_vllm = self.is_vllm or bool(seen.evidence)
        return Life(ended, notes.attempt, notes.rung, self.replay.lines, is_vllm)


class _Log:
    """A log while it is being read."""

    def __init__(self, signatures: Signatures) -> None:
        """Begin with a life that may be under way already."""
        self._signatures = signatures
        self._needles = [PREFIX.encode(), *(t for s in signatures.all if s.name in BANNERS for t in s.telling)]
        self.life = _Life(Replay(signatures))

    def feed(self, block: bytes) -> list[_Life]:
        """Take whole lines; return the lives that ended there."""
        ended, at = [], 0
        for start, end in self._candidates(block):
            line = clean(block[start:end])
            ours, pid = note(line), self._banner(line)
            if ours is None and pid is None:
                continue
            self._take(block[at:start])
            at = end if ours else start
            begins = self._begins(ours) if ours else self.life.has_another(pid)
            if begins:
                ended += [self.life] if self.life.is_worth_telling else []
                self.life = _Life(Replay(self._signatures, after=self.life.replay))
            if ours:
                self.life.notes = _joined(self.life.notes, ours)
                self._take(b"\n")  # it counts as a line, and tells nothing
            elif pid is not None:
                self.life.pids.add(pid)
        self._take(block[at:])
        return ended

    def _begins(self, ours: Note) -> bool:
        notes = self.life.notes
        return ours.closes or (ours.begins and (notes.is_over or ours.attempt != notes.attempt or ours.rung is None))

    def _candidates(self, block: bytes) -> list[tuple[int, int]]:
        """Return the lines that may be ours or a banner, as their places in the block."""
        found: dict[int, int] = {}
        for needle in self._needles:
            at = block.find(needle)
            while at >= 0:
                end = block.find(b"\n", at) + 1 or len(block)
                found[block.rfind(b"\n", 0, at) + 1] = end
                at = block.find(needle, end)
        return sorted(found.items())

    def _banner(self, line: str) -> str | None:
        """Return the process that prints this banner, where it is one. The children of an API server print none."""
        record = parse(line)
        match = self._signatures.match(record)
        if match is None or match.signature.name not in BANNERS or record.process not in (None, _PARENT):
            return None
        prefix = _PID.search(record.text)
        return prefix[1] if prefix else ""

    def _take(self, block: bytes) -> None:
        if block:
            self.life.is_vllm = self.life.is_vllm or any(word in block for word in _VLLMS)
            self.life.replay.feed(block)


def _joined(before: Note, now: Note) -> Note:
    """Return what both tell of one attempt; the later word counts."""
    return Note(
        attempt=now.attempt or before.attempt,
        rung=now.rung or before.rung,
        fault=now.fault or before.fault,
        phase=now.phase or before.phase,
        suspect=now.suspect or before.suspect,
        backend=now.backend or before.backend,
        is_over=now.is_over or before.is_over,
        status=before.status if now.status is None else now.status,
        ends=now.ends or before.ends,
        ended_by_us=now.ended_by_us or before.ended_by_us,
        canary_failed=now.canary_failed or before.canary_failed,
        stop_requested=now.stop_requested or before.stop_requested,
    )
