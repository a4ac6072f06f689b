"""`safe-vllm forget` as an operator types it: what it prints, and how it ends."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from launch import SAFE_VLLM

from safe_vllm.record.fingerprint import Fingerprint
from safe_vllm.record.memory import Memory

NOW, KEY = 1_800_000_000.0, "0123456789abcdef"


def forget(*words: str, options: tuple[str, ...] = (), state: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **({"SAFE_VLLM_STATE_DIR": str(state)} if state else {})}
    command = [SAFE_VLLM, *options, "forget", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)


def remember(directory: Path) -> None:
    mine = Memory(directory, Fingerprint(KEY, {"model": "m"}), 14.0)
    assert mine.note_broken("as-asked", "hang", "moe", "autotune", NOW) == ()


def test_what_is_remembered_is_dropped_and_the_second_time_there_is_nothing(tmp_path: Path) -> None:
    remember(tmp_path)
    run = forget(options=("--state-dir", str(tmp_path)))
    assert (run.returncode, run.stdout, run.stderr) == (0, f"forgot {KEY}: m: as-asked broke (once): hang\n", "")
    again = forget(state=tmp_path)
    assert (again.returncode, again.stdout, again.stderr) == (0, f"nothing is remembered in {tmp_path}\n", "")


def test_programs_get_one_object(tmp_path: Path) -> None:
    remember(tmp_path)
    run = forget(KEY[:5], options=("--output", "json"), state=tmp_path)
    assert [each["fingerprint"] for each in json.loads(run.stdout)["dropped"]] == [KEY]


def test_an_unknown_fingerprint_ends_with_2_and_drops_nothing(tmp_path: Path) -> None:
    remember(tmp_path)
    run = forget("fedc", state=tmp_path)
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith("safe-vllm: nothing is remembered under 'fedc'")
    assert forget(state=tmp_path).stdout.startswith(f"forgot {KEY}")


def test_what_cannot_be_dropped_ends_with_78_and_says_why(tmp_path: Path) -> None:
    remember(tmp_path)
    lock = tmp_path / "remembered" / ".lock"
    lock.unlink()
    lock.mkdir()
    run = forget(state=tmp_path)
    assert run.returncode == 78
    assert f"{KEY}.json: cannot be dropped: is a directory" in run.stderr
