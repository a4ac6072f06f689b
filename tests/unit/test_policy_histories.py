"""What follows a history: sixty of them, with times, verdicts and rungs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from safe_vllm.plan.ladder import RUNG_NAMES, Ladder, Rung
from safe_vllm.policy.descent import Budget, End, Next, Past, after
from safe_vllm.verdict.evidence import Action, Advised, Verdict

MINUTE, HOUR = 60.0, 3600.0
LADDER = Ladder(tuple(Rung(name, ("model", name)) for name in RUNG_NAMES))
ASKED, NO_TUNE, TRITON, LESS, NO_EP = range(5)
BUDGET = Budget(
    max_attempts=4, proving_window_s=600, relapse_window_s=6 * HOUR, start_budget_s=4 * HOUR, service_budget_s=4 * HOUR
)
FRESH = replace(BUDGET, can_freshen=True)
IMA, CACHE = (
    "illegal-memory-access",
    "/root/.cache/vllm/flashinfer_autotune_cache/0.6.18/100a/3f0c/autotune_configs.json",
)


def verdict(fault: str = IMA, action: Action = "retry-safer", phase: str = "init", **facts: object) -> Verdict:
    return replace(Verdict(fault, action, phase, "it died"), **facts)  # type: ignore[arg-type]


def never_ready(rung: int = ASKED, took_s: float = MINUTE, fresh: bool = False, **facts: object) -> Past:
    """A start that failed."""
    return Past(rung, verdict(**facts), False, ended_at_s=took_s, fresh_caches=fresh)  # type: ignore[arg-type]


def served(
    rung: int = ASKED, for_s: float = HOUR, proven: bool | None = None, fresh: bool = False, **facts: object
) -> Past:
    """A server that was ready for so long, a minute after it was spawned, and died."""
    told = verdict(**{"phase": "serving", "before_ready": False, **facts})  # type: ignore[arg-type]
    is_proven = for_s >= 600 if proven is None else proven
    return Past(rung, told, True, for_s, is_proven, ended_at_s=MINUTE + for_s, fresh_caches=fresh)


def refused(rung: int = ASKED, fault: str = "backend-refused", took_s: float = MINUTE) -> Past:
    return never_ready(rung, took_s, fault=fault, action="stop", exit_status=78)


def killed(rung: int = ASKED) -> Past:
    """A start that somebody unknown ended."""
    return never_ready(rung, fault="unknown", action="retry-same")


def known(suspect: str, **facts: object) -> dict[str, object]:
    return {"suspect": suspect, "is_suspect_known": True, **facts}


def lived(*pasts: Past, pause_s: float = 4.0) -> list[Past]:
    """Put attempts one after another."""
    history: list[Past] = []
    now = 1000.0
    for past in pasts:
        history.append(replace(past, spawned_at_s=now, ended_at_s=now + past.ended_at_s))
        now = history[-1].ended_at_s + pause_s
    return history


@dataclass(frozen=True)
class To:
    """The next rung."""

    rung: int
    because: str = "it died"
    fresh: bool = False
    is_skip: bool = False


def assert_follows(history: Sequence[Past], expected: To | End, budget: Budget, ladder: Ladder = LADDER) -> None:
    step = after(ladder, history, budget)
    if isinstance(expected, End):
        assert isinstance(step, End) and (step.status, step.advice) == (expected.status, expected.advice), step
        assert expected.reason in step.reason
    else:
        assert isinstance(step, Next), step
        assert (step.rung, step.fresh_caches, step.is_skip) == (expected.rung, expected.fresh, expected.is_skip), step
        assert expected.because in step.reason


def stop(fault: str = "stopped", status: int = 0) -> dict[str, object]:
    return {"fault": fault, "action": "stop", "exit_status": status}


AGAIN = "the same rung once more: it died"
LAST = "this is the last rung, and it once served"
H32 = 32 * HOUR


@pytest.mark.parametrize(
    ("pasts", "expected"),
    [
        # in service
        pytest.param([served(for_s=H32)], To(ASKED, AGAIN), id="one fault after 32 healthy hours changes nothing"),
        pytest.param([served(for_s=H32)] * 3, To(ASKED, AGAIN), id="nor does one every 32 hours"),
        pytest.param([served(for_s=601)], To(ASKED, AGAIN), id="the first fault after proven service repeats the rung"),
        pytest.param([served(for_s=601)] * 2, To(NO_TUNE), id="a fault every ten minutes steps down at the second"),
        pytest.param([served(for_s=H32), served(for_s=601)], To(NO_TUNE), id="also when the first came after 32 hours"),
        pytest.param([served(for_s=601), served(for_s=H32)], To(ASKED, AGAIN), id="32 hours after the first, not"),
        pytest.param(
            [served(for_s=601)] * 2 + [served(NO_TUNE, 601)], To(NO_TUNE, AGAIN), id="each rung gets its second chance"
        ),
        pytest.param(
            [served(for_s=601)] * 2 + [served(NO_TUNE, 601)] * 2, To(TRITON), id="and none gets a third in a row"
        ),
        pytest.param([served(for_s=6 * HOUR - 1)] * 2, To(NO_TUNE), id="just inside the relapse window"),
        pytest.param([served(for_s=6 * HOUR)] * 2, To(ASKED, AGAIN), id="just outside of it"),
        pytest.param(
            [refused(NO_TUNE), served(ASKED, 601)], To(ASKED, AGAIN), id="a refused rung before is no death before"
        ),
        pytest.param([served(for_s=H32), never_ready()], To(NO_TUNE), id="the repeated rung does not start"),
        pytest.param([served(for_s=30)], To(NO_TUNE), id="a fault inside the proving window steps down at once"),
        pytest.param(
            [served(for_s=H32, proven=False)], To(NO_TUNE), id="without an answered request nothing is proven"
        ),
        pytest.param([served(for_s=30, proven=True)], To(ASKED, AGAIN), id="and with one it is, whatever the time"),
        pytest.param(
            [served(for_s=H32, fault="unknown", action="retry-same")],
            To(ASKED, AGAIN),
            id="killed after a long service",
        ),
        pytest.param(
            [served(for_s=700, fault="unknown", action="retry-same")] * 2, To(NO_TUNE), id="killed every ten minutes"
        ),
        # starts
        pytest.param([never_ready()], To(NO_TUNE), id="a fault at the start steps down at once"),
        pytest.param([never_ready(), never_ready(NO_TUNE)], To(TRITON), id="a start-up loop walks the ladder"),
        pytest.param(
            [never_ready(rung) for rung in range(4)], End(70, "4 attempts are spent"), id="not more often than allowed"
        ),
        pytest.param([never_ready(NO_EP)], End(70, "no rung is left: it died"), id="nor further than it goes"),
        pytest.param(
            [never_ready(phase="first-inference", fault="unknown")], To(NO_TUNE), id="a refused canary steps down"
        ),
        pytest.param([killed()], To(ASKED, AGAIN), id="a killed start is tried again"),
        pytest.param([killed(), killed()], To(NO_TUNE), id="but once"),
        pytest.param([killed(), never_ready(), killed(NO_TUNE)], To(NO_TUNE, AGAIN), id="at every rung"),
        pytest.param([killed(NO_EP)] * 2, End(70, "no rung is left"), id="until there is none"),
        # refused rungs
        pytest.param([refused()], To(NO_TUNE, is_skip=True), id="a backend refused at the top is skipped"),
        pytest.param([never_ready(), refused(NO_TUNE)], To(TRITON, is_skip=True), id="a refused rung is skipped"),
        pytest.param([refused(ASKED, "bad-config")], End(78, "it died"), id="what was asked for is wrong"),
        pytest.param(
            [never_ready()] + [refused(rung, "gpu-oom") for rung in (NO_TUNE, TRITON, LESS)],
            To(NO_EP, is_skip=True),
            id="refused rungs cost no attempts",
        ),
        pytest.param(
            [refused(ASKED, took_s=2 * HOUR), refused(NO_TUNE, took_s=2 * HOUR)],
            End(70, "240 minutes went by without a server that became ready"),
            id="but time",
        ),
        pytest.param([refused(rung) for rung in range(5)], End(78, "no rung is left"), id="all rungs are refused"),
        pytest.param([refused(NO_EP)], To(LESS, is_skip=True), id="the last rung is refused first: the one above"),
        pytest.param([refused(NO_EP), never_ready(LESS)], End(70, "no rung is left"), id="and then none further up"),
        # hardware, stops
        pytest.param([never_ready(**stop("board", 69))], End(69, "it died"), id="broken hardware at the start"),
        pytest.param([served(for_s=H32, **stop("board", 69))], End(69, "it died"), id="broken hardware in service"),
        pytest.param(
            [never_ready(), never_ready(NO_TUNE, **stop("board", 69))], End(69, "it died"), id="and lower down"
        ),
        pytest.param([never_ready(**stop())], End(0, "it died"), id="a stop at the start"),
        pytest.param([served(for_s=30, **stop())], End(0, "it died"), id="a stop inside the proving window"),
        pytest.param([served(for_s=H32, **stop())], End(0, "it died"), id="a stop in long service"),
        pytest.param(
            [never_ready(), refused(NO_TUNE), never_ready(TRITON, **stop())], End(0, ""), id="after a refusal"
        ),
        pytest.param([served(), served(**stop("none"))], End(0, ""), id="an orderly end"),
        pytest.param([never_ready(NO_EP, **stop())], End(0, "it died"), id="a stop at the last rung"),
        pytest.param([never_ready(took_s=9 * HOUR, **stop())], End(0, "it died"), id="a stop when all is spent"),
        # budgets
        pytest.param(
            [never_ready(took_s=3 * HOUR), never_ready(NO_TUNE, 2 * HOUR)],
            End(70, "300 minutes went by without a server that became ready, and no more is allowed"),
            id="minutes of starting before attempts",
        ),
        pytest.param([never_ready(took_s=4 * HOUR - 1)], To(NO_TUNE), id="a moment before the end"),
        pytest.param([never_ready(took_s=4 * HOUR)], End(70, "240 minutes went by"), id="the end"),
        pytest.param(
            [served(for_s=30), served(NO_TUNE, 30), served(TRITON, 5 * HOUR, proven=False)],
            End(70, "minutes went by since the server first died in service"),
            id="minutes of dying in service before attempts",
        ),
        pytest.param(
            [served(rung, 30) for rung in range(4)], End(70, "4 attempts are spent"), id="attempts in service"
        ),
        pytest.param(
            [never_ready(), never_ready(NO_TUNE), served(TRITON, 30), served(LESS, 30)],
            To(NO_EP),
            id="both kinds are counted apart",
        ),
        pytest.param(
            [never_ready(took_s=3 * HOUR), served(NO_TUNE, 30), never_ready(TRITON, 3 * HOUR)],
            To(LESS),
            id="a server that was ready ends the time of those that were not",
        ),
        pytest.param(
            [never_ready(ASKED), *[never_ready(NO_TUNE)] * 2, served(TRITON, H32), never_ready(TRITON)],
            To(LESS),
            id="proven service gives attempts back",
        ),
        pytest.param(
            [served(NO_EP, 30)] * 20, To(NO_EP, LAST), id="a ladder spent in service is not ended by attempts"
        ),
        pytest.param(
            [served(NO_EP, 30), *[never_ready(NO_EP)] * 20], To(NO_EP, LAST), id="nor where it starts no more"
        ),
        pytest.param(
            [served(NO_EP, 540)] * 27, End(70, "minutes went by since the server first died"), id="but by minutes"
        ),
        pytest.param(
            [served(NO_EP, 30), *[never_ready(NO_EP, HOUR)] * 4],
            End(70, "without a server that became"),
            id="of either",
        ),
        # suspects
        pytest.param(
            [never_ready(**known("moe"))],
            To(TRITON, "next rung that helps against a fault of moe"),
            id="moe: triton at once",
        ),
        pytest.param([never_ready(suspect="moe")], To(NO_TUNE), id="a suspect that is a guess points nowhere"),
        pytest.param([never_ready(**known("unknown"))], To(NO_TUNE), id="nor does nobody"),
        pytest.param([never_ready(**known("autotune"))], To(NO_TUNE), id="autotune: the next rung anyway"),
        pytest.param([served(for_s=30, **known("all-to-all"))], To(LESS, "all-to-all"), id="all-to-all: less parallel"),
        pytest.param(
            [never_ready(**known("moe")), never_ready(TRITON, **known("moe"))], To(LESS), id="moe again: further down"
        ),
        pytest.param(
            [never_ready(), never_ready(NO_TUNE), never_ready(TRITON, **known("autotune"))],
            To(TRITON, "once more, because none below helps against a fault of autotune: it died"),
            id="never upward: the same rung once",
        ),
        pytest.param(
            [refused(LESS), refused(NO_EP), never_ready(TRITON, **known("parallel"))],
            To(TRITON, "once more, because none below helps"),
            id="nor to a refused rung",
        ),
        pytest.param(
            [never_ready(**known("all-reduce", advised=(Advised("turn it off"), Advised("upgrade"))))] * 2,
            End(70, "no rung is left that helps against a fault of all-reduce: it died", ("turn it off", "upgrade")),
            id="a suspect that no rung answers",
        ),
        pytest.param(
            [never_ready(**known("all-reduce")), never_ready(**known("sampler"))],
            To(ASKED, "none below helps against a fault of sampler"),
            id="another suspect",
        ),
        pytest.param(
            [killed(), never_ready(**known("sampler"))],
            To(ASKED, "none below helps against a fault of sampler"),
            id="another fault before",
        ),
        pytest.param(
            [served(for_s=H32, **known("sampler"))], To(ASKED, AGAIN), id="long service comes before the suspect"
        ),
        pytest.param([served(for_s=H32, **known("sampler"))] * 3, To(ASKED, AGAIN), id="however often"),
        pytest.param(
            [served(for_s=601, **known("sampler"))] * 2, End(70, "a fault of sampler"), id="but not every ten minutes"
        ),
    ],
)
def test_what_follows(pasts: list[Past], expected: To | End) -> None:
    assert_follows(lived(*pasts), expected, BUDGET)


WITH_FRESH = "the same rung with fresh caches: it died, and "
NAMED = f"{WITH_FRESH}{CACHE} may have caused it"
TWICE = f"{WITH_FRESH}the same happened in the attempt before"
TUNING: dict[str, object] = {"fault": "hang", "phase": "autotune", "cache": CACHE}


@pytest.mark.parametrize(
    ("pasts", "expected"),
    [
        pytest.param([never_ready(cache=CACHE)], To(ASKED, NAMED, True), id="a cache that is named"),
        pytest.param([never_ready(**TUNING)], To(ASKED, NAMED, True), id="a hang with tactics from a file"),
        pytest.param([served(for_s=30, cache=CACHE)], To(ASKED, NAMED, True), id="a tactic that fails in service"),
        pytest.param([served(for_s=H32, cache=CACHE)], To(ASKED, NAMED, True), id="even after long service"),
        pytest.param(
            [never_ready(fault="unknown", cache=CACHE)], To(ASKED, NAMED, True), id="compiled code that fails"
        ),
        pytest.param([never_ready(cache=CACHE, **known("moe"))], To(ASKED, NAMED, True), id="before the suspect"),
        pytest.param([never_ready(NO_EP, cache=CACHE)], To(NO_EP, NAMED, True), id="before the end of the ladder"),
        pytest.param([never_ready(), never_ready(NO_TUNE)], To(NO_TUNE, TWICE, True), id="twice the same in one phase"),
        pytest.param([never_ready(), never_ready(NO_TUNE, phase="capture")], To(TRITON), id="in two phases"),
        pytest.param([never_ready(), never_ready(NO_TUNE, fault="hang")], To(TRITON), id="two faults"),
        pytest.param([refused(ASKED), never_ready(NO_TUNE, fault="engine-signal")], To(TRITON), id="once is not twice"),
        pytest.param([killed(), killed()], To(NO_TUNE), id="no cache kills a process"),
        pytest.param([served(for_s=601)] * 2, To(NO_TUNE), id="twice the same in service steps down"),
        pytest.param(
            [served(for_s=30, fault="hang", action="retry-same", cache=CACHE)] * 2, To(NO_TUNE), id="a hang in service"
        ),
        pytest.param(
            [served(for_s=30), served(NO_TUNE, 30)], To(TRITON), id="also where nothing proved itself in between"
        ),
        pytest.param(
            [served(for_s=30, fault="unknown", action="retry-same", cache=CACHE)],
            To(ASKED, AGAIN),
            id="an end of no known kind in service",
        ),
        pytest.param(
            [never_ready(cache=CACHE), never_ready(fresh=True, cache=CACHE)], To(NO_TUNE, fresh=True), id="only once"
        ),
        pytest.param(
            [never_ready(cache=CACHE), never_ready(fresh=True), never_ready(NO_TUNE)],
            To(TRITON, fresh=True),
            id="and for the rest of the launch",
        ),
        pytest.param(
            [never_ready(cache=CACHE), refused(ASKED), refused(NO_TUNE)],
            To(TRITON, is_skip=True),
            id="a launch whose fresh caches were not given does not claim them",
        ),
        pytest.param(
            [never_ready(cache=CACHE, fresh=True), refused(NO_TUNE)],
            To(TRITON, fresh=True, is_skip=True),
            id="past a refused rung too",
        ),
        pytest.param(
            [never_ready(rung) for rung in range(4)], End(70, "4 attempts are spent"), id="not beyond the budget"
        ),
        pytest.param([never_ready(cache=CACHE, **stop("board", 69))], End(69, "it died"), id="hardware comes first"),
        pytest.param([never_ready(cache=CACHE, **stop())], End(0, "it died"), id="and so does a stop"),
        pytest.param(
            [never_ready(), never_ready(fault="bad-config", action="stop", exit_status=78, cache=CACHE)],
            End(78, ""),
            id="a mistake is not the cache's",
        ),
    ],
)
def test_caches_come_before_rungs(pasts: list[Past], expected: To | End) -> None:
    assert_follows(lived(*pasts), expected, FRESH)


@pytest.mark.parametrize("budget", [BUDGET, replace(FRESH, pins=frozenset({"caches"}))], ids=["no place", "pinned"])
def test_caches_are_left_alone_where_they_must_be(budget: Budget) -> None:
    assert_follows(lived(never_ready(cache=CACHE)), To(NO_TUNE), budget)


def test_a_pinned_backend_that_is_refused_ends_the_launch() -> None:
    pinned = replace(BUDGET, pins=frozenset({"moe-backend"}))
    assert_follows([refused()], End(78, "it died; moe-backend is pinned, so no other backend is tried"), pinned)
    assert_follows([refused()], To(NO_TUNE, is_skip=True), replace(BUDGET, pins=frozenset({"autotune"})))
    assert_follows([never_ready(), refused(NO_TUNE)], To(TRITON, is_skip=True), pinned)


def test_what_was_never_ready_proves_nothing_even_where_no_time_is_asked_for() -> None:
    assert_follows([never_ready()], To(NO_TUNE), replace(BUDGET, proving_window_s=0))


def test_a_suspect_is_looked_for_on_the_ladder_that_there_is() -> None:
    short = Ladder((LADDER.rungs[ASKED], LADDER.rungs[NO_TUNE]))
    assert_follows([never_ready(**known("moe"))], To(ASKED, "none below helps against a fault of moe"), BUDGET, short)
    assert_follows([never_ready(**known("moe"))] * 2, End(70, "a fault of moe"), BUDGET, short)


def test_where_no_time_is_limited_attempts_end_a_launch_at_the_last_rung() -> None:
    endless = replace(BUDGET, start_budget_s=None, service_budget_s=None)
    assert_follows(lived(*[served(NO_EP, 30)] * 3), To(NO_EP, LAST), endless)
    assert_follows(lived(*[served(NO_EP, 30)] * 4), End(70, "4 attempts are spent"), endless)
    assert_follows(lived(served(NO_EP, 30), *[never_ready(NO_EP)] * 4), End(70, "4 attempts"), endless)


def test_the_pause_grows_with_the_deaths_since_a_server_proved_itself() -> None:
    def number(*pasts: Past) -> int:
        step = after(LADDER, lived(*pasts), BUDGET)
        assert isinstance(step, Next)
        return step.deaths

    assert number(never_ready()) == 1
    assert number(never_ready(), never_ready(NO_TUNE), refused(TRITON)) == 2
    assert number(never_ready(), served(NO_TUNE, H32)) == 1


def test_a_whole_launch_with_a_poisoned_cache_and_a_bad_kernel() -> None:
    rung, fresh, pasts, steps = ASKED, False, list[Past](), []
    while True:
        cause: dict[str, object] = {} if fresh else {"cache": CACHE}
        pasts.append(replace(never_ready(rung, **known("moe"), **cause), fresh_caches=fresh))
        step = after(LADDER, lived(*pasts), replace(FRESH, max_attempts=8))
        if isinstance(step, End):
            break
        rung, fresh = step.rung, step.fresh_caches
        steps.append((rung, fresh))
    assert steps == [(ASKED, True), (TRITON, True), (LESS, True), (NO_EP, True), (NO_EP, True)]
    assert step == End(70, "no rung is left that helps against a fault of moe: it died")
