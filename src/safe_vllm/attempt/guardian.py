"""The parent of one attempt's processes: it ends them all when the launcher is gone. Standard library only.

It runs as a process of its own, so that the tree below it is exactly what vLLM started, and so that the kernel hands
every orphan of that tree to it and to nobody else. It obeys lines on one pipe and reports lines on another:

    leader N          send signal N to the leader               started PID         the leader runs
    tree N            send signal N to everything below         unspawnable ERRNO   it could not be executed
    freeze 0          stop everything below until a SIGCONT     left STATUS         the leader ended
    sweep SECONDS     end everything: SIGTERM, then SIGKILL     ended PID STATUS TITLE
                                                                heard               an order was obeyed
                                                                stuck PID TITLE     it survived SIGKILL
                                                                foreign PID TITLE   we may not end it

Its only thread reads nothing that is in the memory of another process, as command lines and environments are: who reads
those waits for every page fault of that process, for ever where a disk or a driver hangs.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import sys
import time
from contextlib import suppress
from typing import TypedDict

from safe_vllm.attempt import prctl, tree
from safe_vllm.attempt.watch import Watch

ORPHANED_GRACE_S = 3.0
"""How long a tree may wind itself down after the launcher was killed."""
TRY_AGAIN_S = 0.25
STUCK_AFTER_S = 30.0
"""A process that is still there so long after SIGKILL is stuck in the kernel, mostly in the GPU driver."""

DEAF_TO = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that a terminal or an init sends to everybody: the launcher decides what they mean."""


class Brief(TypedDict):
    """What to start. Words and variables hold one character per byte, so that no encoding can change them."""

    argv: list[str]
    environment: dict[str, str]
    output: list[int]
    """Descriptors for the leader's stdout and stderr."""
    ignored: list[int]
    """Signals that were ignored when the launcher started, and stay so."""


def as_bytes(text: str) -> bytes:
    """Undo ``one character per byte``."""
    return text.encode("latin-1")


