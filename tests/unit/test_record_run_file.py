"""What a launch is doing now, as others read it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from safe_vllm.record.run_file import KEPT, RunFile, others_live, runs_in

LAUNCH = "import sys\nfrom pathlib import Path\nfrom safe_vllm.record.run_file import RunFile\n" + (
    "file = RunFile(Path(sys.argv[1]), '9-c')\nfile.write({'state': 'ready'})\nprint('up', flush=True)\ninput()\n"
)


def launch(number: int) -> str:
    return f"{number + 1}-19a8f3c{number:04x}"


def test_a_launch_that_lives_is_told_of_as_it_last_wrote(tmp_path: Path) -> None:
    file = RunFile(tmp_path, "7-a")
    assert file.write({"state": "starting"}) is None
    assert file.write({"state": "ready", "rung": "triton"}) is None
    (run,) = runs_in(tmp_path)
    assert run.is_alive
    assert run.facts == {"state": "ready", "rung": "triton"}


def test_a_launch_that_was_killed_is_told_of_as_over(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", LAUNCH, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    assert [run.is_alive for run in runs_in(tmp_path)] == [True]
    process.kill()
    process.communicate()
    (run,) = runs_in(tmp_path)
    assert not run.is_alive
    assert run.facts == {"state": "ready"}


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_another_user_may_read_it_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        RunFile(tmp_path / "state", "7-a").write({})
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "state").rglob("*")}
    assert modes == {"run": 0o755, "7-a.json": 0o644, "7-a.lock": 0o644}
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o711


def test_two_launches_do_not_hurt_each_other(tmp_path: Path) -> None:
    first, second = RunFile(tmp_path, "7-a"), RunFile(tmp_path, "8-b")
    first.write({"launch": "7-a"})
    second.write({"launch": "8-b"})
    first.tidy()
    second.tidy()
    assert {str(run.facts["launch"]) for run in runs_in(tmp_path)} == {"7-a", "8-b"}
    assert all(run.is_alive for run in runs_in(tmp_path))


def test_the_latest_launches_that_are_over_are_kept_and_older_ones_removed(tmp_path: Path) -> None:
    for number in range(KEPT + 3):
        file = RunFile(tmp_path, launch(number))
        file.write({"launch": number})
        os.utime(tmp_path / "run" / f"{launch(number)}.json", (number, number))
        os.close(file._lock)
    mine = RunFile(tmp_path, launch(99))
    mine.write({"launch": "mine"})
    mine.tidy()
    assert [run.facts["launch"] for run in runs_in(tmp_path)] == ["mine", *reversed(range(3, KEPT + 3))]
    assert len(list((tmp_path / "run").iterdir())) == 2 * (KEPT + 1)


@pytest.mark.parametrize("content", ["", "{", "[]", '"ready"', "[" * 100_000])
def test_a_damaged_file_is_told_of_and_hides_no_other(tmp_path: Path, content: str) -> None:
    RunFile(tmp_path, "7-a").write({"launch": "7-a"})
    (tmp_path / "run" / "8-b.json").write_text(content)
    found = {run.path.name: run for run in runs_in(tmp_path)}
    assert found["8-b.json"].problem
    assert found["8-b.json"].facts == {}
    assert found["7-a.json"].facts == {"launch": "7-a"}


def test_what_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    file = RunFile(tmp_path, "7-a")
    (tmp_path / "run" / "7-a.new").mkdir()
    assert "what runs now cannot be told" in str(file.write({"state": "ready"}))
    with pytest.raises(OSError, match="unavailable"):
        RunFile(tmp_path, "7-a")


def test_where_nothing_ever_ran_there_is_nothing(tmp_path: Path) -> None:
    assert runs_in(tmp_path) == ()


def test_what_has_another_name_than_ours_is_neither_told_of_nor_removed(tmp_path: Path) -> None:
    theirs = {f"app{number}" for number in range(9)} | {f"2026-{number}" for number in range(10, 13)}
    theirs |= {"20261130-120000", "7-19a8f3c0001", "notes"}
    (tmp_path / "run").mkdir()
    for name in theirs:
        (tmp_path / "run" / f"{name}.json").write_text("{}")
        if name != "7-19a8f3c0001":  # called as ours would be, but a launch has a lock
            (tmp_path / "run" / f"{name}.lock").touch()
    before = {path.name for path in (tmp_path / "run").iterdir()}
    for number in range(KEPT + 1):
        file = RunFile(tmp_path, launch(number))
        file.write({})
        os.close(file._lock)  # type: ignore[arg-type]
    mine = RunFile(tmp_path, launch(99))
    mine.write({})
    mine.tidy()
    assert before <= {path.name for path in (tmp_path / "run").iterdir()}
    assert not [run for run in runs_in(tmp_path) if run.path.name.startswith(("app", "notes"))]


@pytest.mark.parametrize("what", ["", "run", "run/7-a.lock"])
def test_what_was_removed_while_it_runs_is_made_again_with_its_lock(tmp_path: Path, what: str) -> None:
    state = tmp_path / "state"
    file = RunFile(state, "7-a")
    file.write({"state": "starting"})
    if (state / what).is_dir():
        shutil.rmtree(state / what)
    else:
        (state / what).unlink()
    assert file.write({"state": "ready"}) is None
    (run,) = runs_in(state)
    assert run.is_alive
    assert run.facts == {"state": "ready"}


def test_letters_that_no_encoding_has_can_be_read_again(tmp_path: Path) -> None:
    facts = {"model": os.fsdecode(b"m\xff"), "reason": "\ud800 \x1b →"}
    assert RunFile(tmp_path, "7-a").write(facts) is None
    assert [(run.facts, run.problem) for run in runs_in(tmp_path)] == [(facts, None)]


def test_what_lies_deeper_than_anything_of_ours_is_no_json_of_ours(tmp_path: Path) -> None:
    RunFile(tmp_path, "7-a").write({"launch": "7-a"})
    for depth in (40, 400, 900, 100_000):
        (tmp_path / "run" / "7-a.json").write_text('{"a": ' + "[" * depth + "]" * depth + "}")
        (run,) = runs_in(tmp_path)
        assert (run.facts, run.is_alive) == ({}, True)
        assert run.problem and "no JSON of ours" in run.problem


def test_another_launch_is_told_from_this_one(tmp_path: Path) -> None:
    assert not others_live(tmp_path, "7-a")
    mine = RunFile(tmp_path, "7-a")
    mine.write({})
    assert not others_live(tmp_path, "7-a")
    assert others_live(tmp_path, "8-b")
    os.close(mine._lock)  # type: ignore[arg-type]
    assert not others_live(tmp_path, "8-b")
