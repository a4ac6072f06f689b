"""One attempt from spawn to the last process: turns what happens into events, and effects into deeds."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from safe_vllm.attempt import effect, event, gates, orphans, relay
from safe_vllm.attempt.child import Child, spawn
from safe_vllm.attempt.event import Event
from safe_vllm.attempt.lifecycle import Lifecycle, Timing
from safe_vllm.attempt.loop import Loop
from safe_vllm.plan.command import Command
from safe_vllm.plan.endpoint import Endpoint
from safe_vllm.verdict.evidence import Evidence, Observations, ProcessEnd
from safe_vllm.verdict.scan import ANSWERED, Scan, Stream

DRAIN_S = 1.0
"""How long a stranger who holds the child's pipe may keep us after the last descendant ended."""
STOPPED_DRAIN_S = 5.0
"""How long, on top, a reader of ours that is behind may keep us when a stop was asked for."""


@dataclass(frozen=True)
class Order:
    """What one attempt is to do."""

    command: Command
    timing: Timing
    endpoint: Endpoint | None
    """Where the server will answer; ``None`` for a member without an API (``--headless``)."""
    new_scan: Callable[[], Scan]
    """Called once vLLM was started: what the scan needs takes a while to load."""
    wants_canary: bool
    ignored: frozenset[int]
    on_ready: Callable[[float, str], None]
    """Called with the seconds since spawn and a note when the server works."""


@dataclass(frozen=True)
class Ended:
    """An attempt of which nothing is left, but for what is stuck in the kernel."""

    observations: Observations
    spawn_error: int | None = None
    """The errno, when the command could not be executed at all."""
    stuck: tuple[str, ...] = ()
    guardian_is_lost: bool = False


