"""One attempt from spawn to the last process: turns what happens into events, and effects into deeds."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from safe_vllm.attempt import effect, event, orphans, questions
from safe_vllm.attempt.begin import Begun
from safe_vllm.attempt.calls import Calls
from safe_vllm.attempt.child import Child
from safe_vllm.attempt.event import Event
from safe_vllm.attempt.gpu_watch import Faults, watch
from safe_vllm.attempt.lifecycle import Lifecycle
from safe_vllm.attempt.loop import Loop
from safe_vllm.attempt.news import News
from safe_vllm.attempt.order import Ended, Order
from safe_vllm.attempt.progress import is_chatter
from safe_vllm.attempt.proof import Proof
from safe_vllm.attempt.seen import Dying, Times, dying, observations
from safe_vllm.attempt.streams import Streams
from safe_vllm.attempt.tail import Tail
from safe_vllm.attempt.tree import OF_VLLM
from safe_vllm.errors import Status, Trouble
from safe_vllm.plan.endpoint import Endpoint
from safe_vllm.verdict.evidence import Evidence, Observations, ProcessEnd
from safe_vllm.verdict.scan import ANSWERED, Scan, Stream

SWEPT_WITH = (-signal.SIGTERM, -signal.SIGKILL)
"""How processes end when we end them, which tells nothing about why we had to."""


@dataclass
class _Attempt:
    """The running attempt. Only the loop's own thread touches it."""

    loop: Loop
    order: Order
    scan: Scan
    state: Lifecycle
    proof: Proof
    child: Child
    started_at: float
    ends: list[ProcessEnd] = field(default_factory=list)
    tail: Tail = field(default_factory=Tail)
    calls: Calls = field(default_factory=Calls)
    stacks: event.StacksTaken | None = None
    stops_seen: int = 0
    dying: Dying | None = None
    """How it was dying when the first stop came, if it was."""
    stop_looking: Callable[[], None] = lambda: None
    """Ends what is looking at stacks."""
    phase: str = "init"
    """Where the server was when its end began."""

    def happen(self, happening: Event) -> None:
        """Feed the state machine and do what it says."""
        now = self.loop.now()
        was_healthy, was_ending, was_armed = self.state.health_answered, self.state.stage == "ending", self.is_armed
        self.state, effects = self.state.on(happening, now)
        if isinstance(happening, event.HealthAnswered) and happening.is_strangers:
            self.order.on_stranger()
        if isinstance(happening, event.CanaryAnswered) and happening.result == "answered":
            self.scan.settled(now - self.started_at)
        if self.state.stage == "ending" and not was_ending:
            self.phase = self.scan.phase
            self.calls.hang_up()
        if self.state.health_answered and not was_healthy:
            self.scan.health_answered()
        # an answer that clears the server of a fault was asked for that, and proves no more
        is_armed = was_armed or self.is_armed
        self.proof, more = self.proof.on(happening, now, self.state.stage, self.state.ready_at, is_armed=is_armed)
        for wanted in (*effects, *more):
            self.do(wanted)

    def do(self, wanted: effect.Effect) -> None:
        """Turn one effect into a deed."""
        match wanted:
            case effect.SignalLeader(number):
                self.tell("leader", number)
            case effect.SignalTree(number):
                self.tell("tree", number)
            case effect.Sweep(grace_s):
                self.stop_looking()
                self.tell("sweep", grace_s)
            case effect.SayReady(note):
                self.scan.ready()
                self.order.on_ready(self.loop.now() - self.started_at, note)
            case effect.AskHealth():
                is_strangers = partial(self.order.is_strangers, self.child.pid)
                self._ask(partial(questions.health, is_strangers=is_strangers), event.HealthAnswered(None))
            case effect.SendCanary():
                is_first = self.state.ready_at is None
                self._ask(partial(questions.canary, is_thorough=is_first), event.CanaryAnswered("unasked"))
            case effect.AskMetrics(with_clients):
                self._ask(partial(questions.pulse, with_clients=with_clients), event.NoCounters("", is_late=True))
            case effect.MeasureData():
                unknown = partial(self.happen, event.DataMoved(None))
                self.loop.ask(lambda: questions.moved(self.child.pid), self.happen, unknown)
            case effect.TakeStacks():
                look = questions.look(self.child.pid, self.order.command)
                self.stop_looking = look.stop
                unseen = event.StacksTaken(problem="nobody could look")
                self.loop.ask(look.take, self._on_stacks, partial(self._on_stacks, unseen))
            case effect.SayBlind(reason):
                self.order.on_blind(reason)
            case effect.SayProven():
                self.order.on_proven()
            case effect.SayWouldEnd(why):
                self.order.on_would_end(why)

    @property
    def is_armed(self) -> bool:
        """Whether a fault stands that the server was not cleared of."""
        return self.state.armed_by is not None

    def tell(self, verb: str, argument: float) -> None:
        """Give the guardian an order."""
        self.child.order(verb, argument, self.loop.now())

    def _ask(self, question: Callable[[Endpoint, Calls], Event], unknown: Event) -> None:
        endpoint = self.order.endpoint
        assert endpoint is not None  # the state machine asks nothing of a server without an address
        self.loop.ask(lambda: question(endpoint, self.calls), self.happen, partial(self.happen, unknown))

    def _on_stacks(self, stacks: event.StacksTaken) -> None:
        if self.state.is_looked_at:
            self.stacks = stacks
            self.order.on_stacks(stacks)
            self.happen(stacks)

    def on_chunk(self, name: Stream, chunk: bytes) -> None:
        """Look at output that has been passed on."""
        self.tail.feed(name, chunk)
        for evidence in self.scan.feed(name, chunk, self.loop.now() - self.started_at):
            self._on_evidence(evidence)
        if self.state.stage == "starting":
            self._tell_phase(self.scan.phase)
            self.happen(event.Output(self.scan.phase, not is_chatter(chunk)))

    def _tell_phase(self, phase: str) -> None:
        if phase != self.phase:
            self.phase = phase
            self.order.on_phase(phase)

    def _on_evidence(self, evidence: Evidence) -> None:
        if evidence.kind in ("root", "echo"):
            self.tail.mark(evidence.number)
        if evidence.arms:
            is_coredump = evidence.fault == "gpu-coredump"
            self.happen(event.FaultLine(evidence.text, is_coredump, is_coredump or evidence.process is not None))
        elif evidence.signature == ANSWERED:
            self.happen(event.Completed())

    def on_end(self, title: str, pid: int, status: int | None) -> None:
        """Take in the end of a process."""
        is_our_doing = self.state.stage == "ending" and status in SWEPT_WITH
        if title.startswith(OF_VLLM) and not is_our_doing:
            self.ends.append(ProcessEnd(title, pid, status, self.loop.now() - self.started_at))
            self.happen(event.EngineEnded(title, status))

    def run(self, streams: Streams, news: News) -> None:
        """Turn the loop until nothing of the attempt is left."""
        while not news.is_over:
            deadlines = (self.state.next_deadline(), self.proof.due_at, self.child.answer_due_at)
            self.loop.turn(min((at for at in deadlines if at is not None), default=None))
            self.child.kill_if_silent(self.loop.now())
            streams.resume()
            self._take_in_stops()
            self.happen(event.Tick())
        streams.drain()
        self.scan.close(self.loop.now() - self.started_at)

    def _take_in_stops(self) -> None:
        for number in self.loop.stops[self.stops_seen :]:
            self.dying = self.dying if self.stops_seen else dying(self.state, self.scan)
            self.stops_seen += 1
            self.happen(event.StopAsked(number))
            if self.stops_seen == 1 and self.state.kill_at is not None:
                self.order.on_stop(self.state.kill_at - self.loop.now())

    def observations(self) -> Observations:
        """Return what was seen."""
        times = Times(self.started_at, self.loop.now())
        return observations(self.state, self.scan, self.ends, self.phase, times, is_proven=self.proof.is_proven)


