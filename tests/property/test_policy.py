"""Launches at random: whatever dies and when, they end, go down and not up, and keep to what they may spend."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from safe_vllm.plan.ladder import RELIEVES, RUNG_NAMES, Ladder, Rung
from safe_vllm.policy.backoff import JITTER, pause_s
from safe_vllm.policy.descent import SAME_RUNG_TRIES, Budget, End, Next, Past, after
from safe_vllm.policy.history import deaths, has_proven, is_skip
from safe_vllm.verdict.actions import action_for, status_for
from safe_vllm.verdict.evidence import FAULTS, PHASES, SUSPECTS, Verdict

MINUTE, HOUR = 60.0, 3600.0
LEAST_S = 30.0
"""No attempt of these is shorter, so that a budget of minutes ends a launch in a countable number of them."""
PASSING = sorted({"unknown", "hang", "collective-timeout", "gpu-oom", "nccl-init"})
LIKELY = sorted({"illegal-memory-access", "engine-signal", "hang", "unknown", "backend-refused", "gpu-oom"})
ENDINGS = {"stopped", "none", "board"}

ladders = st.sets(st.sampled_from(RUNG_NAMES[1:])).map(
    lambda names: Ladder(tuple(Rung(n, (n,)) for n in RUNG_NAMES if n == RUNG_NAMES[0] or n in names))
)
budgets = st.builds(
    Budget,
    max_attempts=st.integers(1, 6),
    proving_window_s=st.just(600.0),
    relapse_window_s=st.sampled_from([0.0, HOUR, 6 * HOUR]),
    start_budget_s=st.sampled_from([20 * MINUTE, HOUR, None]),
    service_budget_s=st.sampled_from([20 * MINUTE, HOUR, None]),
    pins=st.sets(st.sampled_from(["caches", "moe-backend"])).map(frozenset),
    can_freshen=st.booleans(),
)


@st.composite
def attempts(draw: st.DrawFn, faults: list[str], readies: st.SearchStrategy[float | None]) -> Past:
    """One attempt that ended; the rung and the time come later."""
    fault, ready_for_s = draw(st.sampled_from(faults)), draw(readies)
    was_ready = ready_for_s is not None
    action = action_for(fault, before_ready=not was_ready)
    suspect = draw(st.sampled_from(sorted(SUSPECTS)))
    verdict = Verdict(
        fault,
        action,
        draw(st.sampled_from(PHASES)),
        "it died",
        suspect=suspect,
        exit_status=status_for(fault, action),
        before_ready=not was_ready,
        is_suspect_known=draw(st.booleans()),
        cache=draw(st.sampled_from([None, None, "/cache"])),
    )
    started_s = draw(st.floats(LEAST_S, 30 * MINUTE))
    return Past(0, verdict, was_ready, ready_for_s or 0.0, ended_at_s=started_s + (ready_for_s or 0.0))


never_proven = st.sampled_from([None, None, 0.0, 10.0, 599.0])
ever = st.sampled_from([None, 10.0, 599.0, 601.0, 5 * HOUR, 32 * HOUR])


@dataclass
class Launch:
    """A launch on simulated time."""

    ladder: Ladder
    budget: Budget
    rung: int
    now_s: float = 0.0
    history: list[Past] = field(default_factory=list)
    steps: list[Next | End] = field(default_factory=list)
    fresh: bool = False

    def live(self, drawn: Past) -> Next | End:
        """Run an attempt that ends as drawn, decide, and sleep before the next."""
        ended_s = self.now_s + drawn.ended_at_s
        past = replace(drawn, rung=self.rung, spawned_at_s=self.now_s, ended_at_s=ended_s, fresh_caches=self.fresh)
        self.history.append(past)
        step = after(self.ladder, self.history, self.budget)
        self.steps.append(step)
        if isinstance(step, Next):
            self.rung, self.fresh = step.rung, step.fresh_caches
            self.now_s = ended_s + pause_s(step, 2.0) * (1 + JITTER / 2)
        return step

    def moves(self) -> Iterator[tuple[list[Past], Next]]:
        """Yield each history, and the attempt that was decided on."""
        for number, step in enumerate(self.steps, 1):
            if isinstance(step, Next):
                yield self.history[:number], step


@st.composite
def launches(draw: st.DrawFn, lives: st.SearchStrategy[Past], most: int) -> Launch:
    """A launch that ran until its end, or through ``most`` attempts."""
    ladder = draw(ladders)
    launch = Launch(ladder, draw(budgets), draw(st.integers(0, len(ladder.rungs) - 1)))
    for _ in range(most):
        if isinstance(launch.live(draw(lives)), End):
            break
    return launch


MANY = settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
anything = st.one_of(attempts(sorted(FAULTS - ENDINGS), ever), attempts(LIKELY, ever))
random_launches = launches(anything, 14)


@MANY
@given(
    ladders,
    budgets,
    st.lists(attempts(sorted(FAULTS - {"stopped", "none"}), never_proven), min_size=1, max_size=4),
    st.data(),
)
def test_a_launch_in_which_nothing_proves_itself_ends(
    ladder: Ladder, budget: Budget, lives: list[Past], data: st.DataObject
) -> None:
    launch = Launch(ladder, budget, data.draw(st.integers(0, len(ladder.rungs) - 1)))
    # skipped rungs, attempts of both kinds, and what fits into the minutes of both at the last rung
    most = len(ladder.rungs) + 2 * budget.max_attempts + int(2 * HOUR / LEAST_S)
    for number in range(most):
        if isinstance(launch.live(lives[number % len(lives)]), End):
            event(f"{number // 5 * 5} attempts")
            return
    raise AssertionError(f"still running after {most} attempts: {launch.steps[-3:]}")


@MANY
@given(random_launches)
def test_a_launch_never_goes_up_but_past_rungs_that_were_all_refused(launch: Launch) -> None:
    for history, step in launch.moves():
        if step.rung < history[-1].rung:
            assert all(map(is_skip, history))
            assert step.rung == min(past.rung for past in history) - 1


@MANY
@given(random_launches)
def test_a_rung_that_was_left_is_never_run_again(launch: Launch) -> None:
    for history, step in launch.moves():
        if step.rung != history[-1].rung:
            assert step.rung not in {past.rung for past in history}


def is_documented(launch: Launch, history: list[Past], step: Next) -> bool:
    """Return whether the same rung may be run once more, by one of the reasons that there are."""
    last, before, budget = history[-1], history[:-1], launch.budget
    since = next((at for at in reversed(range(len(history))) if has_proven(history[at], budget)), 0)
    recent = history[since:]
    if step.fresh_caches and not any(past.fresh_caches for past in history):
        return True
    if has_proven(last, budget):
        same = [past for past in deaths(before)[-1:] if past.rung == last.rung]
        if not same or last.ready_for_s >= budget.relapse_window_s:
            return True
    passing = [past for past in recent if past.rung == last.rung and past.verdict.action == "retry-same"]
    if last.verdict.action == "retry-same" and len(passing) < SAME_RUNG_TRIES:
        return True
    below = [
        launch.ladder.rungs[rung].name
        for rung in range(last.rung + 1, len(launch.ladder.rungs))
        if rung not in {past.rung for past in history if is_skip(past)}
    ]
    if last.verdict.is_suspect_known and last.verdict.suspect not in ("none", "unknown"):
        reason = (last.rung, last.verdict.fault, last.verdict.suspect)
        died_so = [past for past in recent if (past.rung, past.verdict.fault, past.verdict.suspect) == reason]
        return len(died_so) == 1 and not any(last.verdict.suspect in RELIEVES[name] for name in below)
    return not below and any(past.was_ready for past in history)


@MANY
@given(random_launches)
def test_a_rung_is_repeated_only_for_a_documented_reason(launch: Launch) -> None:
    for history, step in launch.moves():
        if step.rung == history[-1].rung:
            assert is_documented(launch, history, step), (history[-1], step)


@MANY
@given(random_launches)
def test_a_known_suspect_leads_to_a_rung_that_answers_it(launch: Launch) -> None:
    for history, step in launch.moves():
        verdict = history[-1].verdict
        is_known = verdict.is_suspect_known and verdict.suspect not in ("none", "unknown")
        if is_known and step.rung != history[-1].rung and not step.is_skip:
            assert verdict.suspect in RELIEVES[launch.ladder.rungs[step.rung].name]


@MANY
@given(random_launches)
def test_no_attempt_is_made_when_its_budget_is_spent(launch: Launch) -> None:
    budget, lowest = launch.budget, len(launch.ladder.rungs) - 1
    for history, step in launch.moves():
        last = history[-1]
        since = next((at for at in reversed(range(len(history))) if has_proven(history[at], budget)), 0)
        recent = [past for past in history[since:] if not is_skip(past)]
        alike = [past for past in recent if past.was_ready == last.was_ready]
        minutes = budget.service_budget_s if last.was_ready else budget.start_budget_s
        is_lowest = all(
            any(past.rung == rung and is_skip(past) for past in history) for rung in range(last.rung + 1, lowest + 1)
        )
        if not (is_lowest and minutes is not None and any(past.was_ready for past in history)):
            assert is_skip(last) or len(alike) < budget.max_attempts
        if minutes is not None and last.was_ready:
            assert last.ended_at_s - alike[0].ended_at_s < minutes
        if minutes is not None and not last.was_ready:
            first = next(at for at in range(len(history)) if not any(past.was_ready for past in history[at:]))
            assert last.ended_at_s - history[first].spawned_at_s < minutes
        assert step.deaths == len(recent)


@MANY
@given(random_launches)
def test_fresh_caches_are_begun_once_at_the_same_rung_and_kept(launch: Launch) -> None:
    moves = list(launch.moves())
    begun = [history for history, step in moves if step.fresh_caches and not history[-1].fresh_caches]
    assert len(begun) <= 1
    for history, step in moves:
        if step.fresh_caches and not history[-1].fresh_caches:
            assert step.rung == history[-1].rung
            assert launch.budget.can_freshen and "caches" not in launch.budget.pins
    flags = [step.fresh_caches for _, step in moves]
    assert all(later or not earlier for earlier, later in pairwise(flags))


@MANY
@given(random_launches, st.sampled_from(sorted(ENDINGS)), st.booleans())
def test_a_stop_and_broken_hardware_end_a_launch_in_every_state(launch: Launch, fault: str, was_ready: bool) -> None:
    if isinstance(launch.steps[-1], End):
        return
    action = action_for(fault, before_ready=not was_ready)
    status = status_for(fault, action)
    last = Verdict(fault, action, "init", "over", exit_status=status, before_ready=not was_ready, cache="/cache")
    end = launch.live(Past(0, last, was_ready, 601.0 if was_ready else 0.0, ended_at_s=9 * HOUR))
    assert end == End(69 if fault == "board" else 0, "over")


@MANY
@given(random_launches)
def test_every_reason_is_one_line_that_says_what_happened(launch: Launch) -> None:
    for step in launch.steps:
        assert "it died" in step.reason
        assert "\n" not in step.reason
