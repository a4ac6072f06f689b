"""Plays a random act: starts safe-vllm with its scenes, does to it what the act says, and waits for its end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from chaos_act import Act, Deed
from chaos_reader import Reader, channel
from chaos_voice import TWO_STREAMS
from launch import Launch, Stage

from waiting import free_port

END_WITHIN_S = 60.0
"""From the last cause to the end of safe-vllm. Nothing is told by less: it finds what never ends."""
READ_WITHIN_S = 20.0
LOOK_AGAIN_S = 0.01
SIDECAR = ("/bin/sh", "-c", 'sleep 300 >/dev/null 2>&1 & exec "$0" "$@"')


@dataclass(repr=False)
class Played:
    """An act under way, and what came of it."""

    act: Act
    run: Launch
    readers: dict[str, Reader]
    """By stream; ``both`` where they are one."""
    log: Path | None = None
    """The file that both streams lead to."""
    done: list[str] = field(default_factory=list)
    """What was done, the signals by their names."""
    stopped_at: float | None = None
    """When the end was asked for, on the clock of the fake's journal."""
    attempts_at_stop: int = 0
    """How many attempts were started by then."""
    was_running_at_stop: bool = False
    """Whether the leader of the last attempt was alive after that."""
    is_killed: bool = False
    never_ended: bool = False
    outputs: dict[str, bytes] = field(default_factory=dict)
    """What came out, by stream."""
    held: list[int | socket.socket] = field(default_factory=list)

    @property
    def status(self) -> int | None:
        """How safe-vllm ended."""
        return self.run.process.poll()

    @property
    def reader_is_lost(self) -> bool:
        """Whether somebody who read went away before the end."""
        return "lose-reader" in self.done

    def close(self) -> None:
        """Let go of what was held, and take in what came out."""
        for held in self.held:
            held.close() if isinstance(held, socket.socket) else os.close(held)
        for name, reader in self.readers.items():
            reader.finish(READ_WITHIN_S)
            self.outputs[name] = bytes(reader.got)
        if self.log is not None:
            self.outputs["both"] = self.log.read_bytes()
        if not self.outputs:
            self.outputs = {"stdout": self.run.stdout(), "stderr": self.run.stderr()}

    def wait(self, condition: Callable[[], object], limit_s: float) -> bool:
        """Wait for so long at most, or until the end of safe-vllm; return whether the condition holds."""
        until = time.monotonic() + limit_s
        while self.status is None and time.monotonic() < until:
            if condition():
                return True
            try:
                self.run.process.wait(LOOK_AGAIN_S)
            except subprocess.TimeoutExpired:
                pass
        return False

    def has_come(self, deed: Deed) -> bool:
        """Return whether it is time for a deed."""
        if not self.is_awake():
            return False
        if deed.moment == "awake":
            return True
        if deed.moment == "start":
            return len(self.run.attempts()) >= deed.count
        if deed.moment == "serving":
            return self.run.marks().count("serving") >= deed.count
        return len(self.run.events(deed.moment)) >= deed.count

    def is_awake(self) -> bool:
        """Return whether a stop would not be lost any more: it waits, or is caught."""
        facts = facts_of(self.run.process.pid)
        term = 1 << signal.SIGTERM - 1
        return any(int(facts.get(name, "0"), 16) & term for name in ("SigBlk", "SigCgt"))

    def ask_to_stop(self, number: signal.Signals) -> None:
        """Send a stop signal to safe-vllm, as soon as it would not be lost, and note what there was then."""
        self.wait(self.is_awake, END_WITHIN_S)
        begun, ended = (len(self.run.events(f"attempt-{name}")) for name in ("started", "ended"))
        at = time.monotonic()
        self.run.signal(number)
        if self.stopped_at is None:
            self.stopped_at = at
            # One that was about to be started may be; not from a pause, after which signals are looked at.
            self.attempts_at_stop = begun + (begun == ended and self._last_event() not in ("step", "attempt-ended"))
            self.was_running_at_stop = begun > ended and self._leader_runs(begun)

    def _last_event(self) -> str:
        return str([{"event": ""}, *self.run.events()][-1]["event"])

    def _leader_runs(self, attempt: int) -> bool:
        return len(self.run.attempts()) >= attempt and self.run.leader().is_alive


def begin(act: Act, stage: Stage) -> Played:
    """Start safe-vllm for an act."""
    place = stage.root / f"act{len(stage.launches)}"
    place.mkdir()
    port = free_port()
    ends = _ends(act.streams, place)
    given: dict[str, int] = {}
    for name, (_, theirs) in ends.items():
        given |= dict.fromkeys(TWO_STREAMS if name == "both" else (name,), theirs)
    taken = [socket.create_server(("127.0.0.1", port))] if act.is_port_taken else []
    run = stage.start(
        *(attempt.scene for attempt in act.attempts),
        words=_words(act, place, port),
        options=(*_profile(act, place), *act.options),
        prefix=SIDECAR if act.has_sidecar else (),
        stdout=given.get("stdout"),
        stderr=given.get("stderr"),
    )
    run.port = port
    for _, theirs in ends.values():
        os.close(theirs)
    readers = {name: Reader(ours, is_slow=act.streams == "slow") for name, (ours, _) in ends.items() if ours >= 0}
    return Played(act, run, readers, place / "log" if act.streams == "one-file" else None, held=[*taken])


def _words(act: Act, place: Path, port: int) -> list[str]:
    if act.address == "uds":
        return ["tiny", "--uds", str(place / "socket")]
    headless = ["--headless"] if act.address == "headless" else []
    return ["tiny", *headless, "--host", "127.0.0.1", "--port", str(port)]


def _profile(act: Act, place: Path) -> tuple[str, ...]:
    """Return the options that make the limits those of the act."""
    if not act.policy:
        return ()
    limits = "".join(f"  {name}: {value}\n" for name, value in act.policy)
    profile = place / "limits.yaml"
    profile.write_text(f"name: limits\nextends: cpu\npolicy:\n{limits}")
    return ("--profile", str(profile))


def _ends(kind: str, place: Path) -> dict[str, tuple[int, int]]:
    """Return our end and that of safe-vllm for each stream that is no file of its own; -1: nobody reads."""
    if kind == "files":
        return {}
    if kind == "one-file":
        return {"both": (-1, os.open(place / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600))}
    names = ("both",) if kind in ("one-pipe", "terminal") else TWO_STREAMS
    return {name: channel(kind) for name in names}


def facts_of(pid: int) -> dict[str, str]:
    """Return what the kernel tells of a process, nothing when it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)
