"""One supervisor with one child: started, told apart from the child, and ended with all that it left."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench_systems import System

from leftovers import Process, adopt_orphans, below, end_all
from waiting import free_port

SUPPORT = Path(__file__).parent
FAKE = SUPPORT.parent.parent / "tests" / "process" / "fake_vllm"
DEADLINE_S = 30.0
CPU_CLOCK_OF_PROCESS = 2


@dataclass(frozen=True)
class Said:
    """What a process of the child's said when it began."""

    role: str
    pid: int
    at: float


@dataclass
class Scene:
    """A supervisor at work."""

    process: subprocess.Popen[bytes]
    port: int
    witness: int
    started_at: float
    _unread: bytes = b""
    _said: list[Said] = field(default_factory=list)

    def wait_for(self, role: str, within_s: float = DEADLINE_S) -> Said | None:
        """Return the next process of that role to begin."""
        until = time.monotonic() + within_s
        while not (found := next((said for said in self._said if said.role == role), None)):
            if not select.select([self.witness], [], [], max(0.0, until - time.monotonic()))[0]:
                return None
            *lines, self._unread = (self._unread + os.read(self.witness, 4096)).split(b"\n")
            self._said += [Said(who, int(pid), float(at)) for who, pid, at in (line.decode().split() for line in lines)]
        self._said.remove(found)
        return found

    def needed(self, role: str) -> Said:
        """Return it; nothing can be measured without it."""
        if found := self.wait_for(role):
            return found
        raise TimeoutError(f"no {role} was started within {DEADLINE_S:g} s")

    def supervisors(self, leader: int) -> list[int]:
        """Return the supervisor's own processes."""
        childs = {leader, *(each.pid for each in below(leader))}
        return [self.process.pid, *(each.pid for each in below(self.process.pid) if each.pid not in childs)]


@contextmanager
def running(
    system: System, mode: str, *arguments: str, interpreter: str = sys.executable, stdout: int = subprocess.DEVNULL
) -> Iterator[Scene]:
    """Start a supervisor with a child that does what ``mode`` says (see bench_child); end it all afterwards."""
    adopt_orphans()
    older = frozenset(below(os.getpid()))
    place = Path(tempfile.mkdtemp())
    fifo = place / "witness"
    os.mkfifo(fifo)
    witness = os.open(fifo, os.O_RDWR | os.O_CLOEXEC)  # for both, so that it never ends
    port = free_port()
    child = _child(place / "vllm", interpreter, mode, str(fifo), *arguments)
    words = (str(child), "serve", "model", "--host", "127.0.0.1", "--port", str(port))
    command = system.command(system.path() or system.program, words, place)
    environment = {**plain_environment(place), **system.environment(place)}
    started_at = time.monotonic()
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.DEVNULL, env=environment, cwd=place
    )
    try:
        yield Scene(process, port, witness, started_at)
    finally:
        end_all(os.getpid(), older)
        process.wait()
        if process.stdout:
            process.stdout.close()
        os.close(witness)
        _reap_orphans()
        shutil.rmtree(place)


def _reap_orphans() -> None:
    """Take in the statuses of what was handed to us."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def plain_environment(place: Path) -> dict[str, str]:
    """Return ours without what would change a supervisor's settings, or make Python compile at every start.

    Nothing is remembered from one launch to the next.
    """
    alien = ("SAFE_VLLM_", "SUPERVISOR_", "PYTHONDONTWRITEBYTECODE", "STATE_DIRECTORY")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(alien)}
    return kept | {"XDG_STATE_HOME": str(place / "state")}


def _child(script: Path, interpreter: str, mode: str, *arguments: str) -> Path:
    script.write_text(
        f"#!{interpreter} -IS\nimport sys\nsys.path[:0] = [{str(SUPPORT)!r}, {str(FAKE)!r}]\n"
        f"import bench_child\nbench_child.{mode}(*{arguments!r})\n"
    )
    script.chmod(0o755)
    return script


def memory_mib(pids: list[int]) -> tuple[float, float]:
    """Return the proportional and the resident size of some processes together."""
    texts = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in pids]
    facts = [dict(line.split(":", 1) for line in text.splitlines()[1:]) for text in texts]
    pss, rss = (sum(int(each[key].split()[0]) for each in facts) / 1024 for key in ("Pss", "Rss"))
    return pss, rss


def cpu_s(pids: list[int]) -> float:
    """Return the time that some processes have computed so far, to the nanosecond: see clock_getcpuclockid(3)."""
    return sum(time.clock_gettime(~pid << 3 | CPU_CLOCK_OF_PROCESS) for pid in pids)


def family(scene: Scene, *roles: str) -> list[Process]:
    """Return the child's processes when all have begun."""
    pids = [scene.needed(role).pid for role in roles]
    return [each for each in below(os.getpid()) if each.pid in pids]
