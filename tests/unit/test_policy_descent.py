"""What follows a death: the ladder, the budget, and a rung's own fault."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from safe_vllm.plan.ladder import Ladder, Rung
from safe_vllm.policy.descent import Budget, End, Next, Past, after, observed_end, refused
from safe_vllm.verdict.evidence import Action, Verdict

LADDER = Ladder(tuple(Rung(name, ("model", name)) for name in ("as-asked", "no-autotune", "triton")))
BUDGET = Budget(max_attempts=8, proving_window_s=600)
LONG, SHORT = 9000.0, 30.0
AGAIN = "the same rung once more: it died"


def death(
    rung: int,
    fault: str = "illegal-memory-access",
    action: Action = "retry-safer",
    ready_for_s: float | None = None,
    exit_status: int | None = None,
    reason: str = "it died",
) -> Past:
    is_ready = ready_for_s is not None
    verdict = Verdict(fault, action, "init", reason, exit_status=exit_status, before_ready=not is_ready)
    return Past(rung, verdict, is_ready, ready_for_s or 0.0)


def no(rung: int, fault: str = "backend-refused") -> Past:
    """An attempt whose settings were refused."""
    return death(rung, fault, "stop", exit_status=2 if fault == "bad-argument" else 78, reason="refused")


def killed(rung: int, ready_for_s: float | None = None) -> Past:
    """An attempt that somebody unknown killed."""
    return death(rung, "unknown", "retry-same", ready_for_s)


def skip(rung: int, deaths: int = 0) -> Next:
    return Next(rung, "refused", deaths, is_skip=True)


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        pytest.param([death(0)], Next(1, "it died", 1), id="a kernel fault while starting steps down"),
        pytest.param([death(0), death(1)], Next(2, "it died", 2), id="and again"),
        pytest.param([death(2)], End(70, "no rung is left: it died"), id="the ladder is spent"),
        pytest.param(
            [death(0, ready_for_s=SHORT)], Next(1, "it died", 1), id="a fault inside the proving window steps down"
        ),
        pytest.param([death(0, ready_for_s=LONG)], Next(0, AGAIN, 1), id="after long service the rung is kept once"),
        pytest.param(
            [death(0, ready_for_s=LONG), death(0, ready_for_s=SHORT)], Next(1, "it died", 2), id="but only once"
        ),
        pytest.param([death(0, ready_for_s=LONG), death(0)], Next(1, "it died", 2), id="also when it does not start"),
        pytest.param(
            [death(2, ready_for_s=SHORT)],
            Next(2, "this is the last rung, and it once served: it died", 1),
            id="the last rung is kept when it once served",
        ),
        pytest.param([no(0)], skip(1), id="a refused backend at the top is skipped"),
        pytest.param([death(0), no(1)], skip(2, 1), id="and further down"),
        pytest.param(
            [death(0, "gpu-oom", "stop", exit_status=78)], End(78, "it died"), id="no memory at the top ends the launch"
        ),
        pytest.param(
            [death(0), death(1, "gpu-oom", "stop", exit_status=78, reason="refused")],
            skip(2, 1),
            id="no memory at a lower rung is that rung's fault",
        ),
        pytest.param(
            [death(0), death(1, "board", "stop", exit_status=69)], End(69, "it died"), id="hardware ends it at any rung"
        ),
        pytest.param([death(0, "bad-argument", "stop", exit_status=2)], End(2, "it died"), id="a bad argument ends it"),
        pytest.param([killed(0)], Next(0, AGAIN, 1), id="what may pass by itself is tried again"),
        pytest.param([killed(0)] * 2, Next(1, "it died", 2), id="but not for ever"),
        pytest.param([death(0, "stopped", "stop", exit_status=0)], End(0, "it died"), id="a stop by someone else"),
    ],
)
def test_what_follows(history: list[Past], expected: Next | End) -> None:
    assert after(LADDER, history, BUDGET) == expected


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        pytest.param([no(0), no(1), no(2)], End(78, "no rung is left: refused"), id="all were refused"),
        pytest.param([no(0), no(1), no(2, "bad-argument")], End(2, "no rung is left: refused"), id="the last decides"),
        pytest.param([death(0), no(1), no(2)], End(70, "no rung is left: it died"), id="it died before"),
        pytest.param([no(0), death(1), no(2, "bad-argument")], End(70, "no rung is left: it died"), id="or in between"),
        pytest.param(
            [death(0, ready_for_s=LONG), death(0), no(1), no(2)],
            End(70, "no rung is left: it died"),
            id="it served and died before",
        ),
    ],
)
def test_refusals_end_a_launch_only_where_nothing_else_happened(history: list[Past], expected: End) -> None:
    assert after(LADDER, history, BUDGET) == expected


def test_the_budget_counts_attempts_and_its_end_names_the_last_cause_and_what_to_do() -> None:
    budget = Budget(max_attempts=2, proving_window_s=600)
    last = death(1, reason="illegal access")
    assert after(LADDER, [death(0), last], budget) == End(
        70, "2 attempts are spent; the last one: illegal access; allow more with --max-attempts"
    )


def test_a_single_attempt_is_one() -> None:
    end = after(LADDER, [death(0)], Budget(max_attempts=1, proving_window_s=600))
    assert end.reason.startswith("1 attempt is spent; the last one: it died")


def test_a_skipped_rung_costs_no_attempt() -> None:
    budget = Budget(max_attempts=2, proving_window_s=600)
    assert after(LADDER, [no(0), death(1)], budget) == Next(2, "it died", 1)


def walk(deaths: Iterable[tuple[str, float | None]], budget: Budget = BUDGET) -> list[Next | End]:
    """Live through these deaths (their kind, and how long the server had been ready) and return what followed each."""
    history: list[Past] = []
    followed: list[Next | End] = []
    rung = 0
    for kind, ready_for_s in deaths:
        history.append(killed(rung, ready_for_s) if kind == "killed" else death(rung, ready_for_s=ready_for_s))
        followed.append(after(LADDER, history, budget))
        if isinstance(followed[-1], End):
            break
        rung = followed[-1].rung
    return followed


@pytest.mark.parametrize("kind", ["fault", "killed"])
def test_after_every_long_service_the_same_rung_gets_another_chance(kind: str) -> None:
    assert walk([(kind, LONG)] * 30) == [Next(0, AGAIN, 1)] * 30


@pytest.mark.parametrize("kind", ["fault", "killed"])
def test_a_second_death_soon_after_the_first_steps_down_whatever_came_long_before(kind: str) -> None:
    assert walk([(kind, LONG), (kind, LONG), (kind, SHORT)])[-1] == Next(1, "it died", 2)


def test_kills_months_apart_do_not_add_up_with_those_before() -> None:
    assert walk([("killed", SHORT), ("killed", LONG), ("killed", LONG)]) == [Next(0, AGAIN, 1)] * 3


def test_a_lower_rung_that_proved_itself_gets_another_chance_too() -> None:
    followed = walk([("fault", None), ("fault", LONG), ("fault", SHORT), ("fault", LONG), ("fault", None)])
    assert [step.rung for step in followed if isinstance(step, Next)] == [1, 1, 2, 2, 2]


def test_attempts_before_a_long_service_are_not_counted() -> None:
    budget = Budget(max_attempts=3, proving_window_s=600)
    followed = walk([("fault", None), ("fault", SHORT), ("fault", LONG), ("fault", SHORT), ("fault", SHORT)], budget)
    assert [isinstance(step, End) for step in followed] == [False] * 4 + [True]
    assert followed[-1].reason.startswith("3 attempts are spent")


def test_a_server_that_keeps_dying_ends_the_launch() -> None:
    assert isinstance(walk([("fault", SHORT)] * 9)[-1], End)
    assert len(walk([("fault", SHORT)] * 9)) == 8


@pytest.mark.parametrize(
    ("history", "names"),
    [
        pytest.param([death(0)], set(), id="a fault is no refusal"),
        pytest.param([death(0), no(1)], {1}, id="a backend"),
        pytest.param([death(0), no(1, "bad-argument"), no(2, "bad-config")], {1, 2}, id="an argument, a combination"),
        pytest.param([death(0), no(1, "gpu-oom")], set(), id="too little memory is not the setting's fault"),
        pytest.param([no(0)], {0}, id="the backend that was asked for"),
        pytest.param([no(0), no(1), no(2)], {0}, id="the same refusal from the first rung on is inherited"),
        pytest.param([no(0), no(1, "bad-argument")], {0, 1}, id="another one is not"),
        pytest.param([no(0), death(1), no(2)], {0, 2}, id="nor is one after something else"),
        pytest.param([no(0, "bad-argument")], set(), id="what is not skipped is not left out"),
        pytest.param([death(0), death(1, "backend-refused", ready_for_s=SHORT)], set(), id="nor what was ready"),
    ],
)
def test_rungs_that_were_refused_for_their_own_change_are_known(history: list[Past], names: set[int]) -> None:
    assert refused(history) == names


def test_where_the_rung_that_a_launch_starts_with_is_refused_and_nothing_is_below_the_rungs_above_are_tried() -> None:
    assert after(LADDER, [no(2)], BUDGET) == skip(1)
    assert after(LADDER, [no(2), no(1)], BUDGET) == skip(0)
    assert after(LADDER, [no(2), no(1), no(0)], BUDGET) == End(78, "no rung is left: refused")


def test_below_the_rung_that_a_launch_starts_with_comes_before_above_it() -> None:
    assert after(LADDER, [no(1)], BUDGET) == skip(2)
    assert after(LADDER, [no(1), no(2)], BUDGET) == skip(0)


def test_a_rung_above_is_never_tried_once_something_has_died() -> None:
    assert after(LADDER, [death(1), no(2)], BUDGET) == End(70, "no rung is left: it died")


def test_a_step_down_passes_over_what_was_refused_before() -> None:
    assert after(LADDER, [no(1), no(2), death(0)], BUDGET) == End(70, "no rung is left: it died")
    longer = Ladder((*LADDER.rungs, Rung("less-parallel", ("model",))))
    assert after(longer, [no(2), death(1)], BUDGET) == Next(3, "it died", 1)


def test_more_attempts_are_not_offered_where_no_rung_is_left() -> None:
    budget = Budget(max_attempts=1, proving_window_s=600)
    assert after(LADDER, [death(2)], budget) == End(70, "no rung is left: it died")
    assert "--max-attempts" in after(LADDER, [death(2, ready_for_s=SHORT)], budget).reason


@pytest.mark.parametrize(("status", "ours"), [(0, 70), (None, 70), (1, 1), (2, 2), (-9, 137), (-11, 139)])
def test_a_launch_that_is_only_observed_ends_as_vllm_did_but_for_a_0_that_nobody_asked_for(
    status: int | None, ours: int
) -> None:
    assert observed_end(status, "it died").status == ours