class Guardian:
    """One attempt's tree, and the two pipes to the launcher."""

    def __init__(self, control: int, report: int, wakeup: int) -> None:
        """Take over the descriptors."""
        self._control, self._report, self._wakeup = control, report, wakeup
        self._poller = select.poll()
        self._poller.register(control, select.POLLIN)
        self._poller.register(wakeup, select.POLLIN)
        self._watch = Watch(self._poller)
        self._unread = b""
        self._orders: list[tuple[str, str]] = []
        self._leader: int | None = None
        """Its number, which is its own as long as we have not reaped it."""
        self._leader_status: int | None = None
        self._kill_at: float | None = None
        self._killed_at: float | None = None
        self._idle_sweeps = 0

    def say(self, *words: object) -> None:
        """Report one line. The launcher may be gone; then nobody needs to know."""
        try:
            os.write(self._report, " ".join(map(str, words)).encode() + b"\n")
        except OSError:
            pass

    def spawn(self, brief: Brief) -> bool:
        """Start the leader in a session of its own, with the signals as the operator's shell left them."""
        argv = [as_bytes(word) for word in brief["argv"]]
        try:
            pid = os.posix_spawn(
                argv[0],
                argv,
                {as_bytes(name): as_bytes(value) for name, value in brief["environment"].items()},
                file_actions=[(os.POSIX_SPAWN_DUP2, fd, to) for to, fd in enumerate(brief["output"], start=1)],
                setsid=True,
                setsigdef=[number for number in signal.valid_signals() if number not in brief["ignored"]],
            )
        except OSError as error:
            self.say("unspawnable", error.errno)
            return False
        self._leader = pid
        self.say("started", pid)
        return True

    def run(self) -> None:
        """Serve until nothing is left below us."""
        while self._reap() and self._idle_sweeps < 2:
            if self._leader and self._leader_status is not None:
                self._say_left(self._leader_status)  # a tracer, strace say, keeps its end from us
            now = time.monotonic()
            self._watch.look(now)
            self._carry_out()
            self._sweep(now)
            is_busy = self._orders or self._kill_at is not None
            wait_s = TRY_AGAIN_S if is_busy else self._watch.pause_s(now)
            for descriptor, _ in self._poller.poll(wait_s * 1000):
                self._on(descriptor)

    def _on(self, descriptor: int) -> None:
        if descriptor == self._wakeup:
            os.read(descriptor, 4096)
        elif descriptor == self._control:
            self._listen()
        elif found := self._watch.ended(descriptor):
            pid, status, title = found
            self.say("ended", pid, "?" if status is None else status, title)
            if pid == self._leader:
                self._leader_status = status

    def _say_left(self, status: int) -> None:
        self.say("left", status)
        self._leader = None

    def _reap(self) -> bool:
        """Take in everyone who ended; return whether anybody is left."""
        while True:
            try:
                seen = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return False
            if seen is None:
                return True
            # Watched ones are still zombies here, and a zombie shows its status: tell it before it is gone.
            for descriptor, _ in self._poller.poll(0):
                if descriptor not in (self._wakeup, self._control):
                    self._on(descriptor)
            _, status = os.waitpid(seen.si_pid, 0)
            if seen.si_pid == self._leader:
                self._say_left(os.waitstatus_to_exitcode(status))

    def _listen(self) -> None:
        received = os.read(self._control, 4096)
        if not received:
            self._poller.unregister(self._control)
            self._orders.append(("sweep", str(ORPHANED_GRACE_S)))
        *lines, self._unread = (self._unread + received).split(b"\n")
        for line in lines:
            verb, argument = line.decode().split()
            self._orders.append((verb, argument))
        self._carry_out()

    def _carry_out(self) -> None:
        """Obey the orders. Where nobody can tell for now who is below us, the rest waits for the next turn."""
        with suppress(OSError):
            while self._orders:
                self._obey(*self._orders[0])
                del self._orders[0]
                self.say("heard")

    def _obey(self, verb: str, argument: str) -> None:
        if verb == "sweep":
            self._begin_sweep(float(argument))
        elif verb == "freeze":
            tree.freeze_below(os.getpid())
        elif verb == "tree":
            tree.signal_below(os.getpid(), int(argument))
        elif self._leader:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(self._leader, int(argument))

    def _begin_sweep(self, grace_s: float) -> None:
        kill_at = time.monotonic() + grace_s
        self._kill_at = kill_at if self._kill_at is None else min(self._kill_at, kill_at)
        if grace_s > 0:
            for number in (signal.SIGTERM, signal.SIGCONT):  # one that stands still heeds nothing
                tree.signal_below(os.getpid(), number)

    def _sweep(self, now: float) -> None:
        """Kill whoever is still there after the grace, again and again.

        Whoever has ended and cannot be reaped, because a tracer does not let go of it, holds nothing: that is the end.
        """
        if self._kill_at is None or now < self._kill_at:
            return
        self._killed_at = self._killed_at or now
        try:
            tree.kill_below(os.getpid())
            left = tree.living_below(os.getpid())
        except OSError:  # nobody can tell for now who is left: the next turn will
            self._idle_sweeps = 0
            return
        self._idle_sweeps = 0 if left else self._idle_sweeps + 1
        if now - self._killed_at > STUCK_AFTER_S:
            self.say("\n".join(map(self._survivor, left)))  # in one write: the first line ends the launch
            self._killed_at = now

    def _survivor(self, known: tree.Process) -> str:
        return f"{'foreign' if tree.is_foreign(known) else 'stuck'} {known.pid} {self._watch.title(known.pid)}"


def _prepare(inherited: set[int]) -> int:
    """Keep our descriptors from the leader, ignore what is not for us, and return what wakes us when a child ends."""
    for descriptor in inherited:
        os.set_inheritable(descriptor, False)
    for number in DEAF_TO:
        signal.signal(number, signal.SIG_IGN)
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    prctl.become_subreaper()
    prctl.rename(f"{tree.GUARDIAN} {os.getppid()}")
    return reader


def _let_go(output: set[int]) -> None:
    """Hold none of the leader's pipes and none of the operator's; stderr stays, for a bug of ours to be seen."""
    for descriptor in output:
        os.close(descriptor)
    # One descriptor per process is needed, and the leader has its own limit by now.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with suppress(OSError):  # it can do its work with them open
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)


def main() -> None:
    """Look after one attempt. Arguments: the descriptors of the brief, the control pipe and the report pipe."""
    brief_fd, control, report = map(int, sys.argv[1:4])
    with os.fdopen(brief_fd, "rb") as file:
        brief: Brief = json.load(file)
    output = set(brief["output"])
    guardian = Guardian(control, report, _prepare({control, report, *output}))
    if guardian.spawn(brief):
        _let_go(output)
        guardian.run()
