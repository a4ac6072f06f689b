"""A second set of public reports is judged as the reports and their outcomes say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from replaying import observe_log
from safe_vllm.data.strict_yaml import read_data
from safe_vllm.verdict.evidence import FAULTS, PHASES, Verdict
from safe_vllm.verdict.judge import judge
from safe_vllm.verdict.signatures import parse

SIGNATURES = parse(read_data("signatures.yaml"))
CASES: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text("utf-8"))
    for path in sorted((Path(__file__).parent / "reports").glob("n-*.json"))
}


def case_verdict(name: str) -> Verdict:
    case = CASES[name]
    return judge(observe_log(case["transcript"].encode(), case["exit"], SIGNATURES))


def test_the_reports_are_there_and_speak_the_closed_vocabulary() -> None:
    assert len(CASES) >= 77
    assert {case["expect"]["class"] for case in CASES.values()} <= FAULTS | {None}
    assert {case["phase"] for case in CASES.values()} <= set(PHASES)


@pytest.mark.parametrize("name", CASES)
def test_a_report_gets_the_action_it_calls_for(name: str) -> None:
    expect = CASES[name]["expect"]
    assert case_verdict(name).action in {expect["action"], *expect.get("also_acceptable", ())}


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case["expect"]["class"]])
def test_a_report_gets_its_fault(name: str) -> None:
    assert case_verdict(name).fault == CASES[name]["expect"]["class"]


@pytest.mark.parametrize("name", CASES)
def test_a_report_gets_its_phase(name: str) -> None:
    assert case_verdict(name).phase == CASES[name]["phase"]


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case["kind"] in "AC"])
def test_a_reported_fault_begins_with_a_line_that_names_it(name: str) -> None:
    verdict = case_verdict(name)
    if verdict.evidence:
        # that a process is gone names no fault
        assert (verdict.evidence[0].fault or "unknown") == verdict.fault or verdict.fault == "stopped"
