"""What a service manager is told, over a real socket."""

from __future__ import annotations

import os
import re
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from doc_tables import rows

from safe_vllm.announce.picture import Picture
from safe_vllm.announce.systemd import EXTEND_EVERY_S, MORE_TIME, UNCHECKED_AFTER_S, Systemd, manager, take_leave
from waiting import wait_for

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

    def begin(self, **more: str) -> Systemd:
        """Begin a launch that this manager started, and return its side of it."""
        self.listeners: list[Any] = []
        found = manager({"NOTIFY_SOCKET": self.address, **more})
        found.attend(lambda seconds, callback: self.timers.append((seconds, callback)), self.listeners)
        return found

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


def without_an_address(listening: Manager) -> None:
    """Begin the first attempt of a member that nobody can ask, and hear what is told of it."""
    listening.begin().can_be_checked = False
    listening.happen("launch-started", **STARTED)
    listening.happen("attempt-started")
    assert "READY=1" not in listening.heard()


UNCHECKED = "not checked: it has no address to ask"


def test_what_nobody_can_ask_is_ready_once_it_runs_and_is_said_to_be_unchecked(listening: Manager) -> None:
    without_an_address(listening)
    assert UNCHECKED_AFTER_S in [seconds for seconds, _ in listening.timers]
    listening.pass_time()
    heard = listening.heard()
    assert [word for word in heard if word != MORE_TIME] == ["READY=1", f"STATUS=running at rung as-asked, {UNCHECKED}"]
    listening.happen("phase", phase="autotune")
    assert listening.heard() == []
    listening.happen("attempt-ended", fault="illegal-memory-access")
    listening.happen("step", rung="triton", reason="a fault")
    listening.happen("attempt-started", attempt=2, rung="triton")
    heard = listening.heard()
    assert heard[-1] == f"STATUS=running at rung triton, {UNCHECKED}, degraded: a fault"
    listening.pass_time()
    assert "READY=1" not in listening.heard()


@pytest.mark.parametrize("then", ["attempt-ended", "stop-asked", "launch-ended"])
def test_what_ended_or_is_stopped_before_it_was_seen_to_run_is_not_ready(listening: Manager, then: str) -> None:
    without_an_address(listening)
    listening.happen(then, fault="unknown", status=70, reason="x")
    listening.pass_time()
    assert "READY=1" not in listening.heard()


def test_what_was_spawned_just_now_is_not_ready_because_the_attempt_before_it_would_be(listening: Manager) -> None:
    without_an_address(listening)
    listening.happen("attempt-ended", fault="unknown")
    (first, later) = (listening.timers, [])
    listening.timers = later
    listening.happen("attempt-started", attempt=2)
    for _, callback in first:
        callback()
    assert "READY=1" not in listening.heard()
    listening.pass_time()
    assert "READY=1" in listening.heard()


def test_who_takes_our_place_is_ready_has_no_watchdog_and_does_not_know_of_the_manager(listening: Manager) -> None:
    given = {"PATH": "/bin", "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1", "LISTEN_FDS": "0", "LISTEN_PID": "1"}
    assert take_leave({**given, "NOTIFY_SOCKET": listening.address}, "plain") == {"PATH": "/bin"}
    assert listening.heard() == ["READY=1", "STATUS=plain", "WATCHDOG_USEC=0"]


def test_a_manager_that_is_busy_hears_the_last_word_when_it_has_room(listening: Manager) -> None:
    other = Systemd(listening.address)
    while not other.unsent:
        other._send("STATUS=x")
    leaving = threading.Thread(target=take_leave, args=({"NOTIFY_SOCKET": listening.address}, "plain"))
    leaving.start()
    leaving.join(0.2)
    assert leaving.is_alive()
    wait_for("the last word", lambda: "READY=1" in listening.heard())
    leaving.join()


def test_before_the_first_attempt_nothing_is_said_of_an_attempt(listening: Manager) -> None:
    listening.begin()
    listening.happen("launch-started", **STARTED)
    assert listening.heard()[-1] == "STATUS=about to start at rung as-asked"


def test_the_page_has_every_status(listening: Manager) -> None:
    """Each row of the table begins as what is told here does, and nothing else is told."""
    listening.begin().can_be_checked = False
    listening.happen("launch-started", **STARTED)
    listening.happen("attempt-started")
    listening.happen("phase", phase="autotune")
    listening.pass_time()
    listening.happen("ready", after_s=3.0)
    listening.happen("hang")
    listening.happen("attempt-ended", fault="illegal-memory-access")
    listening.happen("step", rung="triton", reason="a fault")
    listening.happen("gate", gate="gpu-memory", outcome="waiting", waited_s=0.0)
    listening.happen("ready", after_s=3.0, attempt=2, rung="triton")
    listening.happen("stop-asked")
    listening.happen("launch-ended", status=70, reason="no rung is left")
    told = [word.removeprefix("STATUS=") for word in listening.heard() if word.startswith("STATUS=")]
    shapes = [re.sub(r"`|…", "", row[0]) for row in rows("systemd.md", "it says")]
    assert {shape(line) for line in told} == {shape(line) for line in shapes}


def shape(line: str) -> str:
    """Return a status without what differs between launches."""
    line = re.sub(r"(degraded: |status \d+: ).*", r"\1", line)
    return re.sub(r"(rung|phase) [\w-]+|attempt \d+|\([\w-]+\)", lambda found: found[0].split()[0][:4], line)


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
