"""Whether a server gets on: what it prints and moves while it starts, what it counts while it serves. Pure.

A server that is merely slow is never taken for one that hangs: what decides is that nothing at all came of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from safe_vllm.attempt.effect import AskMetrics, Effect, MeasureData, SayBlind, SendCanary
from safe_vllm.attempt.event import CanaryAnswered, DataMoved, Event, NoCounters, Output, Pulse, Tick
from safe_vllm.attempt.timing import ENOUGH_BYTES, LOOKS, PULSE_AT_MOST_S, PULSE_EVERY_S, STALL_ANSWER_S, Timing, is_due

Step = tuple["Progress", tuple[Effect, ...], str | None]
"""What is known now, what to find out, and, once it is clear that it hangs, in which way."""

CHATTER = (
    # https://github.com/vllm-project/vllm/blob/v0.32.0/vllm/distributed/device_communicators/shm_broadcast.py
    b"No available shared memory broadcast block found",
    b"No available block found in ",  # the same, in older releases
    # https://github.com/vllm-project/vllm/blob/v0.32.0/vllm/v1/engine/utils.py (wait_for_engine_startup, at DEBUG)
    b"core engine proc(s) to start",
    b"core engine proc(s) to connect",
)
"""What a server that waits for a stuck one prints, again and again."""


def is_chatter(chunk: bytes) -> bool:
    """Return whether these lines tell of waiting and of nothing else."""
    if not any(words in chunk for words in CHATTER):  # nearly always, and much cheaper
        return False
    lines = [line for line in chunk.split(b"\n") if line.strip()]
    return bool(lines) and all(any(words in line for words in CHATTER) for line in lines)


@dataclass(frozen=True)
class Progress:
    """The signs of life so far. Times are monotonic seconds; ``None``: not pending, or not known."""

    timing: Timing
    wants_canary: bool = True
    phase: str = "init"
    since: float = 0.0
    """The last sign of life while starting."""
    look_at: float | None = None
    moved_bytes: int | None = None
    """What the processes had read and written at the last look."""
    is_polled: bool = False
    poll_at: float | None = None
    counted: bytes | None = None
    """What the server counted at the last look."""
    pending_since: float | None = None
    """Since when, with nothing counted, there are requests by the engine's last report."""
    clients: Mapping[bytes, float] = field(default_factory=dict)
    """Since when, with nothing counted, each connection is there. One that lasts holds a request: vLLM closes idle ones
    after five seconds, and what the engine reports is older than the step in which it hangs."""
    clients_at: float | None = None
    """When the connections were last looked at, which takes the kernel a while: it is done more seldom."""
    asked_at: float | None = None
    """When the real request was sent that is to tell a hang from a pause."""

    def next_deadline(self) -> float | None:
        """Return when ``Tick`` is due."""
        return min((at for at in (self.look_at, self.poll_at) if at is not None), default=None)

    def on(self, event: Event, now: float, stage: str) -> Step:
        """Take in one event, while the attempt is at that stage."""
        if stage == "starting":
            return self._while_starting(event, now)
        return replace(self, look_at=None)._while_serving(event, now) if stage == "serving" else (self, (), None)

    # Starting: silence, unless data is moved

    def _while_starting(self, event: Event, now: float) -> Step:
        match event:
            case Output(phase, is_progress) if is_progress:
                return replace(self, phase=phase).alive(now), (), None
            case Tick() if is_due(self.look_at, now):
                return replace(self, look_at=None), (MeasureData(),), None
            case DataMoved(total):
                return self._on_data(total, now)
        return self, (), None

    def alive(self, now: float) -> Progress:
        """Return this with a sign of life now."""
        limit_s = self.timing.silence_s(self.phase)
        return replace(self, since=now, look_at=None if limit_s is None else now + limit_s / LOOKS)

    def _on_data(self, total: int | None, now: float) -> Step:
        limit_s = self.timing.silence_s(self.phase)
        seen = self if total is None else replace(self, moved_bytes=total)
        if limit_s is None or self.look_at is not None:  # it was heard of while the question was under way
            return seen, (), None
        if total is not None and self.moved_bytes is not None and total - self.moved_bytes >= ENOUGH_BYTES:
            return seen.alive(now), (), None
        if now >= self.since + limit_s:
            return seen, (), f"no output and no data moved for {limit_s:g} s"
        return replace(seen, look_at=now + limit_s / LOOKS), (), None

    # Serving: requests that wait, and counters that stand still

    def _while_serving(self, event: Event, now: float) -> Step:
        stall_s = self.timing.stall_s
        if stall_s is None:
            return self, (), None
        if not self.is_polled:
            return replace(self, is_polled=True, poll_at=now), (), None
        match event:
            case Tick() if is_due(self.poll_at, now):
                return replace(self, poll_at=None), (AskMetrics(with_clients=self._wants_clients(now, stall_s)),), None
            case NoCounters(reason, is_late) if not is_late and self.counted is None:
                return self, (SayBlind(reason),), None
            case NoCounters():  # no answer of a busy server is no evidence
                return self._again(now), (), None
            case Pulse():
                return self._again(now)._on_pulse(event, now, stall_s)
            case CanaryAnswered(result, detail) if self.asked_at is not None:
                return self._on_canary(result, detail, stall_s)
        return self, (), None

    def _again(self, now: float) -> Progress:
        pause_s = min(PULSE_EVERY_S, max(PULSE_AT_MOST_S, (self.timing.stall_s or 0.0) / LOOKS))
        return replace(self, poll_at=now + pause_s)

    def _on_pulse(self, pulse: Pulse, now: float, stall_s: float) -> Step:
        if self.counted != pulse.counted:
            return self._calm()._with(pulse, now), (), None
        stalled = self._with(pulse, now)
        if self.asked_at is not None:
            is_over = now >= self.asked_at + min(STALL_ANSWER_S, stall_s)
            return stalled, (), _stalled(stall_s, "a real request got no answer") if is_over else None
        if stalled._longest_s(now) < stall_s:
            return stalled, (), None
        if self.wants_canary:
            return replace(stalled, asked_at=now), (SendCanary(),), None
        return stalled, (), _stalled(stall_s, "so did a client") if stalled._has_witness(stall_s) else None

    def _with(self, pulse: Pulse, now: float) -> Progress:
        pending_since = (now if self.pending_since is None else self.pending_since) if pulse.pending else None
        told = replace(self, counted=pulse.counted, pending_since=pending_since)
        if pulse.clients is None:
            return told
        return replace(told, clients_at=now, clients={one: self.clients.get(one, now) for one in pulse.clients})

    def _wants_clients(self, now: float, stall_s: float) -> bool:
        return self.counted is not None and (self.clients_at is None or now >= self.clients_at + stall_s / LOOKS)

    def _longest_s(self, now: float) -> float:
        """Return how long somebody has been waiting while nothing was counted."""
        return max(0.0 if self.pending_since is None else now - self.pending_since, self._client_s())

    def _client_s(self) -> float:
        at = self.clients_at or 0.0
        return at - min(self.clients.values(), default=at)

    def _has_witness(self, stall_s: float) -> bool:
        """Return whether it is sure that somebody waits: the figures alone may be those of a request given up."""
        return self.pending_since is not None and self._client_s() >= stall_s

    def _calm(self) -> Progress:
        return replace(self, asked_at=None, pending_since=None, clients={}, clients_at=None)

    def _on_canary(self, result: str, detail: str, stall_s: float) -> Step:
        if result == "answered":
            return self._calm(), (), None
        if result == "unasked":
            return replace(self, asked_at=None), (), None
        if result == "refused":  # then only a client can be the witness
            return replace(self, asked_at=None, wants_canary=False), (), None
        return self, (), _stalled(stall_s, f"a real request failed ({detail})")


def _stalled(stall_s: float, witness: str) -> str:
    return f"requests waited {stall_s:g} s without a token, and {witness}"
