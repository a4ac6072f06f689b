"""Variables that are probably misspelt ones of ours are told of; those of others are not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from safe_vllm.cli.main import cli, run
from safe_vllm.cli.variables import misspelt, names, told
from safe_vllm.plan.option_values import LINK, NO_OPTIONS

OURS = (*names(cli), *NO_OPTIONS)


def links(service: str) -> dict[str, str]:
    """Return what Kubernetes adds to the environment for a service, as its documentation lists it."""
    stem = service.upper().replace("-", "_")
    return {
        f"{stem}_SERVICE_HOST": "10.0.0.11",
        f"{stem}_SERVICE_PORT": "8000",
        f"{stem}_SERVICE_PORT_HTTP": "8000",
        f"{stem}_PORT": "tcp://10.0.0.11:8000",
        f"{stem}_PORT_8000_TCP": "tcp://10.0.0.11:8000",
        f"{stem}_PORT_8000_TCP_PROTO": "tcp",
        f"{stem}_PORT_8000_TCP_PORT": "8000",
        f"{stem}_PORT_8000_TCP_ADDR": "10.0.0.11",
    }


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("SAFE_VLLM_STAT_DIR", "SAFE_VLLM_STATE_DIR"),
        ("SAFE_VLLM_STATE_DIRECTORY", "SAFE_VLLM_STATE_DIR"),
        ("SAFE_VLLM_PROFLE", "SAFE_VLLM_PROFILE"),
        ("SAFE_VLLM_MAX_ATTEMPT", "SAFE_VLLM_MAX_ATTEMPTS"),
        ("SAFE_VLLM_TIMEOUT", "SAFE_VLLM_STOP_TIMEOUT"),
        ("SAFE_VLLM_CANARY", "SAFE_VLLM_NO_CANARY"),
        ("SAFE_VLLM_OF", "SAFE_VLLM_OFF"),
        ("SAFE_VLLM_NOCACHE", "SAFE_VLLM_NO_CACHE"),
        ("SAFE_VLLM_VLM", "SAFE_VLLM_VLLM"),
    ],
)
def test_a_misspelt_variable_is_told_of_with_the_one_that_was_meant(name: str, meant: str) -> None:
    assert misspelt({name: "x", "PATH": "/bin"}, cli) == {name: meant}


@pytest.mark.parametrize("service", ["safe-vllm", "safe-vllm-profile", "safe-vllm-state-dir", "safe-vllm-vllm"])
def test_what_kubernetes_makes_of_a_service_is_not_complained_about(service: str) -> None:
    assert misspelt(links(service), cli) == {}


def test_no_variable_of_ours_can_be_one_that_kubernetes_makes_of_a_service() -> None:
    assert [name for name in OURS if LINK.fullmatch(name)] == []
    assert all(LINK.fullmatch(name) for name in links("safe-vllm"))


@pytest.mark.parametrize(
    "name",
    [
        *OURS,
        "SAFE_VLLM_E2E_VLLM",
        "SAFE_VLLM_FAULT",
        "SAFE_VLLM_TEST_DIR",
        "SAFE_VLLM_DEMO_DIR",
        "SAFE_VLLM_VERSION",
        "SAFE_VLLM_HOME",
        "SAFE_VLLM_",
        "SAFE_VLLM_PROF\nLE",
        "SAFE_VLLM_PROF\udcffLE",
        "STATE_DIRECTORY",
        "VLLM_PROFLE",
    ],
)
def test_what_is_ours_or_may_be_somebody_elses_is_not_complained_about(name: str) -> None:
    assert misspelt({name: "x"}, cli) == {}


def test_every_option_of_ours_has_a_variable_that_is_known() -> None:
    assert {"SAFE_VLLM_STOP_TIMEOUT", "SAFE_VLLM_VLLM", "SAFE_VLLM_PIN", "SAFE_VLLM_DIAGNOSE_EXIT_STATUS"} <= {*OURS}
    assert not {"SAFE_VLLM_HELP", "SAFE_VLLM_VERSION"} & {*OURS}


def test_it_is_one_line_for_each_and_shows_no_value() -> None:
    strangers = misspelt({"SAFE_VLLM_STAT_DIR": "hunter2", "SAFE_VLLM_EVENT": "hunter2"}, cli)
    assert list(told(strangers, as_json=False)) == [
        "SAFE_VLLM_EVENT is set and not known, so it has no effect; did you mean SAFE_VLLM_EVENTS?",
        "SAFE_VLLM_STAT_DIR is set and not known, so it has no effect; did you mean SAFE_VLLM_STATE_DIR?",
    ]
    assert [json.loads(line) for line in told(strangers, as_json=True)][1] == {
        "event": "variable-not-known",
        "v": 1,
        "variable": "SAFE_VLLM_STAT_DIR",
        "meant": "SAFE_VLLM_STATE_DIR",
    }


@pytest.mark.parametrize("words", [["profiles", "show", "cpu"], ["status"], ["forget"], ["plan", "m"]])
def test_a_command_says_it_on_stderr_and_does_what_it_does_otherwise(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "machine.json").write_text('{"architecture": "x86_64"}')
    (tmp_path / "state").mkdir()
    words = ["--state-dir", str(tmp_path / "state"), "--machine", str(tmp_path / "machine.json"), *words]
    before = (run(words), capsys.readouterr())
    monkeypatch.setenv("SAFE_VLLM_PROFLE", "hunter2")
    after = (run(words), capsys.readouterr())
    assert (after[0], after[1].out, before[1].err) == (before[0], before[1].out, "")
    assert before[0] == 0
    assert after[1].err == (
        "safe-vllm: SAFE_VLLM_PROFLE is set and not known, so it has no effect; did you mean SAFE_VLLM_PROFILE?\n"
    )
    monkeypatch.setenv("SAFE_VLLM_OFF", "1")
    assert (run(words), capsys.readouterr().err) == (before[0], "")
