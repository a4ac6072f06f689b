"""What Prometheus reads of a launch, and what its alert rules are about."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import reduce
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from doc_tables import plain, rows

from safe_vllm.announce.metrics import Labels, Measure, exposition, measures
from safe_vllm.announce.picture import Picture, State
from safe_vllm.announce.status_pages import metrics_text

ALERTS = yaml.safe_load((Path(__file__).parents[2] / "deploy" / "prometheus" / "alerts.yaml").read_text())
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]

NOON = "2026-03-01T12:00:00.500Z"
NOON_UNIX = 1772366400.5


def event(name: str, **fields: Any) -> dict[str, Any]:
    return {"event": name, "time": NOON, "attempt": 1, "rung": "as-asked", **fields}


STARTED = event(
    "launch-started",
    launch="7-a",
    launcher_pid=7,
    profile="b200",
    ladder=["as-asked", "no-autotune", "triton"],
    entry="as-asked",
    versions={"vllm": "0.32.0", "flashinfer": None, "torch": "2.13.0"},
)
BEGUN = event("attempt-started")
READY = event("ready", after_s=64.2, note="")
DIED = event("attempt-ended", fault="illegal-memory-access", phase="autotune", reason="a fault")
DOWN = event("step", attempt=2, rung="triton", reason="a fault")
WAITS = event("gate", gate="gpu-memory", outcome="waiting", waited_s=0.0)
PASSED = event("gate", gate="gpu-memory", outcome="passed", waited_s=4.5)
AGAIN = event("attempt-started", attempt=2, rung="triton")


def picture(*events: dict[str, Any]) -> Picture:
    return reduce(Picture.after, (STARTED, *events), Picture())


def values(shown: Picture, name: str) -> dict[Labels, float]:
    """Return the values of one metric."""
    [found] = [one for one in measures(shown, 0.25, {"stdout": 10, "stderr": 3}) if one.name == f"safe_vllm_{name}"]
    return dict(found.values)


def value(shown: Picture, name: str) -> float | None:
    """Return the value of a metric without labels; ``None``: there is none now."""
    return values(shown, name).get(())


def at(shown: Picture, name: str) -> list[str]:
    """Return where a metric is 1 that is 1 at one of several places."""
    return [labels[0][1] for labels, number in values(shown, name).items() if number == 1.0]


def test_the_rung_is_where_the_launch_is_and_known_before_and_after() -> None:
    assert values(picture(), "rung") == {
        (("rung", "as-asked"),): 1.0,
        (("rung", "no-autotune"),): 0.0,
        (("rung", "triton"),): 0.0,
    }
    assert at(picture(BEGUN, DIED, DOWN), "rung") == ["triton"]
    assert value(picture(BEGUN, DIED, DOWN), "rung_index") == 2.0
    assert value(Picture(), "rung_index") is None


@pytest.mark.parametrize(
    ("events", "state", "is_ready"),
    [
        ((), "starting", 0.0),
        ((BEGUN, READY), "ready", 1.0),
        ((BEGUN, READY, event("hang")), "stepping-down", 0.0),
        ((BEGUN, READY, DIED), "stepping-down", 0.0),
        ((BEGUN, READY, event("stop-asked")), "stopping", 0.0),
        ((BEGUN, READY, event("stop-asked"), event("launch-ended", status=0, reason="")), "ended", 0.0),
    ],
)
def test_ready_is_one_only_in_the_state_ready(events: tuple[dict[str, Any], ...], state: str, is_ready: float) -> None:
    assert at(picture(*events), "state") == [state]
    assert len(values(picture(*events), "state")) == len(get_args(State))
    assert value(picture(*events), "ready") == is_ready


def test_seconds_to_ready_are_those_of_the_attempt_that_serves() -> None:
    assert value(picture(BEGUN), "seconds_to_ready") is None
    assert value(picture(BEGUN, READY), "seconds_to_ready") == 64.2
    assert value(picture(BEGUN, READY, DIED, DOWN, AGAIN), "seconds_to_ready") is None


def test_a_launch_that_has_ended_is_not_degraded_any_more() -> None:
    ends = event("launch-ended", status=0, reason="asked to stop")
    below = picture(BEGUN, DIED, DOWN, AGAIN)
    assert [value(below, "degraded"), value(below.after(ends), "degraded")] == [1.0, 0.0]
    assert value(below.after(ends), "degraded_since_timestamp_seconds") is None


def test_degraded_says_since_when() -> None:
    assert value(picture(BEGUN), "degraded") == 0.0
    assert value(picture(BEGUN), "degraded_since_timestamp_seconds") is None
    down = picture(BEGUN, DIED, {**DOWN, "time": "2026-03-01T12:01:00.500Z"})
    assert value(down, "degraded") == 1.0
    assert value(down, "degraded_since_timestamp_seconds") == NOON_UNIX + 60
    assert value(down, "start_time_seconds") == NOON_UNIX
    assert value(Picture(started_at="soon"), "start_time_seconds") is None


def test_faults_are_counted_by_class_and_phase_and_a_stop_is_none() -> None:
    stopped = event("attempt-ended", fault="stopped", phase="shutdown", reason="")
    fine = event("attempt-ended", fault="none", phase="serving", reason="")
    shown = picture(BEGUN, DIED, DOWN, AGAIN, DIED, stopped, fine)
    assert values(shown, "faults_total") == {(("fault", "illegal-memory-access"), ("phase", "autotune")): 2.0}
    assert value(shown, "failed_attempts_total") == 2.0
    assert value(shown, "attempts_total") == 2.0
    assert value(picture(), "failed_attempts_total") == 0.0


def test_what_else_happens_is_counted() -> None:
    report = event("incident", path="incidents/a", problem=None)
    shown = picture(BEGUN, READY, event("proven"), event("hang"), DIED, report, DOWN, WAITS)
    assert (value(shown, "hangs_total"), value(shown, "incidents_total")) == (1.0, 1.0)
    assert (value(shown, "gate_waiting"), value(shown, "gate_wait_seconds_total")) == (1.0, 0.0)
    assert value(shown, "proven") == 0.0
    passed = shown.after(PASSED)
    assert (value(passed, "gate_waiting"), value(passed, "gate_wait_seconds_total")) == (0.0, 4.5)
    assert value(picture(BEGUN, READY, event("proven")), "proven") == 1.0


def test_the_loop_tells_its_age_and_what_it_passed_on_where_that_is_known() -> None:
    assert value(picture(), "heartbeat_age_seconds") == 0.25
    assert values(picture(), "relayed_bytes_total") == {(("stream", "stdout"),): 10.0, (("stream", "stderr"),): 3.0}
    assert "safe_vllm_relayed_bytes_total" not in [one.name for one in measures(picture(), 0.25)]


# How it is written


def parsed(shown: Picture) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Return every sample as prometheus_client itself reads it."""
    parser = pytest.importorskip("prometheus_client.parser")
    kind, body = exposition(measures(shown, 0.25, {"stdout": 10}))
    assert kind.startswith("text/plain")
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in parser.text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


