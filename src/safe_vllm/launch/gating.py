"""The gates: what is waited for before every attempt but the first, and what ends a launch that does harm.

What only a second attempt needs is imported then: the first one is not to wait for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from safe_vllm.announce import gate_lines
from safe_vllm.announce.teller import Teller
from safe_vllm.attempt.asking import answer
from safe_vllm.attempt.gates import is_taken, missing, remove_left_socket, wait
from safe_vllm.attempt.loop import Loop
from safe_vllm.errors import Status
from safe_vllm.machine.gpu_memory import gpu_memory
from safe_vllm.machine.levels import GpuMemory, Level
from safe_vllm.plan.endpoint import Endpoint
from safe_vllm.policy.descent import End

if TYPE_CHECKING:
    from safe_vllm.machine.condition import Port
    from safe_vllm.machine.listeners import Listener
    from safe_vllm.machine.xid import Xids

GPU_WAIT_S = 50.0
PORT_WAIT_S = 10.0
"""Nothing of ours is left that could have it, so whoever has it is not about to go."""

Gpus = tuple[GpuMemory, ...]


@dataclass
class Gates:
    """What was there before the first attempt, and is wanted back before each further one."""

    loop: Loop
    teller: Teller
    environment: Mapping[str, str]
    has_driver: bool
    gpus: Gpus = ()
    """Before the first attempt; none where NVML tells nothing."""
    levels: list[tuple[Level, ...]] = field(default_factory=list)
    """Before each attempt."""

    def remember_gpus(self) -> None:
        """Take in what the GPUs have free before the first attempt. Raises StopAsked."""
        given = answer(self.loop, partial(gpu_memory, self.environment)) if self.has_driver else None
        self.gpus = (given[0] or ()) if given else ()

    def gpu_faults(self, environment: Mapping[str, str]) -> Xids | None:
        """Return where the driver reports faults of the GPUs that a process with this environment sees."""
        if not self.has_driver:
            return None
        from safe_vllm.machine.xid import Xids

        return Xids(environment)

    def remember_host(self) -> None:
        """Take in what the machine has left at the first attempt. No need to wait for a slow disk to tell."""
        if not self.levels:
            # in front, should it come so late that others are there already
            self.loop.ask(partial(_levels, self.environment), partial(self.levels.insert, 0))

    def listener(self, place: Endpoint) -> Listener | None:
        """Return who answers where vLLM shall, as far as that can be seen from here. Raises StopAsked."""
        given = answer(self.loop, partial(_listener, place))
        return given[0] if given else None

    def pass_before(self, attempt: int, place: Endpoint | None, host_name: str) -> End | None:
        """Wait until a further attempt may begin; return the end of the launch where it may not. Raises StopAsked."""
        if reason := self._harm(attempt):
            return End(Status.SPENT, reason)
        if self.gpus:
            self._wait_for_gpus(attempt)
        if place and (reason := self._wait_for_port(attempt, place, host_name)):
            return End(Status.PASSING, reason)
        return None

    def _harm(self, attempt: int) -> str | None:
        from safe_vllm.policy.harm import harm

        given = answer(self.loop, partial(_levels, self.environment))
        self.levels += given or ()
        reason = harm(self.levels) if given else None
        outcome = "failed" if reason else "passed" if given else "gave-up"
        facts = [asdict(level) for level in given[0]] if given else []
        self._tell(attempt, "host", outcome, 0.0, [], levels=facts)
        return reason

    def _wait_for_gpus(self, attempt: int) -> None:
        def is_back(now: Gpus | None) -> bool:
            return now is not None and not missing(self.gpus, now)

        def say(now: Gpus | None) -> None:
            lines = gate_lines.memory_awaited(self.gpus, missing(self.gpus, now or ()), GPU_WAIT_S)
            self._tell_gpus(attempt, "waiting", 0.0, lines, now or ())

        waited = wait(self.loop, partial(gpu_memory, self.environment), is_back, GPU_WAIT_S, say)
        now = waited.answer or ()
        if waited.is_met:
            lines = gate_lines.memory_back(waited.seconds, self.gpus, now)
        elif short := missing(self.gpus, now):
            lines = gate_lines.memory_held(waited.seconds, self.gpus, short)
        else:
            lines = gate_lines.memory_unknown(waited.seconds)
        self._tell_gpus(attempt, "passed" if waited.is_met else "gave-up", waited.seconds, lines, now)

    def _tell_gpus(self, attempt: int, outcome: str, waited_s: float, lines: list[str], now: Gpus) -> None:
        self._tell(attempt, "gpu-memory", outcome, waited_s, lines, gpus=gate_lines.as_facts(self.gpus, now))

    def _wait_for_port(self, attempt: int, place: Endpoint, host_name: str) -> str | None:
        if place.uds and remove_left_socket(place.uds):
            self._tell(attempt, "socket-file", "passed", 0.0, gate_lines.socket_removed(place.uds), removed=place.uds)
        where = place.uds or f"port {place.port} of {host_name or 'every address'}"

        def tell(outcome: str, waited_s: float, lines: list[str], holder: str | None = None) -> None:
            self._tell(attempt, "port", outcome, waited_s, lines, address=where, holder=holder)

        def say(port: Port) -> None:
            tell("waiting", 0.0, gate_lines.port_awaited(where, port.holder, PORT_WAIT_S), port.holder)

        question = partial(_port, place, host_name)
        waited = wait(self.loop, question, lambda port: not _is_used(port), PORT_WAIT_S, say)
        if waited.answer and not waited.is_met:
            tell("failed", waited.seconds, [], waited.answer.holder)
            return gate_lines.port_taken(waited.seconds, where, waited.answer.holder)
        # A resolver that does not answer says nothing about the port: vLLM will see for itself.
        tell("passed" if waited.is_met else "gave-up", waited.seconds, gate_lines.port_free(waited.seconds, where))
        return None

    def _tell(
        self, attempt: int, gate: str, outcome: str, waited_s: float, lines: list[str], **details: object
    ) -> None:
        seconds = round(waited_s, 3)
        self.teller.tell("gate", lines, attempt=attempt, gate=gate, outcome=outcome, waited_s=seconds, **details)


def _port(place: Endpoint, host_name: str) -> Port:
    """Return whether the address can be had: by binding to it, or, where that cannot be tried, by asking there."""
    from safe_vllm.machine import ports
    from safe_vllm.machine.condition import Port

    found = None if place.uds else ports.port(host_name, place.port)
    return found or Port(host_name, place.port, ports.IN_USE if is_taken(place) else None)


def _listener(place: Endpoint) -> Listener | None:
    from safe_vllm.machine import listeners

    return listeners.at_socket(place.uds) if place.uds else listeners.at_port(place.port)


def _is_used(port: Port) -> bool:
    """Return whether somebody has it. What else may be wrong with an address does not pass, and vLLM tells it best."""
    from safe_vllm.machine.ports import IN_USE

    return port.trouble == IN_USE


def _levels(environment: Mapping[str, str]) -> tuple[Level, ...]:
    from safe_vllm.machine import host

    return host.levels(environment)
