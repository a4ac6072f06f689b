"""Which rungs a launch has not run, and why."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from safe_vllm.plan.ladder import RELIEVES, Plan
from safe_vllm.record.incident import Untried
from safe_vllm.verdict.evidence import Verdict


def untried(
    plan: Plan, rung: str, tried: Collection[str], following: str | None, verdict: Verdict
) -> Iterator[Untried]:
    """Yield the rungs that neither were ``tried`` nor are ``following``, and those that the ladder does not have."""
    names = [each.name for each in plan.ladder.rungs]
    highest = next((at for at, name in enumerate(names) if name in (*tried, rung)), 0)
    for at, name in enumerate(names):
        if at < min(highest, plan.entry):
            because = f": {plan.entry_because}" if plan.entry_because else ""
            yield Untried(name, f"this launch began below it, at {names[plan.entry]}{because}")
        elif name not in (*tried, rung, following):
            yield Untried(name, _why(plan, names, at, rung, following, verdict))
    yield from (Untried(left.name, f"not on this ladder: {left.because}") for left in plan.ladder.left_out)


def _why(plan: Plan, names: list[str], at: int, rung: str, following: str | None, verdict: Verdict) -> str:
    if plan.observed:
        return "this launch is only observed, and changes nothing"
    if following in names and at > names.index(following):
        return f"not yet: it comes below {following}"
    if rung in names and at < names.index(rung):
        return "it was passed over: its change does not answer what had failed"
    if verdict.is_suspect_known and verdict.suspect not in RELIEVES.get(names[at], ()):
        return f"its change does not answer a fault of {verdict.suspect}"
    if verdict.action in ("stop", "none"):
        return "no change of kernels or parallelism answers this fault"
    return "the launch ended before its turn"
