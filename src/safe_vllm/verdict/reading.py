"""The evidence of an attempt, sorted by what it can prove."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from safe_vllm.verdict import ends, xids
from safe_vllm.verdict.evidence import LETHAL, PHASES, Evidence, Observations
from safe_vllm.verdict.scan import ANSWERED, UP
from safe_vllm.verdict.signatures import GUESS

# names of signatures that the verdict knows
DEATH = "death-"
"""Echoes with names that begin so say that an engine process is gone."""
KILLED = "death-by-kill"
STOPPING = "shutdown-triggered"
ORDERLY = "orderly-shutdown"
INTERRUPTED = "shutdown-by-interrupt"
BY_HAND = "interrupted-by-hand"
STALLED = "no-tokens"
WAITING = "shm-broadcast-wait"
MODEL_FRAME = "model-frame"
IMPORT_FRAME = "import-frame"
IMPORT = "guess-import"
COMPILED_FRAME = "compiled-code-frame"
STORED_FRAME = "stored-code-frame"
PINNED_FRAME = "pinned-memory-frame"
ENGINE_UP = "engine-up"
TERMINATED = "death-by-term"
_FRAMES = frozenset({MODEL_FRAME, IMPORT_FRAME, COMPILED_FRAME, STORED_FRAME, PINNED_FRAME})
_TOLD_TO_SERVE = frozenset({"banner", "api-server-version", "arguments"})
_ENGINE_BEGAN = frozenset({"engine-configuration", "loading-model", "nccl-begins"})

_FROM_CLIENTS = frozenset("bad-argument bad-config bad-model hub port-in-use permission".split())
# faults of the start: in service the same words are the answer to somebody's bad request
_BEFORE_SERVICE = frozenset({"init", "autotune", "capture", "first-inference"})
_BEHIND = {
    "engine-signal": LETHAL - {"engine-signal"},
    "hub": frozenset({"disk-full"}),  # a download that cannot be written breaks off
    "nccl-init": (LETHAL - {"engine-signal"}) | {"shm", "gpu-oom", "host-oom", "driver"},
}
"""Faults that only tell that something broke down, and what may stand behind each."""
_KERNEL = LETHAL - {"engine-signal", "board"}
_ENDS_A_START = _FROM_CLIENTS | {"no-gpu", "unsupported-gpu", "toolchain", "driver", "disk-full"}
"""Faults that end a start before the first kernel of the model: one that a kernel fault follows did not."""
_NEAR_S = 60.0
_STALL_S = 60.0
_NEAR_LINES = 60
"""How far from what it tells a frame of the same traceback may stand."""
_STALE_S = 900.0
"""Ranks may wait ten minutes for one whose GPU broke; what came longer ago did no harm."""


@dataclass(frozen=True)
class Reading:
    """What the lines prove. Unless said otherwise: since a request was last answered."""

    roots: tuple[Evidence, ...]
    """Causes that nothing contradicts."""
    weak: tuple[Evidence, ...]
    """Lines that name a fault but are no cause by themselves."""
    deaths: tuple[Evidence, ...]
    """Reports that an engine process is gone, until the server was told to stop."""
    frames: tuple[Evidence, ...]
    """Frames of tracebacks that read the model, import vLLM itself, run code that was compiled, or pin memory."""
    stopping: Evidence | None
    """vLLM's note, at any time, that it was told to stop or that it winds itself down."""
    earlier: tuple[Evidence, ...]
    """Lethal faults that an answer followed: of another engine, perhaps."""
    is_before_engine: bool = False
    """Whether the API server began, and no engine ever did: what fails then is what was asked for."""
    is_engine_up: bool = False
    """Whether an engine, at any time, said that it has nothing more to prepare."""


def read(lines: Sequence[Evidence]) -> Reading:
    """Sort the evidence."""
    last = max((place for place, e in enumerate(lines) if e.signature in (ANSWERED, UP)), default=-1)
    before, after = lines[: last + 1], lines[last + 1 :]
    stopping = next((e for e in lines if _is_stop(e)), None)
    return Reading(
        roots=tuple(e for e in after if e.kind == "root" and _counts(e) and not _was_survived(e, after)),
        weak=tuple(e for e in after if e.kind == "echo" and (_counts(e) or e.signature.startswith(GUESS))),
        deaths=tuple(e for e in after if e.signature.startswith(DEATH) and not _follows(e, stopping)),
        frames=tuple(e for e in after if e.signature in _FRAMES),
        stopping=stopping,
        earlier=tuple(e for e in before if e.kind == "root" and e.fault in LETHAL),
        is_before_engine=_is_before_engine(lines),
        is_engine_up=any(e.signature == ENGINE_UP for e in lines),
    )


def _is_stop(line: Evidence) -> bool:
    by_hand = line.signature == BY_HAND and not ends.is_engine(line.process)
    return by_hand or line.signature in (STOPPING, ORDERLY, INTERRUPTED)


def _is_before_engine(lines: Sequence[Evidence]) -> bool:
    return any(e.signature in _TOLD_TO_SERVE for e in lines) and not any(
        e.signature in _ENGINE_BEGAN or e.signature.startswith(DEATH) or ends.is_engine(e.process) for e in lines
    )


