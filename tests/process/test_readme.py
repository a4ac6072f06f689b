"""Every command in the README and in the pages of `docs` is one that works."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from launch import SAFE_VLLM, Launch, Stage
from scenes import argparse_error, ima_at_startup, serve_ok

CHECKOUT = Path(__file__).parents[2]
PAGES = [CHECKOUT / "README.md", *sorted((CHECKOUT / "docs").glob("*.md"))]
BLOCKS = [block for page in PAGES for block in re.findall(r"```sh\n(.*?)```", page.read_text("utf-8"), re.DOTALL)]
LINES = [
    line.split("#")[0].strip() for block in BLOCKS for line in block.replace("\\\n", " ").splitlines() if line.strip()
]
OTHERS = ("docker", "helm", "kubectl", "sudo", "systemctl")
"""Commands of other programs; the tests on systemd, containers and manifests run what can be run of them."""
COMMANDS = tuple(dict.fromkeys(line for line in LINES if line.split()[0] not in OTHERS))
OF_MANIFESTS = (
    "safe-vllm doctor --manifest deploy/kubernetes/statefulset.yaml --manifest deploy/kubernetes/configmap.yaml"
)
GRACE = CHECKOUT / "tests" / "golden" / "machines" / "gb200-4-flashinfer-0.6.12.json"


def serves(stage: Stage) -> None:
    run = stage.start(serve_ok())
    run.wait_until_ready()
    assert run.stop() == 0


def plans(stage: Stage) -> None:
    run = stage.start(argparse_error(), subcommand=("plan",))
    assert run.finish() == 0
    assert b"as-asked" in run.stdout()
    assert run.attempts() == []


def plans_as_json(stage: Stage) -> None:
    run = stage.start(subcommand=("plan",), options=("--output", "json"))
    assert run.finish() == 0
    assert json.loads(run.stdout())["rungs"][0]["name"] == "as-asked"


def of_another_machine(subcommand: str) -> Callable[[Stage], None]:
    """Return a trial with a recorded machine on which the command is known to fail."""

    def tells_of_it(stage: Stage) -> None:
        run = stage.start(subcommand=(subcommand,), options=("--machine", str(GRACE)), words=("org/model",))
        assert run.finish() == 0
        assert b"triton is the setting that vllm#46861 verified" in run.stdout()
        assert run.attempts() == []

    return tells_of_it


def checks_up(stage: Stage) -> None:
    run = stage.start(subcommand=("doctor",))
    assert run.finish() in (0, 1)
    assert b"ok       vllm: 0.32.0" in run.stdout()


def records(stage: Stage) -> None:
    """What the command leaves is a machine to plan for."""
    run = stage.start(subcommand=("doctor",), options=("--output", "json"))
    assert run.finish() in (0, 1)
    (stage.root / "gb200.json").write_bytes(run.stdout())
    again = stage.start(subcommand=("plan",), options=("--machine", str(stage.root / "gb200.json")))
    assert again.finish() == 0
    assert b"software: vLLM 0.32.0" in again.stdout()


def checks_a_unit(stage: Stage) -> None:
    unit = CHECKOUT / "deploy" / "systemd" / "safe-vllm@.service"
    done = subprocess.run(
        [SAFE_VLLM, "doctor", "--unit", unit], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode in (0, 1)
    assert "Type" in done.stdout


def checks_a_manifest(stage: Stage) -> None:
    """The longer of the two commands runs as it is shown, where the files are that it names."""
    words = [SAFE_VLLM, *OF_MANIFESTS.split()[1:]]
    done = subprocess.run(words, cwd=CHECKOUT, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "startupProbe" in done.stdout


def lists(stage: Stage) -> None:
    assert b"* for this machine: " in profiles("list")


def shows(stage: Stage) -> None:
    assert b"name: gb200\n" in profiles("show", "gb200")


def checks(stage: Stage) -> None:
    file = CHECKOUT / "profiles" / "gb200.yaml"
    assert profiles("check", str(file)) == f"{file}: sound\n".encode()


def profiles(*words: str) -> bytes:
    return subprocess.check_output([SAFE_VLLM, "profiles", *words], timeout=30)


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


def tells_and_forgets(stage: Stage) -> None:
    """What one launch leaves is shown, one report of it too, and then dropped."""
    run = stage.start(ima_at_startup(), argparse_error())
    run.finish()
    report = Path(run.events("incident")[0]["path"])
    assert report.name in ours(run, "status")
    assert report.name in ours(run, "--output", "json", "status")
    assert "What died" in ours(run, "status", report.name[:-3])
    assert "as-asked broke (once): illegal-memory-access" in ours(run, "forget")
    assert "nothing is remembered" in ours(run, "forget")


def ours(run: Launch, *words: str) -> str:
    return subprocess.check_output([SAFE_VLLM, *words], env=run.environment, text=True, timeout=30)


TRIED: dict[str, Callable[[Stage], None]] = {
    "pip install .": installs,
    "pip install '.[vllm]'": installs,
    "pip install '.[metrics]'": installs,
    "safe-vllm serve MODEL …": serves,
    "safe-vllm plan MODEL …": plans,
    "safe-vllm --output json plan MODEL …": plans_as_json,
    "safe-vllm --machine gb200.json plan MODEL …": of_another_machine("plan"),
    "safe-vllm --machine gb200.json doctor MODEL …": of_another_machine("doctor"),
    "safe-vllm doctor MODEL …": checks_up,
    "safe-vllm --output json doctor MODEL … > gb200.json": records,
    "safe-vllm doctor --unit FILE": checks_a_unit,
    "safe-vllm doctor --manifest FILE": checks_a_manifest,
    OF_MANIFESTS: checks_a_manifest,
    "safe-vllm profiles list": lists,
    "safe-vllm profiles show gb200": shows,
    "safe-vllm profiles check FILE": checks,
    "safe-vllm status": tells_and_forgets,
    "safe-vllm --output json status": tells_and_forgets,
    "safe-vllm status 20260301T0910": tells_and_forgets,
    "safe-vllm forget": tells_and_forgets,
    "safe-vllm diagnose vllm.log": diagnoses,
    "scripts/demo": script("demo"),
    "scripts/demo autotune": script("demo"),
    "scripts/test": script("test"),
    "scripts/test fast": script("test"),
    "scripts/test e2e": script("test"),
    "scripts/check fix": script("check"),
    "scripts/chaos 100": script("chaos"),
    "scripts/bench": script("bench"),
    "scripts/bench-serving": script("bench-serving"),
    "scripts/check-dialect 0.28.0": script("check-dialect"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_is_shown_works(stage: Stage, command: str) -> None:
    TRIED[command](stage)


def test_every_file_of_ours_is_there_that_a_command_of_another_program_names() -> None:
    named = {word for line in LINES for word in re.findall(r"deploy/[\w./@-]+", line)}
    assert len(named) > 3
    assert [name for name in named if not (CHECKOUT / name).exists()] == []


def test_nothing_is_tried_that_is_not_shown() -> None:
    assert set(TRIED) == set(COMMANDS)
