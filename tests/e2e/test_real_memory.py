"""What broke and what held with a real vLLM is remembered, told and reported; a poisoned cache costs no rung."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from real_launch import Event, RealLaunch, fault
from starter import Starter, assert_it_stops_cleanly

from leftovers import below

pytestmark = pytest.mark.e2e
DIES_WHILE_TUNING = fault(at="startup", how="exception", when="autotune")
PROVES_SOON = ("--backoff", "0", "--proving-window", "1")
NO_AUTOTUNE = "--no-enable-flashinfer-autotune"
MOVED = ("VLLM_CACHE_ROOT", "VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")


def state(launch: RealLaunch) -> Path:
    """Return the directory in which the launch keeps things."""
    launch.wait_for("the first event", lambda: launch.events("launch-started"))
    return Path(launch.events("launch-started")[0]["state_dir"])


def ours(start: Starter, launch: RealLaunch, *words: str) -> str:
    """Return what another command of ours says of the same state directory."""
    command = [str(start.safe_vllm), "--state-dir", str(state(launch)), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def first_process(launch: RealLaunch) -> int:
    """Return the number of vLLM's first process, once it is there."""
    found: list[int] = []

    def is_there() -> bool:
        guardians = launch.pids("guardian of process")
        found[:] = [left.pid for each in guardians for left in below(each) if " serve " in str(left)]
        return bool(found)

    launch.wait_for("vLLM's first process", is_there)
    return found[0]


def strings(pid: int, name: str) -> list[str]:
    """Return what the kernel says of how a process was started: its ``cmdline`` or its ``environ``."""
    return Path(f"/proc/{pid}/{name}").read_text().rstrip("\0").split("\0")


def variables(launch: RealLaunch) -> dict[str, str]:
    """Return the environment in which vLLM was started."""
    pairs = [pair.partition("=") for pair in strings(first_process(launch), "environ")]
    return {name: value for name, _, value in pairs}


def wait_until_held(launch: RealLaunch, rung: str) -> None:
    """Wait until the rung has proven itself, and until that is remembered."""
    launch.wait_for("that it is remembered", lambda: [e for e in launch.events("remembered") if e["outcome"] == "held"])
    (held,) = [event for event in launch.events("remembered") if event["outcome"] == "held"]
    assert (held["rung"], held["problems"]) == (rung, [])


def report_of(event: Event) -> str:
    """Return the report that an event tells of, as a person reads it."""
    return (Path(event["path"]) / "incident.md").read_text()


def test_p18_p19_the_second_launch_starts_where_the_first_held_until_that_is_forgotten(start: Starter) -> None:
    first = start(options=PROVES_SOON, environment=DIES_WHILE_TUNING)
    first.wait_until_ready()
    wait_until_held(first, "no-autotune")
    assert first.rungs() == ["as-asked", "no-autotune"]
    status = ours(start, first, "status")
    assert "serving at rung no-autotune: " in status
    assert "ladder: as-asked → [no-autotune]" in status
    assert "attempt 2, proven" in status
    assert "DEGRADED to no-autotune since" in status
    assert_it_stops_cleanly(first)
    status = ours(start, first, "status")
    assert "not running: it ended with status 0, " in status
    assert "it was degraded to no-autotune: " in status
    assert "DEGRADED" not in status
    assert "as-asked broke (once): illegal-memory-access; no-autotune held (once)" in status
    (report,) = [Path(event["path"]).name for event in first.events("incident")]
    assert report in status
    assert ours(start, first, "status", report).startswith("# vLLM 0.")

    second = start(options=PROVES_SOON, environment=DIES_WHILE_TUNING)
    second.wait_until_ready()
    assert second.rungs() == ["no-autotune"]
    assert second.complete()
    assert "safe-vllm: starts at no-autotune: as-asked died here on " in second.ours()
    assert "no-autotune held since then; safe-vllm forget starts at the top" in second.ours()
    assert "DEGRADED: this server runs at no-autotune, not at as-asked" in second.ours()
    assert_it_stops_cleanly(second)

    assert "as-asked broke (once): illegal-memory-access" in ours(start, second, "forget")
    third = start(options=PROVES_SOON, environment=DIES_WHILE_TUNING)
    assert NO_AUTOTUNE not in strings(first_process(third), "cmdline")
    assert third.rungs() == ["as-asked"]
    assert_it_stops_cleanly(third)