def test_every_sample_arrives_as_it_was_meant() -> None:
    shown = picture(BEGUN, READY, DIED, DOWN)
    expected = {
        (one.name, frozenset(labels)): number
        for one in measures(shown, 0.25, {"stdout": 10})
        for labels, number in one.values.items()
    }
    assert parsed(shown) == expected
    assert len(expected) > len(measures(shown, 0.25))


def test_names_that_are_no_plain_words_arrive_too() -> None:
    odd = 'a "quoted" \\ path\nof two lines, \udcff and ümlauts'
    labels = dict(next(key for name, key in parsed(picture().after({**STARTED, "profile": odd})) if "info" in name))
    assert labels["profile"] == odd.replace("\udcff", "?")


def test_the_registry_of_others_in_this_process_stays_as_it_is() -> None:
    client = pytest.importorskip("prometheus_client")
    assert b"python_info" not in exposition(measures(picture(), 0.25))[1]
    assert b"python_info" in client.generate_latest(client.REGISTRY)
    assert b"safe_vllm" not in client.generate_latest(client.REGISTRY)


def test_a_variable_for_servers_of_many_processes_changes_nothing(tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client")
    script = (
        "from safe_vllm.announce.metrics import *\n"
        "from safe_vllm.announce.picture import Picture\n"
        "print(exposition(measures(Picture(), 1.0))[1].decode())"
    )
    absent = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path / "absent")}
    told = subprocess.run([sys.executable, "-c", script], env=absent, capture_output=True, text=True, check=True)
    assert "safe_vllm_ready 0.0\n" in told.stdout
    assert list(tmp_path.iterdir()) == []


def test_without_the_library_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    page = metrics_text(picture(), 0.25, None)
    assert page.status == 501
    assert b"pip install prometheus-client" in page.body


# What is documented, and what is alerted on


def labels_of(one: Measure) -> str:
    return ", ".join(name for name, _ in next(iter(one.values), ()))


def test_the_documented_metrics_are_those_that_there_are() -> None:
    shown = picture(BEGUN, READY, DIED, DOWN)
    told = [[plain(cell) for cell in row[:3]] for row in rows("status.md", "metric")]
    assert sorted(told) == sorted([one.name, one.kind, labels_of(one)] for one in measures(shown, 0.25, {"stdout": 1}))


NAMES = {one.name: one for one in measures(picture(), 0.25, {"stdout": 1})}
WORD = re.compile(r"\bsafe_vllm_\w+")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_is_about_metrics_that_there_are(rule: dict[str, Any]) -> None:
    names = WORD.findall(rule["expr"])
    assert names
    assert set(names) <= set(NAMES)
    for name in names:
        assert NAMES[name].kind == ("counter" if f"increase({name}[" in rule["expr"] else "gauge")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_is_whole(rule: dict[str, Any]) -> None:
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert re.fullmatch(r"\d+[mh]", rule.get("for", "1m"))
    assert re.fullmatch(r"SafeVllm[A-Za-z]+", rule["alert"])
    assert rule["labels"]["severity"] in ("info", "warning", "critical")
    assert set(rule["annotations"]) == {"summary", "description"}
    # what an expression leaves of the labels is what a sentence may name
    used = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
    assert used == (set() if "absent(" in rule["expr"] else {"instance"})


def test_no_two_alerts_have_one_name_and_what_matters_has_one() -> None:
    names = [rule["alert"] for rule in RULES]
    assert len(names) == len(set(names))
    alerted = {name for rule in RULES for name in WORD.findall(rule["expr"])}
    assert {f"safe_vllm_{name}" for name in ("degraded", "ready", "hangs_total", "heartbeat_age_seconds")} <= alerted
