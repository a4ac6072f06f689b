"""`safe-vllm doctor --manifest FILE` as an operator types it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from launch import SAFE_VLLM

PLACE = Path(__file__).parents[2] / "deploy" / "kubernetes"


def doctor(*words: str | Path, options: tuple[str, ...] = (), given: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command where there is no vLLM and no cluster: a manifest is checked anywhere."""
    command = [SAFE_VLLM, "--vllm", "no-such-command", *options, "doctor", *words]
    return subprocess.run(command, input=given, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("name", ["deployment.yaml", "statefulset.yaml"])
def test_the_manifests_that_we_ship_are_fine(name: str) -> None:
    run = doctor("--manifest", PLACE / name, f"--manifest={PLACE / 'configmap.yaml'}")
    assert (run.returncode, run.stderr) == (0, "")
    assert "warning" not in run.stdout


def test_a_config_map_that_was_not_given_is_no_reason_to_call_all_fine() -> None:
    run = doctor("--manifest", PLACE / "statefulset.yaml")
    assert run.returncode == 1
    assert "ConfigMap/safe-vllm-options is not in the files given" in run.stdout
    assert run.stdout.splitlines()[-1] == "1 warning"


def test_the_compose_file_that_we_ship_is_fine() -> None:
    run = doctor("--manifest", PLACE.parent / "docker" / "compose.yaml")
    assert (run.returncode, run.stdout.splitlines()[-1]) == (0, "everything is fine")


def test_a_probe_that_ends_a_launch_in_the_middle_of_its_ladder_is_told() -> None:
    text = (PLACE / "statefulset.yaml").read_text()
    start, _, end = text.partition("path: /livez\n              port: status")
    options = f"--manifest={PLACE / 'configmap.yaml'}"
    run = doctor(
        "--manifest", "-", options, given=f"{start}path: /health\n              port: http{end.replace('720', '123')}"
    )
    assert (run.returncode, run.stderr) == (1, "")
    told = "startupProbe asks for /health and gives up after 615 s; the ladder may need 3030 s"
    assert f"warning  manifest-startup: StatefulSet/llm, container vllm: {told}" in run.stdout
    assert run.stdout.splitlines()[-1] == "1 warning"


def test_programs_get_one_object() -> None:
    run = doctor("--manifest", PLACE / "service.yaml", options=("--output", "json"))
    found = json.loads(run.stdout)
    assert (run.returncode, found["ok"], found["machine"]) == (1, False, None)
    assert [each["what"] for each in found["findings"]] == ["nothing in it runs vLLM"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--manifest"], "--manifest names no file"),
        (["--manifest", "absent.yaml"], "absent.yaml: cannot be read: no such file or directory"),
        (["--manifest", "/dev/zero"], "/dev/zero is no "),
        (["--manifest", "-"], "standard input is empty: there is nothing to check"),
        (["--manifest", "a.yaml", "--unit", "b"], "--unit and --manifest are not checked together"),
        (["--manifest", "a.yaml", "tiny"], "--manifest takes no words for vLLM beside it: tiny"),
        (["--manifest", "a.yaml", "b.yaml"], "b.yaml; give each file its own --manifest, or name the directory; what"),
        (["--manifest", "a.yaml", "--port"], "beside it: --port; what runs stands in the file"),
    ],
)
def test_a_wrong_command_line_ends_with_2_and_one_sentence(words: list[str], told: str) -> None:
    run = doctor(*words)
    assert (run.returncode, run.stdout) == (2, "")
    assert told in run.stderr
    assert "Traceback" not in run.stderr
