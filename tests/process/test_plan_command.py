"""What `safe-vllm plan` says of the state directory is what a launch would say, and it makes nothing there."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from gpus import IN_A_NAMESPACE
from launch import Launch, Stage
from scenes import argparse_error

READ_ONLY = (*IN_A_NAMESPACE, 'mount -t tmpfs -o ro tmpfs "$0"; exec "$@"')


def problems(stage: Stage, name: str, place: Path, prefix: tuple[str, ...] = ()) -> list[str]:
    """Return the lines on a place that a plan and then a launch say, which are the same."""
    environment = {"XDG_STATE_HOME": str(place)} if name == "XDG_STATE_HOME" else {}
    options = () if environment else ("--state-dir", str(place))
    planned = stage.start(subcommand=("plan",), options=options, environment=environment, prefix=prefix)
    assert planned.finish() == 0
    launched = stage.start(argparse_error(), options=options, environment=environment, prefix=prefix)
    assert launched.finish() == 2
    said = [line.removeprefix("problem: ") for line in _text(planned).splitlines() if line.startswith("problem: ")]
    first = [line.removeprefix("safe-vllm: ") for line in launched.ours().splitlines() if str(place) in line]
    assert said == first[:1]
    return said


def _text(run: Launch) -> str:
    return run.stdout().decode()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_state_directory_of_another_user_is_told_of(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "xdg" / "safe-vllm").mkdir(parents=True)
    os.chown(tmp_path / "xdg" / "safe-vllm", 65534, -1)
    (said,) = problems(stage, "XDG_STATE_HOME", tmp_path / "xdg")
    assert said.startswith(f"{tmp_path}/xdg/safe-vllm: it belongs to another user (65534), so nothing is remembered; ")


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        (".", "cannot be written, so nothing new is remembered; give another --state-dir"),
        ("not/yet", "cannot be made: read-only file system; nothing is remembered, give another --state-dir"),
    ],
)
def test_a_state_directory_that_cannot_be_written_is_told_of(
    stage: Stage, tmp_path: Path, name: str, complaint: str
) -> None:
    (tmp_path / "state").mkdir()
    prefix = (*READ_ONLY, str(tmp_path / "state"))
    if subprocess.run([*prefix, "/bin/true"], capture_output=True, timeout=30).returncode:
        pytest.skip("no mount namespaces here")
    place = tmp_path / "state" / name
    assert problems(stage, "--state-dir", place, prefix) == [f"{place}: {complaint}"]


@pytest.mark.parametrize(("name", "reason"), [("file", "file exists"), ("file/state", "not a directory")])
def test_a_state_directory_where_a_file_is_is_told_of(stage: Stage, tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "file").touch()
    complaint = f"{tmp_path / name}: cannot be made: {reason}; nothing is remembered, give another --state-dir"
    assert problems(stage, "--state-dir", tmp_path / name) == [complaint]


def test_of_a_directory_that_can_be_made_nothing_is_said_and_none_is_made(stage: Stage, tmp_path: Path) -> None:
    place = tmp_path / "not" / "yet"
    planned = stage.start(subcommand=("plan",), options=("--state-dir", str(place)))
    assert planned.finish() == 0
    assert "problem: " not in _text(planned)
    assert not place.parent.exists()
