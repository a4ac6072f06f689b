"""Listening, for as long as an attempt lasts, to what the driver reports of its GPUs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from safe_vllm.attempt.loop import Loop
from safe_vllm.machine.levels import Xid
from safe_vllm.verdict.evidence import Evidence, GpuEvent
from safe_vllm.verdict.scan import Scan

MOST_KEPT = 32


class Faults(Protocol):
    """Where faults are reported."""

    def wait(self) -> bool:
        """Wait for a while; return whether there is any use in waiting on."""

    def taken(self) -> Sequence[Xid]:
        """Return what was reported since the last time."""

    def close(self) -> None:
        """Let go of the GPUs."""


@dataclass
class GpuWatch:
    """Passes on what is reported. The driver may never answer: only threads that nobody waits for ask it."""

    loop: Loop
    scan: Scan
    on_evidence: Callable[[Evidence], None]
    started_at: float
    kept: list[GpuEvent] = field(default_factory=list)
    """The first ones."""
    is_over: bool = False

    def listen(self, to: Faults) -> None:
        """Wait for the next report."""
        self.loop.ask(to.wait, lambda may_be_more: self._on_waited(to, may_be_more))

    def _on_waited(self, to: Faults, may_be_more: bool) -> None:
        for xid in () if self.is_over else to.taken():
            self._on_xid(xid)
        if self.is_over or not may_be_more:
            self.loop.ask(to.close, lambda _: None)
        else:
            self.listen(to)

    def _on_xid(self, xid: Xid) -> None:
        event = GpuEvent(xid.number, xid.place, xid.bus, self.loop.now() - self.started_at)
        if len(self.kept) < MOST_KEPT:
            self.kept.append(event)
        for evidence in self.scan.gpu_event(event):
            self.on_evidence(evidence)

    def end(self) -> tuple[GpuEvent, ...]:
        """Listen no more; return what was reported."""
        self.is_over = True
        return tuple(self.kept)


def watch(
    loop: Loop, faults: Faults | None, scan: Scan, on_evidence: Callable[[Evidence], None], started_at: float
) -> GpuWatch:
    """Listen until told to end. Where ``faults`` is ``None``, there is nothing to listen to."""
    listener = GpuWatch(loop, scan, on_evidence, started_at)
    if faults is not None:
        listener.listen(faults)
    return listener
