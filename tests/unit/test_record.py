"""What is kept of a launch."""

from __future__ import annotations

import json
import os
import re
from datetime import datetime, timedelta, timezone
from pathlib import Path

from safe_vllm.record.events import EventLog, Origin


def test_events_are_appended_as_lines_and_readable_by_the_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "events"
    log = EventLog(str(path))
    log.write({"event": "ready", "name": "ü\n"})
    log.write({"event": "stopped"})
    assert [json.loads(line)["event"] for line in path.read_text().splitlines()] == ["ready", "stopped"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_an_event_file_that_cannot_be_written_is_a_complaint_and_no_more(tmp_path: Path) -> None:
    log = EventLog(str(tmp_path / "missing" / "events"))
    log.write({"event": "ready"})
    assert log.error is not None and "no such file" in log.error
    (tmp_path / "missing").mkdir()
    log.write({"event": "stopped"})
    assert log.error is None


def test_a_fifo_that_nobody_reads_does_not_stop_us(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    log = EventLog(str(path))
    log.write({"event": "ready"})
    assert log.error is not None


def test_a_full_disk_is_a_complaint_and_no_more() -> None:
    log = EventLog("/dev/full")
    log.write({"event": "ready"})
    assert log.error is not None and "no space left" in log.error


def test_an_event_that_found_only_a_part_of_its_room_is_told_and_does_not_swallow_the_next(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    log, came = EventLog(str(path)), b""
    for _ in range(6):  # more than a pipe holds
        log.write({"event": "long", "text": "x" * 12_000})
    assert log.error is not None and "part of an event" in log.error
    came += os.read(reader, 1 << 20)
    for name in ("next", "last"):
        log.write({"event": name})
        assert log.error is None
    came += os.read(reader, 1 << 20)
    os.close(reader)
    *_, torn, following, last, rest = came.split(b"\n")
    assert torn.startswith(b'{"event": "long"') and torn.endswith(b"x")
    assert [json.loads(line)["event"] for line in (following, last)] == ["next", "last"]
    assert rest == b""


def test_no_file_no_events() -> None:
    log = EventLog(None)
    log.write({"event": "ready"})
    assert log.error is None


def test_every_event_says_when_it_was_and_of_which_launch() -> None:
    stamp = Origin().stamp()
    assert stamp["v"] == 1
    assert stamp["launcher_pid"] == os.getpid()
    assert re.fullmatch(rf"{os.getpid()}-[0-9a-f]+", str(stamp["launch"]))
    time = str(stamp["time"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", time)
    when = datetime.fromisoformat(time.replace("Z", "+00:00"))
    assert abs(when - datetime.now(timezone.utc)) < timedelta(hours=1)


def test_the_events_of_one_launch_have_the_same_name_of_it() -> None:
    origin = Origin()
    assert origin.stamp()["launch"] == origin.stamp()["launch"]
