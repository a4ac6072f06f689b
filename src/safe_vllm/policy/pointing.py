"""Where the verdict points: the rung whose own step answers a suspect that is known."""

from __future__ import annotations

from collections.abc import Sequence

from safe_vllm.plan.ladder import RELIEVES, Ladder
from safe_vllm.policy.history import Budget, Past, deaths, has_proven, same_reason, since_proven
from safe_vllm.verdict.evidence import Verdict

REPEATS = 2
"""So many deaths of one rung are taken where no rung answers the suspect."""
_NOBODY = frozenset({"none", "unknown"})


def points(verdict: Verdict) -> bool:
    """Return whether the verdict knows which part of the engine it was."""
    return verdict.is_suspect_known and verdict.suspect not in _NOBODY


def relieving(ladder: Ladder, rungs: Sequence[int], suspect: str) -> int | None:
    """Return the first of these rungs whose own step answers ``suspect``."""
    return next((rung for rung in rungs if suspect in RELIEVES.get(ladder.rungs[rung].name, ())), None)


def is_given_up(history: Sequence[Past], budget: Budget) -> bool:
    """Return whether the last rung died of this suspect before, since a server last proved itself.

    A proven server gets here only where its death is a relapse: then the deaths before it count.
    """
    last = history[-1]
    series = since_proven(history[:-1], budget) if has_proven(last, budget) else since_proven(history, budget)[:-1]
    alike = [past for past in deaths(series) if past.rung == last.rung and same_reason(past.verdict, last.verdict)]
    return len(alike) + 1 >= REPEATS
