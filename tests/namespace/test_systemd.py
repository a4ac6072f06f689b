"""P11: the unit that we ship, under a real systemd, with drop-ins for places, and for times that a test shortens."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from launch import FAKE, SAFE_VLLM, Launch, Stage
from scenes import (
    ENGINE,
    PORT_IN_USE,
    Scene,
    argparse_error,
    die,
    engine,
    escapees,
    fail,
    ima_at_startup,
    leave,
    load_until,
    mark,
    on_signal,
    serve,
    serve_ok,
    wait_for_file,
)
from systemd_stage import SERVICE_UID, UNIT, Manager, Unit, managed, seen

import safe_vllm
from waiting import DEADLINE_S, free_port, wait_for

PAGE = UNIT.parents[2] / "docs" / "systemd.md"
OFF = "SAFE_VLLM_OFF=1"
SOON = "RestartSec=100ms"
PAUSED = "activating/auto-restart"
"""The state between an end and the restart after it."""
RESTARTS = {2: False, 69: False, 70: True, 71: False, 75: True, 78: False, 125: False, 126: False, 127: False}
"""By exit status, as the README says."""

Begin = Callable[..., tuple[Unit, Launch]]


@pytest.fixture(scope="module")
def manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    with managed(tmp_path_factory) as found:
        yield found


@pytest.fixture
def units(manager: Manager) -> Iterator[list[Unit]]:
    """The units of a test; nothing of them is left after it."""
    used: list[Unit] = []
    yield used
    for unit in used:
        manager.ctl("stop", unit.name, check=False)
        manager.ctl("reset-failed", unit.name, check=False)
        wait_for(f"the end of {unit.name}", lambda unit=unit: unit.processes() == [])  # type: ignore[misc]
    manager.run("rm", "-rf", "/var/lib/safe-vllm")


@pytest.fixture
def stand_in(manager: Manager, units: list[Unit], tmp_path: Path) -> Callable[..., Unit]:
    """Makes a service of the shipped unit that runs a line of shell instead of safe-vllm."""

    def make(script: str, *lines: str) -> Unit:
        unit = manager.unit(f"stand-in-{len(units)}-{tmp_path.name}")
        units.append(unit)
        unit.configure("ExecStartPre=", "ExecStart=", f"ExecStart=/bin/sh -c {script!r}", *lines)
        return unit

    return make


@pytest.fixture
def service(manager: Manager, units: list[Unit], stage: Stage) -> Begin:
    """Makes a service of the shipped unit that plays scenes."""
    visible = seen(SAFE_VLLM.parent, Path(safe_vllm.__file__).parents[1], stage.binaries.parent, FAKE.parent)

    def make(
        *scenes: Scene, lines: Sequence[str] = (), environment: Sequence[str] = (), words: str = "", name: str = ""
    ) -> tuple[Unit, Launch]:
        unit, place, port = manager.unit(name or stage.root.name), stage.root / "service", free_port()
        units.append(unit)
        (place / "journal").mkdir(parents=True)
        (place / "scenes.json").write_text(json.dumps(scenes))
        launch = Launch(
            process=manager.process,
            port=port,
            journal_path=place / "journal" / "journal",
            events_path=place / "events.jsonl",
            stdout_path=place / "stdout",
            stderr_path=place / "stderr",
            older=stage.older,
            environment={},
        )
        stage.launches.append(launch)
        variables = [
            f"PATH={stage.binaries}:{SAFE_VLLM.parent}:{os.defpath}",
            f"MODEL_ARGS=tiny --host 127.0.0.1 --port {port} {words}",
            f"FAKE_VLLM_SCENES={place}/scenes.json",
            f"FAKE_VLLM_JOURNAL={place}/journal",
            f"SAFE_VLLM_EVENTS={launch.events_path}",
            "SAFE_VLLM_BACKOFF=0.01",
        ]
        places = [
            "ExecStartPre=",
            f"BindPaths={place}",
            f"StandardOutput=append:{launch.stdout_path}",
            f"StandardError=append:{launch.stderr_path}",
        ]
        for path in (place, place / "journal"):
            os.chown(path, SERVICE_UID, SERVICE_UID)
        stage.binaries.parent.chmod(0o755)
        unit.configure(*visible, *places, *lines, environment=[*variables, *environment])
        return unit, launch

    return make


def go_when(path: Path) -> dict[str, object]:
    """Answer a real request when the test makes a file."""
    return {"first": [mark("asked"), wait_for_file(path)], "then": 200}


def started(starting: subprocess.Popen[str]) -> None:
    """Wait for the end of ``systemctl``, and see that it went well."""
    _, trouble = starting.communicate(timeout=DEADLINE_S)
    assert starting.returncode == 0, trouble


def test_start_returns_when_a_real_completion_came_back_and_not_before(
    manager: Manager, service: Begin, tmp_path: Path
) -> None:
    go = tmp_path / "service" / "go"
    unit, launch = service(serve_ok(completions=(go_when(go), 200)))
    starting = manager.begin("start", unit.name)
    launch.wait_for_mark("asked")
    assert (unit.state(), starting.poll()) == ("activating/start", None)
    assert unit.show("StatusText").startswith("attempt 1 starting at rung as-asked")
    go.touch()
    started(starting)
    assert unit.state() == "active/running"
    assert unit.show("StatusText") == "ready at rung as-asked"
    assert len(launch.events("ready")) == 1


def test_the_status_shows_the_rung_after_a_step_down(manager: Manager, service: Begin) -> None:
    unit, launch = service(ima_at_startup(), serve_ok())
    manager.ctl("start", unit.name)
    assert unit.show("StatusText").startswith("ready at rung no-autotune, degraded: ")
    assert launch.rungs() == ["as-asked", "no-autotune"]


def test_what_broke_is_remembered_when_the_service_starts_again(manager: Manager, service: Begin) -> None:
    unit, launch = service(ima_at_startup(), serve_ok(), serve_ok())
    manager.ctl("start", unit.name)
    manager.ctl("restart", unit.name)
    assert launch.rungs() == ["as-asked", "no-autotune", "no-autotune"]


def test_a_step_down_in_service_is_no_restart_of_the_unit(manager: Manager, service: Begin, tmp_path: Path) -> None:
    go = tmp_path / "service" / "go"
    unit, launch = service([engine(wait_for_file(go), die("SIGSEGV")), serve()], serve_ok())
    manager.ctl("start", unit.name)
    before = unit.show("MainPID")
    go.touch()
    launch.wait_for_event("ready", 2)
    wait_for("its status", lambda: unit.show("StatusText").startswith("ready at rung no-autotune"))
    assert unit.state() == "active/running"
    assert (unit.show("MainPID"), unit.show("NRestarts")) == (before, "0")


def test_what_systemd_tells_us_does_not_reach_vllm_and_quotes_reach_it_as_a_shell_reads_them(
    manager: Manager, service: Begin
) -> None:
    given = """--kernel-config '{"moe_backend": "auto"}' --served-model-name "two words" tiny"""
    unit, launch = service(serve_ok(), words=given)
    manager.ctl("start", unit.name)
    [attempt] = launch.attempts()
    names = {variable.partition("=")[0] for variable in attempt["environ"]}
    assert not [name for name in names if name.startswith(("NOTIFY_", "WATCHDOG_", "LISTEN_"))]
    assert {"STATE_DIRECTORY", "INVOCATION_ID"} <= names
    assert "HOME=/var/cache/safe-vllm" in attempt["environ"]
    assert attempt["argv"][-5:] == [
        "--kernel-config",
        '{"moe_backend": "auto"}',
        "--served-model-name",
        "two words",
        "tiny",
    ]


def test_switched_off_plain_vllm_is_the_service_and_systemd_waits_for_nobody(
    manager: Manager, service: Begin, stand_in: Callable[..., Unit], tmp_path: Path
) -> None:
    """P1, P11. Another service, which says nothing after READY, shows when the watchdog's time is over."""
    go = tmp_path / "service" / "go"
    unit, launch = service([mark("up"), wait_for_file(go), leave(0)], lines=["WatchdogSec=4"], environment=[OFF])
    manager.ctl("start", unit.name)
    launch.wait_for_mark("up")
    assert unit.show("StatusText") == "SAFE_VLLM_OFF: plain vLLM, unsupervised"
    [attempt] = launch.attempts()
    names = {variable.partition("=")[0] for variable in attempt["environ"]}
    assert not [name for name in names if name.startswith(("NOTIFY_", "WATCHDOG_", "LISTEN_"))]
    silent = stand_in("systemd-notify --ready; sleep 1000", "WatchdogSec=4", "NotifyAccess=all")
    manager.ctl("start", silent.name)
    silent.wait_until("to be ended by the watchdog", "Result", "watchdog")
    assert unit.state() == "active/running"
    go.touch()
    unit.wait_until("to end as vLLM does", "ActiveState", "inactive")


