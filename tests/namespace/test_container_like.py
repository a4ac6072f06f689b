"""P10, P11, P13, P18: as the first process of a container with a read-only root, and without any rights.

Only the volumes can be written: what holds state, what holds caches, and the directory that the test looks into. There
is not even a /tmp.
"""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
from pathlib import Path

import pytest
from launch import DEADLINE_S, Launch, Stage
from scenes import Scene, escapees, ima_at_startup, mark, serve_ok, wait_for_file
from test_pid_1 import found, pid_1, zombies

from waiting import free_port

USER = 2000
NAMESPACES = ("unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--mount-proc")
LOCK_UP = f"""
set -eu
writable=$1
shift
for each in $writable; do mount --bind "$each" "$each"; done
while read -r _ _ _ _ target _; do
    case "$target" in /proc | /proc/* | /sys | /sys/* | /dev/*) continue ;; esac
    case " $writable " in *" $target "*) continue ;; esac
    mount -o remount,bind,ro "$target"
done </proc/self/mountinfo
exec unshare --user --map-user={USER} --map-group={USER} "$@"
"""
"""What a runtime does for ``--read-only --user 2000 --cap-drop ALL``. The first process stays the first."""
BEHIND_A_SIDECAR = 'sh -c "$1" & shift; exec "$@"'


def container(*volumes: Path) -> tuple[str, ...]:
    """Return what runs a command as the first process of a container in which only the volumes can be written."""
    return (*NAMESPACES, "/bin/sh", "-c", LOCK_UP, "sh", " ".join(map(str, volumes)))


@pytest.fixture(autouse=True, scope="module")
def _namespaces() -> None:
    tried = subprocess.run([*container(), "true"], capture_output=True, text=True, timeout=DEADLINE_S)
    if tried.returncode != 0:
        pytest.skip(f"no such container can be made here: {tried.stderr.strip()}")


@pytest.fixture
def volumes(stage: Stage) -> dict[str, Path]:
    """The two that outlive a container."""
    found = {name: stage.root / name for name in ("state", "cache")}
    for path in found.values():
        path.mkdir()
    return found


def run_in(stage: Stage, volumes: dict[str, Path], *scenes: Scene, sidecar: str = "true", **more: str) -> Launch:
    """Start a container with these volumes, and a sidecar in it before safe-vllm."""
    place = stage.root / f"launch{len(stage.launches)}"
    inner = ("/bin/sh", "-c", BEHIND_A_SIDECAR, "sh", sidecar)
    home = str(stage.root / "cache")
    # as the image sets them; what the tests have for XDG_… is not there
    variables = {"HOME": home, "SAFE_VLLM_STATE_DIR": str(stage.root / "state"), "TMPDIR": ""}
    variables |= {f"XDG_{name}": "" for name in ("CONFIG_HOME", "CACHE_HOME", "DATA_HOME", "STATE_HOME", "RUNTIME_DIR")}
    return stage.start(*scenes, prefix=(*container(place, *volumes.values()), *inner), environment=variables | more)


