"""What a launch's events add up to."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from functools import reduce
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from doc_tables import plain, rows

from safe_vllm.announce.picture import RECENT, VERSION, Picture, State, facts

STARTED = {
    "event": "launch-started",
    "time": "t0",
    "launch": "7-a",
    "launcher_pid": 7,
    "profile": "b200",
    "ladder": ["as-asked", "no-autotune", "triton"],
    "entry": "as-asked",
    "versions": {"vllm": "0.32.0"},
    "costs": {"no-autotune": "default tactics", "triton": "slower kernels"},
    "because": None,
    "fixed_in": ["FlashInfer 0.6.16"],
}


def event(name: str, time: str, **fields: Any) -> dict[str, Any]:
    return {"event": name, "time": time, "attempt": 1, "rung": "as-asked", **fields}


def ended(number: int, rung: str, time: str) -> dict[str, Any]:
    found = {"fault": "illegal-memory-access", "phase": "autotune", "suspect": "moe", "action": "retry-safer"}
    return event("attempt-ended", time, **found, attempt=number, rung=rung, seconds=30.0, reason="a fault")


def picture(*events: dict[str, Any]) -> Picture:
    return reduce(Picture.after, (STARTED, *events), Picture())


def test_a_launch_that_has_just_begun_is_starting_at_its_first_rung_and_is_not_degraded() -> None:
    shown = picture(event("attempt-started", "t1"), event("phase", "t2", phase="autotune"))
    assert (shown.state, shown.phase, shown.rung, shown.attempt) == ("starting", "autotune", "as-asked", 1)
    assert shown.degraded is None
    assert shown.updated_at == "t2"


def test_a_server_that_is_ready_says_since_when() -> None:
    shown = picture(event("attempt-started", "t1"), event("ready", "t3", after_s=64.2, note=""), event("proven", "t4"))
    assert (shown.state, shown.phase, shown.ready_since, shown.ready_after_s) == ("ready", "serving", "t3", 64.2)
    assert shown.is_proven


def test_a_step_down_makes_it_degraded_since_then_with_the_reason_what_it_costs_and_the_way_back() -> None:
    died = ended(1, "as-asked", "t3")
    shown = picture(event("attempt-started", "t1"), died, event("step", "t4", rung="triton", reason="a fault"))
    assert shown.state == "stepping-down"
    assert shown.degraded is not None
    assert (shown.degraded.rung, shown.degraded.since, shown.degraded.reason) == ("triton", "t4", "a fault")
    assert shown.degraded.costs == ("default tactics", "slower kernels")
    assert "forget" in shown.degraded.way_back
    assert shown.degraded.fixed_in == ("FlashInfer 0.6.16",)


def test_the_same_rung_again_leaves_it_degraded_since_the_first_time() -> None:
    down = event("step", "t4", rung="triton", reason="a fault")
    shown = picture(down, event("attempt-started", "t5", rung="triton", attempt=2))
    again = shown.after(ended(2, "triton", "t6")).after(event("step", "t7", rung="triton", reason="once more"))
    assert again.degraded is not None
    assert again.degraded.since == "t4"
    assert again.ready_since is None


def test_a_launch_that_starts_below_the_top_is_degraded_from_the_start() -> None:
    remembered = {**STARTED, "entry": "no-autotune", "because": "as-asked died here"}
    shown = Picture().after(remembered)
    assert shown.degraded is not None
    assert (shown.degraded.since, shown.degraded.reason) == ("t0", "as-asked died here")


def test_every_fault_is_counted_and_only_the_latest_attempts_are_kept() -> None:
    shown = picture(*(ended(number, "as-asked", f"t{number}") for number in range(1, RECENT + 5)))
    assert shown.attempts == RECENT + 4
    assert shown.faults == {("illegal-memory-access", "autotune"): RECENT + 4}
    assert [one.attempt for one in shown.recent] == list(range(5, RECENT + 5))


def test_an_attempt_knows_its_report() -> None:
    shown = picture(ended(1, "as-asked", "t1"), event("incident", "t2", path="incidents/a", problem=None))
    assert shown.recent[0].incident == "incidents/a"
    assert shown.incidents == 1
    assert shown.after(event("incident", "t3", path=None, problem="the disk is full")).incidents == 1


def test_a_gate_is_named_while_it_is_waited_for() -> None:
    waiting = event("gate", "t1", gate="gpu-memory", outcome="waiting", waited_s=0.0)
    shown = picture(ended(1, "as-asked", "t0"), waiting)
    assert shown.waits_for == "gpu-memory"
    passed = shown.after(event("gate", "t2", gate="gpu-memory", outcome="passed", waited_s=4.5))
    assert (passed.waits_for, passed.gate_waited_s) == (None, 4.5)


def test_a_server_that_hangs_is_not_ready_any_more_while_it_is_being_ended() -> None:
    shown = picture(event("ready", "t1", after_s=1.0, note=""), event("hang", "t2", processes=3, problem=""))
    assert (shown.state, shown.ready_since, shown.hangs) == ("stepping-down", None, 1)
    stopped = picture(event("ready", "t1", after_s=1.0, note=""), event("stop-asked", "t2"), event("hang", "t3"))
    assert stopped.state == "stopping"


def test_after_a_stop_was_asked_for_it_is_stopping_until_it_has_ended() -> None:
    shown = picture(event("ready", "t1", after_s=1.0, note=""), event("stop-asked", "t2"), ended(1, "as-asked", "t3"))
    assert shown.state == "stopping"
    over = shown.after(event("launch-ended", "t4", status=0, reason="asked to stop, and everything ended"))
    assert (over.state, over.status) == ("ended", 0)


def test_an_event_that_nobody_knows_changes_nothing_but_the_time() -> None:
    assert picture(event("of-the-future", "t9")) == Picture().after({**STARTED, "time": "t0"}).after(
        event("of-the-future", "t9")
    )
    assert picture(event("of-the-future", "t9")).updated_at == "t9"


# The table in docs/status.md

TABLE = {plain(name): (type_, meaning) for name, type_, meaning in rows("status.md", "field")}
FAULTS = {"fault": str, "phase": str, "times": int}
"""The counted faults are told in another form than they are kept in."""
WORDS = {str: "string", int: "integer", float: "seconds", bool: "boolean"}
"""How the table calls the types; no number but a duration has a fraction."""


def documented(holder: Mapping[str, Any], within: str = "") -> Iterator[tuple[str, str]]:
    """Yield every field, with those of the objects in it, and what the table calls its type."""
    for name, hint in holder.items():
        word, inner = described(name, hint)
        yield within + name, word
        if inner:
            yield from documented(inner, f"{within}{name}{'[]' if word.startswith('list') else ''}.")


def described(name: str, hint: Any) -> tuple[str, Mapping[str, Any]]:
    """Return what the table calls a type, and the fields of the object that it may be."""
    if get_origin(hint) in (Union, UnionType):
        [real] = [one for one in get_args(hint) if one is not NoneType]
        word, inner = described(name, real)
        return f"{word} or null", inner
    if get_origin(hint) is tuple:
        word, inner = described("", get_args(hint)[0])
        return f"list of {word}s", inner
    if is_dataclass(hint):
        return "object", get_type_hints(hint)
    if hint is str and name.endswith(("_at", "since")):
        return "time", {}
    if get_origin(hint) is Literal:
        return "string", {}
    return ("object", {}) if isinstance(get_origin(hint), type) else (WORDS[hint], {})


def every_field() -> dict[str, str]:
    """Return what the code says of the fields, under the names of the table."""
    hints = {**get_type_hints(Picture), "faults": tuple[str, ...]}
    found = {"v": "integer", **dict(documented(hints))}
    faults = {f"faults[].{name}": word for name, word in documented(FAULTS)}
    return {**found, "faults": "list of objects", **faults}


def test_the_table_of_fields_has_each_of_them_with_its_type_and_no_other() -> None:
    assert {name: type_ for name, (type_, _) in TABLE.items()} == every_field()


def test_the_table_is_about_what_is_really_told() -> None:
    told = facts(picture(ended(1, "as-asked", "t1"), event("step", "t2", rung="triton", reason="a fault")))
    assert set(told) == {name for name in TABLE if not re.search(r"[.[]", name)}
    for name, inner in {
        "degraded.": told["degraded"],
        "recent[].": told["recent"][0],
        "faults[].": told["faults"][0],
    }.items():
        assert {f"{name}{key}" for key in inner} == {field for field in TABLE if field.startswith(name)}
    assert json.loads(json.dumps(told))["v"] == VERSION
    assert TABLE["v"][1].endswith(f": {VERSION}")


def test_the_table_names_every_state_and_how_many_attempts_are_kept() -> None:
    assert re.findall(r"`([a-z-]+)`", TABLE["state"][1]) == list(get_args(State))
    assert f" {RECENT} ended attempts" in TABLE["recent"][1]
