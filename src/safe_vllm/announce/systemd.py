"""Tells a service manager how the launch stands, by systemd's notify protocol.

https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from safe_vllm.announce.picture import Event, Picture
from safe_vllm.announce.teller import Listener
from safe_vllm.plan.command import OURS_ALONE

EXTEND_EVERY_S = 30.0
EXTEND_BY_S = 120.0
"""What is asked for each time; a launcher that stands still is given up this long after its last word."""
RETRY_S = 0.5
"""Until a manager that had no room for a message is told again: a READY that is lost would never be told again."""
UNCHECKED_AFTER_S = 1.0
"""From the spawn of a vLLM that nobody can ask until it counts as ready: what cannot be executed is over by then."""
LAST_WORD_WITHIN_S = 5.0
"""A manager that has no room for so long is not waited for any longer: who takes our place is to start."""
STATUS_LIMIT = 200
"""Characters of a status; ``systemctl status`` shows one line."""
_MICRO = 1_000_000
MORE_TIME = f"EXTEND_TIMEOUT_USEC={int(EXTEND_BY_S * _MICRO)}"

CallIn = Callable[[float, Callable[[], None]], None]


@dataclass
class Systemd:
    """The service manager that started us, if one did."""

    address: str | None
    """Of its socket, ``@`` first where it is an abstract one; ``None``: nobody listens."""
    watchdog_s: float | None = None
    """Within which it wants to hear from our loop, again and again."""
    can_be_checked: bool = True
    """Whether vLLM will have an address to ask; where it has none, it is ready as soon as it runs."""
    is_ready: bool = False
    """Whether it was told so; once is enough, and it cannot be taken back."""
    is_stopping: bool = False
    shown: str = ""
    picture: Picture = field(default_factory=Picture)
    unsent: tuple[str, ...] = ()
    """What the manager had no room for: it may be busy, or have stopped reading."""
    call_in: CallIn | None = None

    def attend(self, call_in: CallIn, listeners: list[Listener]) -> None:
        """Begin to tell: at regular times, by the loop's own clock, so that one which stands still falls silent."""
        if self.address is None:
            return
        self.call_in = call_in
        listeners.append(self.on_event)
        self._extend_again(call_in)
        if self.watchdog_s:
            self._pet(call_in, self.watchdog_s)

    def on_event(self, event: Event, picture: Picture) -> None:
        """Tell what has changed."""
        self.picture = picture
        words: list[str] = []
        if event["event"] == "ready" and not self.is_ready:
            self.is_ready = True
            words.append("READY=1")
        if event["event"] == "attempt-started" and not self.can_be_checked and not self.is_ready and self.call_in:
            self.call_in(UNCHECKED_AFTER_S, partial(self._on_running, picture.attempt))
        if picture.state in ("stopping", "ended") and not self.is_stopping:
            self.is_stopping = True
            words += ["STOPPING=1", MORE_TIME]
        words += self._news()
        if words:
            self._send(*words)

    def _on_running(self, attempt: int) -> None:
        """Tell that it is ready if the attempt still runs: more cannot be known of one that has no address."""
        if (self.picture.state, self.picture.attempt, self.is_ready) == ("starting", attempt, False):
            self.is_ready = True
            self._send("READY=1", *self._news())

    def _news(self) -> list[str]:
        """Return the status, if it is another one than before."""
        is_unchecked = self.is_ready and not self.can_be_checked and self.picture.state == "starting"
        text = unchecked(self.picture) if is_unchecked else status(self.picture)
        # a second line would be read as something else that we tell
        if (shown := " ".join(text.split())[:STATUS_LIMIT]) == self.shown:
            return []
        self.shown = shown
        return [f"STATUS={shown}"]

    def _extend_again(self, call_in: CallIn) -> None:
        """Ask for more time while vLLM starts or ends; how long that may take is for us to judge."""
        if not self.is_ready or self.is_stopping:
            self._send(MORE_TIME)
        call_in(EXTEND_EVERY_S, partial(self._extend_again, call_in))

    def _pet(self, call_in: CallIn, limit_s: float) -> None:
        self._send("WATCHDOG=1")
        call_in(limit_s / 3, partial(self._pet, call_in, limit_s))

    def _send(self, *words: str) -> None:
        if self.address is None:
            return
        is_waiting = bool(self.unsent)
        # of each name the last word counts: what waits does not pile up
        waiting = tuple({word.partition("=")[0]: word for word in (*self.unsent, *words)}.values())
        self.unsent = () if _was_taken(self.address, waiting) else waiting
        if self.unsent and not is_waiting and self.call_in:
            self.call_in(RETRY_S, self._send_again)

    def _send_again(self) -> None:
        words, self.unsent = self.unsent, ()
        if words:
            self._send(*words)


def _was_taken(address: str, words: tuple[str, ...], wait_s: float = 0.0) -> bool:
    """Send words to the manager; return whether that is over and done with, be it that nobody is there any more."""
    place = "\0" + address[1:] if address.startswith("@") else address
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as outside:
            outside.settimeout(wait_s)  # a manager that does not read must not stop us
            outside.connect(place)  # else nobody could wait for room
            outside.send("\n".join(words).encode(errors="replace"))
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def manager(environment: Mapping[str, str]) -> Systemd:
    """Return the service manager that the environment names."""
    address = environment.get("NOTIFY_SOCKET") or None
    is_ours = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    limit = environment.get("WATCHDOG_USEC", "") if is_ours else ""
    watchdog_s = int(limit) / _MICRO if limit.isascii() and limit.isdigit() and int(limit) else None
    return Systemd(address if address and address[0] in "/@" else None, watchdog_s)


def take_leave(environment: Mapping[str, str], last_word: str) -> dict[str, str]:
    """Tell the manager that it will hear nothing more from us; return the environment of who takes our place.

    Ready is all that it can still learn, and it need not wait for a sign of life.
    """
    if address := manager(environment).address:
        _was_taken(address, ("READY=1", f"STATUS={last_word}", "WATCHDOG_USEC=0"), LAST_WORD_WITHIN_S)
    return {name: value for name, value in environment.items() if name not in OURS_ALONE}


def unchecked(picture: Picture) -> str:
    """Return how a vLLM stands that runs and that nobody can ask whether it works, in one line."""
    below = f", degraded: {picture.degraded.reason}" if picture.degraded else ""
    return f"running at rung {picture.rung}, not checked: it has no address to ask{below}"


def status(picture: Picture) -> str:
    """Return how the launch stands, in one line."""
    rung = f"at rung {picture.rung}" if picture.rung else ""
    if picture.state == "ended":
        return f"ended with status {picture.status}: {picture.reason}"
    if picture.state == "stopping":
        return f"stopping, {rung}"
    if picture.state == "stepping-down":
        if picture.waits_for:
            return f"waiting for {picture.waits_for} before attempt {picture.attempt + 1} {rung}"
        if not picture.recent or picture.recent[-1].attempt != picture.attempt:
            return f"attempt {picture.attempt} hangs and is being ended, {rung}"
        return f"attempt {picture.attempt} ended ({picture.recent[-1].fault}); next {rung}"
    if picture.state == "ready":
        return f"ready {rung}" + (f", degraded: {picture.degraded.reason}" if picture.degraded else "")
    if not picture.attempt:
        return f"about to start {rung}"
    return f"attempt {picture.attempt} starting {rung}, phase {picture.phase}"
