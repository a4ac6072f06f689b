"""What is kept, and what is kept out of it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from safe_vllm.record.events import EventLog
from safe_vllm.record.redaction import hide


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--api-key", "k1", "k2", "--port", "1"], ["--api-key", "***", "***", "--port", "1"]),
        (["--api-key=k1"], ["--api-key=***"]),
        (["--api_key", "k1"], ["--api_key", "***"]),
        (["--hf-token", "t"], ["--hf-token", "***"]),
        (["--max-num-batched-tokens", "8192"], ["--max-num-batched-tokens", "8192"]),
        (["--ssl-keyfile", "/etc/key.pem"], ["--ssl-keyfile", "/etc/key.pem"]),
        (["--x", "https://me:pass@host/y"], ["--x", "https://***@host/y"]),
        (["--x=https://me:pass@host/y"], ["--x=https://***@host/y"]),
    ],
)
def test_secrets_are_hidden_and_nothing_else(words: list[str], shown: list[str]) -> None:
    assert list(hide(words)) == shown


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
    assert log.error is not None and "No such file" in log.error
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
    assert log.error is not None and "No space left" in log.error


def test_no_file_no_events() -> None:
    log = EventLog(None)
    log.write({"event": "ready"})
    assert log.error is None
