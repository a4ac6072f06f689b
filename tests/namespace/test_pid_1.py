"""P11: as the first process of a container. Every test runs in a PID namespace of its own."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from launch import DEADLINE_S, Launch, Stage
from scenes import HOLD, argparse_error, escapees, fork, ima_at_startup, serve_ok, serve_with_worker

from leftovers import Process, below

IN_A_CONTAINER = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc")


@pytest.fixture(autouse=True, scope="module")
def _namespaces() -> None:
    tried = subprocess.run([*IN_A_CONTAINER, "true"], capture_output=True, text=True, timeout=DEADLINE_S)
    if tried.returncode != 0:
        pytest.skip(f"no PID namespace may be made here: {tried.stderr.strip()}")


def beside(sidecar: str) -> Sequence[str]:
    """Return what starts safe-vllm as PID 1, and a sidecar before it, as an entrypoint script does."""
    return (*IN_A_CONTAINER, "/bin/sh", "-c", f'{sidecar} & exec "$0" "$@"')


def pid_1(run: Launch) -> Process:
    """Return safe-vllm, as it is seen from outside: the child of ``unshare``."""
    outer = run.process.pid
    children = Path(f"/proc/{outer}/task/{outer}/children")
    (pid,) = run.wait_for("PID 1", lambda: children.read_text().split())
    return next(process for process in below(outer) if process.pid == int(pid))


def found(run: Launch, text: str) -> Process:
    """Return the process below it with a text in its command line: numbers are others outside."""
    return run.wait_for(text, lambda: [each for each in below(pid_1(run).pid) if text in str(each)])[-1]


def zombies(run: Launch) -> list[int]:
    """Return the children of safe-vllm and of the guardian that have ended and were not reaped."""
    ours = {str(each.pid) for each in (pid_1(run), found(run, "guardian of process 1"))}
    stats = [path.read_text() for path in Path("/proc").glob("[0-9]*/stat") if path.exists()]
    fields = [(text.split()[0], *text.rsplit(") ", 1)[1].split()[:2]) for text in stats]
    return [int(pid) for pid, state, parent in fields if state == "Z" and parent in ours]


def test_its_status_is_the_containers_status(stage: Stage) -> None:
    run = stage.start(argparse_error(), prefix=IN_A_CONTAINER)
    assert run.finish() == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
def test_a_stop_ends_everything_in_good_order(stage: Stage, number: signal.Signals) -> None:
    run = stage.start([*escapees(), *serve_ok()], prefix=IN_A_CONTAINER)
    run.wait_until_ready()
    os.kill(pid_1(run).pid, number)
    assert run.finish() == 0
    assert "clean shutdown" in run.marks()
    assert run.survivors() == []


def test_orphans_of_strangers_are_reaped(stage: Stage) -> None:
    """A sidecar starts processes whose parent ends first: the kernel hands them to PID 1."""
    go, born = stage.root / "go", stage.root / "born"
    breed = f"for n in 1 2 3 4 5; do (sleep 0.01 & echo $n >>{born}); done"
    sidecar = f"(while [ ! -e {go} ]; do sleep 0.02; done; {breed}; exec sleep 1000)"
    run = stage.start(serve_ok(), prefix=beside(sidecar))
    run.wait_until_ready()
    first = pid_1(run)
    go.touch()
    run.wait_for("the strangers", lambda: born.exists() and len(born.read_text().split()) == 5)
    run.wait_for("their ends", lambda: not any("sleep 0.01" in str(each) for each in below(first.pid)))
    run.wait_for("them to be reaped", lambda: zombies(run) == [])
    os.kill(first.pid, signal.SIGTERM)
    assert run.finish() == 0


@pytest.mark.parametrize("ending", ["stepped down", "leader killed", "guardian killed"])
def test_a_sidecar_sees_nothing_of_any_ending_of_vllm(stage: Stage, ending: str) -> None:
    told = stage.root / "told"
    noting = "".join(f"trap 'echo {name} >>{told}' {name}; " for name in ("TERM", "INT", "HUP", "CONT"))
    sidecar = f"({noting} while :; do sleep 0.1; done)"
    scenes = [ima_at_startup()] if ending == "stepped down" else [serve_with_worker()]
    run = stage.start(*scenes, serve_ok(), prefix=beside(sidecar))
    bystander = found(run, "/bin/sh -c (")
    if ending == "stepped down":
        run.wait_until_ready("no-autotune")
    else:
        run.wait_until_ready("as-asked")
        os.kill(found(run, "bin/vllm" if ending == "leader killed" else "guardian of process 1").pid, signal.SIGKILL)
        run.wait_for_event("ready", 2)
    assert run.attempts()[1]["left_from_before"] == []
    assert bystander.is_alive
    assert zombies(run) == []
    os.kill(pid_1(run).pid, signal.SIGTERM)
    assert run.finish() == 0
    assert not told.exists()


def test_when_the_guardian_is_killed_who_left_the_session_does_not_outlive_it(stage: Stage) -> None:
    escaped = fork("escaped", HOLD, leaves_session=True, double=True)
    run = stage.start([escaped, *serve_ok()], serve_ok(), prefix=IN_A_CONTAINER)
    run.wait_until_ready()
    os.kill(found(run, "guardian of process 1").pid, signal.SIGKILL)
    run.wait_for_event("ready", 2)
    assert run.attempts()[1]["left_from_before"] == []
    assert zombies(run) == []
    os.kill(pid_1(run).pid, signal.SIGTERM)
    assert run.finish() == 0


def test_killed_from_outside_it_takes_everything_with_it(stage: Stage) -> None:
    run = stage.start([*escapees(), *serve_ok()], prefix=IN_A_CONTAINER)
    run.wait_until_ready()
    os.kill(pid_1(run).pid, signal.SIGKILL)
    run.process.wait(DEADLINE_S)
    run.wait_for("the end of all", lambda: run.survivors() == [])