@dataclass
class _Attempt:
    """The running attempt. Only the loop's own thread touches it."""

    loop: Loop
    order: Order
    scan: Scan
    state: Lifecycle
    child: Child
    started_at: float
    streams: dict[Stream, int]
    paused: set[Stream] = field(default_factory=set)
    """Streams that are not read while our own reader is behind."""
    ends: list[ProcessEnd] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    spawn_error: int | None = None
    leader_pid: int | None = None
    unread_report: bytes = b""
    guardian_has_ended: bool = False
    stops_seen: int = 0

    # What happens

    def happen(self, happening: Event) -> None:
        """Feed the state machine and do what it says."""
        now = time.monotonic()
        was_healthy = self.state.health_answered
        self.state, effects = self.state.on(happening, now)
        if self.state.health_answered and not was_healthy:
            self.scan.health_answered()
        for wanted in effects:
            self.do(wanted)

    def do(self, wanted: effect.Effect) -> None:
        """Turn one effect into a deed."""
        match wanted:
            case effect.SignalLeader(number):
                self.child.order("leader", number)
            case effect.SignalTree(number):
                self.child.order("tree", number)
            case effect.Sweep(grace_s):
                self.child.order("sweep", grace_s)
            case effect.SayReady(note):
                self.scan.ready()
                self.order.on_ready(time.monotonic() - self.started_at, note)
            case effect.AskHealth():
                self._ask(_health)
            case effect.SendCanary():
                self._ask(_canary)

    def _ask(self, question: Callable[[Endpoint], Event]) -> None:
        endpoint = self.order.endpoint
        assert endpoint is not None  # the state machine asks nothing of a server without an address
        self.loop.ask(lambda: question(endpoint), self.happen)

    def on_output(self, name: Stream) -> None:
        """Relay first, look second. Nothing is taken from the child while our reader is behind."""
        outlet = self._outlet(name)
        chunk = os.read(self.streams[name], relay.CHUNK_BYTES)
        if not chunk:
            self._close_stream(name)
            return
        outlet.write(chunk)
        if outlet.is_blocked:
            self.loop.unwatch(self.streams[name])
            self.paused.add(name)
        for evidence in self.scan.feed(name, chunk, time.monotonic() - self.started_at):
            self._on_evidence(evidence)
        if self.state.stage == "starting":
            self.happen(event.Output())

    def _on_evidence(self, evidence: Evidence) -> None:
        if evidence.kind == "root":
            self.happen(event.FaultLine(evidence.text, evidence.fault == "gpu-coredump"))
        elif evidence.signature == ANSWERED:
            self.happen(event.Completed())

    def _close_stream(self, name: Stream) -> None:
        self.loop.unwatch(self.streams[name])
        del self.streams[name]

    def on_report(self) -> None:
        """Read what the guardian has to say."""
        received = os.read(self.child.report, 65536)
        if not received:
            self.loop.unwatch(self.child.report)
            self.guardian_has_ended = True
            return
        *lines, self.unread_report = (self.unread_report + received).split(b"\n")
        for line in lines:
            self._on_report_line(line.decode(errors="replace").split(" ", 3))

    def _on_report_line(self, words: list[str]) -> None:
        match words:
            case ["started", pid]:
                self.leader_pid = int(pid)
                self.happen(event.Spawned())
            case ["unspawnable", number]:
                self.spawn_error = int(number)
            case ["left", status]:
                self.happen(event.LeaderEnded(int(status)))
            case ["ended", pid, status, title]:
                self._on_end(title, int(pid), None if status == "?" else int(status))
            case ["stuck", pid, *title]:
                self.stuck.append(f"{' '.join(title)} ({pid})")

    def _on_end(self, title: str, pid: int, status: int | None) -> None:
        if title.startswith("VLLM::"):
            self.ends.append(ProcessEnd(title, pid, status, time.monotonic() - self.started_at))
            self.happen(event.EngineEnded(title, status))

    # Going through it

    def run(self) -> None:
        """Turn the loop until nothing of the attempt is left."""
        while not (self.guardian_has_ended or self.stuck):
            self.loop.turn(self.state.next_deadline())
            self._resume_reading()
            for number in self.loop.stops[self.stops_seen :]:
                self.stops_seen += 1
                self.happen(event.StopAsked(number))
            self.happen(event.Tick())
        self._drain()

    def _outlet(self, name: Stream) -> relay.Outlet:
        return self.loop.stderr if name == "stderr" else self.loop.stdout

    def _resume_reading(self) -> None:
        for name in [name for name in self.paused if not self._outlet(name).is_blocked]:
            self.paused.remove(name)
            self._read(name)

    def _read(self, name: Stream) -> None:
        self.loop.watch(self.streams[name], lambda: self.on_output(name))

    def _drain(self) -> None:
        """Take what is left in the pipes. Only a stranger can still hold them open, and not for long."""
        until = time.monotonic() + DRAIN_S
        while self.streams and (self.paused or time.monotonic() < until):
            if self.loop.stops and time.monotonic() > until + STOPPED_DRAIN_S:
                break
            self.loop.turn(until if not self.paused else until + STOPPED_DRAIN_S if self.loop.stops else None)
            self._resume_reading()
        for name in list(self.streams):
            self._close_stream(name)
        self.scan.close(time.monotonic() - self.started_at)

    def observations(self) -> Observations:
        """Return what was seen."""
        state = self.state
        return Observations(
            leader_status=state.leader_status,
            evidence=tuple(self.scan.evidence),
            ends=tuple(self.ends),
            phase=self.scan.phase,
            backend=self.scan.backend,
            health_answered=state.health_answered,
            was_ready=state.ready_at is not None,
            canary=state.canary,
            stop_requested=bool(self.loop.stops),
            ended_by_us=state.ended_by_us,
            uptime_s=time.monotonic() - (state.ready_at if state.ready_at is not None else self.started_at),
        )


def _health(endpoint: Endpoint) -> Event:
    from safe_vllm.attempt import readiness  # http.client is slow to import; vLLM is long started by now

    return event.HealthAnswered(readiness.is_healthy(endpoint))


def _canary(endpoint: Endpoint) -> Event:
    from safe_vllm.attempt import canary

    outcome = canary.send(endpoint)
    return event.CanaryAnswered(outcome.result, outcome.detail)


def run(loop: Loop, order: Order) -> Ended:
    """Run vLLM once and return when nothing of it is left."""
    has_endpoint = order.endpoint is not None and not gates.is_taken(order.endpoint)
    state = Lifecycle(order.timing, order.wants_canary, has_endpoint)
    started_at = time.monotonic()
    child = spawn(order.command, order.ignored, has_one_stream=relay.is_one_stream())
    streams: dict[Stream, int] = {"stdout": child.stdout}
    if child.stderr is not None:
        streams["stderr"] = child.stderr
    attempt = _Attempt(loop, order, order.new_scan(), state, child, started_at, streams)
    loop.expect(child.pid)
    loop.watch(child.report, attempt.on_report)
    for name in streams:
        attempt._read(name)
    attempt.run()
    is_lost = not attempt.stuck and loop.wait_for(child.pid) != 0
    if is_lost and attempt.leader_pid is not None:
        orphans.end_session(attempt.leader_pid)
    child.close()
    return Ended(attempt.observations(), attempt.spawn_error, tuple(attempt.stuck), is_lost)