def test_p18_p20_a_pinned_rung_is_left_out_and_the_launch_ends_with_70_and_a_report(start: Starter) -> None:
    pins = ("--pin", "autotune,moe-backend,caches")
    launch = start(options=(*PROVES_SOON, *pins), environment=DIES_WHILE_TUNING)
    launch.wait_for("what comes next", lambda: launch.events("launch-ended") or launch.events("step"))
    assert launch.events("step") == []
    assert launch.finish() == 70
    assert launch.rungs() == ["as-asked"]
    assert launch.survivors() == []
    assert "no rung is left" in launch.ours()
    (event,) = launch.events("incident")
    found = json.loads((Path(event["path"]) / "incident.json").read_text())
    assert (found["death"]["fault"], found["death"]["phase"]) == ("illegal-memory-access", "autotune")
    assert found["sequel"]["status"] == 70
    report = report_of(event)
    (root,) = [line for line in report.splitlines() if line.startswith("- **Root line:** ")]
    assert "CUDA error: an illegal memory access was encountered" in root
    # the command, whole: what stands after our own options
    served = launch.command[launch.command.index("serve") :]
    assert f"{start.vllm} {' '.join(served)}" in report
    versions = launch.events("launch-started")[0]["versions"]
    for name in ("vllm", "torch"):
        assert f" {versions[name]} |" in report
    assert "status 70" in report
    assert ours(start, launch, "status", Path(event["path"]).name) == report + "\n"


LOUD = """\
name: loud
description: one that sets something at every rung
environment: {NCCL_DEBUG: "WARN"}
ladder: [{rung: as-asked}, {rung: no-autotune}]
"""


@pytest.mark.e2e_ci
def test_only_observed_a_fault_is_reported_nothing_is_changed_and_vllms_end_is_ours(
    start: Starter, tmp_path: Path
) -> None:
    (tmp_path / "loud.yaml").write_text(LOUD)
    options = ("--observe-only", "--profile", str(tmp_path / "loud.yaml"))
    launch = start(options=options, environment=DIES_WHILE_TUNING)
    leader = first_process(launch)
    asked = launch.command[launch.command.index("serve") :]
    assert strings(leader, "cmdline")[-len(asked) - 1 :] == [str(start.vllm), *asked]
    given = set(strings(launch.process.pid, "environ"))
    assert given - set(strings(leader, "environ")) == {f"NOTIFY_SOCKET={os.environ['NOTIFY_SOCKET']}"}
    assert set(strings(leader, "environ")) <= given
    status = launch.finish()
    (ended,) = launch.events("attempt-ended")
    assert (ended["fault"], ended["phase"]) == ("illegal-memory-access", "autotune")
    assert status == ended["status"] == 1
    (would,) = launch.events("observed")
    assert would["would"] == "step down to no-autotune"
    assert "observed only: safe-vllm would step down to no-autotune now" in launch.ours()
    (event,) = launch.events("incident")
    assert "an illegal memory access was encountered" in report_of(event)
    assert launch.events("remembered") == []
    assert launch.survivors() == []
    assert "it was only observed: nothing was changed and nothing was ended" in ours(start, launch, "status")


def poisoned(cache: Path) -> Path:
    """Return a file that makes every start fail which uses this cache."""
    cache.mkdir(parents=True)
    (cache / "poison").write_text("a tactic that does not fit")
    return cache / "poison"


def snapshot(root: Path) -> dict[str, tuple[int, int, int]]:
    """Return every file and directory below, and what would tell that it was touched."""
    seen = {path: path.lstat() for path in sorted(root.rglob("*"))}
    return {str(path): (found.st_ino, found.st_size, found.st_mtime_ns) for path, found in seen.items()}


