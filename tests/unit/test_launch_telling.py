"""What a launch tells: the hourly reminder, who has the port, and what is new in an attempt at the same rung."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from incident_cases import GB200
from safe_vllm import known
from safe_vllm.announce import shouting
from safe_vllm.announce.picture import Degraded, Picture
from safe_vllm.announce.teller import Teller
from safe_vllm.attempt.event import Stack, StacksTaken
from safe_vllm.attempt.loop import Loop, StopAsked
from safe_vllm.attempt.order import Ended
from safe_vllm.attempt.tail import Tail
from safe_vllm.errors import Status
from safe_vllm.launch.gating import Gates
from safe_vllm.launch.keeping import Keeper
from safe_vllm.launch.learning import advised
from safe_vllm.launch.story import Launch
from safe_vllm.launch.telling import Account
from safe_vllm.machine.listeners import Listener
from safe_vllm.plan.command import command
from safe_vllm.plan.endpoint import Endpoint
from safe_vllm.plan.fresh_caches import with_fresh_caches
from safe_vllm.plan.intent import Intent
from safe_vllm.plan.ladder import Rung
from safe_vllm.policy.descent import End
from safe_vllm.preparing import prepare
from safe_vllm.record.events import EventLog
from safe_vllm.record.fingerprint import Fingerprint
from safe_vllm.record.memory import Memory
from safe_vllm.verdict.evidence import Observations, Verdict
from safe_vllm.verdict.judge import judge

DEGRADED = Degraded("triton", "2026-03-01T09:00:00Z", "as-asked died here", ("slower kernels",), "stop, then forget")
BELOW = Picture(state="ready", ladder=("as-asked", "triton"), rung="triton", attempt=2, degraded=DEGRADED)
SHOUTS = [
    "safe-vllm: DEGRADED: this server runs at triton, not at as-asked, since 2026-03-01T09:00:00Z: as-asked died here",
    "safe-vllm:   costs: slower kernels",
    "safe-vllm:   way back: stop, then forget",
]


class Timers:
    """A loop whose timers come when the test says so, and which is asked to stop as soon as it has to wait."""

    def __init__(self) -> None:
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.lines: list[str] = []

    def call_in(self, seconds: float, callback: Callable[[], None]) -> None:
        self.timers.append((seconds, callback))

    def come_round(self) -> list[str]:
        """Let every timer come once, and return what is said."""
        due, self.timers, self.lines = self.timers, [], []
        for _, callback in due:
            callback()
        return self.lines

    def now(self) -> float:
        return 0.0

    def say(self, line: str) -> None:
        self.lines.append(line)

    def sleep(self, seconds: float) -> None:
        raise StopAsked


def telling(loop: Timers, picture: Picture = BELOW) -> Account:
    return Account(Teller(loop, False, EventLog(None), picture=picture))


def test_p19_a_degraded_server_is_called_so_again_every_hour() -> None:
    loop = Timers()
    telling(loop).remind(loop.call_in)
    assert loop.lines == SHOUTS
    for _ in range(3):
        assert [seconds for seconds, _ in loop.timers] == [3600.0]
        assert loop.come_round() == SHOUTS


def test_the_reminder_is_an_event_of_its_own(tmp_path: Path) -> None:
    loop, events = Timers(), tmp_path / "events"
    Account(Teller(loop, False, EventLog(str(events)), picture=BELOW)).remind(loop.call_in)
    loop.come_round()
    assert events.read_text().count('"event": "degraded"') == 2


def test_nothing_is_said_while_it_is_not_degraded_and_the_reminder_goes_on() -> None:
    loop = Timers()
    account = telling(loop, Picture(state="ready"))
    account.remind(loop.call_in)
    assert loop.come_round() == []
    account.teller.picture = Picture(state="starting", degraded=DEGRADED)
    assert loop.come_round() == []
    account.teller.picture = BELOW
    assert loop.come_round() == SHOUTS


def test_a_launch_begins_with_the_reminder() -> None:
    loop = Timers()
    account = telling(loop, Picture())
    prepared = prepare(Intent(("m",), machine=str(GB200)), changes_nothing=True)
    keeper = Keeper(cast(Loop, loop), account, Memory(None, Fingerprint("0" * 16, {}), 14.0))
    gates = Gates(cast(Loop, loop), account.teller, {}, has_driver=False)
    assert Launch(prepared, cast(Loop, loop), account, keeper, frozenset(), gates).run() == Status.STOPPED
    assert [seconds for seconds, _ in loop.timers] == [shouting.EVERY_S]
    account.teller.picture = BELOW
    assert loop.come_round() == SHOUTS


def test_the_end_of_a_launch_is_told_with_what_may_help() -> None:
    loop, heard = Timers(), cast("list[Any]", [])
    account = telling(loop)
    account.teller.listeners.append(lambda event, _: heard.append(event))
    account.closing(End(Status.SPENT, "no rung is left", ("turn it off", "upgrade")))
    account.closing(End(Status.SPENT, "no rung is left"))
    reasons = ["no rung is left; what may help: turn it off; upgrade", "no rung is left"]
    assert loop.lines == [f"safe-vllm: ended with status 70: {reason}" for reason in reasons]
    assert [event["reason"] for event in heard] == reasons


def test_the_same_rung_with_fresh_caches_shows_what_is_new() -> None:
    loop, heard = Timers(), cast("list[Any]", [])
    account = telling(loop)
    account.teller.listeners.append(lambda event, _: heard.append(event))
    before = Rung("as-asked", ("m",))
    after = with_fresh_caches(before, "/ours/1", {"HOME": "/home/me"}, known.dialects().of("0.32.0", None))
    reason = "the same rung with fresh caches: a fault"
    account.step(2, before, after, 4.0, reason, frozenset())
    head, *changes = loop.lines
    assert head == f"safe-vllm: attempt 2 starts in 4 s at as-asked again: {reason}"
    assert "safe-vllm:   + TRITON_CACHE_DIR=/ours/1/triton" in changes
    assert heard[0]["changes"] == [line.removeprefix("safe-vllm:   ") for line in changes]
    assert {f"+ {name}={value}" for name, value in after.environment} == set(heard[0]["changes"])
    account.step(3, after, after, 4.0, "the same rung once more", frozenset())
    assert heard[1]["changes"] == []


SECRET = "hunter2-hunter2"
HOLDER = Listener(
    4711, "VLLM::APIServer", ("vllm", "serve", "a model", "--api-key", SECRET, f"--note={SECRET}", "\x1b[2J")
)


PLACE = Endpoint("127.0.0.1", 8000)


def taken(by: Listener | None, place: Endpoint = PLACE) -> tuple[list[str], Any]:
    loop, heard = Timers(), cast("list[Any]", [])
    account = telling(loop)
    account.teller.listeners.append(lambda event, _: heard.append(event))
    account.port_taken(1, Rung("as-asked", ("m",)), place, by)
    return [line.removeprefix("safe-vllm: ") for line in loop.lines], heard[0]


def test_who_has_the_port_is_named_with_its_command_and_without_its_secrets() -> None:
    lines, event = taken(HOLDER)
    command = "vllm serve 'a model' --api-key '***' '--note=***' '?[2J'"
    assert lines[:2] == [
        "somebody already answers at 127.0.0.1:8000: VLLM::APIServer (4711); stop it, or give vLLM another --port",
        f"  its command: {command}",
    ]
    assert (event["holder"], event["command"]) == ("VLLM::APIServer (4711)", command)


def test_who_cannot_be_seen_is_not_named_and_a_long_command_is_cut() -> None:
    lines, event = taken(None, Endpoint("", 0, "/run/vllm.sock"))
    assert lines[0] == (
        "somebody already answers at /run/vllm.sock: a process that cannot be seen from here; "
        "stop it, or give vLLM another --uds"
    )
    assert (len(lines), event["holder"], event["command"]) == (2, None, None)
    lines, event = taken(Listener(5, "", ("x" * 5000,)))
    assert "process (5)" in lines[0] and len(lines[1]) < 330
    assert taken(Listener(5, "python3"))[1]["command"] is None


def test_advice_to_take_stacks_is_not_given_below_the_stacks_that_were_taken() -> None:
    prepared = prepare(Intent(("m",), machine=str(GB200)), changes_nothing=True)
    rung = prepared.plan.ladder.rungs[0]
    hang = judge(Observations(None, phase="capture", ended_by_us="no output for 1800 s"), known.advice())

    def left(*taken: Stack, stops: bool = False) -> Verdict:
        ended = Ended(Observations(None, stop_requested=stops), Tail(), stacks=StacksTaken(taken, 1))
        return advised(hang, ended, rung, command(rung, ("vllm",), {}), prepared)

    assert "py-spy dump" in " ".join(left().advice)
    assert left(Stack(7, "VLLM::Worker", "frames")).advice
    assert "py-spy" not in " ".join(left(Stack(7, "VLLM::Worker", "frames")).advice)
    assert left(stops=True) is hang
