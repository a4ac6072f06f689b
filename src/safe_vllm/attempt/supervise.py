"""One attempt from spawn to the last process: turns what happens into events, and effects into deeds."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from safe_vllm.attempt import effect, event, orphans
from safe_vllm.attempt.child import Child, spawn
from safe_vllm.attempt.event import Event
from safe_vllm.attempt.lifecycle import Lifecycle
from safe_vllm.attempt.loop import Loop
from safe_vllm.attempt.streams import Streams
from safe_vllm.attempt.timing import Timing
from safe_vllm.errors import Status, Trouble
from safe_vllm.plan.command import Command
from safe_vllm.plan.endpoint import Endpoint
from safe_vllm.verdict.evidence import Evidence, Observations, ProcessEnd
from safe_vllm.verdict.scan import ANSWERED, Scan, Stream

SWEPT_WITH = (-signal.SIGTERM, -signal.SIGKILL)
"""How processes end when we end them, which tells nothing about why we had to."""


@dataclass(frozen=True)
class Order:
    """What one attempt is to do."""

    command: Command
    timing: Timing
    endpoint: Endpoint | None
    """Where to ask for readiness; ``None``: nowhere, since there is no API, or since somebody else answers there."""
    new_scan: Callable[[], Scan]
    """Called once vLLM was started: what the scan needs takes a while to load."""
    wants_canary: bool
    ignored: frozenset[int]
    on_ready: Callable[[float, str], None]
    """Called with the seconds since spawn and a note when the server works."""
    on_stop: Callable[[float], None]
    """Called with the seconds that vLLM has to end when the operator asks for the first time."""


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
    ends: list[ProcessEnd] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    spawn_error: int | None = None
    has_started: bool = False
    unread_report: bytes = b""
    guardian_has_ended: bool = False
    stops_seen: int = 0
    phase: str = "init"
    """Where the server was when its end began."""

    # What happens

    def happen(self, happening: Event) -> None:
        """Feed the state machine and do what it says."""
        now = time.monotonic()
        was_healthy, was_ending = self.state.health_answered, self.state.stage == "ending"
        self.state, effects = self.state.on(happening, now)
        if isinstance(happening, event.CanaryAnswered) and happening.result == "answered":
            self.scan.settled(now - self.started_at)
        if self.state.stage == "ending" and not was_ending:
            self.phase = self.scan.phase
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

    def on_chunk(self, name: Stream, chunk: bytes) -> None:
        """Look at output that has been passed on."""
        for evidence in self.scan.feed(name, chunk, time.monotonic() - self.started_at):
            self._on_evidence(evidence)
        if self.state.stage == "starting":
            self.happen(event.Output())

    def _on_evidence(self, evidence: Evidence) -> None:
        if evidence.arms:
            is_coredump = evidence.fault == "gpu-coredump"
            self.happen(event.FaultLine(evidence.text, is_coredump, is_coredump or evidence.process is not None))
        elif evidence.signature == ANSWERED:
            self.happen(event.Completed())

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
            case ["started", _]:
                self.has_started = True
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
        is_our_doing = self.state.stage == "ending" and status in SWEPT_WITH
        if title.startswith("VLLM::") and not is_our_doing:
            self.ends.append(ProcessEnd(title, pid, status, time.monotonic() - self.started_at))
            self.happen(event.EngineEnded(title, status))

    # Going through it

    def run(self, streams: Streams) -> None:
        """Turn the loop until nothing of the attempt is left."""
        while not (self.guardian_has_ended or self.stuck):
            self.loop.turn(self.state.next_deadline())
            streams.resume()
            self._take_in_stops()
            self.happen(event.Tick())
        streams.drain()
        self.scan.close(time.monotonic() - self.started_at)

    def _take_in_stops(self) -> None:
        for number in self.loop.stops[self.stops_seen :]:
            self.stops_seen += 1
            self.happen(event.StopAsked(number))
            if self.stops_seen == 1 and self.state.kill_at is not None:
                self.order.on_stop(self.state.kill_at - time.monotonic())

    def observations(self) -> Observations:
        """Return what was seen."""
        state = self.state
        return Observations(
            leader_status=None if state.ended_by_us else state.leader_status,
            evidence=tuple(self.scan.evidence),
            ends=tuple(self.ends),
            phase=self.phase if state.ended_by_us else self.scan.phase,
            backend=self.scan.backend,
            setup=self.scan.setup,
            health_answered=state.health_answered,
            was_ready=state.ready_at is not None,
            canary=state.canary,
            stop_requested=bool(self.loop.stops),
            ended_by_us=state.ended_by_us,
            ended_at_s=time.monotonic() - self.started_at,
            uptime_s=time.monotonic() - (state.ready_at if state.ready_at is not None else self.started_at),
        )


def _health(endpoint: Endpoint) -> Event:
    from safe_vllm.attempt import readiness  # http.client is slow to import; vLLM is long started by now

    return event.HealthAnswered(readiness.is_healthy(endpoint))


def _canary(endpoint: Endpoint) -> Event:
    from safe_vllm.attempt import canary

    return canary.send(endpoint)


def run(loop: Loop, order: Order) -> Ended:
    """Run vLLM once and return when nothing of it is left."""
    spared = orphans.bystanders()
    started_at = time.monotonic()
    state = Lifecycle(order.timing, order.wants_canary, order.endpoint is not None, spawned_at=started_at)
    child = spawn(order.command, order.ignored, has_one_stream=loop.stdout is loop.stderr)
    attempt = _Attempt(loop, order, order.new_scan(), state, child, started_at)
    loop.expect(child.pid)
    loop.watch(child.report, attempt.on_report)
    pipes: dict[Stream, int] = {"stdout": child.stdout}
    if child.stderr is not None:
        pipes["stderr"] = child.stderr
    attempt.run(Streams(loop, pipes, attempt.on_chunk))
    is_lost = not attempt.stuck and loop.wait_for(child.pid) != 0
    if is_lost:
        orphans.end_all_but(spared)
        if not attempt.has_started:
            hint = "its own words are above; please report them"
            raise Trouble("the guardian process could not do its work", hint=hint, status=Status.BUG)
    attempt.happen(event.TreeGone())
    loop.unwatch(child.report)
    child.close()
    return Ended(attempt.observations(), attempt.spawn_error, tuple(attempt.stuck), is_lost)
