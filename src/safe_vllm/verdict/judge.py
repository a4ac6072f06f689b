"""Observations in, verdict out."""

from __future__ import annotations

from safe_vllm.verdict.actions import action_for, status_for
from safe_vllm.verdict.advice import Table, advised
from safe_vllm.verdict.caches import cache
from safe_vllm.verdict.cause import Cause, find
from safe_vllm.verdict.evidence import LETHAL, Action, Evidence, Observations, Verdict
from safe_vllm.verdict.reading import WAITING, relevant
from safe_vllm.verdict.wording import reason

_MOST_LINES = 24
_FRAMES_AFTER = 60
"""How many lines of native frames may follow the line that announces them."""
_NATIVE_FRAME = "native-frame-"
"""Frames that show where a process crashed. Below an exception they only show who noticed."""


def judge(observations: Observations, advice: Table = ()) -> Verdict:
    """Return what kind of end ``observations`` tell of, and what that calls for, with what fits of ``advice``."""
    cause = Cause("stopped") if observations.stop_requested else find(observations)
    before_ready = not observations.was_ready
    action = _action(cause, before_ready)
    phase = _phase(cause, observations)
    suspect, is_known = _suspect(cause, observations, phase)
    verdict = Verdict(
        fault=cause.fault,
        action=action,
        phase=phase,
        reason="the operator asked it to stop" if observations.stop_requested else reason(cause, observations, phase),
        suspect=suspect,
        is_suspect_known=is_known,
        cache=cache(cause, observations),
        backend=_backend(suspect, observations),
        evidence=_lines(cause, observations),
        setup=observations.setup,
        exit_status=status_for(cause.fault, action),
        before_ready=before_ready,
    )
    return advised(verdict, advice)


def _backend(suspect: str, seen: Observations) -> str | None:
    others = {"attention": seen.setup.attention_backend, "all-to-all": seen.setup.all2all_backend}
    return others.get(suspect, seen.backend)


def _action(cause: Cause, before_ready: bool) -> Action:
    if cause.fault == "port-in-use" and cause.suspect == "parallel":
        return "retry-same"  # a port of the last attempt's ranks, chosen anew or free in a moment
    if cause.fault == "hang" and cause.line and cause.line.signature == WAITING:
        return "retry-safer"  # the ranks live and wait for one that is stuck on its GPU
    if cause.was_killed:
        return "retry-same"
    return action_for(cause.fault, before_ready=before_ready)


def _phase(cause: Cause, seen: Observations) -> str:
    if cause.fault == "none" and not cause.line:
        lookalikes = [e for e in seen.evidence if e.fault] or [e for e in seen.evidence if e.kind == "benign"]
        return lookalikes[0].phase if lookalikes else seen.phase
    if not cause.line:
        return seen.phase
    if cause.line.signature == "port-in-use" and cause.line.phase == "first-inference":
        return "init"  # uvicorn says that it is up before it binds
    frames = (e for e in _after(cause.line, seen) if e.kind == "marker" and e.signature.endswith("-frame"))
    return next((e.phase for e in frames), cause.line.phase)


def _suspect(cause: Cause, seen: Observations, phase: str) -> tuple[str, bool]:
    """Return the suspect, and whether it is known. A name of a kernel comes before who noticed the fault."""
    if cause.fault in ("none", "stopped"):
        return "none", False
    lines = [cause.line, *_after(cause.line, seen)] if cause.line else []
    told = [e for e in lines if e.suspect and (e is cause.line or _is_frame(e, cause))]
    proof = next((e.suspect for e in told if e.proves), None) if cause.fault in LETHAL - {"board"} else None
    if proof:
        return proof, True
    hint = cause.suspect or next((e.suspect for e in told), None)
    return hint or ("autotune" if phase == "autotune" else "unknown"), False


def _is_frame(line: Evidence, cause: Cause) -> bool:
    return not line.fault and (cause.fault == "engine-signal" or not line.signature.startswith(_NATIVE_FRAME))


def _after(line: Evidence, seen: Observations) -> list[Evidence]:
    """Return what came within a stack trace after ``line``."""
    return [e for e in seen.evidence if 0 < e.number - line.number <= _FRAMES_AFTER]


def _lines(cause: Cause, seen: Observations) -> tuple[Evidence, ...]:
    """Return the lines that the verdict rests on, the cause first. Without a cause only echoes can be left."""
    if not cause.line and cause.fault in ("none", "stopped"):
        return ()
    others = relevant(cause.line, seen)
    if not cause.line:
        return tuple(e for e in others if e.kind == "echo")[:_MOST_LINES]
    return (cause.line, *others[:_MOST_LINES])