def test_a_member_without_an_address_is_ready_when_it_runs_and_is_said_to_be_unchecked(
    manager: Manager, service: Begin, tmp_path: Path
) -> None:
    up = [mark("up"), wait_for_file(tmp_path / "never")]
    unit, launch = service(ima_at_startup(), up, words="--headless")
    manager.ctl("start", unit.name)
    launch.wait_for_mark("up")
    said = "running at rung no-autotune, not checked: it has no address to ask, degraded: "
    wait_for("its status", lambda: unit.show("StatusText").startswith(said))
    assert unit.state() == "active/running"
    manager.ctl("stop", unit.name)
    assert (unit.show("Result"), unit.processes()) == ("success", [])


def test_a_launcher_that_stands_still_is_killed_by_the_watchdog_and_leaves_an_empty_control_group(
    manager: Manager, service: Begin
) -> None:
    unit, _ = service([*escapees(), *serve_ok()], lines=["WatchdogSec=4"])
    manager.ctl("start", unit.name)
    os.kill(unit.main(), signal.SIGSTOP)
    unit.wait_until("to be ended by the watchdog", "Result", "watchdog")
    wait_for("an empty control group", lambda: unit.processes() == [])
    assert unit.state() == PAUSED


def test_a_launcher_that_turns_lives_longer_than_the_watchdogs_limit(
    manager: Manager, service: Begin, stand_in: Callable[..., Unit]
) -> None:
    """Another service of the same unit, which says nothing after READY, shows when the time is over."""
    unit, _ = service(serve_ok(), lines=["WatchdogSec=4"])
    silent = stand_in("systemd-notify --ready; sleep 1000", "WatchdogSec=4", "NotifyAccess=all")
    manager.ctl("start", unit.name)
    manager.ctl("start", silent.name)
    silent.wait_until("to be ended by the watchdog", "Result", "watchdog")
    assert unit.state() == "active/running"


