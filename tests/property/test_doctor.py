"""Whatever the environment and the command are, the check-up ends with findings and not with an error."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safe_vllm.commands import doctor
from safe_vllm.machine.recorded import parse
from safe_vllm.plan.intent import Intent

NAMES = """HOME PATH PYTHONPATH CUDA_VISIBLE_DEVICES NVIDIA_VISIBLE_DEVICES NVIDIA_DRIVER_CAPABILITIES CUDA_LIB_PATH
LD_LIBRARY_PATH HF_HOME HF_HUB_CACHE XDG_CACHE_HOME XDG_STATE_HOME XDG_CONFIG_HOME VLLM_CACHE_ROOT VLLM_PORT TMPDIR
VLLM_SERVICE_HOST VLLM_LOGGING_LEVEL VLLM_X FLASHINFER_WORKSPACE_BASE FLASHINFER_X TRTLLM_MOE_MAX_WORKSPACE container
KUBERNETES_SERVICE_HOST SAFE_VLLM_OFF VLLM_DP_SIZE VLLM_USE_FLASHINFER_MOE_FP16 TRITON_CACHE_DIR""".split()
ODD = [
    "x" * 5000,
    "",
    "/",
    "/nowhere/at/all",
    "~",
    "::",
    ":/proc:",
    "0,0",
    "-1",
    "tcp://1:2",
    "é",
    "\t",
    "1e9",
    "/proc/1/x",
]
VALUES = st.one_of(
    st.sampled_from(ODD), st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=8)
)
WORDS = """m --port 8000 99999 x --host :: 0.0.0.0 -tp 2 -dp -ep --config /nowhere.yaml --headless --uds --
--moe-backend triton --kernel-config {} --nnodes --fail-on-environ-validation --model""".split()


@contextmanager
def environment_of(variables: dict[str, str]) -> Iterator[None]:
    """Let these variables alone be the environment for a while; nothing is kept on disk."""
    kept = dict(os.environ)
    os.environ.clear()
    os.environ.update({"SAFE_VLLM_NO_CACHE": "1", **variables})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(kept)


@settings(max_examples=100)
@given(st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=6), st.lists(st.one_of(st.sampled_from(WORDS), VALUES)))
def test_no_environment_and_no_command_end_a_check_up(environment: dict[str, str], words: list[str]) -> None:
    with environment_of(environment):
        case = doctor.examined(Intent(tuple(words), vllm=("no-such-vllm",)))
    findings = doctor.checked(case)
    assert all(finding.what and (finding.level == "ok" or (finding.why and finding.do)) for finding in findings)
    assert "problem" in {finding.level for finding in findings if finding.name == "vllm"}
    told = json.loads(doctor.told(findings, case.machine, "json"))
    assert parse(json.dumps(told["machine"]), "told").architecture == case.machine.architecture


MACHINES = sorted((Path(__file__).parents[1] / "golden" / "machines").glob("*.json"))


@pytest.mark.parametrize("path", MACHINES, ids=lambda path: path.stem)
def test_a_recorded_machine_is_checked_without_a_look_at_this_one(path: Path) -> None:
    with environment_of({"CUDA_VISIBLE_DEVICES": "-1"}):
        case = doctor.examined(Intent(("m", "-tp", "1"), machine=str(path)))
    names = {finding.name for finding in doctor.checked(case)}
    assert {"architecture", "gpus", "vllm", "profile"} <= names
    assert not names & {"port", "disk", "limits", "visible-devices", "shared-memory"}
