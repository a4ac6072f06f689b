"""Installing safe-vllm next to vLLM leaves vLLM's environment as it was."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.e2e_ci]
CHECKOUT = Path(__file__).parents[2]


def test_installing_into_vllms_environment_changes_none_of_its_versions(vllm: Path, tmp_path: Path) -> None:
    python = vllm.with_name("python")
    pip = (python, "-m", "pip", "--disable-pip-version-check")
    held = json.loads(subprocess.run([*pip, "list", "--format=json"], check=True, capture_output=True).stdout)
    report = tmp_path / "report.json"
    subprocess.run([*pip, "install", "--quiet", "--dry-run", "--report", report, CHECKOUT], check=True)
    names = {name_of(entry["metadata"]["name"]) for entry in json.loads(report.read_text())["install"]}
    assert "safe-vllm" in names or "safe-vllm" in {name_of(entry["name"]) for entry in held}
    assert names & {name_of(entry["name"]) for entry in held} <= {"safe-vllm"}


def name_of(distribution: str) -> str:
    """Return the name as package tools compare it."""
    return distribution.lower().replace("_", "-").replace(".", "-")
