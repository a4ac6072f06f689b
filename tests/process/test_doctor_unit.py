"""`safe-vllm doctor --unit FILE` as an operator types it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from launch import SAFE_VLLM

SHIPPED = Path(__file__).parents[2] / "deploy" / "systemd" / "safe-vllm@.service"


def doctor(*words: str | Path, options: tuple[str, ...] = (), given: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command where there is no vLLM: a unit is checked anywhere."""
    command = [SAFE_VLLM, "--vllm", "no-such-command", *options, "doctor", *words]
    return subprocess.run(command, input=given, capture_output=True, text=True, timeout=60)


def unit_in(place: Path, *drop_ins: str) -> Path:
    """Return a copy of the shipped unit with drop-ins beside it, read in the order of their names."""
    path = place / SHIPPED.name
    path.write_text(SHIPPED.read_text())
    path.with_name(f"{path.name}.d").mkdir()
    for number, text in enumerate(drop_ins):
        (place / f"{path.name}.d" / f"{number}.conf").write_text(text)
    return path


def test_the_unit_that_we_ship_is_fine() -> None:
    run = doctor("--unit", SHIPPED)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.splitlines()[-1] == "everything is fine"


def test_drop_ins_beside_the_unit_and_named_ones_come_after_it(tmp_path: Path) -> None:
    path = unit_in(tmp_path, "[Service]\nKillMode=none\nPrivateDevices=yes\n", "[Service]\nKillMode=mixed\n")
    run = doctor("--unit", path)
    assert run.returncode == 1
    assert "KillMode=none" not in run.stdout
    assert "problem  unit-sandbox: PrivateDevices=yes" in run.stdout
    (tmp_path / "mine.conf").write_text("[Service]\nPrivateDevices=no\n")
    assert doctor("--unit", path, f"--unit={tmp_path}/mine.conf").returncode == 0


def test_of_two_units_each_is_told_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "b.service").write_text(SHIPPED.read_text().replace("KillMode=mixed", "KillMode=none"))
    run = doctor("--unit", SHIPPED, "--unit", "-", f"--unit={tmp_path}/b.service", given=SHIPPED.read_text())
    assert (run.returncode, run.stdout.count(": runs ")) == (1, 3)
    assert f"problem  unit-kill: {tmp_path}/b.service: KillMode=none" in run.stdout
    assert "ok       unit-kill: standard input: " in run.stdout
    assert run.stdout.splitlines()[-1] == "1 problem"


def test_what_systemctl_cat_prints_is_read_from_standard_input() -> None:
    text = f"# /etc/systemd/system/x.service\n{SHIPPED.read_text()}\n# /etc/x.conf\n[Service]\nType=simple\n"
    run = doctor("--unit", "-", options=("--output", "json"), given=text)
    told = json.loads(run.stdout)
    assert (run.returncode, told["ok"], told["machine"]) == (1, False, None)
    assert [each["what"] for each in told["findings"] if each["level"] == "warning"] == ["Type=simple"]


def test_a_unit_that_does_not_exist_anywhere_is_told() -> None:
    """``systemctl cat`` prints nothing then."""
    run = doctor("--unit", "-")
    assert run.returncode == 1
    assert "problem  unit-command: there is no ExecStart" in run.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--unit"], "--unit names no file"),
        (["--unit="], "--unit names no file"),
        (["--unit", "absent.service"], "absent.service: cannot be read: no such file or directory"),
        (["--unit", "/"], "/: cannot be read: is a directory"),
        (["--unit", "/dev/zero"], "/dev/zero is no unit file"),
        (["--unit", str(SHIPPED), "model"], "--unit takes no words for vLLM beside it: model"),
        (
            ["--unit", str(SHIPPED), "b.service"],
            "--unit takes no words for vLLM beside it: b.service; give each file its own --unit",
        ),
    ],
)
def test_what_cannot_be_read_is_one_line(words: list[str], said: str) -> None:
    run = doctor(*words)
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith(f"safe-vllm: {said}; ")
    assert run.stderr.count("\n") == 1


def test_a_fifo_that_nobody_writes_to_does_not_stop_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "unit")
    run = doctor("--unit", tmp_path / "unit")
    assert (run.returncode, run.stdout) == (2, "")


def test_after_a_word_for_vllm_it_is_vllms() -> None:
    run = doctor("some/model", "--unit", "absent.service")
    assert run.returncode == 1
    assert "unit-command" not in run.stdout
    assert "cannot be read" not in run.stderr
