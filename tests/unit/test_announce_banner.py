"""What is said of a launch, for people and for programs."""

from __future__ import annotations

import pytest

from safe_vllm.announce import banner
from safe_vllm.machine.facts import Installation
from safe_vllm.plan.ladder import Ladder, Plan, Rung
from safe_vllm.verdict.evidence import Verdict


def test_a_launch_tells_programs_what_it_runs_first_without_secrets() -> None:
    rungs = (Rung("as-asked", ("m", "--api-key", "geheim")), Rung("triton", ("m", "--moe-backend", "triton")))
    plan = Plan("b200", "it fits", Ladder(rungs))
    installed = Installation(vllm="0.20.0", torch="2.9.0")
    assert banner.opening_facts(plan, ("vllm",), installed) == {
        "profile": "b200",
        "ladder": ["as-asked", "triton"],
        "entry": "as-asked",
        "because": None,
        "fixed_in": [],
        "argv": ["vllm", "serve", "m", "--api-key", "***"],
        "versions": {"vllm": "0.20.0", "flashinfer": None, "torch": "2.9.0"},
    }


def test_only_what_is_known_of_a_verdict_is_named() -> None:
    assert banner.named(Verdict("hang", "stop", "init", "x")) == "fault hang, phase init"
    assert banner.named(Verdict("hang", "stop", "init", "x", "moe", "TRITON")) == (
        "fault hang, phase init, suspect moe, MoE backend TRITON"
    )
    assert banner.named(Verdict("hang", "stop", "init", "x", "attention", "FA")).endswith("attention backend FA")


@pytest.mark.parametrize(
    ("entry", "because", "start_at", "told"),
    [
        (0, None, None, None),
        (1, "as the profile says", None, None),
        (1, "it avoids a known illegal-memory-access", None, "upgrade, or try it with --start-at as-asked"),
        (1, "it avoids a known illegal-memory-access", "triton", "stop, and start without --start-at"),
    ],
)
def test_the_way_back_depends_on_what_led_to_the_rung(
    entry: int, because: str | None, start_at: str | None, told: str | None
) -> None:
    rungs = (Rung("as-asked", ("m",)), Rung("triton", ("m", "--moe-backend", "triton"), because=because))
    assert banner.way_back(Plan("b200", "it fits", Ladder(rungs), entry), start_at) == told
