"""Tells a service manager how the launch stands, by systemd's notify protocol.

https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from safe_vllm.announce.picture import Event, Picture

EXTEND_EVERY_S = 30.0
EXTEND_BY_S = 120.0
"""What is asked for each time; a launcher that stands still is given up this long after its last word."""
STATUS_LIMIT = 200
"""Characters of a status; ``systemctl status`` shows one line."""
_MICRO = 1_000_000
MORE_TIME = f"EXTEND_TIMEOUT_USEC={int(EXTEND_BY_S * _MICRO)}"

Listener = Callable[[Event, Picture], None]
CallIn = Callable[[float, Callable[[], None]], None]


@dataclass
class Systemd:
    """The service manager that started us, if one did."""

    address: str | None
    """Of its socket, ``@`` first where it is an abstract one; ``None``: nobody listens."""
    watchdog_s: float | None = None
    """Within which it wants to hear from our loop, again and again."""
    is_ready: bool = False
    """Whether it was told so; once is enough, and it cannot be taken back."""
    is_stopping: bool = False
    shown: str = ""

    def attend(self, call_in: CallIn, listeners: list[Listener]) -> None:
        """Begin to tell: at regular times, by the loop's own clock, so that one which stands still falls silent."""
        if self.address is None:
            return
        listeners.append(self.on_event)
        self._extend_again(call_in)
        if self.watchdog_s:
            self._pet(call_in, self.watchdog_s)

    def on_event(self, event: Event, picture: Picture) -> None:
        """Tell what has changed."""
        words: list[str] = []
        if event["event"] == "ready" and not self.is_ready:
            self.is_ready = True
            words.append("READY=1")
        if picture.state in ("stopping", "ended") and not self.is_stopping:
            self.is_stopping = True
            words += ["STOPPING=1", MORE_TIME]
        if (shown := status(picture)[:STATUS_LIMIT]) != self.shown:
            self.shown = shown
            words.append(f"STATUS={shown}")
        if words:
            self._send(*words)

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
        address = "\0" + self.address[1:] if self.address.startswith("@") else self.address
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as outside:
            outside.setblocking(False)  # a manager that does not read must not stop us
            outside.sendto("\n".join(words).encode(errors="surrogateescape"), address)


def manager(environment: Mapping[str, str]) -> Systemd:
    """Return the service manager that the environment names."""
    address = environment.get("NOTIFY_SOCKET") or None
    is_ours = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    limit = environment.get("WATCHDOG_USEC", "") if is_ours else ""
    watchdog_s = int(limit) / _MICRO if limit.isascii() and limit.isdigit() and int(limit) else None
    return Systemd(address if address and address[0] in "/@" else None, watchdog_s)


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
        last = picture.recent[-1].fault if picture.recent else "unknown"
        return f"attempt {picture.attempt} ended ({last}); next {rung}"
    if picture.state == "ready":
        return f"ready {rung}" + (f", degraded: {picture.degraded.reason}" if picture.degraded else "")
    return f"attempt {picture.attempt} starting {rung}, phase {picture.phase}"
