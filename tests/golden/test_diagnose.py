"""``safe-vllm diagnose``: the verdict does not depend on what stored the log."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from safe_vllm import diagnosis

Diagnosed = Callable[..., dict[str, Any]]
SAFE_VLLM = Path(sys.executable).with_name("safe-vllm")
HERE = Path(__file__).parent
TIME = "2026-06-11T17:03:35.123456789"
LOGS = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted((HERE / "corpus").glob("a-0*.json"))[:6]}


def lines(text: str) -> list[str]:
    return text.rstrip("\n").split("\n")


def each(form: Callable[[str], str]) -> Callable[[str], bytes]:
    return lambda text: "".join(form(line) + "\n" for line in lines(text)).encode()


def in_pieces(text: str) -> bytes:
    """Store long lines as a container runtime does: in pieces, all but the last marked as partial."""
    stored = []
    for line in lines(text):
        pieces = [line[at : at + 40] for at in range(0, len(line), 40)] or [""]
        stored += [f"{TIME}Z stderr P {piece}" for piece in pieces[:-1]] + [f"{TIME}Z stderr F {pieces[-1]}"]
    return "\n".join(stored).encode()


WRAPPINGS: dict[str, Callable[[str], bytes]] = {
    "gzip": lambda text: gzip.compress(text.encode()),
    "docker-json-file": each(lambda line: json.dumps({"log": f"{line}\n", "stream": "stderr", "time": f"{TIME}Z"})),
    "docker-compose": each(lambda line: f"vllm-1  | {line}"),
    "cri": each(lambda line: f"{TIME}Z stdout F {line}"),
    "cri-in-pieces": in_pieces,
    "kubectl-timestamps": each(lambda line: f"{TIME}Z {line}"),
    "journal-short": each(lambda line: f"Jun 11 17:03:35 gpu-7 safe-vllm[4711]: {line}"),
    "journal-json": each(lambda line: json.dumps({"_PID": "4711", "MESSAGE": line, "PRIORITY": "6"})),
    "journal-json-bytes": each(lambda line: json.dumps({"MESSAGE": list(line.encode()), "PRIORITY": "6"})),
    "carriage-returns": lambda text: text.replace("\n", "\r\n").encode(),
    "colours": each(lambda line: line.replace("ERROR", "\x1b[31mERROR\x1b[0m").replace("(Worker", "\x1b[0;36m(Worker")),
}


@pytest.fixture
def diagnosed(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Return what is told of a log, as programs get it."""

    def of(log: bytes, exit_status: int | None = None) -> dict[str, Any]:
        path = tmp_path / "vllm.log"
        path.write_bytes(log)
        told = diagnosis.told(*diagnosis.of(str(path), exit_status, lambda count: None), "json")
        found: dict[str, Any] = json.loads(told)
        return found

    return of


@pytest.mark.parametrize("wrapping", WRAPPINGS)
@pytest.mark.parametrize("name", LOGS)
def test_the_verdict_does_not_depend_on_what_stored_the_log(name: str, wrapping: str, diagnosed: Diagnosed) -> None:
    case = LOGS[name]
    plain = diagnosed(case["transcript"].encode(), case["exit"])
    wrapped = diagnosed(WRAPPINGS[wrapping](case["transcript"]), case["exit"])
    keys = ("fault", "action", "phase", "suspect", "backend", "exit_status")
    assert {key: wrapped[key] for key in keys} == {key: plain[key] for key in keys}
    assert plain["fault"] == case["expect"]["class"]


def test_an_object_has_every_key(diagnosed: Diagnosed) -> None:
    keys = "fault action phase suspect backend reason evidence advice exit_status links"
    assert sorted(diagnosed(b"hello\n")) == sorted(keys.split())


def test_a_board_fault_in_a_whole_kernel_log_is_found(diagnosed: Diagnosed) -> None:
    log = "".join(f"[{at:5}.000001] usb 1-1: new device number {at}\n" for at in range(500))
    log += "[  612.345678] NVRM: Xid (PCI:0000:4e:00): 79, pid='<unknown>', GPU has fallen off the bus.\n"
    assert diagnosed(log.encode())["fault"] == "board"


def test_what_cannot_be_judged_is_said_to_be_unknown(diagnosed: Diagnosed) -> None:
    found = diagnosed(b"hello\nworld\n", 1)
    assert (found["fault"], found["action"]) == ("unknown", "retry-safer")


def test_standard_input_is_read_when_no_file_is_named() -> None:
    log = LOGS["a-003"]["transcript"].encode()
    command = [SAFE_VLLM, "--output", "json", "diagnose", "--exit-status", "1"]
    answer = subprocess.run(command, input=log, capture_output=True, check=True, timeout=60)
    assert json.loads(answer.stdout)["fault"] == "illegal-memory-access"


def test_people_are_told_the_line_and_what_to_change(tmp_path: Path) -> None:
    case = LOGS["a-003"]
    path = tmp_path / "vllm.log"
    path.write_text(case["transcript"])
    answer = subprocess.run([SAFE_VLLM, "diagnose", path], capture_output=True, check=True, timeout=60, text=True)
    assert "illegal memory access" in answer.stdout
    assert "--no-enable-flashinfer-autotune" in answer.stdout
    assert answer.stderr == ""


@pytest.mark.parametrize("name", ["missing.log", "."])
def test_a_log_that_cannot_be_read_is_a_clear_error(name: str, tmp_path: Path) -> None:
    command = [SAFE_VLLM, "diagnose", tmp_path / name]
    answer = subprocess.run(command, capture_output=True, check=False, timeout=60, text=True)
    assert answer.returncode == 2
    assert "cannot be read" in answer.stderr


def test_a_damaged_archive_is_a_clear_error() -> None:
    answer = subprocess.run([SAFE_VLLM, "diagnose"], input=gzip.compress(b"hello" * 9999)[:40], capture_output=True)
    assert answer.returncode == 2
    assert b"cannot be read" in answer.stderr