def _counts(line: Evidence) -> bool:
    return bool(line.fault) and (line.fault not in _FROM_CLIENTS or line.phase in _BEFORE_SERVICE)


def _was_survived(line: Evidence, lines: Sequence[Evidence]) -> bool:
    """Whether the server went on to a later phase, without a death in between."""
    if line.fault in LETHAL:
        return False
    for other in lines:
        if other.number > line.number and other.signature.startswith(DEATH):
            return False
        if other.kind == "marker" and other.number > line.number and _is_later(other.phase, line.phase):
            return other.phase != "shutdown"
    return False


def _is_later(phase: str, than: str) -> bool:
    return PHASES.index(phase) > PHASES.index(than)


def _follows(line: Evidence, stopping: Evidence | None) -> bool:
    # an engine that is wound down in order is reported dead all the same
    return stopping is not None and line.number > stopping.number


def credible(reading: Reading, seen: Observations) -> Reading:
    """Return ``reading`` without Xids that tell nothing of this end: of others, or of another time."""
    died_at_s, pids = _died_at_s(reading, seen), xids.pids(seen)

    def counts(line: Evidence) -> bool:
        is_near = 0 <= died_at_s - line.at_s <= _NEAR_S
        return not xids.is_xid(line) or (is_near and not xids.is_of_another(line, pids))

    def is_fresh(line: Evidence) -> bool:
        return not xids.is_reported(line) or seen.ended_at_s - line.at_s <= _STALE_S

    return replace(reading, roots=tuple(filter(is_fresh, reading.roots)), weak=tuple(filter(counts, reading.weak)))


def root(reading: Reading, seen: Observations) -> Evidence | None:
    """Return the root line: the hardware before all, else the first."""
    for fault in ("board", "host-oom"):
        if first := next((e for e in reading.roots if e.fault == fault), None):
            return first
    if reading.roots:
        return _without_kernel(_precise(reading.roots), reading)
    if not (reading.deaths or seen.has_ended):
        return None
    died_at_s = _died_at_s(reading, seen)
    return next((e for e in reading.earlier if died_at_s - e.at_s <= _NEAR_S), None)


def _died_at_s(reading: Reading, seen: Observations) -> float:
    """Return when it began to end, in seconds since the spawn, as the times of lines and processes are."""
    told = [e.at_s for e in reading.deaths[:1]] + [end.at_s for end in seen.ends if ends.is_vllm(end)]
    if told:
        return min(told)
    return seen.ended_at_s or max([e.at_s for e in seen.evidence] + [end.at_s for end in seen.ends], default=0.0)


def _precise(roots: Sequence[Evidence]) -> Evidence:
    """Return the first root, or the fault behind it where the first only tells that something broke down."""
    first = roots[0]
    if first.fault in _ENDS_A_START and (fault := next((e for e in roots if e.fault in _KERNEL), None)):
        return fault
    wanted = _BEHIND.get(first.fault or "", frozenset())
    return next((e for e in roots if e.fault in wanted and e.at_s - first.at_s <= _NEAR_S), first)


def _without_kernel(line: Evidence, reading: Reading) -> Evidence:
    """Return ``line`` as want of host memory where a call was refused that pins such memory: no kernel ran there."""
    if line.fault != "launch-failure" or not line.can_be_caught or line.phase != "init":
        return line
    pinned = (e.number for e in reading.frames if e.signature == PINNED_FRAME and e.process == line.process)
    return replace(line, fault="host-oom") if any(abs(n - line.number) <= _NEAR_LINES for n in pinned) else line


def named(reading: Reading) -> Evidence | None:
    """Return the best line without a root: what names a fault before what only says that nothing moves."""
    told = [e for e in reading.weak if not e.signature.startswith(GUESS)]
    if faults := [e for e in told if e.fault != "hang"]:
        return faults[0]
    waits = _of(told, lambda name: name == WAITING)
    if len(waits) > 1:
        return waits[0]
    if others := _of(told, lambda name: name not in (WAITING, STALLED)):
        return others[0]
    stalls = _of(told, lambda name: name == STALLED)
    return stalls[0] if stalls and stalls[-1].at_s - stalls[0].at_s >= _STALL_S else None


def relevant(line: Evidence | None, seen: Observations) -> tuple[Evidence, ...]:
    """Return what belongs in a report beside ``line``: causes and echoes that no answer cleared."""
    settled = max((place for place, e in enumerate(seen.evidence) if e.signature in (ANSWERED, UP)), default=-1)
    pids = xids.pids(seen)
    return tuple(
        e
        for place, e in enumerate(seen.evidence)
        if e.kind in ("root", "echo")
        and (place > settled or (line and e.number > line.number))
        and not (line and (e.number, e.text) == (line.number, line.text))
        and not xids.is_of_another(e, pids)
    )


def _of(lines: Sequence[Evidence], wants: Callable[[str], bool]) -> list[Evidence]:
    return [e for e in lines if wants(e.signature)]
