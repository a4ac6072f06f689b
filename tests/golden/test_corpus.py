"""Logs from public reports, and logs of a real vLLM, are judged as a person would judge them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from replaying import observe_log
from safe_vllm.data.strict_yaml import read_data
from safe_vllm.verdict.evidence import Verdict
from safe_vllm.verdict.judge import judge
from safe_vllm.verdict.signatures import parse

HERE = Path(__file__).parent
SIGNATURES = parse(read_data("signatures.yaml"))
CASES = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted((HERE / "corpus").glob("*.json"))}

AS_GOOD = {
    "a-014": "stop",
    "a-018": "retry-same",
    "a-034": "retry-same",
    "a-048": "retry-same",
    "b-004": "retry-same",
    "b-007": "retry-safer",
    "b-008": "retry-safer",
    "b-010": "retry-same",
    "b-015": "retry-safer",
    "b-016": "retry-safer",
    "b-017": "retry-same",
    "c-006": "retry-same",
    "c-024": "retry-safer",
    "c-028": "retry-safer",
    "c-042": "none",
    "c-043": "stop",
    "c-044": "retry-safer",
}
"""Cases where this action can be defended as well."""


def judged(log: str, status: int | None) -> Verdict:
    return judge(observe_log(log.encode(), status, SIGNATURES))


def case_verdict(case: dict[str, Any]) -> Verdict:
    return judged(case["transcript"], case["exit"])


@pytest.mark.parametrize("name", CASES)
def test_a_case_gets_the_action_it_calls_for(name: str) -> None:
    wanted = CASES[name]["expect"]["action"]
    assert case_verdict(CASES[name]).action in {wanted, AS_GOOD.get(name, wanted)}


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case["expect"]["class"]])
def test_a_case_gets_its_fault(name: str) -> None:
    assert case_verdict(CASES[name]).fault == CASES[name]["expect"]["class"]


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case["phase"]])
def test_a_case_gets_its_phase(name: str) -> None:
    assert case_verdict(CASES[name]).phase == CASES[name]["phase"]


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case["kind"] in "AC"])
def test_a_report_begins_with_a_line_that_names_the_fault(name: str) -> None:
    verdict = case_verdict(CASES[name])
    if verdict.evidence:
        assert verdict.evidence[0].fault == verdict.fault or verdict.fault == "stopped"


@pytest.mark.parametrize(
    ("name", "status", "fault", "action", "phase"),
    [
        ("natural-fault", 0, "engine-signal", "retry-safer", "first-inference"),
        ("segv-startup", 1, "engine-signal", "retry-safer", "autotune"),
        ("segv-worker-serving", 0, "engine-signal", "retry-safer", "first-inference"),
        ("segv-engine-serving", 0, "engine-signal", "retry-safer", "first-inference"),
        ("exception-startup", 1, "illegal-memory-access", "retry-safer", "autotune"),
        ("exception-inference", 0, "illegal-memory-access", "retry-safer", "first-inference"),
        ("headdim16", 0, "unknown", "retry-safer", "first-inference"),
        ("moe-backend-refused", 1, "backend-refused", "stop", "init"),
        ("missing-model", 1, "bad-model", "stop", "init"),
        ("missing-model-name", 1, "bad-model", "stop", "init"),
        ("port-in-use", 1, "port-in-use", "stop", "init"),
        ("unknown-flag", 2, "bad-argument", "stop", "init"),
        ("clean-sigterm", 0, "stopped", "stop", "shutdown"),
    ],
)
def test_a_log_of_a_real_vllm_is_judged_right(name: str, status: int, fault: str, action: str, phase: str) -> None:
    verdict = judged((HERE / "real" / f"{name}.log").read_text("utf-8"), status)
    assert (verdict.fault, verdict.action, verdict.phase) == (fault, action, phase)


def test_the_line_that_vllm_died_of_is_named_even_when_its_fault_is_not_known() -> None:
    reason = judged((HERE / "real" / "headdim16.log").read_text("utf-8"), 0).reason
    assert reason == (
        "Worker failed at the first inference: "
        "RuntimeError: Unsupported CPU attention configuration: head_dim=16 isa=2 kv_cache_idx=0"
    )
