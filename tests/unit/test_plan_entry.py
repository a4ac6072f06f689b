"""Where a launch starts: what the operator says, what is remembered (P18), what is known, and the sentence for it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from safe_vllm import known
from safe_vllm.errors import Status, Trouble
from safe_vllm.machine import recorded
from safe_vllm.machine.facts import Machine, ModelShape, ProfileFile
from safe_vllm.machine.profile_files import read_profiles
from safe_vllm.plan.build import make_plan, scene_of
from safe_vllm.plan.intent import Intent
from safe_vllm.plan.ladder import Plan, Rung
from safe_vllm.plan.profile_choice import choose
from safe_vllm.plan.profile_reading import parse
from safe_vllm.plan.remembered import Broken, Held, Remembered

RECORDS = Path(__file__).parents[1] / "golden/machines"
H100 = recorded.read(str(RECORDS / "h100-8.json"))
GB200 = recorded.read(str(RECORDS / "gb200-4-flashinfer-0.6.12.json"))
DAY = datetime(2026, 11, 29, 22, tzinfo=timezone.utc).timestamp()
A_DAY = 86_400.0
NOTHING = Remembered()
MODEL = ModelShape(experts=128, weight_format="bf16", attention_heads=32, kv_heads=8, moe_intermediate_size=1024)


def plan(remembered: Remembered = NOTHING, machine: Machine = H100, line: str = "m", **asked: Any) -> Plan:
    machine = replace(machine, model=MODEL)
    profile, _ = choose(read_profiles(None, None, {}), machine, None)
    dialect = known.dialects().of(machine.installation.vllm)
    intent = Intent(tuple(line.split()), **asked)
    scene = scene_of(intent, profile, machine=machine, dialect=dialect, environment={})
    return make_plan(intent, scene, "", known_bad=known.known_bad(), remembered=remembered)


def entry(plan: Plan) -> str:
    return plan.ladder.rungs[plan.entry].name


def broken(*rungs: str, at: float = DAY, suspect: str = "autotune") -> tuple[Broken, ...]:
    return tuple(Broken(rung, "illegal-memory-access", suspect, "autotune", at) for rung in rungs)


def test_what_held_is_where_the_next_launch_starts_and_the_plan_says_why() -> None:
    made = plan(Remembered(broken("as-asked"), Held("no-autotune", DAY + A_DAY)))
    assert entry(made) == "no-autotune"
    assert made.entry_because == (
        "starts at no-autotune: as-asked died here on 2026-11-29 of illegal-memory-access (autotune), "
        "no-autotune held since then; safe-vllm forget starts at the top"
    )
    assert not made.forgets


def test_what_held_before_something_above_it_died_is_told_with_its_day() -> None:
    made = plan(Remembered(broken("as-asked"), Held("triton", DAY - A_DAY)))
    assert entry(made) == "triton"
    assert "triton held on 2026-11-28; " in str(made.entry_because)


def test_all_that_died_above_is_told() -> None:
    made = plan(Remembered(broken("as-asked", "no-autotune", suspect="unknown"), Held("triton", DAY)))
    assert made.entry_because == (
        "starts at triton: as-asked died here on 2026-11-29 of illegal-memory-access, "
        "no-autotune died here on 2026-11-29 of illegal-memory-access, triton held since then; "
        "safe-vllm forget starts at the top"
    )


def test_what_held_at_the_top_needs_no_words() -> None:
    made = plan(Remembered(broken("triton"), Held("as-asked", DAY)))
    assert (made.entry, made.entry_because) == (0, None)


def test_where_nothing_held_the_first_that_did_not_die_is_tried() -> None:
    made = plan(Remembered(broken("as-asked", "no-autotune")))
    assert entry(made) == "triton"
    assert str(made.entry_because).startswith("starts at triton: as-asked died here on 2026-11-29 of ")
    assert "held" not in str(made.entry_because)


def test_a_rung_below_one_that_did_not_die_is_not_reached_by_memory() -> None:
    made = plan(Remembered(broken("triton")))
    assert (made.entry, made.entry_because) == (0, None)


def test_where_every_rung_died_it_starts_at_the_top_and_the_record_goes() -> None:
    names = [rung.name for rung in plan().ladder.rungs]
    made = plan(Remembered((*broken(*names[:-1]), *broken(names[-1], at=DAY + A_DAY, suspect="moe"))))
    assert (made.entry, made.forgets) == (0, True)
    assert made.entry_because == (
        f"starts at as-asked; every rung has died here, last {names[-1]} on 2026-11-30 of illegal-memory-access (moe), "
        "so what was remembered is dropped"
    )


def test_rungs_that_this_ladder_does_not_have_are_ignored() -> None:
    made = plan(Remembered(broken("less-parallel", "no-such"), Held("no-expert-parallel", DAY)))
    assert (made.entry, made.entry_because, made.forgets) == (0, None, False)
    without_triton = plan(Remembered(broken("as-asked"), Held("triton", DAY)), pins=frozenset({"moe-backend"}))
    assert entry(without_triton) == "no-autotune"


def test_what_is_known_to_fail_is_not_started_with_and_what_died_below_neither() -> None:
    assert entry(plan(machine=GB200)) == "triton"
    made = plan(Remembered(broken("triton")), GB200, "m -dp 2 -ep")
    assert entry(made) == "less-parallel"
    assert str(made.entry_because).endswith("; safe-vllm forget starts at triton")
    assert "triton died here on 2026-11-29" in str(made.entry_because)
    assert not any("it avoids a known" in str(rung.because) for rung in made.ladder.rungs)


def test_what_held_above_what_is_known_beats_it() -> None:
    made = plan(Remembered((), Held("as-asked", DAY)), GB200)
    assert entry(made) == "as-asked"
    assert made.entry_because == ("starts at as-asked: as-asked held on 2026-11-29; safe-vllm forget starts at triton")
    assert not any("it avoids a known" in str(rung.because) for rung in made.ladder.rungs)


def test_what_held_where_the_known_fault_leads_anyway_is_told_by_the_report() -> None:
    made = plan(Remembered((), Held("triton", DAY)), GB200)
    assert made.entry_because == plan(machine=GB200).entry_because
    assert made.ladder.rungs[made.entry].because == "it avoids a known illegal memory access in MoE autotune"


def test_where_all_died_from_the_known_rung_on_it_starts_there_again() -> None:
    made = plan(Remembered(broken("triton")), GB200)
    assert (entry(made), made.forgets) == ("triton", True)
    assert str(made.entry_because).endswith(
        "every rung from triton on has died here, last triton on 2026-11-29 of illegal-memory-access (autotune), "
        "so what was remembered is dropped"
    )


def test_the_operators_rung_beats_memory_and_what_is_known() -> None:
    remembered = Remembered(broken("as-asked"), Held("triton", DAY, caches="/state/caches/1"))
    for machine in (H100, GB200):
        for name in ("as-asked", "no-autotune"):
            made = plan(remembered, machine, start_at=name)
            assert (entry(made), made.caches) == (name, None)
            assert made.entry_because == f"starts at {name}: --start-at asks for it"


@pytest.mark.parametrize(
    ("line", "name", "because"),
    [
        ("m", "less-parallel", "data parallelism is not in use"),
        ("m --moe-backend triton --no-enable-flashinfer-autotune", "triton", "same command as as-asked"),
    ],
)
def test_a_rung_that_is_not_there_cannot_be_started_with(line: str, name: str, because: str) -> None:
    with pytest.raises(Trouble) as raised:
        plan(line=line, start_at=name)
    assert raised.value.status == Status.CONFIGURATION
    assert str(raised.value).startswith(f"--start-at {name}: it is left out here: ")
    assert because in str(raised.value)
    assert "; the ladder has as-asked" in str(raised.value)


def test_a_rung_that_is_pinned_away_cannot_be_started_with() -> None:
    with pytest.raises(Trouble, match=r"it would change moe-backend, which is pinned with --pin; the ladder has as-as"):
        plan(start_at="triton", pins=frozenset({"moe-backend"}))


def test_a_rung_that_the_profile_does_not_have_cannot_be_started_with() -> None:
    content = {"name": "mine", "description": "mine", "ladder": [{"rung": "as-asked"}, {"rung": "no-autotune"}]}
    profile, dialect = parse(ProfileFile("mine.yaml", content)), known.dialects().of("0.32.0")
    intent = Intent(("m",), start_at="triton")
    scene = scene_of(intent, profile, machine=replace(H100, model=MODEL), dialect=dialect, environment={})
    with pytest.raises(Trouble, match=r"the profile has no such rung; the ladder has as-asked, no-autotune$"):
        make_plan(intent, scene, "")


def test_the_caches_with_which_it_held_are_those_of_every_rung() -> None:
    made = plan(Remembered(broken("as-asked"), Held("no-autotune", DAY, caches="/state/caches/1")))
    assert made.caches == "/state/caches/1"
    assert {dict(rung.environment)["TRITON_CACHE_DIR"] for rung in made.ladder.rungs} == {"/state/caches/1/triton"}


def test_pinned_caches_stay_whatever_is_remembered() -> None:
    remembered = Remembered(broken("as-asked"), Held("no-autotune", DAY, caches="/state/caches/1"))
    made = plan(remembered, pins=frozenset({"caches"}))
    assert (entry(made), made.caches) == ("no-autotune", None)
    assert not any("/state" in value for rung in made.ladder.rungs for _, value in rung.environment)


def test_observing_runs_what_was_typed_whatever_is_known_and_remembered() -> None:
    held = Held("no-autotune", DAY, caches="/state/caches/1")
    every = tuple(rung.name for rung in plan(machine=GB200).ladder.rungs)
    for remembered in (Remembered((), held), Remembered(broken(*every))):
        made = plan(remembered, GB200, "m -tp 2", observes_only=True)
        assert made.observed == Rung("as-asked", ("m", "-tp", "2"))
        assert (made.entry, made.entry_because, made.forgets, made.caches) == (0, None, False, None)
        assert [rung.name for rung in made.ladder.rungs] == list(every)


def test_observing_beats_a_rung_to_start_at_and_says_so() -> None:
    made = plan(observes_only=True, start_at="triton")
    assert made.entry == 0
    assert made.notes[-1] == "--start-at triton has no effect with --observe-only"
    assert plan(start_at="triton").observed is None


@pytest.mark.parametrize("at", [1e300, float("inf"), float("nan"), -1e18])
def test_a_clock_that_was_wrong_ends_no_launch(at: float) -> None:
    made = plan(Remembered(broken("as-asked", at=at), Held("no-autotune", at)))
    assert "as-asked died here on an unknown day of" in str(made.entry_because)


def test_a_rung_that_held_is_left_once_nothing_speaks_against_those_above_it() -> None:
    held = Held("no-autotune", DAY)
    assert entry(plan(Remembered(broken("as-asked"), held))) == "no-autotune"
    assert entry(plan(Remembered((), held))) == "as-asked"


def test_a_death_that_nobody_understands_counts_from_the_second_time_on() -> None:
    once, twice = (Remembered((Broken("as-asked", "unknown", "unknown", "init", DAY, times),)) for times in (1, 2))
    assert entry(plan(once)) == "as-asked"
    assert entry(plan(twice)) == "no-autotune"
