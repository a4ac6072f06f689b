"""What happens to safe-vllm in a random act."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable

from chaos_act import Deed
from chaos_play import END_WITHIN_S, Played, facts_of

from leftovers import Process

MOMENT_WITHIN_S = 1.5
"""A moment that has not come by then is not waited for any longer."""
SERVES_FOR_S = 0.2
PATIENCE_S = 1.0
"""Then an operator asks again."""
STRANGER = b"\nwords of a stranger\n"


def play(played: Played) -> None:
    """Do the deeds of the act, let safe-vllm go on for a while, and see it end."""
    for deed in played.act.deeds:
        _wait_for_moment(played, deed)
        if played.status is None:
            played.done.append(f"{deed.what} {deed.which}".strip())
            DEEDS[deed.what](played, deed)
    played.wait(lambda: _serves(played), played.act.rest_s)
    played.wait(lambda: False, min(SERVES_FOR_S, played.act.rest_s))
    for _ in range(3):
        if played.status is None:
            played.ask_to_stop(signal.SIGTERM)
            played.wait(lambda: False, PATIENCE_S)
    played.wait(lambda: False, END_WITHIN_S)
    played.never_ended = played.status is None


def _serves(played: Played) -> bool:
    events = [event["event"] for event in played.run.events()]
    return "ready" in events and "attempt-ended" not in events[len(events) - events[::-1].index("ready") :]


def _wait_for_moment(played: Played, deed: Deed) -> None:
    if played.wait(lambda: played.has_come(deed), MOMENT_WITHIN_S) and deed.after_s:
        played.wait(lambda: False, deed.after_s)


def stop(played: Played, deed: Deed) -> None:
    """Send a stop signal to safe-vllm."""
    played.ask_to_stop(signal.Signals[deed.which])


def poke(played: Played, deed: Deed) -> None:
    """Send a signal that means nothing to safe-vllm once it handles it."""
    if played.run.events("launch-started") and not played.run.events("launch-ended"):
        played.run.signal(signal.Signals[deed.which])


def suspend(played: Played, deed: Deed) -> None:
    """Let it stand still for a moment."""
    played.run.signal(signal.Signals[deed.which])
    played.wait(lambda: False, 0.1)
    played.run.signal(signal.SIGCONT)


def kill(played: Played, deed: Deed) -> None:
    """End or stop one of the fake's processes, if it is there."""
    title, number = deed.which.rsplit(" ", 1)
    entries = played.run.attempts() if title == "leader" else played.run.entries("process")
    for entry in [entry for entry in entries if entry["title"] == title][-1:]:
        if Process(entry["pid"], entry["born"]).is_alive:
            _send(entry["pid"], signal.Signals[number])


def kill_launcher(played: Played, deed: Deed) -> None:
    """Do as the out-of-memory killer does."""
    played.is_killed = True
    played.run.signal(signal.SIGKILL)


def kill_guardian(played: Played, deed: Deed) -> None:
    """Kill who is to end the tree."""
    _to_guardian(played, signal.SIGKILL)


def stop_guardian(played: Played, deed: Deed) -> None:
    """Let who is to end the tree stand still."""
    _to_guardian(played, signal.SIGSTOP)


def _to_guardian(played: Played, number: signal.Signals) -> None:
    for entry in played.run.attempts()[-1:]:
        if facts_of(entry["parent"]).get("PPid") == str(played.run.process.pid):
            _send(entry["parent"], number)


def _send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:  # it has just ended
        pass


def hold_pipes(played: Played, deed: Deed) -> None:
    """Hold the leader's pipes, as a stranger who was handed them, and write to them."""
    for entry in played.run.attempts()[-1:]:
        for number in (1, 2):
            place = f"/proc/{entry['pid']}/fd/{number}"
            try:
                held = os.open(place, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
                os.write(held, STRANGER)
            except OSError:  # it has ended, or nobody reads quickly
                continue
            played.held.append(held)


def ask(played: Played, deed: Deed) -> None:
    """Send a request as a client, and do not wait for the answer."""
    if played.act.address == "port":
        client = socket.socket()
        client.settimeout(1)
        played.held.append(client)
        try:
            client.connect(("127.0.0.1", played.run.port))
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}")
        except OSError:
            pass


def take_port(played: Played, deed: Deed) -> None:
    """Take vLLM's port, if it is free, for a moment."""
    with socket.socket() as taken:
        try:
            taken.bind(("127.0.0.1", played.run.port))
        except OSError:
            return
        taken.listen()
        played.wait(lambda: False, 0.2)


def lose_reader(played: Played, deed: Deed) -> None:
    """Let a reader go away."""
    for reader in played.readers.values():
        reader.lose()


DEEDS: dict[str, Callable[[Played, Deed], None]] = {
    "stop": stop,
    "poke": poke,
    "suspend": suspend,
    "kill": kill,
    "kill-launcher": kill_launcher,
    "kill-guardian": kill_guardian,
    "stop-guardian": stop_guardian,
    "hold-pipes": hold_pipes,
    "ask": ask,
    "take-port": take_port,
    "lose-reader": lose_reader,
}