def caches_in_use(launch: RealLaunch) -> dict[str, str]:
    """Return where vLLM was told to keep what it tunes and compiles."""
    found = variables(launch)
    return {name: found[name] for name in MOVED if name in found}


def assert_the_next_launch_uses_them(start: Starter, rung: str, caches: dict[str, str], **surroundings: str) -> None:
    """A later launch starts at this rung with the caches that held, and serves at once."""
    launch = start(options=PROVES_SOON, environment=surroundings)
    assert caches_in_use(launch) == caches
    launch.wait_until_ready()
    assert launch.rungs() == [rung]
    assert launch.complete()
    assert_it_stops_cleanly(launch)


def assert_healed_with_caches_of_ours(launch: RealLaunch, rung: str) -> dict[str, str]:
    """The last attempt serves at this rung, with caches in our state directory; return where each is."""
    assert launch.complete()
    caches = caches_in_use(launch)
    assert list(caches) == list(MOVED)
    ours_are_in = state(launch) / "caches" / launch.events("launch-started")[0]["launch"]
    assert all(Path(place).is_relative_to(ours_are_in) for place in caches.values())
    wait_until_held(launch, rung)
    return caches


def test_p18_tactics_that_every_start_dies_of_are_replaced_at_the_same_rung(start: Starter, tmp_path: Path) -> None:
    cache = tmp_path / "operators"
    poison = poisoned(cache / "flashinfer_autotune_cache")
    surroundings = {**fault(at="startup", how="exception", when="tactics"), "VLLM_CACHE_ROOT": str(cache)}
    launch = start(options=PROVES_SOON, environment=surroundings)
    launch.wait_for("the second attempt", lambda: launch.events("step"))
    before = snapshot(cache)
    launch.wait_until_ready()
    assert launch.rungs() == ["as-asked", "as-asked"]
    caches = assert_healed_with_caches_of_ours(launch, "as-asked")
    (ended,) = launch.events("attempt-ended")
    assert (ended["fault"], ended["phase"]) == ("illegal-memory-access", "autotune")
    assert f"the same rung with fresh caches: {ended['reason']}, and {poison} may have caused it" in launch.ours()
    (event,) = launch.events("incident")
    (suspect,) = [line for line in report_of(event).splitlines() if "| suspect" in line]
    assert f"`{cache}/flashinfer_autotune_cache`" in suspect
    # no rung was lost, so nothing is degraded, and nothing but what held is remembered
    assert "DEGRADED" not in launch.ours()
    assert "as-asked held (once)" in ours(start, launch, "status")
    assert "broke" not in ours(start, launch, "status")
    assert_it_stops_cleanly(launch)

    assert_the_next_launch_uses_them(start, "as-asked", caches, **surroundings)
    assert snapshot(cache) == before


def test_p18_a_fault_that_strikes_twice_alike_is_answered_by_fresh_caches(start: Starter, tmp_path: Path) -> None:
    cache = tmp_path / "operators"
    poisoned(cache / "vllm" / "torch_compile_cache")
    surroundings = {**fault(at="startup", how="segv", when="graphs"), "XDG_CACHE_HOME": str(cache)}
    launch = start(options=PROVES_SOON, environment=surroundings)
    launch.wait_for("the third attempt", lambda: len(launch.events("step")) == 2)
    before = snapshot(cache)
    launch.wait_until_ready()
    # the first death alone speaks against its rung; the second costs none
    assert launch.rungs() == ["as-asked", "no-autotune", "no-autotune"]
    caches = assert_healed_with_caches_of_ours(launch, "no-autotune")
    assert [event["fault"] for event in launch.events("attempt-ended")] == ["engine-signal"] * 2
    assert "and the same happened in the attempt before" in launch.ours()
    assert_it_stops_cleanly(launch)

    assert_the_next_launch_uses_them(start, "no-autotune", caches, **surroundings)
    assert snapshot(cache) == before
