"""What the type of an exception may tell, where no line is known that names the cause."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from safe_vllm.verdict import ends
from safe_vllm.verdict.evidence import Evidence, Observations
from safe_vllm.verdict.phase import STARTING
from safe_vllm.verdict.reading import COMPILED_FRAME, IMPORT, IMPORT_FRAME, PINNED_FRAME, STORED_FRAME, Reading
from safe_vllm.verdict.signatures import GUESS

_FRONT_END = "APIServer"


def guess(reading: Reading, seen: Observations) -> Evidence | None:
    """Return the exception that may tell most: that of the server alone, the first of an engine, or the last of all."""
    guesses = [e for e in reading.weak if e.signature.startswith(GUESS)]
    of_engine = [e for e in guesses if ends.is_engine(e.process)]
    if front := _of_front_end(guesses, reading, seen):
        return front
    chosen = of_engine[0] if of_engine else guesses[-1] if guesses else None
    if chosen and chosen.fault == "unknown" and reading.is_before_engine:
        return replace(chosen, fault="bad-config")
    if chosen is None or chosen.fault == "unknown":
        return chosen
    if chosen.phase != "init":
        return replace(chosen, fault="unknown")
    frames = {e.signature for e in reading.frames if e.process == chosen.process and e.number < chosen.number}
    frames.discard(PINNED_FRAME)
    if chosen.signature == IMPORT or IMPORT_FRAME in frames:
        # what is installed does not fit together, whatever model is asked for
        return replace(chosen, fault="toolchain")
    if frames & {COMPILED_FRAME, STORED_FRAME}:
        return replace(chosen, fault="unknown")  # the configuration was good enough to be compiled for
    return replace(chosen, fault="bad-model") if frames else chosen


def _of_front_end(guesses: Sequence[Evidence], reading: Reading, seen: Observations) -> Evidence | None:
    """Return the exception with which the server ended before service although its engine was well.

    Templates, certificates, adapters, tools and the like are read then: no kernel has to do with it.
    """
    last = guesses[-1] if guesses else None
    if last is None or last.phase not in STARTING or reading.deaths or _ended_before(last, seen):
        return None
    is_signed = bool(last.process and last.process.startswith(_FRONT_END))
    is_up = reading.is_engine_up or (is_signed and last.phase != "init")
    if not is_up or not (is_signed or last.process is None):
        return None
    return replace(last, fault="toolchain" if last.signature == IMPORT else "bad-config")


def _ended_before(line: Evidence, seen: Observations) -> bool:
    """Whether an engine process had ended when ``line`` came."""
    return any(ends.is_vllm(end) and not end.name.endswith(_FRONT_END) and end.at_s < line.at_s for end in seen.ends)
