"""What a launch tells as it goes: each event once, in words for people and in fields for programs."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from safe_vllm.announce import banner, hangs, shouting
from safe_vllm.announce.teller import Teller
from safe_vllm.plan.costs import costs
from safe_vllm.plan.endpoint import Endpoint
from safe_vllm.plan.explain import difference
from safe_vllm.plan.ladder import Rung
from safe_vllm.plan.veil import plain_veil
from safe_vllm.policy.descent import End, Next
from safe_vllm.preparing import Prepared
from safe_vllm.printable import on_one_line

if TYPE_CHECKING:
    from safe_vllm.attempt.event import StacksTaken
    from safe_vllm.machine.listeners import Listener
    from safe_vllm.verdict.evidence import Observations, Verdict


@dataclass(frozen=True)
class Account:
    """Tells what happens in a launch, in the order in which it happens."""

    teller: Teller

    def opening(self, prepared: Prepared) -> None:
        """Tell what will be run and what comes after it."""
        plan, installed = prepared.plan, prepared.machine.installation
        facts = banner.opening_facts(plan, prepared.vllm, installed)
        on_cpu = not prepared.machine.gpus and not prepared.machine.has_driver
        lost = {rung.name: costs(rung, on_cpu=on_cpu) for rung in plan.ladder.rungs[1:]}
        lines = banner.opening(plan, installed.vllm) + list(prepared.problems)
        self.teller.tell(
            "launch-started",
            lines,
            **facts,
            way_back=banner.way_back(plan, prepared.intent.start_at),
            costs={name: cost for name, cost in lost.items() if cost},
            model=prepared.memory.fingerprint.about.get("model"),
            fingerprint=prepared.memory.fingerprint.key,
            forget=banner.forget(prepared.memory.fingerprint.key, prepared.intent.state_dir),
            state_dir=None if prepared.memory.directory is None else str(prepared.memory.directory),
            observes_only=prepared.intent.observes_only,
            problems=list(prepared.problems),
        )

    def attempt_started(self, number: int, rung: Rung) -> None:
        """Tell that vLLM is about to be spawned."""
        self.teller.tell("attempt-started", (), attempt=number, rung=rung.name)

    def port_taken(
        self, number: int, rung: Rung, place: Endpoint, by: Listener | None, *, is_late: bool = False
    ) -> None:
        """Tell that somebody else already answers where vLLM shall, and who, without their secrets.

        ``is_late``: since vLLM was started.
        """
        holder, command = _shown(by) if by else (None, None)
        lines = banner.taken(place, holder, command, is_late=is_late)
        self.teller.tell("port-taken", lines, attempt=number, rung=rung.name, holder=holder, command=command)

    def phase(self, number: int, rung: Rung, phase: str) -> None:
        """Tell how far the start has come."""
        self.teller.tell("phase", (), attempt=number, rung=rung.name, phase=phase)

    def proven(self, number: int, rung: Rung) -> None:
        """Tell that the server has proven its rung."""
        self.teller.tell("proven", (), attempt=number, rung=rung.name)

    def would_end(self, number: int, rung: Rung, why: str) -> None:
        """Tell that a server that is only observed would be ended now."""
        self.teller.tell("would-end", banner.would_end(why), attempt=number, rung=rung.name, why=why)

    def remembered(self, number: int, rung: Rung, outcome: str, problems: Sequence[str]) -> None:
        """Tell that it was kept whether the rung ``broken`` or ``held``, and what went wrong about that."""
        found = list(problems)
        self.teller.tell("remembered", found, attempt=number, rung=rung.name, outcome=outcome, problems=found)

    def incident(self, number: int, rung: Rung, path: Path | None, problem: str | None) -> None:
        """Tell where the report on an attempt is."""
        lines = [f"report on attempt {number}: {path}"] if path else []
        lines += [problem] if problem else []
        where = None if path is None else str(path)
        self.teller.tell("incident", lines, attempt=number, rung=rung.name, path=where, problem=problem)

    def untold(self, problem: str) -> None:
        """Tell why ``status`` cannot tell what runs now. Nothing is told after the end."""
        if self.teller.picture.state != "ended":
            self.teller.tell("untold", [problem], problem=problem)

    def observed(self, number: int, rung: Rung, decision: Next | End, names: Sequence[str]) -> None:
        """Tell what would be done now, were the launch not only observed."""
        would = f"step down to {names[decision.rung]}" if isinstance(decision, Next) else "end"
        lines = [f"observed only: safe-vllm would {would} now: {decision.reason}"]
        self.teller.tell("observed", lines, attempt=number, rung=rung.name, would=would, reason=decision.reason)

    def degraded(self) -> None:
        """Tell that the server runs below what was asked for, if it does."""
        picture = self.teller.picture
        if picture.state == "ready" and (lines := shouting.lines(picture)):
            assert picture.degraded is not None
            self.teller.tell("degraded", lines, attempt=picture.attempt, **asdict(picture.degraded))

    def remind(self, call_in: Callable[[float, Callable[[], None]], None]) -> None:
        """Tell again that the server is degraded, if it is, now and every hour by the timers of the loop."""
        self.degraded()
        call_in(shouting.EVERY_S, partial(self.remind, call_in))

    def ready(self, number: int, rung: Rung, after_s: float, note: str) -> None:
        """Tell that the server works, seconds after it was spawned, and if it is not as it was asked for."""
        lines = banner.ready(after_s, rung, note)
        self.teller.tell("ready", lines, attempt=number, rung=rung.name, after_s=round(after_s, 3), note=note)
        self.degraded()

    def stop_asked(self, number: int, left_s: float) -> None:
        """Tell that vLLM was asked to stop, and how many seconds it has."""
        self.teller.tell("stop-asked", banner.stopping(left_s), attempt=number)

    def blind(self, number: int, rung: Rung, why: str) -> None:
        """Tell why hangs in service will not be noticed."""
        self.teller.tell("blind", hangs.blind(why), attempt=number, rung=rung.name, why=why)

    def stacks(self, number: int, rung: Rung, seen: StacksTaken) -> None:
        """Tell where the processes were of a server that hangs."""
        about = {"attempt": number, "rung": rung.name}
        for stack in seen.taken:
            self.teller.tell("stacks", (), **about, pid=stack.pid, title=stack.title, text=stack.text)
        taken = [(stack.pid, stack.title, stack.text) for stack in seen.taken]
        lines = hangs.stacks(taken, seen.processes, seen.problem)
        self.teller.tell("hang", lines, **about, processes=seen.processes, problem=seen.problem)

    def death(self, number: int, rung: Rung, seconds: float, observations: Observations, verdict: Verdict) -> None:
        """Tell what died after how many seconds, and why."""
        is_wanted = observations.stop_requested
        lines = () if is_wanted else banner.death(number, rung, seconds, observations, verdict)
        self.teller.tell(
            "attempt-ended",
            lines,
            attempt=number,
            rung=rung.name,
            seconds=round(seconds, 3),
            fault=verdict.fault,
            action=verdict.action,
            phase=verdict.phase,
            suspect=verdict.suspect,
            cache=verdict.cache,
            reason=verdict.reason,
            status=observations.leader_status,
            ended=[{"title": end.name, "status": end.status} for end in observations.ends],
            evidence=banner.shown(verdict),
        )

    def step(self, number: int, before: Rung, after: Rung, pause_s: float, reason: str, unread: frozenset[str]) -> None:
        """Tell what is tried next, after how many seconds, and what is different about it."""
        lines = banner.step(number, before, after, pause_s, reason, unread)
        changes = list(difference(before, after, unread))
        self.teller.tell(
            "step", lines, attempt=number, rung=after.name, reason=reason, pause_s=pause_s, changes=changes
        )

    def closing(self, end: End) -> None:
        """Tell how the launch ended."""
        reason = banner.in_full(end.reason, end.advice)
        self.teller.tell("launch-ended", banner.closing(end.status, reason), status=int(end.status), reason=reason)


def _shown(by: Listener) -> tuple[str, str | None]:
    """Return the name and the command of another process, without its secrets and what a terminal would obey."""
    command = shlex.join(plain_veil(by.words, ()).words(by.words))
    return on_one_line(f"{by.name or 'process'} ({by.pid})"), on_one_line(command) if by.words else None
