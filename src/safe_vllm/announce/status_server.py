"""Tells over HTTP how the launch stands: to probes, to people and to Prometheus. Off unless it is asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from safe_vllm.announce import status_pages
from safe_vllm.announce.picture import Event, Picture
from safe_vllm.announce.status_http import HttpServer
from safe_vllm.announce.status_pages import Page, Pages
from safe_vllm.announce.systemd import CallIn
from safe_vllm.announce.teller import Listener
from safe_vllm.errors import reason_of
from safe_vllm.plan.status_address import OPTION, Address

BEAT_EVERY_S = 1.0
STALE_AFTER_S = 15.0
"""A loop that has not turned for so long stands still. Nothing that it does takes that long."""
SECOND_LOOK_S = 2.0
"""After a suspension the last heartbeat is old, and the next one about to come: so long it is waited for."""
LOOK_EVERY_S = 0.05
PATIENCE_S = 5.0
"""For a request, and again for its answer."""
OPEN_EVERY_S = 10.0
"""An address that is taken may be free again: by the launch before this one, for example."""

Relayed = Callable[[], Mapping[str, int]]
"""Returns how many bytes were passed on, by stream. Any thread may call it."""


@dataclass
class StatusServer:
    """The loop only sets what the server's threads read: it never waits for one of them."""

    address: Address
    relayed: Relayed | None = None
    patience_s: float = PATIENCE_S
    stale_after_s: float = STALE_AFTER_S
    second_look_s: float = SECOND_LOOK_S
    open_every_s: float = OPEN_EVERY_S
    picture: Picture = field(default_factory=Picture)
    beaten_at: float = field(default_factory=time.monotonic)
    """When the loop last turned."""
    _http: HttpServer | None = None
    _open_at: float = 0.0
    """When it is tried, again, to listen."""

    def attend(self, call_in: CallIn, listeners: list[Listener]) -> tuple[str, ...]:
        """Begin to listen and to answer; return why that cannot be. It is tried again then, and nothing is stopped."""
        listeners.append(self.on_event)
        problem = self._open()
        self._beat(call_in)
        if problem is None:
            return ()
        rest = f"the launch goes on without it; free the address, or choose another {OPTION}"
        return (f"no status server at {self.address}: {problem}; {rest}",)

    def on_event(self, event: Event, picture: Picture) -> None:
        """Take in how the launch stands now."""
        self.picture = picture

    def close(self) -> None:
        """Let the port go."""
        self._open_at = float("inf")
        if self._http:
            self._http.close()
            self._http = None

    @property
    def port(self) -> int | None:
        """Where it listens; ``None``: it does not."""
        return int(self._http.server_address[1]) if self._http else None

    def _beat(self, call_in: CallIn) -> None:
        self.beaten_at = time.monotonic()
        if self._http is None and self.beaten_at >= self._open_at:
            self._open()
        call_in(BEAT_EVERY_S, partial(self._beat, call_in))

    def _open(self) -> str | None:
        self._open_at = time.monotonic() + self.open_every_s
        try:
            self._http = HttpServer(self.address, self._pages(), self.patience_s)
        except OSError as error:
            return reason_of(error)
        except RuntimeError:
            return "no thread can be started"
        return None

    def _pages(self) -> Pages:
        return {
            "/livez": self._livez,
            "/readyz": lambda: status_pages.readyz(self.picture),
            "/status": lambda: status_pages.status_json(self.picture),
            "/metrics": self._metrics,
        }

    def _livez(self) -> Page:
        until = time.monotonic() + self.second_look_s
        while not (is_turning := self._age_s() <= self.stale_after_s) and time.monotonic() < until:
            time.sleep(LOOK_EVERY_S)
        return status_pages.livez(is_turning=is_turning, age_s=self._age_s())

    def _metrics(self) -> Page:
        return status_pages.metrics_text(self.picture, self._age_s(), self.relayed and self.relayed())

    def _age_s(self) -> float:
        return max(0.0, time.monotonic() - self.beaten_at)
