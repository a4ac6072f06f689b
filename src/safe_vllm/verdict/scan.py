"""Scanning output as it comes: chunks of bytes in, evidence out."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from safe_vllm.verdict.evidence import Evidence, GpuEvent, Kind, Setup
from safe_vllm.verdict.kept import Kept
from safe_vllm.verdict.lines import LONGEST_BYTES, Record, clean, split
from safe_vllm.verdict.phase import Progress
from safe_vllm.verdict.shapes import Shapes, Shown
from safe_vllm.verdict.sieve import Sieve, line_numbers, lines_of, of_activity
from safe_vllm.verdict.signatures import CACHE, Match, Signature, Signatures

Stream = Literal["stdout", "stderr"]

ANSWERED = "answered"
"""The signature of the evidence that the server works: a request was answered, or tokens keep coming."""
UP = "startup-complete"

LONGEST_TEXT = 2000
_FIRST_COUNTS = ("vllm", "flashinfer")
"""Of these, what was told first holds: what a server runs does not change, and what comes later may be quoted."""
_FLOWING = re.compile(
    r"(?:Engine \d+: |\d+ Engines Aggregated: )?Avg prompt throughput: [\d.]+ tokens/s, "
    r"Avg generation throughput: (?!0\.0 )[\d.]+ tokens/s"
)
_NO_INFERENCE = re.compile(r"/(?:de)?tokenize|_lora_adapter|/sleep|/wake_up|/reset_|/start_profile|/stop_profile")


@dataclass
class _Stream:
    """What one stream has not ended yet."""

    part: bytes = b""
    is_cut: bool = False
    """Whether the rest of an endless line is being passed over."""


class Scan:
    """What the output of one attempt has shown so far. Both streams share numbers, phase and evidence."""

    def __init__(self, signatures: Signatures, *, from_start: bool = True, like: Scan | None = None) -> None:
        """Look for ``signatures``; ``from_start``: the first line is the first that the server printed.

        ``like``: another scan for the same, whose preparations serve again.
        """
        self._signatures = signatures
        self._sieve: Sieve = like._sieve if like else Sieve(signatures)
        self._shapes: Shapes = like._shapes if like else Shapes(signatures)
        self._known = signatures
        self._streams = {"stdout": _Stream(), "stderr": _Stream()}
        self._progress = Progress(is_known=from_start)
        self._kept = Kept()
        self._is_armed = False
        self._flowing = 0
        self._told: dict[str, str] = {}
        self.lines = 0
        """Line ends seen so far."""
        self.known_from: tuple[int, str] = (0, "init")
        """The line that first told the phase of a log that is read from its middle, and that phase."""

    @property
    def phase(self) -> str:
        """Where the server is."""
        return self._progress.phase

    @property
    def backend(self) -> str | None:
        """The MoE backend that vLLM said it uses."""
        return self._told.get("backend")

    @property
    def setup(self) -> Setup:
        """The software and hardware in use, as far as it was told."""
        setup = Setup(**{name: value for name, value in self._told.items() if name != "backend"})
        return replace(setup, gpu=setup.gpu.replace("_", " ")) if setup.gpu else setup  # file names have no spaces

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """The evidence kept so far, in order; its size does not grow with the output."""
        return self._kept.all

    def health_answered(self) -> None:
        """Note that ``/health`` was answered: what follows is the first inference."""
        self._progress = self._progress.on_trial()

    def ready(self) -> None:
        """Note that a completion was answered: the server serves."""
        self._progress = self._progress.ready()

    def settled(self, at_s: float) -> None:
        """Note that a request of ours was answered: what was printed before did no lasting harm."""
        self._settle(
            Evidence(self.lines, "a test request was answered", "marker", ANSWERED, phase=self.phase, at_s=at_s)
        )

    def gpu_event(self, event: GpuEvent) -> list[Evidence]:
        """Take in what NVML told of a GPU; return what it shows. An answer that follows clears it like any line."""
        match = self._signatures.match(record := Record(event.line, event.line))
        return self._take(match, record, event.at_s) if match else []

    def feed(self, stream: Stream, chunk: bytes, at_s: float) -> list[Evidence]:
        """Take ``chunk`` of ``stream``, ``at_s`` seconds after the spawn; return what its whole lines show."""
        state = self._streams[stream]
        cut = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
        if not cut:
            self._hold(state, chunk)
            return []
        block = chunk[:cut] if state.is_cut or not state.part else state.part + chunk[:cut]
        if state.is_cut:
            block = state.part + block[_first_end(block) :]
        state.part, state.is_cut = b"", False
        self._hold(state, chunk[cut:])
        return self._block(block, at_s)

    def close(self, at_s: float) -> list[Evidence]:
        """Take what has not ended its line as whole lines; return what it shows."""
        found: list[Evidence] = []
        for state in self._streams.values():
            if state.part:
                found += self._block(state.part, at_s)
            state.part, state.is_cut = b"", False
        return found

    def _hold(self, state: _Stream, rest: bytes) -> None:
        if state.is_cut:
            return
        state.part = (state.part + rest[:LONGEST_BYTES])[:LONGEST_BYTES] if rest else state.part
        state.is_cut = len(state.part) == LONGEST_BYTES

    def _block(self, block: bytes, at_s: float) -> list[Evidence]:
        found: list[Evidence] = []
        lines, before = lines_of(block), self.lines
        told, needles = self._sieve.with_needles(lines)
        self._known = self._signatures.among(needles)
        wanted = deque(sorted(told | of_activity(block, lines) if self._watches else told))
        numbers = line_numbers(block) if wanted else ()
        while wanted:
            place, watched = wanted.popleft(), self._watches
            if watched or place in told:
                self.lines = before + numbers[place]
                found += self._line(lines[place][:LONGEST_BYTES], at_s, has_needle=place in told)
            if self._watches and not watched:  # from here on it matters whether requests are answered
                later = {other for other in of_activity(block, lines) if other > place}
                wanted = deque(sorted({*wanted, *later}))
        self.lines = before + block.count(b"\n")
        return found

    @property
    def _watches(self) -> bool:
        return self._is_armed or self._progress.phase != "serving" or not self._progress.is_known

    def _line(self, line: bytes, at_s: float, *, has_needle: bool) -> list[Evidence]:
        found: list[Evidence] = []
        was_known = self._progress.is_known
        for record, match in self._read(line, has_needle):
            if self._is_answer(record):
                found += self._settle(self._evidence("marker", ANSWERED, record, at_s))
            elif match:
                self._note(self._known.told(record))
                found += self._take(match, record, at_s)
        if self._progress.is_known and not was_known:
            self.known_from = (self.lines + 1, self.phase)
        return found

    def _read(self, line: bytes, has_needle: bool) -> Shown:
        if has_needle:
            return self._shapes.read(line, self._known, self._is_idle)
        return tuple((record, None) for record in split(clean(line), self._known.quotes))

    def _is_idle(self, signature: Signature) -> bool:
        """Whether no text of this signature will be kept."""
        return signature.name != UP and self._kept.has_enough(signature.name)

    def _is_answer(self, record: Record) -> bool:
        """Whether ``record`` shows that the server answers; moves the phase."""
        if record.request:
            method, path, status = record.request
            if method != "POST" or _NO_INFERENCE.search(path):
                return False
            if status >= 300:
                self._progress = self._progress.hint("serving")
                return False
            self._progress = self._progress.answered()
            return True
        if not (record.is_calm and _FLOWING.match(record.message)):
            return False
        self._progress = self._progress.busy()
        # the figure is an average that reaches back before a fault: one line proves nothing
        self._flowing += 1
        return self._flowing > 1

    def _settle(self, answer: Evidence) -> list[Evidence]:
        if not self._is_armed:
            return []
        self._is_armed, self._flowing = False, 0
        self._kept.settle(answer)
        return [answer]

    def _note(self, told: Mapping[str, str]) -> None:
        told = {name: value for name, value in told.items() if name != CACHE}
        if told:
            kept = {name: self._told[name] for name in _FIRST_COUNTS if name in self._told}
            self._told = {**self._told, **told, **kept}

    def _take(self, match: Match, record: Record, at_s: float) -> list[Evidence]:
        signature = match.signature
        if signature.phase:
            move = self._progress.enter if match.kind == "marker" else self._progress.hint
            self._progress = move(signature.phase)
        settles = signature.name == UP and self._is_armed
        self._is_armed = not settles and (self._is_armed or match.kind in ("root", "echo"))
        self._flowing = self._flowing if match.kind in ("marker", "benign") else 0
        if not settles and self._kept.has_enough(signature.name):
            return []
        evidence = self._evidence(match.kind, signature.name, record, at_s, match.fault, match.suspect)
        if signature.can_be_caught or signature.proves or CACHE in signature.tells:
            cache = signature.told(record).get(CACHE)
            evidence = replace(evidence, can_be_caught=signature.can_be_caught, proves=signature.proves, cache=cache)
        if settles:
            self._kept.settle(evidence)
        else:
            self._kept.add(evidence)
        return [evidence]

    def _evidence(
        self, kind: Kind, name: str, record: Record, at_s: float, fault: str | None = None, suspect: str | None = None
    ) -> Evidence:
        return Evidence(
            number=self.lines + 1,
            text=record.text[:LONGEST_TEXT],
            kind=kind,
            signature=name,
            fault=fault,
            suspect=suspect,
            process=record.process,
            phase=self._progress.phase,
            at_s=at_s,
        )


def _first_end(block: bytes) -> int:
    ends = [end for end in (block.find(b"\n"), block.find(b"\r")) if end >= 0]
    return min(ends)
