"""What follows a death: the ladder, the budget, and a rung's own fault."""

from __future__ import annotations

import pytest

from safe_vllm.plan.ladder import Ladder, Rung
from safe_vllm.policy.descent import Budget, End, Next, Past, after
from safe_vllm.verdict.evidence import Action, Verdict

LADDER = Ladder(tuple(Rung(name, ("model", name)) for name in ("as-asked", "no-autotune", "triton")))
BUDGET = Budget(max_attempts=8, proving_window_s=600)


def death(
    rung: int,
    fault: str = "illegal-memory-access",
    action: Action = "retry-safer",
    ready_for_s: float | None = None,
    exit_status: int | None = None,
) -> Past:
    is_ready = ready_for_s is not None
    verdict = Verdict(fault, action, "init", "it died", exit_status=exit_status, before_ready=not is_ready)
    return Past(rung, verdict, is_ready, ready_for_s or 0.0)


def refused(rung: int) -> Past:
    return death(rung, "backend-refused", "stop", exit_status=78)


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        pytest.param([death(0)], Next(1, "it died"), id="a kernel fault while starting steps down"),
        pytest.param([death(0), death(1)], Next(2, "it died"), id="and again"),
        pytest.param([death(2)], End(70, "no rung is left: it died"), id="the ladder is spent"),
        pytest.param([death(0, ready_for_s=30)], Next(1, "it died"), id="a fault inside the proving window steps down"),
        pytest.param(
            [death(0, ready_for_s=9000)],
            Next(0, "the same rung once more"),
            id="after long service the rung is kept once",
        ),
        pytest.param([death(0, ready_for_s=9000), death(0, ready_for_s=30)], Next(1, "it died"), id="but only once"),
        pytest.param(
            [death(2, ready_for_s=30)],
            Next(2, "this is the last rung, and it once served"),
            id="the last rung is kept when it once served",
        ),
        pytest.param([refused(0)], Next(1, "it died", is_skip=True), id="a refused backend at the top is skipped"),
        pytest.param([death(0), refused(1)], Next(2, "it died", is_skip=True), id="and further down"),
        pytest.param(
            [death(0), death(1), refused(2)], End(78, "no rung is left: it died"), id="unless nothing remains"
        ),
        pytest.param(
            [death(0, "gpu-oom", "stop", exit_status=78)], End(78, "it died"), id="no memory at the top ends the launch"
        ),
        pytest.param(
            [death(0), death(1, "gpu-oom", "stop", exit_status=78)],
            Next(2, "it died", is_skip=True),
            id="no memory at a lower rung is that rung's fault",
        ),
        pytest.param(
            [death(0), death(1, "board", "stop", exit_status=69)], End(69, "it died"), id="hardware ends it at any rung"
        ),
        pytest.param([death(0, "bad-argument", "stop", exit_status=2)], End(2, "it died"), id="a bad argument ends it"),
        pytest.param(
            [death(0, "collective-timeout", "retry-same")],
            Next(0, "the same rung once more"),
            id="what may pass by itself is tried again",
        ),
        pytest.param([death(0, "collective-timeout", "retry-same")] * 2, Next(1, "it died"), id="but not for ever"),
        pytest.param([death(0, "stopped", "stop", exit_status=0)], End(0, "it died"), id="a stop by someone else"),
    ],
)
def test_what_follows(history: list[Past], expected: Next | End) -> None:
    assert after(LADDER, history, BUDGET) == expected


def test_the_budget_counts_attempts() -> None:
    budget = Budget(max_attempts=2, proving_window_s=600)
    assert after(LADDER, [death(0), death(1)], budget) == End(70, "2 attempts are spent")


def test_a_skipped_rung_costs_no_attempt() -> None:
    budget = Budget(max_attempts=2, proving_window_s=600)
    assert after(LADDER, [refused(0), death(1)], budget) == Next(2, "it died")
