"""What an attempt does next: a pure state machine. Events and the time in, a new state and effects out."""

from __future__ import annotations

import signal
from dataclasses import replace

from safe_vllm.attempt import effect, event
from safe_vllm.attempt import timing as limits
from safe_vllm.attempt.effect import Effect
from safe_vllm.attempt.event import Event
from safe_vllm.attempt.progress import Progress
from safe_vllm.attempt.timing import health_pause_s, is_due
from safe_vllm.attempt.whereabouts import Stage, Whereabouts
from safe_vllm.verdict.evidence import signal_name

Step = tuple["Lifecycle", tuple[Effect, ...]]


class Lifecycle(Whereabouts):
    """An attempt on its way."""

    def on(self, happening: Event, now: float) -> Step:
        """Take in one event."""
        if self.stage == "over":
            return self, ()
        if self.progress is None:
            return self._on(happening, now)
        progress, wanted, hang = self.progress.on(happening, now, self.stage)
        state = self if progress is self.progress else replace(self, progress=progress)
        state, effects = state._end_hung(hang, now) if hang else state._on(happening, now)
        return state, (*effects, *wanted)

    def _on(self, happening: Event, now: float) -> Step:
        match happening:
            case event.Spawned():
                return self._on_spawned(now), ()
            case event.TreeGone():
                return self._calm("over"), ()
            case event.LeaderEnded(status):
                return replace(self._calm("ending"), leader_status=status), (effect.Sweep(limits.SWEEP_GRACE_S),)
            case event.StopAsked(number):
                return self._on_stop(number, now)
            case event.Tick():
                return self._on_tick(now)
            case event.StacksTaken() if self.is_looked_at:
                return self._swept()
        if self.stage == "ending":
            return self, ()
        return self._on_sign(happening, now)

    def _on_spawned(self, now: float) -> Lifecycle:
        if not self.has_endpoint or self.stage != "starting":
            return replace(self, spawned_at=now, ask_at=None)
        limit_s, progress = self.timing.start_timeout_s, Progress(self.timing, self.wants_canary).alive(now)
        start_by = None if limit_s is None else now + limit_s
        return replace(self, spawned_at=now, ask_at=now, start_by=start_by, progress=progress)

    def _on_sign(self, happening: Event, now: float) -> Step:
        """Take in what tells how a living server is doing."""
        match happening:
            case event.HealthAnswered(is_ok):
                return self._on_health(is_ok, now)
            case event.CanaryAnswered(result, detail, remarks):
                return self._on_canary(result, detail or "; ".join(remarks), now)
            case event.FaultLine(text, is_coredump, is_of_engine):
                return self._on_fault_line(text, is_coredump, is_of_engine, now), ()
            case event.EngineEnded(title, status):
                return self._on_engine_end(title, status, now), ()
            case event.Output() if self.stage == "starting" and self.armed_by and not self.is_confirmed:
                return replace(self, act_at=now + self.grace_s), ()
            case event.Completed() if not self.is_confirmed:
                return self._disarmed(), ()
        return self, ()

    def _on_health(self, is_ok: bool | None, now: float) -> Step:
        if self.stage == "serving" and self.armed_by:  # without a canary, this is the only witness to ask
            if is_ok is None:
                return replace(self, act_at=now + limits.CANARY_AGAIN_S), ()
            return (self._disarmed(), ()) if is_ok else self._end(f"/health fails after: {self.armed_by}", now)
        if self.stage != "starting":
            return self, ()
        if not is_ok:
            return replace(self, ask_at=now + health_pause_s(now - self.spawned_at)), ()
        healthy = replace(self, health_answered=True, ask_at=None)
        if self.wants_canary:
            return replace(healthy, stage="proving"), (effect.SendCanary(),)
        return healthy._ready(now, "no canary, as asked")

    def _ready(self, now: float, note: str) -> Step:
        ready = replace(self._disarmed(), stage="serving", ready_at=now, ask_at=None, start_by=None)
        return ready, (effect.SayReady(note),)

    def _on_canary(self, result: str, detail: str, now: float) -> Step:
        if result == "unasked":
            is_wanted = self.stage == "proving" or self.armed_by
            return replace(self, ask_at=now + limits.CANARY_AGAIN_S) if is_wanted else self, ()
        if result == "refused":
            note = f"the canary could not be sent: {detail}"
            return replace(self, canary="unsent")._ready(now, note) if self.ready_at is None else (self._disarmed(), ())
        if result == "answered" and self.has_lost_engine:
            return replace(self, canary="answered"), ()
        if result == "answered":
            passed = replace(self, canary="answered")
            return passed._ready(now, detail) if self.ready_at is None else (passed._disarmed(), ())
        if self.stage == "serving" and not self.armed_by:  # what it was sent for is over
            return self, ()
        if result == "hung":
            return replace(self, canary="hung")._end_hung(f"a real request got no answer ({detail})", now)
        return self._on_canary_failed(detail, now)

    def _on_canary_failed(self, detail: str, now: float) -> Step:
        failed = replace(self, canary="failed")
        if self.stage == "serving" and self.canary == "failed":
            return failed._end(f"real requests failed after a fault line ({detail})", now)
        if self.stage == "serving":  # one failure may be a moment of overload
            return replace(failed, ask_at=now + limits.CANARY_AGAIN_S), ()
        if self.act_at is not None:
            return replace(failed, ask_at=now + limits.CANARY_AGAIN_S), ()
        # vLLM usually ends by itself now, and its own words are worth having.
        act_at = now + self.timing.fault_grace_s
        return replace(
            failed, ask_at=now + limits.CANARY_AGAIN_S, act_at=act_at, is_confirmed=True, armed_by=detail
        ), ()

    def _on_fault_line(self, text: str, is_coredump: bool, is_of_engine: bool, now: float) -> Lifecycle:
        grace_s = self.timing.grace_s(is_starting=self.stage == "starting", is_of_engine=is_of_engine)
        armed_at = self.armed_at if self.armed_at is not None else now
        armed = replace(self, armed_by=self.armed_by or text, armed_at=armed_at, grace_s=grace_s)
        if is_coredump:  # a core file is being written: let it be finished
            return replace(armed, act_at=min(now + grace_s, armed_at + limits.COREDUMP_CAP_S))
        return armed if self.act_at is not None else replace(armed, act_at=now + grace_s)

    def _disarmed(self) -> Lifecycle:
        if self.armed_by is None and self.act_at is None and not self.is_confirmed and not self.has_said:
            return self  # nearly always
        return replace(self, armed_by=None, armed_at=None, act_at=None, is_confirmed=False, has_said=False)

    def _on_engine_end(self, title: str, status: int | None, now: float) -> Lifecycle:
        if status is None or status >= 0 or status in (-signal.SIGTERM, -signal.SIGINT):
            return self
        act_at = now + min(limits.SETTLE_S, self.timing.fault_grace_s)
        witness = f"{title} was killed by {signal_name(-status)}"
        return replace(self, act_at=act_at, is_confirmed=True, has_lost_engine=True, armed_by=self.armed_by or witness)

    def _act(self, now: float) -> Step:
        """The grace is over: end a server that is known to be broken, ask one that may be fine."""
        if self.stage == "serving" and not self.is_confirmed:
            return replace(self, act_at=None), (effect.SendCanary() if self.wants_canary else effect.AskHealth(),)
        if self.is_confirmed:
            witness = str(self.armed_by)
            why = witness if self.canary == "failed" else f"vLLM did not end by itself after: {witness}"
            return self._end(why, now)
        if self.stage == "proving":  # the canary that is under way will tell
            return replace(self, act_at=None), ()
        return self._end(f"no sign of life for {self.grace_s:g} s after: {self.armed_by}", now)

    def _calm(self, stage: Stage) -> Lifecycle:
        return replace(self, stage=stage, act_at=None, ask_at=None, kill_at=None, signal_at=None, start_by=None)

    def _end(self, why: str, now: float) -> Step:
        if self.observes_only:
            return self._left_alone(why, now)
        return replace(self._calm("ending"), ended_by_us=why)._swept()

    def _left_alone(self, why: str, now: float) -> Step:
        """Only say that it would be ended. One whose ``/health`` answers serves as it would without us: it is ready."""
        state = replace(self._disarmed(), has_lost_engine=False, start_by=None, progress=None)
        said: tuple[Effect, ...] = () if self.has_said else (effect.SayWouldEnd(why),)
        if self.stage == "proving":
            state, more = state._ready(now, "only observed: no real request was answered")
            said = (*said, *more)
        return replace(state, has_said=True), said

    def _end_hung(self, why: str, now: float) -> Step:
        if self.observes_only:
            return self._end(why, now)
        hung = replace(self._calm("ending"), ended_by_us=why, is_looked_at=True, kill_at=now + limits.STACKS_BY_S)
        return hung, (effect.TakeStacks(),)

    def _swept(self) -> Step:
        return replace(self, is_looked_at=False, kill_at=None), (effect.Sweep(limits.SWEEP_GRACE_S),)

    def _on_stop(self, number: int, now: float) -> Step:
        stopped = replace(self, stops=self.stops + 1)
        if self.stops:
            return stopped._hurry(now)
        if self.stage == "ending":  # already being swept, or about to be
            return stopped._swept() if self.is_looked_at else (stopped, ())
        forwarded = number if number == signal.SIGINT else signal.SIGTERM
        calm = stopped._calm("ending")
        if self.stage == "starting" and not self.has_endpoint:  # it may be serving, and nobody can tell
            return replace(calm, kill_at=now + self.timing.stop_timeout_s), (effect.SignalTree(signal.SIGTERM),)
        if self.stage == "starting":
            deadline = now + min(limits.START_STOP_GRACE_S, self.timing.stop_timeout_s)
            return replace(calm, kill_at=deadline, signal_at=now + limits.SIGNAL_AGAIN_S), (
                effect.SignalTree(signal.SIGTERM),
            )
        return replace(calm, kill_at=now + self.timing.stop_timeout_s), (effect.SignalLeader(forwarded),)

    def _hurry(self, now: float) -> Step:
        if self.stops > 2:
            return replace(self, kill_at=None, signal_at=None), (effect.Sweep(0.0),)
        kill_at = now + limits.HURRY_S if self.kill_at is None else min(self.kill_at, now + limits.HURRY_S)
        return replace(self, kill_at=kill_at), (effect.SignalTree(signal.SIGTERM),)

    def _on_tick(self, now: float) -> Step:
        if is_due(self.kill_at, now):
            return replace(self, kill_at=None, signal_at=None), (effect.Sweep(0.0),)
        if is_due(self.signal_at, now):  # a process that was just being born may have missed the first one
            return replace(self, signal_at=now + limits.SIGNAL_AGAIN_S), (effect.SignalTree(signal.SIGTERM),)
        if self.stage == "ending":
            return self, ()
        if is_due(self.start_by, now):
            return self._end_hung(f"not ready after {self.timing.start_timeout_s:g} s", now)
        if is_due(self.act_at, now):
            return self._act(now)
        if is_due(self.ask_at, now):
            question = effect.AskHealth() if self.stage == "starting" else effect.SendCanary()
            return replace(self, ask_at=None), (question,)
        return self, ()
