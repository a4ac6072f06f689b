"""A real systemd in namespaces of its own, which runs the unit that we ship.

It sees the machine's files, but writes only in the tests' own directory: what it would change under /etc, /tmp and /var
stays in memory. Its control groups lie in one of their own, so that any number of managers can run, and nothing of them
is left in the end.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from waiting import DEADLINE_S, wait_for

UNIT = Path(__file__).parents[2] / "deploy" / "systemd" / "safe-vllm@.service"
SYSTEMD = Path("/lib/systemd/systemd")
TOOLS = ("unshare", "nsenter", "mount", "setpriv", "systemctl")
SERVICE_UID = 64321
"""Of the user ``safe-vllm`` inside: whom nobody outside is."""
HOMES = ("/home/", "/root/")
HIDDEN = (*HOMES, "/tmp/", "/var/tmp/")
"""What the shipped unit keeps from its service."""

BOOT = f"""set -e
overlay() {{
  mkdir -p /run/changes$1/upper /run/changes$1/work
  mount -t overlay overlay -o "lowerdir=$1,upperdir=/run/changes$1/upper,workdir=/run/changes$1/work" $1
}}
mount --make-rprivate /
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system /run/units /run/outside
mount --bind "$0" /run/outside
overlay /tmp
mount --bind /run/outside "$0"
mount -t cgroup2 cgroup2 /sys/fs/cgroup
overlay /etc; overlay /var
echo 'safe-vllm:x:{SERVICE_UID}:{SERVICE_UID}::/nonexistent:/bin/false' >>/etc/passwd
echo 'safe-vllm:x:{SERVICE_UID}:' >>/etc/group
for name in sysinit basic shutdown multi-user network-online nothing; do
  printf '[Unit]\\nDefaultDependencies=no\\n' >/run/units/$name.target