def test_a_load_that_takes_longer_than_the_start_timeout_is_not_killed(
    manager: Manager, service: Begin, stand_in: Callable[..., Unit], tmp_path: Path
) -> None:
    """Another service of the same unit, which asks for nothing and was started later, shows when the time is over.

    To one that does not ask, SIGTERM would be an order that it cannot hear: it gets SIGABRT, and is started again.
    """
    go = tmp_path / "service" / "go"
    unit, launch = service([*load_until(go), *serve_ok()], lines=["TimeoutStartSec=10"])
    silent = stand_in("sleep 1000", "TimeoutStartSec=10")
    starting = manager.begin("start", unit.name)
    launch.wait_for_mark("loading")
    manager.ctl("start", "--no-block", silent.name)
    silent.wait_until("to be over its time", "SubState", "auto-restart")
    assert (silent.show("Result"), silent.show("ExecMainStatus")) == ("timeout", str(int(signal.SIGABRT)))
    assert unit.state() == "activating/start"
    go.touch()
    started(starting)
    assert unit.show("NRestarts") == "0"


def test_stop_leaves_an_empty_control_group(manager: Manager, service: Begin) -> None:
    unit, launch = service([*escapees(), *serve_ok()])
    manager.ctl("start", unit.name)
    assert len(unit.processes()) > len(escapees())
    manager.ctl("stop", unit.name)
    assert unit.processes() == []
    assert (unit.state(), unit.show("Result"), unit.show("ExecMainStatus")) == ("inactive/dead", "success", "0")
    assert "clean shutdown" in launch.marks()
    assert launch.events("launch-ended")[0]["status"] == 0


