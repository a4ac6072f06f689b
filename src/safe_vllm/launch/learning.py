"""What a launch learns from a failed attempt: whether its rung is no good, and a report for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from safe_vllm.attempt.order import Ended
from safe_vllm.launch.autopsy import Circumstances, Failed, advised_anew, write
from safe_vllm.launch.judging import verdict_on_dying
from safe_vllm.launch.keeping import Keeper
from safe_vllm.launch.timekeeping import budget_of
from safe_vllm.plan.command import Command
from safe_vllm.plan.ladder import Rung
from safe_vllm.policy.descent import End, Past, after
from safe_vllm.policy.history import breaks
from safe_vllm.preparing import Prepared
from safe_vllm.verdict.evidence import Verdict


def learn(failed: Failed, around: Circumstances, keeper: Keeper, *, is_left: bool) -> None:
    """Keep what an attempt has taught, before anything else is started. ``is_left``: its rung is not run again now.

    A stop teaches nothing, unless it came when the attempt was dying anyway.
    """
    if failed.ended.observations.stop_requested:
        if (died := _died(failed, around)) is None:
            return
        failed, around = died
        is_left = _is_left(around.prepared, around.history)
    if is_left and not failed.ended.stuck and breaks(around.history[-1]):
        keeper.broke(failed.number, failed.rung, failed.verdict)
    keeper.report(failed.number, failed.rung, partial(write, failed, around))


def advised(verdict: Verdict, ended: Ended, rung: Rung, command: Command, prepared: Prepared) -> Verdict:
    """Return the verdict with the advice that the report will give too; a stop needs none.

    How to open core files the report alone tells: to look for them takes a while.
    """
    if ended.observations.stop_requested:
        return verdict
    verdict = advised_anew(verdict, rung, command, prepared)
    there = {"stacks"} if ended.stacks and ended.stacks.taken else set()
    return replace(verdict, advised=tuple(one for one in verdict.advised if one.makes not in there))


def _died(failed: Failed, around: Circumstances) -> tuple[Failed, Circumstances] | None:
    """Return the attempt as it would have been without the stop; ``None``: it may have lived on."""
    verdict = verdict_on_dying(failed.ended, around.prepared.machine)
    if verdict is None or failed.ended.died is None or failed.ended.stuck:
        return None
    ended = replace(failed.ended, observations=failed.ended.died)
    history = (*around.history[:-1], replace(around.history[-1], verdict=verdict))
    return replace(failed, ended=ended, verdict=verdict), replace(around, history=history)


def _is_left(prepared: Prepared, history: Sequence[Past]) -> bool:
    """Return whether another rung, or the end, would have followed."""
    would = after(prepared.plan.ladder, history, budget_of(prepared))
    return isinstance(would, End) or would.rung != history[-1].rung
