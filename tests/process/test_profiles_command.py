"""`safe-vllm profiles` as an operator types it: what it prints, and how it ends."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from launch import SAFE_VLLM


def profiles(*words: str | Path, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run the command where there is no vLLM."""
    command = [SAFE_VLLM, "--vllm", "no-such-vllm-command", *options, "profiles", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_the_list_marks_the_profile_for_this_machine() -> None:
    run = profiles("list")
    assert (run.returncode, run.stderr) == (0, "")
    assert [line[0] for line in run.stdout.splitlines()].count("*") == 2  # the profile, and why
    told = json.loads(profiles("list", options=("--output", "json")).stdout)
    assert f"* {told['fits']} " in run.stdout


def test_what_is_shown_is_a_sound_profile(tmp_path: Path) -> None:
    run = profiles("show", "gb300")
    assert (run.returncode, run.stderr) == (0, "")
    path = tmp_path / "gb300.yaml"
    path.write_text(run.stdout)
    assert (profiles("check", path).returncode, profiles("check", path).stdout) == (0, f"{path}: sound\n")


def test_a_profile_with_mistakes_ends_with_78_and_names_them_all(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("name: mine\nextends: gb200\nfit: {}\nlimits:\n  sms: many\n")
    run = profiles("check", path)
    assert (run.returncode, run.stderr) == (78, "")
    assert run.stdout.splitlines() == [
        f"{path}:3: fit: unknown key, did you mean 'fits'?",
        f"{path}:5: limits.sms: expected a whole number, got 'many'",
    ]
    assert profiles("check", options=("--profile-dir", str(tmp_path))).returncode == 78
    assert profiles("check").returncode == 0


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("show", "gb20"), 2, "safe-vllm: no profile is called 'gb20'; there are: b200, "),
        (("show", "/nowhere/x.yaml"), 2, "safe-vllm: /nowhere/x.yaml: there is no such file; correct the path, "),
        (("show",), 2, "safe-vllm: missing argument 'NAME|FILE'; see `safe-vllm profiles show --help`\n"),
        (("nope",), 2, "safe-vllm: no such command 'nope'; see `safe-vllm profiles --help`\n"),
        ((), 2, "Usage: safe-vllm profiles "),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(words: tuple[str, ...], status: int, said: str) -> None:
    run = profiles(*words)
    assert (run.returncode, run.stdout) == (status, "")
    assert run.stderr.startswith(said)