done
mkdir -p /etc/systemd/system
mount -t tmpfs tmpfs /etc/systemd/system
export container=unshare SYSTEMD_UNIT_PATH=/etc/systemd/system:/run/units SYSTEMD_GENERATOR_PATH=/run/none
export SYSTEMD_ENVIRONMENT_GENERATOR_PATH=/run/none
exec {SYSTEMD} --system --unit=nothing.target --log-target=console --show-status=no
"""


class NoSystemd(Exception):
    """None can be started here; the message says why."""


@dataclass
class Manager:
    """A service manager under way."""

    process: subprocess.Popen[bytes]
    """The ``unshare`` around it."""
    pid: int
    """Of the manager, as it is seen from outside."""
    group: Path
    """The control group that holds it and its services."""
    log: Path

    def ctl(self, *words: str, check: bool = True) -> str:
        """Return what ``systemctl`` prints."""
        done = subprocess.run(self.inside("systemctl", *words), capture_output=True, text=True, timeout=DEADLINE_S)
        assert done.returncode == 0 or not check, f"systemctl {' '.join(words)}: {done.stderr}{self.log.read_text()}"
        return done.stdout.strip()

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """Start ``systemctl`` and do not wait for its end."""
        return subprocess.Popen(self.inside("systemctl", *words), stderr=subprocess.PIPE, text=True)

    def inside(self, *command: str) -> list[str]:
        """Return what runs a command where the manager lives."""
        return ["nsenter", "-t", str(self.pid), "-m", "-p", "--", *command]

    def run(self, *command: str, given: str = "") -> str:
        """Run a command where the manager lives, and return what it prints."""
        done = subprocess.run(self.inside(*command), input=given, capture_output=True, text=True, timeout=DEADLINE_S)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def shell(self, line: str) -> str:
        """Run a line of shell there, from the checkout and with our ``safe-vllm``; return what it prints."""
        path = f"{Path(sys.executable).parent}:{os.defpath}:/usr/sbin:/sbin"
        return self.run("/bin/sh", "-c", f"cd {UNIT.parents[2]} && PATH={path}; {line}")

    def write(self, path: str, text: str) -> None:
        """Write a file where the manager sees it."""
        self.run("/bin/sh", "-c", 'mkdir -p "$(dirname "$0")" && cat >"$0"', path, given=text)

    def unit(self, instance: str) -> Unit:
        """Return an instance of the unit."""
        return Unit(self, f"safe-vllm@{instance}.service")


@dataclass
class Unit:
    """One service."""

    manager: Manager
    name: str

    def show(self, name: str) -> str:
        """Return one of its properties."""
        return self.manager.ctl("show", self.name, "--value", "-p", name)

    def state(self) -> str:
        """Return its state and substate, such as ``active/running``."""
        return f"{self.show('ActiveState')}/{self.show('SubState')}"

    def configure(self, *lines: str, environment: Sequence[str] = ()) -> None:
        """Add lines to its section Service by a drop-in, and write its environment file."""
        instance = self.name.partition("@")[2].removesuffix(".service")
        self.manager.write(f"/etc/safe-vllm/{instance}.env", "\n".join([*environment, ""]))
        self.manager.write(f"/run/units/{self.name}.d/test.conf", "\n".join(["[Service]", *lines, ""]))
        self.manager.ctl("daemon-reload")

    def wait_until(self, what: str, property_: str, *values: str) -> None:
        """Wait until a property has one of these values."""
        wait_for(f"{self.name} {what}", lambda: self.show(property_) in values)

    def main(self) -> int:
        """Return the number of its main process outside."""
        inner = self.show("MainPID")
        for pid in self.processes():
            status = Path(f"/proc/{pid}/status").read_text()
            if inner in status.split("NSpid:")[1].splitlines()[0].split()[-1:]:
                return pid
        raise AssertionError(f"{self.name} has no main process {inner}")

    def processes(self) -> list[int]:
        """Return the processes in its control group and in those below it, as they are numbered outside."""
        groups = self.manager.group.rglob("cgroup.procs")
        return [int(pid) for path in groups if self.name in path.parts for pid in _words(path)]


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:  # the group went away meanwhile
        return []


@contextmanager
def managed(directories: pytest.TempPathFactory) -> Iterator[Manager]:
    """Have a service manager while the block lasts; skip the test where there can be none."""
    try:
        found = boot(directories.mktemp("systemd"), directories.getbasetemp())
    except NoSystemd as reason:
        pytest.skip(f"no systemd of our own: {reason}")
    yield found
    end(found)


def boot(place: Path, shared: Path) -> Manager:
    """Start a service manager that has the unit and shares a directory with us; raises NoSystemd."""
    if os.geteuid() != 0:
        raise NoSystemd("only root may start a service manager in namespaces")
    if lost := [tool for tool in (*TOOLS, str(SYSTEMD)) if not shutil.which(tool)]:
        raise NoSystemd(f"there is no {', '.join(lost)}")
    group, log = _new_group(), place / "systemd.log"
    enter = f'echo $$ >"{group}/cgroup.procs" && exec "$@"'
    namespaces = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--cgroup", "--kill-child=KILL"]
    command = ["/bin/sh", "-c", enter, "enter", *namespaces, "/bin/sh", "-c", BOOT, str(shared)]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
    manager = Manager(process, 0, group, log)
    try:
        manager.pid = wait_for("systemd", lambda: _child(process))
        _wait_until_it_answers(manager)
        manager.write(f"/run/units/{UNIT.name}", UNIT.read_text())
    except BaseException:
        end(manager)
        raise
    return manager


def _child(process: subprocess.Popen[bytes]) -> int:
    path = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return next((int(word) for word in _words(path)), 0) or -(process.poll() is not None)


def _wait_until_it_answers(manager: Manager) -> None:
    def answers() -> bool:
        if manager.process.poll() is not None:
            raise NoSystemd(f"systemd does not start in namespaces here: {manager.log.read_text().strip()[-300:]}")
        return "nothing.target" in manager.ctl("list-units", "--no-legend", check=False)

    wait_for("systemd to answer", answers)


def _new_group() -> Path:
    """Make a control group below the one of this process, in the unified hierarchy."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    roots = [words[1] for words in mounts if words[2] == "cgroup2"]
    own = [line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::")]
    if not roots or not own:
        raise NoSystemd("there is no unified hierarchy of control groups")
    group = Path(roots[0] + own[0]) / f"safe-vllm-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        raise NoSystemd(f"no control group can be made here: {error}") from None
    return group


def end(manager: Manager) -> None:
    """End it with everything that it started, and remove its control groups."""
    if manager.pid > 0:
        os.kill(manager.pid, signal.SIGKILL)
    manager.process.kill()
    manager.process.wait()
    wait_for("the end of its processes", lambda: not any(map(_words, manager.group.rglob("cgroup.procs"))))
    for path in sorted([*manager.group.rglob("*")], reverse=True):
        if path.is_dir():
            path.rmdir()
    manager.group.rmdir()


def seen(*paths: Path) -> list[str]:
    """Return the lines of a drop-in with which the service sees what runs these tests, wherever that lies.

    It is root's only where another user could not read it.
    """
    ours = (*map(Path, (sys.prefix, sys.base_prefix)), UNIT.parents[2] / "profiles", *paths)
    parts = {place for path in ours for place in (path, path.resolve())}
    hidden = sorted(str(part) for part in parts if str(part).startswith(HIDDEN))
    lines = [f"BindReadOnlyPaths={part}" for part in hidden]
    if any(part.startswith(HOMES) for part in hidden):
        lines.append("ProtectHome=tmpfs")
    drop = ["setpriv", f"--reuid={SERVICE_UID}", f"--regid={SERVICE_UID}", "--clear-groups"]
    others = [str(part) for part in parts if not str(part).startswith(HIDDEN)]
    is_open = subprocess.run([*drop, "stat", "/", *others], capture_output=True).returncode == 0
    return lines if is_open else [*lines, "User=root"]