def test_stop_while_it_loads_leaves_an_empty_control_group(manager: Manager, service: Begin, tmp_path: Path) -> None:
    unit, launch = service(load_until(tmp_path / "never"))
    starting = manager.begin("start", unit.name)
    launch.wait_for_mark("loading")
    manager.ctl("stop", unit.name)
    assert unit.processes() == []
    assert (unit.state(), unit.show("Result")) == ("inactive/dead", "success")
    starting.communicate(timeout=DEADLINE_S)


def test_an_end_that_takes_longer_than_the_stop_timeout_is_not_cut_short(
    manager: Manager, service: Begin, stand_in: Callable[..., Unit], tmp_path: Path
) -> None:
    """Another service, which is deaf and asks for nothing, shows when the time is over."""
    go = tmp_path / "service" / "go"
    winding_down = on_signal("SIGTERM", steps=[mark("winding down"), wait_for_file(go), leave(0)])
    unit, launch = service(serve_ok(), lines=["TimeoutStopSec=5"])
    deaf = stand_in('trap "" TERM; while sleep 0.1; do :; done', "TimeoutStopSec=5", "Type=simple")
    manager.ctl("start", unit.name, deaf.name)
    launch.play(winding_down)
    stopping = manager.begin("stop", unit.name)
    launch.wait_for_mark("winding down")
    manager.ctl("stop", deaf.name)
    assert deaf.show("Result") == "timeout"
    assert launch.signals(ENGINE) == []  # it is the leader's to end it
    assert unit.state() == "deactivating/stop-sigterm"
    assert unit.show("StatusText") == "stopping, at rung as-asked"
    go.touch()
    started(stopping)
    assert (unit.show("Result"), unit.processes()) == ("success", [])


def test_a_launcher_that_is_killed_takes_everything_with_it_and_is_started_again(
    manager: Manager, service: Begin
) -> None:
    unit, _ = service([*escapees(), *serve_ok()])
    manager.ctl("start", unit.name)
    os.kill(unit.main(), signal.SIGKILL)
    unit.wait_until("to be down", "SubState", "auto-restart")
    assert (unit.show("Result"), unit.processes()) == ("signal", [])


def test_a_stop_by_somebody_else_is_no_reason_to_start_again(manager: Manager, service: Begin) -> None:
    unit, _ = service(serve_ok(), lines=[SOON])
    manager.ctl("start", unit.name)
    os.kill(unit.main(), signal.SIGTERM)
    unit.wait_until("to be down", "ActiveState", "inactive")
    assert (unit.show("Result"), unit.show("NRestarts")) == ("success", "0")


def assert_it_is_started_again(unit: Unit, is_restarted: bool) -> None:
    """It is, again and again, or it is in its final state after the first time."""
    if is_restarted:
        wait_for("a restart", lambda: int(unit.show("NRestarts")) > 0)
        return
    unit.wait_until("to be in its final state", "ActiveState", "failed")
    assert unit.show("NRestarts") == "0"


@pytest.mark.parametrize("status", RESTARTS)
def test_a_status_leads_to_a_restart_or_not(manager: Manager, stand_in: Callable[..., Unit], status: int) -> None:
    unit = stand_in(f"exit {status}", SOON)
    manager.ctl("start", unit.name, check=False)
    assert_it_is_started_again(unit, RESTARTS[status])


@pytest.mark.parametrize(
    ("scene", "variables", "status"),
    [
        (argparse_error(), (), 2),
        (ima_at_startup(), ("SAFE_VLLM_MAX_ATTEMPTS=1",), 70),
        (fail(PORT_IN_USE), (), 75),
        (serve_ok(), ("SAFE_VLLM_VLLM=no-such-command",), 127),
    ],
)
def test_an_ending_of_ours_leads_to_a_restart_or_not(
    manager: Manager, service: Begin, scene: Scene, variables: Sequence[str], status: int
) -> None:
    unit, _ = service(scene, environment=variables)
    manager.ctl("start", unit.name, check=False)
    assert unit.show("ExecMainStatus") == str(status)
    assert unit.state() == (PAUSED if RESTARTS[status] else "failed/failed")
    assert unit.processes() == []


