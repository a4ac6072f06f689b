"""What becomes of ``plan`` and its like when their output cannot be written."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from launch import SAFE_VLLM

MACHINE = str(Path(__file__).parents[1] / "golden/machines/b200-8.json")
COMMANDS = [
    ["--machine", MACHINE, "plan", "org/model"],
    ["--machine", MACHINE, "--output", "json", "plan", "org/model"],
    ["--machine", MACHINE, "doctor"],
    ["profiles", "show", "b200"],
    ["--help"],
    ["--version"],
]
FULL = "safe-vllm: standard output cannot be written: no space left on device; make room, or write elsewhere\n"


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_full_device_is_told_in_one_line(words: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        run = subprocess.run([SAFE_VLLM, *words], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (run.returncode, run.stderr) == (1, FULL)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_reader_that_went_away_is_told_nothing(words: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    run = subprocess.run([SAFE_VLLM, *words], stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(writer)
    assert (run.returncode, run.stderr) == (1, "")


def test_where_nothing_can_be_written_only_the_status_tells() -> None:
    with Path("/dev/full").open("wb") as full:
        run = subprocess.run([SAFE_VLLM, *COMMANDS[0]], stdout=full, stderr=full, timeout=60)
        missing = subprocess.run([SAFE_VLLM, "--machine", "/none.json", "plan", "m"], stderr=full, timeout=60)
    assert (run.returncode, missing.returncode) == (1, 2)


def test_an_absurd_record_is_told_with_its_place(tmp_path: Path) -> None:
    record = tmp_path / "f.json"
    record.write_text('{"architecture": "x86_64", "gpus": [{"name": "a", "memory_mib": 1' + "0" * 400 + "}]}")
    run = subprocess.run([SAFE_VLLM, "--machine", record, "plan", "m"], capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout) == (2, "")
    assert "gpus[0].memory_mib: expected a number of MiB" in run.stderr
