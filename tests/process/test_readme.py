"""Every command in the README is one that works."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from launch import SAFE_VLLM, Stage
from scenes import argparse_error, serve_ok

CHECKOUT = Path(__file__).parents[2]
BLOCKS = re.findall(r"```sh\n(.*?)```", (CHECKOUT / "README.md").read_text(), re.DOTALL)
COMMANDS = [line.split("#")[0].strip() for block in BLOCKS for line in block.splitlines() if line.strip()]


def serves(stage: Stage) -> None:
    run = stage.start(serve_ok())
    run.wait_until_ready()
    assert run.stop() == 0


def plans(stage: Stage) -> None:
    run = stage.start(argparse_error(), subcommand=("plan",))
    assert run.finish() == 0
    assert b"as-asked" in run.stdout()
    assert run.attempts() == []


def diagnoses(stage: Stage) -> None:
    log = stage.root / "vllm.log"
    log.write_text("torch.AcceleratorError: CUDA error: an illegal memory access was encountered\n")
    told = subprocess.run([SAFE_VLLM, "diagnose", log], check=True, capture_output=True, text=True, timeout=30).stdout
    assert "illegal-memory-access" in told


def script(name: str) -> Callable[[Stage], None]:
    def is_there_and_whole(stage: Stage) -> None:
        path = CHECKOUT / "scripts" / name
        assert path.stat().st_mode & 0o111
        interpreter = path.read_text().splitlines()[0].split()[-1]
        check = ["-n", path] if interpreter == "bash" else ["-c", f"compile(open({str(path)!r}).read(), 'x', 'exec')"]
        subprocess.run([interpreter, *check], check=True, timeout=30)

    return is_there_and_whole


def installs(stage: Stage) -> None:
    """The tests themselves run against what this command installed."""
    assert subprocess.run([SAFE_VLLM, "--version"], check=True, capture_output=True).stdout.startswith(b"safe-vllm")


TRIED: dict[str, Callable[[Stage], None]] = {
    "pip install .": installs,
    "pip install '.[vllm]'": installs,
    "safe-vllm serve MODEL …": serves,
    "safe-vllm plan MODEL …": plans,
    "safe-vllm diagnose vllm.log": diagnoses,
    "scripts/demo": script("demo"),
    "scripts/demo autotune": script("demo"),
    "scripts/test": script("test"),
    "scripts/test fast": script("test"),
    "scripts/test e2e": script("test"),
    "scripts/check fix": script("check"),
    "scripts/bench": script("bench"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_readme_works(stage: Stage, command: str) -> None:
    TRIED[command](stage)


def test_nothing_is_tried_that_the_readme_does_not_show() -> None:
    assert set(TRIED) == set(COMMANDS)
