"""What a service manager is told, over a real socket."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from safe_vllm.announce.picture import Picture
from safe_vllm.announce.systemd import EXTEND_EVERY_S, MORE_TIME, Systemd, manager

STARTED: dict[str, Any] = {
    "launch": "7-a",
    "launcher_pid": 7,
    "profile": "b200",
    "ladder": ["as-asked", "triton"],
    "entry": "as-asked",
    "versions": {},
}


class Manager:
    """A socket that somebody listens at, and the timers that were set."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self.socket.setblocking(False)
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.picture = Picture()

    def heard(self) -> list[str]:
        """Return every word so far."""
        words = []
        while True:
            try:
                words += self.socket.recv(65536).decode().split("\n")
            except BlockingIOError:
                return words

    def begin(self, **more: str) -> list[Any]:
        """Return the listeners of a launch that this manager started."""
        listeners: list[Any] = []
        environment = {"NOTIFY_SOCKET": self.address, **more}
        manager(environment).attend(lambda seconds, callback: self.timers.append((seconds, callback)), listeners)
        self.listeners = listeners
        return listeners

    def happen(self, name: str, **fields: Any) -> None:
        event = {"event": name, "time": "t", "attempt": 1, "rung": "as-asked", **fields}
        self.picture = self.picture.after(event)
        for listener in self.listeners:
            listener(event, self.picture)

    def pass_time(self) -> None:
        """Let every timer come once."""
        due, self.timers = self.timers, []
        for _, callback in due:
            callback()


@pytest.fixture(params=["file", "abstract"])
def listening(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    address = str(tmp_path / "notify") if request.param == "file" else f"@safe-vllm-test-{os.getpid()}"
    found = Manager(address)
    yield found
    found.socket.close()


def test_ready_is_told_once_however_often_a_server_comes_up(listening: Manager) -> None:
    listening.begin()
    listening.happen("launch-started", **STARTED)
    listening.happen("attempt-started")
    assert "READY=1" not in listening.heard()
    listening.happen("ready", after_s=3.0)
    assert listening.heard() == ["READY=1", "STATUS=ready at rung as-asked"]
    listening.happen("attempt-ended", fault="hang")
    listening.happen("step", rung="triton", reason="a hang")
    listening.happen("attempt-started", attempt=2, rung="triton")
    listening.happen("ready", after_s=3.0, attempt=2, rung="triton")
    heard = listening.heard()
    assert "READY=1" not in heard
    assert heard[0] == "STATUS=attempt 1 ended (hang); next at rung as-asked"
    assert heard[-1] == "STATUS=ready at rung triton, degraded: a hang"


def test_more_time_is_asked_for_again_and_again_until_it_is_ready_and_when_it_stops(listening: Manager) -> None:
    listening.begin()
    assert listening.heard() == [MORE_TIME]
    assert [seconds for seconds, _ in listening.timers] == [EXTEND_EVERY_S]
    listening.pass_time()
    assert listening.heard() == [MORE_TIME]
    listening.happen("ready", after_s=3.0)
    listening.heard()
    listening.pass_time()
    assert listening.heard() == []
    listening.happen("stop-asked")
    assert listening.heard()[:2] == ["STOPPING=1", MORE_TIME]
    listening.pass_time()
    assert listening.heard() == [MORE_TIME]


def test_the_watchdog_hears_of_us_three_times_within_its_limit(listening: Manager) -> None:
    listening.begin(WATCHDOG_USEC="3000000", WATCHDOG_PID=str(os.getpid()))
    assert "WATCHDOG=1" in listening.heard()
    assert 1.0 in [seconds for seconds, _ in listening.timers]
    listening.pass_time()
    assert "WATCHDOG=1" in listening.heard()


@pytest.mark.parametrize("more", [{"WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "soon"}, {}])
def test_a_watchdog_of_somebody_elses_or_none_hears_nothing(listening: Manager, more: dict[str, str]) -> None:
    listening.begin(**{"WATCHDOG_USEC": "3000000", **more} if more else {})
    assert listening.heard() == [MORE_TIME]


def test_a_manager_that_does_not_read_or_went_away_stops_nobody(tmp_path: Path) -> None:
    Systemd(str(tmp_path / "nobody"))._send("READY=1")
    full = Manager(str(tmp_path / "full"))
    for _ in range(5000):
        Systemd(full.address)._send("STATUS=" + "x" * 1000)
    full.socket.close()


def test_a_manager_that_had_no_room_is_told_again_what_counts_by_then(listening: Manager) -> None:
    listening.begin()
    other = Systemd(listening.address)
    while not other.unsent:  # others speak to it too, and it has room for so many messages
        other._send("STATUS=x")
    timers = len(listening.timers)
    listening.happen("launch-started", **STARTED)
    listening.happen("attempt-started")
    listening.happen("ready", after_s=3.0)
    listening.happen("attempt-ended", fault="hang")
    assert len(listening.timers) == timers + 1
    assert set(listening.heard()) == {MORE_TIME, "STATUS=x"}
    listening.pass_time()
    heard = listening.heard()
    assert "READY=1" in heard
    assert [word for word in heard if word.startswith("STATUS=")] == [
        "STATUS=attempt 1 ended (hang); next at rung as-asked"
    ]
    listening.pass_time()
    assert listening.heard() == []


def test_a_reason_is_one_line_of_text_whatever_is_in_it(listening: Manager) -> None:
    listening.begin()
    listening.heard()
    listening.happen("launch-ended", status=70, reason="it said\nREADY=1\x85\udcff")
    assert [word for word in listening.heard() if "ended" in word] == ["STATUS=ended with status 70: it said READY=1 ?"]


@pytest.mark.parametrize("address", ["", "relative", "vsock:2:1"])
def test_an_address_that_is_none_of_a_socket_of_ours_is_not_used(address: str) -> None:
    assert manager({"NOTIFY_SOCKET": address}).address is None
    assert manager({}).address is None


def test_what_it_waits_for_and_how_it_ended_are_told(listening: Manager) -> None:
    listening.begin()
    listening.happen("launch-started", **STARTED)
    listening.happen("attempt-ended", fault="gpu-oom")
    listening.happen("gate", gate="gpu-memory", outcome="waiting", waited_s=0.0)
    listening.happen("launch-ended", status=70, reason="no rung is left")
    heard = listening.heard()
    assert "STATUS=waiting for gpu-memory before attempt 1 at rung as-asked" in heard
    assert heard[-1] == "STATUS=ended with status 70: no rung is left"