def run(loop: Loop, order: Order, begun: Begun, gpu_faults: Faults | None = None) -> Ended:
    """See to a vLLM that was begun, listening to what is reported of its GPUs; return when nothing of it is left."""
    child, spared, started_at = begun.child, begun.spared, begun.at
    has_endpoint, observes_only = order.endpoint is not None, order.observes_only
    state = Lifecycle(
        order.timing, order.wants_canary, has_endpoint, spawned_at=started_at, observes_only=observes_only
    )
    proof = Proof(order.timing, order.wants_canary)
    attempt = _Attempt(loop, order, order.new_scan(), state, proof, child, started_at)
    listening = watch(loop, gpu_faults, attempt.scan, attempt._on_evidence, started_at)
    news = News(loop, child, attempt.happen, attempt.on_end)
    # stderr first: progress is told there before the record on stdout that says how it failed
    pipes: dict[Stream, int] = {} if child.stderr is None else {"stderr": child.stderr}
    pipes["stdout"] = child.stdout
    loop.on_suspend = lambda: attempt.tell("freeze", 0)
    loop.on_resume = lambda: attempt.tell("tree", signal.SIGCONT)
    attempt.run(Streams(loop, pipes, attempt.on_chunk), news)
    loop.on_suspend = loop.on_resume = lambda: None
    attempt.stop_looking()
    left = news.left
    is_lost = not left and loop.wait_for(child.pid) != 0
    if is_lost:
        left = orphans.end_all_but(spared)
        loop.turn(loop.now())  # a stop may have come meanwhile
        if not news.has_started:
            hint = "its own words are above; please report them"
            raise Trouble("the guardian process could not do its work", hint=hint, status=Status.BUG)
    attempt.happen(event.TreeGone())
    news.close()
    died = replace(attempt.observations(), gpu_events=listening.end())
    seen = replace(died, stop_requested=bool(loop.stops))
    before_stop = attempt.dying.without_stop(seen) if attempt.dying else None
    return Ended(seen, attempt.tail, news.spawn_error, str(left), is_lost, before_stop, attempt.stacks)
