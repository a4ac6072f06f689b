"""The JSON Schema that editors use is the one that the code has."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from safe_vllm.machine.profile_files import shipped

SUPPORT = Path(__file__).parents[2] / "scripts" / "support"


def generated() -> str:
    """Return what the script would write."""
    code = "import profile_schema; print(profile_schema.generated(), end='')"
    return subprocess.run(
        [sys.executable, "-c", code], cwd=SUPPORT, check=True, capture_output=True, text=True, timeout=60
    ).stdout


def test_the_shipped_schema_is_the_generated_one() -> None:
    assert (shipped() / "schema.json").read_text() == generated(), "run scripts/profile-schema"


def test_the_schema_explains_every_key() -> None:
    structs = json.loads((shipped() / "schema.json").read_text())["$defs"]
    assert {"Profile", "Fits", "RungEntry", "DeviceLimits", "Policy", "Reason"} == set(structs)
    for struct in structs.values():
        assert struct["additionalProperties"] is False
        assert all(field["description"] for field in struct["properties"].values())


def test_every_shipped_profile_names_the_schema() -> None:
    lines = {path.read_text().splitlines()[0] for path in shipped().glob("*.yaml")}
    assert lines == {"# yaml-language-server: $schema=schema.json"}
