"""Where every process is: Python stacks through py-spy, if that is installed, and how much data was moved."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from safe_vllm.attempt import tree
from safe_vllm.attempt.event import DataMoved, Stack, StacksTaken
from safe_vllm.errors import reason_of
from safe_vllm.plan.command import Command

EACH_S = 10.0
ALL_S = 30.0
AT_ONCE = 16
MOST_PROCESSES = 256
TEXT_LIMIT = 20_000
"""Characters of one process's stacks."""
_MOVED = (b"rchar:", b"wchar:", b"read_bytes:")


def moved(root: int) -> DataMoved:
    """Return how much the processes below ``root`` have read and written, those included that they waited for."""
    try:
        processes = tree.descendants(root)
    except OSError:  # no descriptor is to be had just now
        return DataMoved(None)
    found = [_moved_by(process.pid) for process in processes]
    known = [total for total in found if total is not None]
    return DataMoved(sum(known) if known else None)


def _moved_by(pid: int) -> int | None:
    try:
        lines = Path(f"/proc/{pid}/io").read_bytes().splitlines()
    except OSError:
        return None
    return sum(int(line.split()[1]) for line in lines if line.startswith(_MOVED))


class Look:
    """One look at every process of an attempt, which may be broken off at any time."""

    def __init__(self, root: int, command: Command) -> None:
        """Be about to look at the processes below ``root``."""
        self._root, self._command = root, command
        self._lock = threading.Lock()
        self._running: list[_Run] = []
        self._is_over = False

    def take(self) -> StacksTaken:
        """Return the stacks. Blocks for half a minute at most."""
        try:
            processes = [process.pid for process in tree.descendants(self._root) if not process.is_zombie]
        except OSError as error:
            return StacksTaken(problem=f"its processes cannot be listed: {reason_of(error)}")
        program = _program(self._command)
        if program is None:
            return StacksTaken((), len(processes), "py-spy is not installed beside vLLM")
        until, taken, problem = time.monotonic() + ALL_S, list[Stack](), ""
        for start in range(0, min(len(processes), MOST_PROCESSES), AT_ONCE):
            each_until = min(until, time.monotonic() + EACH_S)
            problem = self._start(program, processes[start : start + AT_ONCE]) or problem
            for run in self._running:
                said, complaint = run.result(each_until)
                taken += [Stack(run.pid, tree.title(run.pid), said)] if said else []
                problem = problem or complaint
        return StacksTaken(tuple(taken), len(processes), "" if taken else problem or "py-spy said nothing")

    def _start(self, program: str, pids: list[int]) -> str:
        """Have the stacks of these processes taken; return why that cannot be."""
        with self._lock:
            self._running = []
            for pid in () if self._is_over else pids:
                try:
                    self._running.append(_Run(program, pid, self._command.environment))
                except OSError as error:
                    return f"no stacks can be taken: {reason_of(error)}"
        return ""

    def stop(self) -> None:
        """Let nothing of it go on."""
        with self._lock:
            self._is_over = True
            for run in self._running:
                run.kill()


def _program(command: Command) -> str | None:
    beside = str(Path(command.argv[0]).parent)
    return shutil.which("py-spy", path=os.pathsep.join([beside, command.environment.get("PATH", os.defpath)]))


class _Run:
    """One py-spy at work. It writes to memory: a pipe could stay open in the hands of a process of its own."""

    def __init__(self, program: str, pid: int, environment: Mapping[str, str]) -> None:
        self.pid = pid
        self._said, self._complaint = os.memfd_create("stacks"), os.memfd_create("complaint")
        self._process: subprocess.Popen[bytes] | None = None
        self._error = ""
        # Not to stop the process for it: if we are wrong about the hang, looking has done no harm.
        words = [program, "dump", "--nonblocking", "--pid", str(pid)]
        try:
            self._process = subprocess.Popen(
                words, env=environment, stdin=subprocess.DEVNULL, stdout=self._said, stderr=self._complaint
            )
        except OSError as error:
            self._error = f"{program} cannot be executed: {reason_of(error)}"

    def result(self, until: float) -> tuple[str, str]:
        """Return the stacks and the complaint. The status is the loop's, who takes in every child that ended."""
        if self._process and not self._has_ended(until):
            self._error = "py-spy did not finish in time"
        said = _text(self._said, TEXT_LIMIT)
        # The first line is the command line of the process, which may hold a key.
        kept = "\n".join(line for line in said.splitlines() if not line.startswith("Process ")).strip()
        complaint = self._error or _text(self._complaint, 300).strip().partition("\n")[0]
        os.close(self._said)
        os.close(self._complaint)
        return kept, complaint

    def kill(self) -> None:
        """End it, if it has not ended."""
        if self._process:
            self._process.kill()

    def _has_ended(self, until: float) -> bool:
        assert self._process
        try:
            self._process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.kill()
            return False
        return True


def _text(descriptor: int, limit: int) -> str:
    return os.pread(descriptor, limit, 0).decode(errors="replace")
