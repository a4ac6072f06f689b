"""P18: two launchers on one state directory do not hurt each other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from launch import DEADLINE_S

from safe_vllm.record import files
from safe_vllm.record.fingerprint import Fingerprint
from safe_vllm.record.memory import Memory

NOTES = 200
KEYS = ("0123456789abcdef", "fedcba9876543210")
LAUNCHER = """
import sys
from pathlib import Path
from safe_vllm.record.fingerprint import Fingerprint
from safe_vllm.record.memory import Memory

place, key, rung, notes = sys.argv[1:]
mine = Memory(Path(place), Fingerprint(key, {}), 14.0)
print("ready", flush=True)
sys.stdin.readline()
for number in range(int(notes)):
    problems = mine.note_broken(rung, "hang", "moe", "serving", 1.0e9 + number)
    assert not problems, problems
    assert rung in {mark.rung for mark in mine.recall(1.0e9 + number).remembered.broken}
"""


@pytest.mark.parametrize("keys", [(KEYS[0], KEYS[0]), KEYS], ids=["one fingerprint", "two fingerprints"])
def test_of_two_launchers_that_write_at_once_no_note_is_lost(tmp_path: Path, keys: tuple[str, str]) -> None:
    rungs = ("as-asked", "triton")
    launchers = [_start(tmp_path, key, rung) for key, rung in zip(keys, rungs, strict=True)]
    for launcher in launchers:
        assert launcher.stdout and launcher.stdout.readline() == "ready\n"
    for launcher in launchers:
        assert launcher.stdin
        launcher.stdin.write("go\n")
        launcher.stdin.flush()
    complaints = [launcher.communicate(timeout=DEADLINE_S)[1] for launcher in launchers]
    assert complaints == ["", ""]
    assert [launcher.returncode for launcher in launchers] == [0, 0]
    for key, rung in zip(keys, rungs, strict=True):
        found = Memory(tmp_path, Fingerprint(key, {}), 14.0).recall(1.0e9 + NOTES)
        assert found.problems == ()
        assert [mark.times for mark in found.remembered.broken if mark.rung == rung] == [NOTES]
    names = {path.name for path in (tmp_path / "remembered").iterdir()}
    assert names == {files.LOCK, *(f"{key}.json" for key in keys)}


def _start(place: Path, key: str, rung: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", LAUNCHER, str(place), key, rung, str(NOTES)]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
