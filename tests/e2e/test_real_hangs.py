"""A real vLLM that hangs is found by what it does not do, and replaced; one that is merely busy is left alone (P15)."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
import request_load
from real_launch import NotAsTold, RealLaunch, fault
from starter import Starter

pytestmark = pytest.mark.e2e
SILENCE_S = 40
STALL_S = 15
SHORT = {"start_silence_s": SILENCE_S, "autotune_silence_s": SILENCE_S, "capture_silence_s": SILENCE_S}
CHATTY = {"VLLM_RINGBUFFER_WARNING_INTERVAL": "10"}
"""Whoever waits for a stuck worker says so again and again within our limits: that must not pass for progress."""
CLIENTS = 100
LOAD_S = 60


def impatient(place: Path, limits: Mapping[str, float]) -> tuple[str, str]:
    """Return the options for a profile with these limits."""
    profile = place / "impatient.yaml"
    policy = "".join(f"  {name}: {limit}\n" for name, limit in limits.items())
    profile.write_text(f"name: impatient\ndescription: short limits\nextends: cpu\npolicy:\n{policy}")
    return "--profile", str(profile)


def assert_attempt_2_serves(launch: RealLaunch) -> None:
    """Attempt 2 answers, and nothing of either is left after a stop."""
    assert launch.events("ready")[-1]["attempt"] == len(launch.rungs()) == 2
    assert launch.complete()
    assert launch.stop() == 0
    assert launch.survivors() == []


def assert_it_hung(launch: RealLaunch, phase: str, reason: str) -> None:
    """Attempt 1 alone was ended by us, for this, and people were told where it was."""
    (ended,) = (event for event in launch.events("attempt-ended") if event["attempt"] == 1)
    assert (ended["fault"], ended["phase"], ended["status"]) == ("hang", phase, None)
    assert reason in ended["reason"]
    (hang,) = launch.events("hang")
    assert hang["attempt"] == 1
    beside = os.pathsep.join([str(Path(launch.command[launch.command.index("--vllm") + 1]).parent), os.environ["PATH"]])
    assert (hang["problem"] == "py-spy is not installed beside vLLM") == (shutil.which("py-spy", path=beside) is None)
    if hang["problem"]:
        assert f"safe-vllm:   no stacks of its {hang['processes']} processes: {hang['problem']}" in launch.ours()
    else:
        assert any("strike (safe_vllm_fault.py" in stack["text"] for stack in launch.events("stacks"))
        assert "strike (safe_vllm_fault.py" in launch.ours()


@pytest.mark.parametrize(
    ("at", "when", "phase", "reason"),
    [
        ("load", "always", "init", f"no output and no data moved for {SILENCE_S} s while it was starting"),
        # Here a process that waits for the stuck one says so again and again.
        (
            "startup",
            "autotune",
            "autotune",
            f"no output and no data moved for {SILENCE_S} s while kernels were being autotuned",
        ),
    ],
)
def test_a_hang_at_start_up_is_found_by_silence_and_replaced(
    start: Starter, tmp_path: Path, at: str, when: str, phase: str, reason: str
) -> None:
    struck = tmp_path / "struck"
    environment = fault(at=at, how="hang", when=when, once_file=str(struck)) | CHATTY
    launch = start(options=impatient(tmp_path, SHORT), environment=environment)
    launch.wait_for("the hang", struck.exists)
    launch.wait_until_ready()
    assert_it_hung(launch, phase, reason)
    assert_attempt_2_serves(launch)


def test_a_hang_while_serving_is_found_by_counters_that_stand_still_and_replaced(
    start: Starter, tmp_path: Path
) -> None:
    struck = tmp_path / "struck"
    struck.touch()  # disarmed until it serves
    environment = fault(at="inference", how="hang", once_file=str(struck))
    launch = start(options=impatient(tmp_path, {"stall_s": STALL_S}), environment=environment)
    launch.wait_until_ready()
    assert launch.complete()
    struck.unlink()
    with pytest.raises(NotAsTold, match=r"was not answered|answered with 500"):
        launch.complete()
    assert struck.exists()
    launch.wait_until_ready(2)
    assert_it_hung(launch, "serving", f"requests waited {STALL_S} s without a token, and a real request got no answer")
    assert_attempt_2_serves(launch)


@pytest.mark.parametrize(
    "limits", [{}, {**SHORT, "stall_s": 5}], ids=["with the limits that it comes with", "with short limits"]
)
def test_a_busy_server_on_a_busy_machine_is_left_alone(
    start: Starter, tmp_path: Path, limits: Mapping[str, float]
) -> None:
    launch = start(options=impatient(tmp_path, limits) if limits else ())
    launch.wait_until_ready()
    with a_busy_core():
        answered = request_load.put_on(launch.port, launch.model, for_a_minute(), clients=CLIENTS, tokens=32)
        assert launch.complete()
    assert len(answered.took_s) >= CLIENTS
    assert launch.rungs() == ["as-asked"]
    assert not {"hang", "stacks", "blind", "attempt-ended"} & {event["event"] for event in launch.events()}
    assert launch.stop() == 0
    assert launch.survivors() == []


def for_a_minute() -> Iterator[int]:
    """Yield turns for as long as the load lasts."""
    until = time.monotonic() + LOAD_S
    yield from itertools.takewhile(lambda _: time.monotonic() < until, itertools.count())


@contextmanager
def a_busy_core() -> Iterator[None]:
    """Let another process make what it can of the core of the first worker."""
    core = min(os.sched_getaffinity(0))
    spin = f"import os; os.sched_setaffinity(0, {{{core}}})\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", spin]) as process:
        try:
            yield
        finally:
            process.kill()
