"""The story of a launch: plan, then descend through attempts until one is asked to stop or nothing is left to try."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field, replace
from functools import partial

from safe_vllm.announce import systemd
from safe_vllm.announce.teller import Teller
from safe_vllm.attempt import supervise
from safe_vllm.attempt.child import ignored_signals, open_missing_descriptors
from safe_vllm.attempt.gates import answer, is_taken
from safe_vllm.attempt.loop import Loop, StopAsked
from safe_vllm.attempt.order import Ended, Order
from safe_vllm.attempt.relay import Outlet, is_one_stream
from safe_vllm.attempt.timing import Timing
from safe_vllm.attempt.tree import become_subreaper
from safe_vllm.errors import Status, Trouble
from safe_vllm.gating import Gates
from safe_vllm.machine.facts import Gpu, Machine
from safe_vllm.plan import endpoint
from safe_vllm.plan.command import command
from safe_vllm.plan.endpoint import Endpoint
from safe_vllm.plan.flags import read
from safe_vllm.plan.intent import Intent
from safe_vllm.plan.ladder import Rung
from safe_vllm.policy.descent import Budget, End, Next, Past, after, refused
from safe_vllm.preparing import Prepared, prepare
from safe_vllm.record.events import EventLog
from safe_vllm.telling import Account
from safe_vllm.verdict.evidence import Observations, Setup, Verdict
from safe_vllm.verdict.judge import judge
from safe_vllm.verdict.scan import Scan

STOPPED_DRAIN_S = 5.0
"""How long a reader of ours that is behind may keep us when a stop was asked for."""
STOP_MARGIN_S = 15.0
"""What we give vLLM on top of the time that it gives its requests."""


def serve(intent: Intent) -> int:
    """Run ``vllm serve`` until it is asked to stop, one step safer after each kernel fault; return the exit status."""
    ignored = ignored_signals()
    open_missing_descriptors()
    stdout = Outlet(1)
    # Where both lead to the same place, one pen writes: a line of ours must not fall into the middle of vLLM's.
    stderr = stdout if is_one_stream() else Outlet(2)
    loop = Loop(stdout, stderr, ignored)
    teller = Teller(stderr, intent.output == "json", EventLog(intent.events))
    systemd.manager(os.environ).attend(loop.call_in, teller.listeners)
    prepared = prepare(intent)
    become_subreaper()
    try:
        gates = Gates(loop, teller, prepared.environment, prepared.machine.has_driver)
        return Launch(prepared, loop, Account(teller), ignored, gates, prepared.plan.entry, prepared.plan.entry).run()
    finally:
        loop.drain(STOPPED_DRAIN_S if loop.stops else max(STOPPED_DRAIN_S, prepared.limits.stop_timeout_s))


def _lost(seen: Observations) -> Verdict:
    """Return the verdict on an attempt whose guardian was killed: of vLLM itself nothing is known."""
    reason = "the guardian of this attempt was killed, so vLLM was ended too"
    return Verdict("unknown", "retry-same", seen.phase, reason, before_ready=not seen.was_ready)


def _judged(seen: Observations, machine: Machine) -> Verdict:
    """Return the verdict. What the log did not tell of the software and hardware in use, the machine does."""
    from safe_vllm import known

    gpu = machine.gpus[0] if machine.gpus else Gpu("")
    installed = machine.installation
    found = Setup(installed.vllm, installed.flashinfer, gpu.name or None, gpu.compute_capability, machine.architecture)
    return judge(replace(seen, setup=seen.setup.or_else(found)), known.advice())


@dataclass
class Launch:
    """A launch under way."""

    prepared: Prepared
    loop: Loop
    account: Account
    ignored: frozenset[int]
    gates: Gates
    rung: int = 0
    before: int = 0
    """The rung of the last attempt."""
    reason: str = ""
    """Why it is this rung's turn."""
    history: list[Past] = field(default_factory=list)

    @property
    def rungs(self) -> tuple[Rung, ...]:
        """The rungs of the ladder."""
        return self.prepared.plan.ladder.rungs

    def run(self) -> int:
        """Descend until the end, and say how it came."""
        self.account.opening(self.prepared)
        try:
            end = self._descend()
        except StopAsked:
            end = End(Status.STOPPED, "asked to stop, and nothing was running")
        except Trouble as trouble:
            end = End(trouble.status, str(trouble))
        self.account.closing(end)
        return int(end.status)

    def _descend(self) -> End:
        first = self._attempt()
        if isinstance(first, End):
            return first
        from safe_vllm.policy.backoff import until_the_end  # tenacity is slow to import, and seldom needed

        limits = self.prepared.limits
        return until_the_end(first, self._attempt, self.loop.sleep, limits.backoff_s, self._tell_step)

    def _tell_step(self, pause_s: float) -> None:
        before, following = self.rungs[self.before], self.rungs[self.rung]
        number, unread = len(self.history) + 1, self.prepared.plan.unread
        self.account.step(number, before, following, pause_s, self.reason, unread)

    def _attempt(self) -> Next | End:
        """Run the current rung once and decide what follows."""
        number, rung = len(self.history) + 1, self.rungs[self.rung]
        self.loop.sleep(0)  # a stop that was asked for in the meantime comes first
        if end := self._pass_gates(number, rung):
            return end
        order = self._order(number, rung)  # the last moment for a stop to come before there is an attempt
        self.account.attempt_started(number, rung)
        started_at = time.monotonic()
        ended = supervise.run(self.loop, order)
        if ended.spawn_error is not None:
            reason = os.strerror(ended.spawn_error)
            raise Trouble(f"{self.prepared.vllm[0]} cannot be executed: {reason}", status=Status.NOT_EXECUTABLE)
        seen, machine = ended.observations, self.prepared.machine
        verdict = _lost(seen) if ended.guardian_is_lost else _judged(seen, machine)
        self.account.death(number, rung, time.monotonic() - started_at, seen, verdict)
        return self._decide(ended, verdict)

    def _pass_gates(self, number: int, rung: Rung) -> End | None:
        if number == 1:
            self.gates.remember_gpus()
            return None
        place = endpoint.endpoint(rung.words, self.prepared.environment, self.prepared.config)
        host = read(rung.words, self.prepared.config).setting("--host").value
        return self.gates.pass_before(number, place, str(host or ""))

    def _order(self, number: int, rung: Rung) -> Order:
        prepared, limits = self.prepared, self.prepared.limits
        drain_s = endpoint.shutdown_timeout_s(rung.words, prepared.config)
        stop_timeout_s = max(limits.stop_timeout_s, drain_s + STOP_MARGIN_S if drain_s else 0.0)
        return Order(
            command=command(rung, prepared.vllm, prepared.environment),
            timing=Timing(
                stop_timeout_s=stop_timeout_s,
                fault_grace_s=limits.fault_grace_s,
                start_timeout_s=limits.start_timeout_s,
                start_silence_s=limits.start_silence_s,
                autotune_silence_s=limits.autotune_silence_s,
                capture_silence_s=limits.capture_silence_s,
                stall_s=limits.stall_s,
                proving_window_s=limits.proving_window_s,
            ),
            endpoint=self._endpoint(number, rung),
            new_scan=self._new_scan,
            wants_canary=prepared.intent.wants_canary,
            ignored=self.ignored,
            on_ready=partial(self.account.ready, number, rung),
            on_stop=partial(self.account.stop_asked, number),
            on_stacks=partial(self.account.stacks, number, rung),
            on_blind=partial(self.account.blind, number, rung),
            on_phase=partial(self.account.phase, number, rung),
            on_proven=partial(self._on_proven, number, rung),
            on_would_end=partial(self.account.would_end, number, rung),
            observes_only=prepared.intent.observes_only,
        )

    def _on_proven(self, number: int, rung: Rung) -> None:
        self.account.proven(number, rung)

    def _new_scan(self) -> Scan:
        from safe_vllm import known  # it takes a while to read what is known, and vLLM is long started by then

        self.gates.remember_host()
        return Scan(known.signatures())

    def _endpoint(self, number: int, rung: Rung) -> Endpoint | None:
        """Return where to ask for readiness. A stranger who answers there already would be mistaken for vLLM."""
        place = endpoint.endpoint(rung.words, self.prepared.environment, self.prepared.config)
        if place is None or answer(self.loop, partial(is_taken, place)) != (True,):
            return place
        self.account.port_taken(number, rung, place)
        return None

    def _decide(self, ended: Ended, verdict: Verdict) -> Next | End:
        observations = ended.observations
        if ended.stuck:
            return End(Status.STUCK, f"it survived SIGKILL, stuck in the kernel: {', '.join(ended.stuck)}")
        ready_for_s = observations.uptime_s if observations.was_ready else 0.0
        self.history.append(Past(self.rung, verdict, observations.was_ready, ready_for_s))
        if observations.stop_requested:
            return End(Status.STOPPED, "asked to stop, and everything ended")
        self._leave_out_what_was_refused()
        limits = self.prepared.limits
        decision = after(self.prepared.plan.ladder, self.history, Budget(limits.max_attempts, limits.proving_window_s))
        if isinstance(decision, Next):
            self.before, self.rung, self.reason = self.rung, decision.rung, decision.reason
        return decision

    def _leave_out_what_was_refused(self) -> None:
        """Plan again; the rungs that were run stay where they are, so the places in the history still hold."""
        names = [self.rungs[place].name for place in refused(self.history)]
        self.prepared = replace(self.prepared, plan=self.prepared.plan_without(names))
