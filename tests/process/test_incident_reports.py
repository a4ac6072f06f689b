"""What the reports of a whole launch say of each other, and of what was tried."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from launch import Launch, Stage
from scenes import ima_at_startup, serve_ok

from waiting import free_port


def reports(run: Launch) -> dict[int, tuple[dict[str, Any], str]]:
    """Return what is in each report, by its attempt, as JSON and as Markdown."""
    found = [Path(event["path"]) for event in run.events("incident")]
    contents = [
        (json.loads((path / "incident.json").read_text()), (path / "incident.md").read_text()) for path in found
    ]
    return {content["attempt"]: (content, text) for content, text in contents}


def test_the_caches_that_the_next_attempt_does_without_are_suspect_and_only_in_that_report(stage: Stage) -> None:
    words = ["tiny", "--host", "127.0.0.1", "--port", str(free_port()), "--moe-backend", "triton"]
    dies = ima_at_startup()
    run = stage.start(dies, dies, dies, serve_ok(), words=words, options=("--backoff", "0.01"))
    run.wait_until_ready("triton")
    run.wait_for("three reports", lambda: len(run.events("incident")) == 3)
    assert run.stop() == 0
    told = reports(run)
    suspects = {
        at: {cache["because"] for cache in content["caches"] if cache["is_suspect"]}
        for at, (content, _) in told.items()
    }
    assert suspects[1] == suspects[3] == set()
    [because] = suspects[2]
    assert "struck in the same phase twice" in because
    assert [past["has_fresh_caches"] for past in told[3][0]["history"]] == [False, False, True]
    assert "with fresh caches" in told[3][1] and "Move it aside" in told[2][1]


def test_variables_of_the_operators_that_nobody_reads_are_marked(stage: Stage) -> None:
    run = stage.start(ima_at_startup(), serve_ok(), environment={"TRTLLM_MOE_MAX_WORKSPACE": "1"})
    run.wait_until_ready("no-autotune")
    run.wait_for_event("incident")
    assert run.stop() == 0
    assert "| `TRTLLM_MOE_MAX_WORKSPACE` | `1` (not read by the installed version) |" in reports(run)[1][1]