def test_attempts_that_are_spent_in_service_lead_to_a_restart(manager: Manager, service: Begin, tmp_path: Path) -> None:
    go = tmp_path / "service" / "go"
    lines, variables = [SOON], ["SAFE_VLLM_MAX_ATTEMPTS=1"]
    dying = [engine(wait_for_file(go), die("SIGSEGV")), serve()]
    unit, launch = service(dying, serve_ok(), lines=lines, environment=variables)
    manager.ctl("start", unit.name)
    go.touch()
    wait_for("another start", lambda: unit.show("NRestarts") == "1" and unit.state() == "active/running")
    assert [event["status"] for event in launch.events("launch-ended")] == [70]


def test_restarts_that_never_help_end_in_a_failed_state(manager: Manager, stand_in: Callable[..., Unit]) -> None:
    unit = stand_in("exit 70", "RestartSec=10ms", "[Unit]", "StartLimitBurst=3")
    manager.ctl("start", unit.name, check=False)
    unit.wait_until("to be given up", "ActiveState", "failed")
    assert unit.show("NRestarts") == "3"


def test_the_page_about_it_says_what_works(manager: Manager, service: Begin) -> None:
    install, _, use = PAGE.read_text().split("```sh\n")[1:4]
    unit, _ = service(serve_ok(), name="qwen")
    given = manager.run("cat", "/etc/safe-vllm/qwen.env")
    for command in commands(install):
        # The user exists here already, under the number that the tests know.
        manager.shell(command.replace("safe-vllm", "another") if "useradd" in command else command)
    assert manager.run("stat", "-c", "%a", "/etc/safe-vllm/qwen.env") == "600\n"
    assert manager.run("cat", f"/etc/systemd/system/{UNIT.name}") == UNIT.read_text()
    manager.write("/etc/safe-vllm/qwen.env", given)
    said = [manager.shell(command) for command in commands(use)]
    assert 'Status: "ready at rung as-asked"' in said[1]
    assert said[2].startswith("ok ")
    assert unit.show("UnitFileState") == "enabled"
    manager.ctl("disable", unit.name)
    manager.run("rm", f"/etc/systemd/system/{UNIT.name}")


def test_the_page_says_how_to_look_into_it_and_to_start_at_the_top_again(manager: Manager, service: Begin) -> None:
    look, again = PAGE.read_text().split("```sh\n")[4:6]
    unit, launch = service(ima_at_startup(), serve_ok(), serve_ok(), name="qwen")
    manager.ctl("start", unit.name)
    assert "serving at rung no-autotune" in manager.shell("safe-vllm status")
    [status] = [manager.shell(as_root(command)) for command in commands(look)]
    assert "serving at rung no-autotune" in status
    assert "as-asked broke (once): illegal-memory-access" in status
    assert "reports in /var/lib/safe-vllm/incidents" in status
    said = [manager.shell(as_root(command)) for command in commands(again)]
    assert "as-asked broke (once): illegal-memory-access" in said[1]
    assert launch.rungs() == ["as-asked", "no-autotune", "as-asked"]


def as_root(command: str) -> str:
    """Return a command that the page runs as the unit's user, who may not be able to read what runs these tests."""
    [user] = re.findall(r"^User=(.*)$", UNIT.read_text(), re.MULTILINE)
    return command.removeprefix(f"-u {user} /opt/vllm/bin/")


def commands(block: str) -> list[str]:
    """Return the commands of a block on the page."""
    return [line.removeprefix("sudo ") for line in block.split("```")[0].splitlines()]


def test_systemd_finds_nothing_to_complain_about(tmp_path: Path) -> None:
    if not shutil.which("systemd-analyze"):
        pytest.skip("there is no systemd-analyze")
    verified = subprocess.run(["systemd-analyze", "verify", UNIT], capture_output=True, text=True, timeout=DEADLINE_S)
    assert (verified.returncode, verified.stdout + verified.stderr) == (0, "")
