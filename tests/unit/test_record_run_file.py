"""What a launch is doing now, as others read it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from safe_vllm.record.run_file import KEPT, RunFile, runs_in

LAUNCH = "import sys\nfrom pathlib import Path\nfrom safe_vllm.record.run_file import RunFile\n" + (
    "file = RunFile(Path(sys.argv[1]), 'other')\nfile.write({'state': 'ready'})\nprint('up', flush=True)\ninput()\n"
)


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


def test_another_user_may_read_it(tmp_path: Path) -> None:
    before = os.umask(0o022)
    RunFile(tmp_path, "7-a").write({})
    os.umask(before)
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "run" / "7-a.json").stat().st_mode & 0o777 == 0o644


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
        file = RunFile(tmp_path, f"{number}-a")
        file.write({"launch": number})
        os.utime(tmp_path / "run" / f"{number}-a.json", (number, number))
        os.close(file._lock)
    mine = RunFile(tmp_path, "mine")
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
