"""The cache that an end may be owed to: a tuned tactic that was loaded, or compiled code among the frames."""

from __future__ import annotations

from safe_vllm.verdict.cause import Cause
from safe_vllm.verdict.evidence import LETHAL, Evidence, Observations
from safe_vllm.verdict.reading import COMPILED_FRAME, STORED_FRAME

ANNOUNCED = "autotune-cache"
"""vLLM names the file whether or not there is one yet."""
LOADED = "autotune-cache-loaded"
TUNED = "autotune-progress"
DIRECTORY = "cache-directory"
_FAULTS = (LETHAL - {"board"}) | {"hang", "unknown"}
"""What a tactic or code that does not fit may come to."""
_NEAR_LINES = 60


def cache(cause: Cause, seen: Observations) -> str | None:
    """Return the file or directory that the end may be owed to."""
    if cause.fault not in _FAULTS:
        return None
    line = _loaded(cause, seen) or _compiled(cause, seen) or _stored(cause, seen)
    return line.cache if line else None


def _loaded(cause: Cause, seen: Observations) -> Evidence | None:
    """Return the line that tells of tactics from a file. What one rank has just tuned, the others load as well."""
    before = [e for e in seen.evidence if not cause.line or e.number < cause.line.number]
    tuned = next((e.number for e in before if e.signature == TUNED), None)
    if loaded := next((e for e in before if e.signature == LOADED and (tuned is None or e.number < tuned)), None):
        return loaded
    return None if tuned else next((e for e in before if e.signature == ANNOUNCED), None)


def _compiled(cause: Cause, seen: Observations) -> Evidence | None:
    """Return a frame of compiled code in the stack of the cause; without a line for the cause, the last one."""
    return next(iter(_frames(COMPILED_FRAME, cause, seen)), None)


def _stored(cause: Cause, seen: Observations) -> Evidence | None:
    """Return the line that names the directory of compiled code, where an exception came out of such code.

    A fault of the GPU has these frames as well, whatever was at fault.
    """
    if cause.fault != "unknown" or not _frames(STORED_FRAME, cause, seen):
        return None
    return next((e for e in reversed(seen.evidence) if e.signature == DIRECTORY), None)


def _frames(signature: str, cause: Cause, seen: Observations) -> list[Evidence]:
    """Return such frames in the stack of the cause; without a line for the cause, the last one."""
    frames = [e for e in seen.evidence if e.signature == signature]
    if not cause.line:
        return frames[-1:]
    line = cause.line
    return [e for e in frames if e.process == line.process and abs(e.number - line.number) <= _NEAR_LINES]
