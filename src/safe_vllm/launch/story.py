"""The story of a launch: descend through attempts until one is asked to stop or nothing is left to try."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from safe_vllm.attempt.asking import answer
from safe_vllm.attempt.begin import begin
from safe_vllm.attempt.child import not_executed
from safe_vllm.attempt.gates import is_taken
from safe_vllm.attempt.loop import Loop, StopAsked
from safe_vllm.attempt.order import Ended, Order
from safe_vllm.errors import Status, Trouble
from safe_vllm.launch.gating import Gates
from safe_vllm.launch.holding import Address
from safe_vllm.launch.keeping import Keeper
from safe_vllm.launch.telling import Account
from safe_vllm.launch.timekeeping import budget_of, timing_of
from safe_vllm.plan import endpoint
from safe_vllm.plan.command import command
from safe_vllm.plan.endpoint import Endpoint
from safe_vllm.plan.flags import read
from safe_vllm.plan.fresh_caches import with_fresh_caches
from safe_vllm.plan.ladder import Rung
from safe_vllm.policy.descent import End, Next, Past, after, observed_end, pause_s, refused
from safe_vllm.preparing import Prepared

if TYPE_CHECKING:
    from safe_vllm.launch.autopsy import Failed
    from safe_vllm.verdict.evidence import Observations, Verdict
    from safe_vllm.verdict.scan import Scan


@dataclass
class Launch:
    """A launch under way."""

    prepared: Prepared
    loop: Loop
    account: Account
    keeper: Keeper
    ignored: frozenset[int]
    gates: Gates
    rung: int = 0
    ran: Rung | None = None
    """The rung of the last attempt, as it was run: with the caches that it had."""
    reason: str = ""
    """Why it is this rung's turn."""
    history: list[Past] = field(default_factory=list)
    caches: str | None = None
    """The directory of ours with the caches of the attempts that are to come."""
    salt: bytes = field(default_factory=partial(os.urandom, 16))

    @property
    def rungs(self) -> tuple[Rung, ...]:
        """The rungs of the ladder."""
        return self.prepared.plan.ladder.rungs

    def run(self) -> int:
        """Descend until the end, and say how it came."""
        self.account.opening(self.prepared)
        if self.prepared.plan.forgets:
            self.keeper.forget()
        self.account.remind(self.loop.call_in)
        try:
            end = self._descend()
        except StopAsked:
            end = End(Status.STOPPED, "asked to stop, and nothing was running")
        except Trouble as trouble:
            end = End(trouble.status, str(trouble))
        self.keeper.finish()
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
        following, unread = self._to_run(self.rungs[self.rung]), self.prepared.plan.unread
        self.account.step(len(self.history) + 1, self.ran or following, following, pause_s, self.reason, unread)

    def _attempt(self) -> Next | End:
        """Run the current rung once and decide what follows."""
        number, rung = len(self.history) + 1, self._to_run(self.rungs[self.rung])
        self.loop.sleep(0)  # a stop that was asked for in the meantime comes first
        if end := self._pass_gates(number, rung):
            return end
        order = self._order(number, rung)  # the last moment for a stop to come before there is an attempt
        self.account.attempt_started(number, rung)
        self.ran = rung
        spawned_at_s, spawned_at = self.loop.now(), time.time()
        self.loop.sleep(0)  # the disk with the events may have taken its time
        begun = begin(self.loop, order)
        self.gates.remember_host()
        from safe_vllm.attempt import supervise  # slow to import; vLLM starts meanwhile
        from safe_vllm.launch.judging import verdict_of

        ended = supervise.run(self.loop, order, begun, self.gates.gpu_faults(order.command.environment))
        if ended.spawn_error is not None:
            raise not_executed(self.prepared.vllm[0], ended.spawn_error)
        from safe_vllm.launch.autopsy import Failed
        from safe_vllm.launch.learning import advised

        verdict = advised(verdict_of(ended, self.prepared.machine), ended, rung, order.command, self.prepared)
        self.account.death(number, rung, self.loop.now() - spawned_at_s, ended.observations, verdict)
        decision = self._decide(ended, verdict, spawned_at_s)
        self._keep(Failed(number, rung, order.command, ended, verdict, spawned_at, time.time()), decision)
        return decision

    def _to_run(self, rung: Rung) -> Rung:
        """Return the rung as it is run now: as it was typed where we only observe, or with caches of ours."""
        prepared = self.prepared
        rung = prepared.plan.observed or rung
        if self.caches is None:
            return rung
        return with_fresh_caches(rung, self.caches, prepared.environment, prepared.dialect, prepared.config)

    def _pass_gates(self, number: int, rung: Rung) -> End | None:
        if number == 1:
            self.gates.remember_gpus()
            return None
        place = endpoint.endpoint(rung.words, self.prepared.environment, self.prepared.config)
        host = read(rung.words, self.prepared.config).setting("--host").value
        return self.gates.pass_before(number, place, str(host or ""))

    def _order(self, number: int, rung: Rung) -> Order:
        prepared, place = self.prepared, self._endpoint(number, rung)
        address = Address(place, partial(self.account.port_taken, number, rung, is_late=True))
        return Order(
            command=command(rung, prepared.vllm, prepared.environment),
            timing=timing_of(prepared, rung),
            endpoint=place,
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
            is_strangers=address.is_strangers,
            on_stranger=address.say,
            observes_only=prepared.intent.observes_only,
        )

    def _on_proven(self, number: int, rung: Rung) -> None:
        self.account.proven(number, rung)
        self.keeper.held(number, rung, self.caches or self.prepared.plan.caches)

    def _new_scan(self) -> Scan:
        from safe_vllm import known  # it takes a while to read what is known, and vLLM is long started by then
        from safe_vllm.verdict.scan import Scan

        return Scan(known.signatures())

    def _endpoint(self, number: int, rung: Rung) -> Endpoint | None:
        """Return where to ask for readiness. A stranger who answers there already would be mistaken for vLLM."""
        place = endpoint.endpoint(rung.words, self.prepared.environment, self.prepared.config)
        if place is None or answer(self.loop, partial(is_taken, place)) != (True,):
            return place
        self.account.port_taken(number, rung, place, self.gates.listener(place))
        return None

    def _decide(self, ended: Ended, verdict: Verdict, spawned_at_s: float) -> Next | End:
        observations = ended.observations
        ready_for_s = observations.uptime_s if observations.was_ready else 0.0
        past = Past(
            self.rung,
            verdict,
            observations.was_ready,
            ready_for_s,
            was_proven=observations.was_proven,
            spawned_at_s=spawned_at_s,
            ended_at_s=self.loop.now(),
            fresh_caches=self.caches is not None,
        )
        self.history.append(past)
        if ended.stuck:
            return End(Status.STUCK, ended.stuck)
        if observations.stop_requested:
            return End(Status.STOPPED, "asked to stop, and everything ended")
        self._leave_out_what_was_refused()
        decision = self._after()
        if self.prepared.plan.observed:
            return self._observed(decision, observations)
        if isinstance(decision, Next):
            self.rung, self.reason = decision.rung, decision.reason
        return decision

    def _after(self) -> Next | End:
        """Return what comes next, and see to it that there are fresh caches if it wants them."""
        ladder, budget = self.prepared.plan.ladder, budget_of(self.prepared)
        decision = after(ladder, self.history, budget)
        if (
            isinstance(decision, Next)
            and decision.fresh_caches
            and self.caches is None
            and not self.prepared.plan.observed
        ):
            self.caches = self.keeper.fresh_caches(self.account.teller.origin.launch)
            if self.caches is None:
                return after(ladder, self.history, replace(budget, can_freshen=False))
        return decision

    def _observed(self, decision: Next | End, observations: Observations) -> End:
        """End as vLLM did: what would be done is told, and not done."""
        number, names = len(self.history), [rung.name for rung in self.rungs]
        self.account.observed(number, self.rungs[0], decision, names)
        return observed_end(observations.leader_status, decision.reason)

    def _keep(self, failed: Failed, decision: Next | End) -> None:
        """Keep what a failed attempt has taught, before anything else is started."""
        from safe_vllm.launch.autopsy import Circumstances
        from safe_vllm.launch.learning import learn

        is_next = isinstance(decision, Next)
        around = Circumstances(
            prepared=self.prepared,
            launch=self.account.teller.origin.launch,
            salt=self.salt,
            history=tuple(self.history),
            gpus=self.gates.gpus,
            levels=tuple(self.gates.levels),
            decision=decision,
            following=self._to_run(self.rungs[self.rung]) if is_next else None,
            pause_s=pause_s(decision, self.prepared.limits.backoff_s) if isinstance(decision, Next) else None,
        )
        learn(failed, around, self.keeper, is_left=not is_next or self.rung != self.history[-1].rung)

    def _leave_out_what_was_refused(self) -> None:
        """Plan again; the rungs that were run stay where they are, so the places in the history still hold."""
        names = [self.rungs[place].name for place in refused(self.history)]
        self.prepared = replace(self.prepared, plan=self.prepared.plan_without(names))