def probed(port: int, path: str) -> int | None:
    """Return the status that a probe of the kubelet sees; ``None``: nothing listens."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except ConnectionError:
        return None
    finally:
        connection.close()


def stop(run: Launch) -> int:
    """Stop the container as its runtime does."""
    os.kill(pid_1(run).pid, signal.SIGTERM)
    return run.finish()


def texts(folder: Path) -> str:
    return "".join(path.read_text(errors="replace") for path in sorted(folder.rglob("*")) if path.is_file())


def test_these_containers_have_a_read_only_root_and_a_user_without_rights(tmp_path: Path) -> None:
    (tmp_path / "volume").mkdir()
    told = 'id -u; grep CapEff /proc/$$/status; echo $$; : >volume/file && echo "can write there"'
    tries = "".join(f"; (: >{place}/file) 2>/dev/null || echo no" for place in (tmp_path, "/etc", "/tmp", "/var/tmp"))
    command = [*container(tmp_path / "volume"), "sh", "-c", f"cd {tmp_path}; {told}{tries}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=DEADLINE_S)
    rights = "CapEff:\t0000000000000000"
    assert done.stdout.splitlines() == [str(USER), rights, "1", "can write there", "no", "no", "no", "no"]


def test_p11_it_steps_down_reaps_and_stops_with_status_0(stage: Stage, volumes: dict[str, Path]) -> None:
    place = stage.root / "launch0"
    go, born, told = place / "go", place / "born", place / "told"
    noting = "".join(f"trap 'echo {name} >>{told}' {name}; " for name in ("TERM", "INT", "HUP", "CONT"))
    breed = f"for n in 1 2 3 4 5; do (sleep 0.01 & echo $n >>{born}); done"  # parents that end first
    waits = f"while [ ! -e {go} ]; do sleep 0.02; done"
    sidecar = f": sidecar; {noting} {waits}; {breed}; while :; do sleep 0.1; done"
    run = run_in(stage, volumes, ima_at_startup(), [*escapees(), *serve_ok()], sidecar=sidecar)
    run.wait_until_ready("no-autotune")
    bystander, first = found(run, "sh -c : sidecar"), pid_1(run)
    assert run.attempts()[1]["left_from_before"] == []
    go.touch()
    run.wait_for("the strangers", lambda: born.exists() and len(born.read_text().split()) == 5)
    run.wait_for("all zombies to be reaped", lambda: zombies(run) == [])
    assert bystander.is_alive
    assert not told.exists()
    assert "CapEff:\t0000000000000000" in Path(f"/proc/{first.pid}/status").read_text()
    assert stop(run) == 0
    assert "clean shutdown" in run.marks()


def test_p18_what_broke_is_in_the_state_volume_and_the_next_container_knows_it(
    stage: Stage, volumes: dict[str, Path]
) -> None:
    first = run_in(stage, volumes, ima_at_startup(), serve_ok())
    first.wait_until_ready("no-autotune")
    assert stop(first) == 0
    assert [note["problems"] for note in first.events("remembered")] == [[]]
    assert "as-asked" in texts(volumes["state"] / "remembered")
    assert "illegal-memory-access" in texts(volumes["state"] / "incidents")
    second = run_in(stage, volumes, serve_ok())
    second.wait_until_ready("no-autotune")
    assert second.rungs() == ["no-autotune"]
    assert stop(second) == 0


def test_it_misses_no_other_place_to_write_to(stage: Stage, volumes: dict[str, Path]) -> None:
    run = run_in(stage, volumes, serve_ok())
    run.wait_until_ready()
    assert stop(run) == 0
    assert "cannot" not in run.ours()
    assert "Read-only file system" not in run.stderr_text()
    assert (volumes["state"] / "run").is_dir()


def test_p11_livez_stays_green_while_it_steps_down_and_readyz_waits_for_the_answer(
    stage: Stage, volumes: dict[str, Path]
) -> None:
    port, broken, safer = free_port(), stage.root / "broken", stage.root / "safer"
    scenes = [wait_for_file(broken), *ima_at_startup()], [mark("safer"), wait_for_file(safer), *serve_ok()]
    run = run_in(stage, volumes, *scenes, SAFE_VLLM_STATUS_ADDRESS=f"127.0.0.1:{port}")
    run.wait_for("the status server", lambda: probed(port, "/livez") == 200)
    assert probed(port, "/readyz") == 503
    broken.touch()
    run.wait_for_mark("safer")
    assert (probed(port, "/livez"), probed(port, "/readyz")) == (200, 503)
    safer.touch()
    run.wait_until_ready("no-autotune")
    run.wait_for("readiness", lambda: probed(port, "/readyz") == 200)
    assert stop(run) == 0
    assert probed(port, "/livez") is None


def test_p13_without_a_state_volume_it_serves_all_the_same_and_says_so(stage: Stage, volumes: dict[str, Path]) -> None:
    run = run_in(stage, {"cache": volumes["cache"]}, ima_at_startup(), serve_ok())
    run.wait_until_ready("no-autotune")
    assert "cannot be written" in run.ours()
    assert stop(run) == 0


def test_p10_killed_from_outside_nothing_of_it_is_left(stage: Stage, volumes: dict[str, Path]) -> None:
    run = run_in(stage, volumes, [*escapees(), *serve_ok()])
    run.wait_until_ready()
    os.kill(pid_1(run).pid, signal.SIGKILL)
    run.process.wait(DEADLINE_S)
    run.wait_for("the end of all", lambda: run.survivors() == [])
