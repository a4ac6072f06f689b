"""What ``status`` says of a launch."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest

from safe_vllm.announce.picture import Picture, facts
from safe_vllm.announce.standing import run_lines

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=timezone.utc)
STARTED: dict[str, Any] = {
    "event": "launch-started",
    "time": "2026-03-01T09:00:00.000Z",
    "launch": "7-a",
    "launcher_pid": 7,
    "profile": "b200",
    "ladder": ["as-asked", "triton"],
    "entry": "triton",
    "versions": {"vllm": "0.32.0"},
    "costs": {"triton": "slower kernels"},
    "because": "as-asked died here",
    "fixed_in": ["FlashInfer 0.6.16"],
}
READY = {
    "event": "ready",
    "time": "2026-03-01T09:10:00.000Z",
    "attempt": 1,
    "rung": "triton",
    "after_s": 600.0,
    "note": "",
}
DIED = {
    "event": "attempt-ended",
    "time": "2026-03-01T11:00:00.000Z",
    "attempt": 1,
    "rung": "triton",
    "seconds": 7200.0,
    "fault": "illegal-memory-access",
    "phase": "serving",
    "suspect": "moe",
    "action": "retry-safer",
    "reason": "a fault",
}


def shown(*events: dict[str, Any], is_alive: bool = True) -> str:
    picture = Picture()
    for event in (STARTED, {"event": "attempt-started", "time": STARTED["time"], "attempt": 1, "rung": "triton"}):
        picture = picture.after(event)
    for event in events:
        picture = picture.after(event)
    return "\n".join(run_lines(facts(picture), is_alive=is_alive, now=NOW))


def test_p19_a_degraded_server_says_so_since_when_why_what_it_costs_and_the_way_back() -> None:
    text = shown(READY)
    assert "serving at rung triton: a model, vLLM 0.32.0, profile b200, process 7" in text
    assert "ladder: as-asked → [triton]" in text
    assert "ready since 2026-03-01 09:10:00 UTC (3 h ago), attempt 1, not proven yet" in text
    assert "DEGRADED to triton since 2026-03-01 09:00:00 UTC (3 h ago): as-asked died here" in text
    assert "costs: slower kernels" in text
    assert "way back: stop, then `safe-vllm forget`" in text
    assert "fixed in: FlashInfer 0.6.16" in text


def test_an_ended_attempt_says_of_what_it_died_and_where_the_report_is() -> None:
    text = shown(READY, DIED, {"event": "incident", "time": "t", "attempt": 1, "path": "incidents/a", "problem": None})
    assert "stepping down at rung triton" in text
    assert (
        "attempt 1 at triton ended after 2 h: illegal-memory-access in serving, suspect moe; report incidents/a" in text
    )


ENDED = {"event": "launch-ended", "time": "2026-03-01T11:59:00.000Z", "status": 70, "reason": "no rung is left"}


def test_a_launch_that_has_ended_says_when_with_which_status_and_what_it_was() -> None:
    assert shown(READY, DIED, ENDED, is_alive=False).splitlines() == [
        "not running: it ended with status 70, 2026-03-01 11:59:00 UTC (1 min ago): no rung is left",
        "  it was a model, vLLM 0.32.0, profile b200, process 7, started 2026-03-01 09:00:00 UTC (3 h ago)",
        "  ladder: as-asked → [triton]",
        "  it was degraded to triton: as-asked died here",
        "  attempt 1 at triton ended after 2 h: illegal-memory-access in serving, suspect moe",
    ]


@pytest.mark.parametrize("events", [(READY, ENDED), (READY,)], ids=["ended", "killed"])
def test_what_does_not_run_is_not_said_to_serve_or_to_be_degraded_now(events: tuple[dict[str, Any], ...]) -> None:
    text = shown(*events, is_alive=False)
    assert not [now for now in ("DEGRADED", "serving", "ready since", "way back", "costs") if now in text]


def test_a_launch_that_was_killed_says_where_it_was_and_when_it_last_told() -> None:
    killed = shown(READY, is_alive=False)
    assert "not running: it was killed at rung triton, and last told of 2026-03-01 09:10:00 UTC (3 h ago)" in killed


def test_a_launch_that_was_only_observed_says_so_afterwards_too() -> None:
    observed = {**STARTED, "observes_only": True}
    assert "it was only observed: nothing was changed" in shown(observed, ENDED, is_alive=False)
    assert "only observed: nothing is changed" in shown(observed)


def test_what_another_version_wrote_is_shown_as_far_as_it_can_be() -> None:
    assert run_lines({}, is_alive=True, now=NOW) == []
    text = "\n".join(run_lines({"v": 9, "state": "dreaming", "recent": [{"attempt": 1}]}, is_alive=True, now=NOW))
    assert "dreaming at rung None" in text
    assert "attempt 1 at None ended: None in None" in text


def test_an_ended_attempt_names_the_cache_that_may_be_to_blame() -> None:
    assert "perhaps of the cache /cache/tactics.json" in shown(READY, {**DIED, "cache": "/cache/tactics.json"})
    assert "cache" not in shown(READY, DIED)
