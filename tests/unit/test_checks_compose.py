"""What ``doctor --manifest`` finds in a compose file. Each case is the one that we ship, with one thing changed."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_checks_manifest import THINGS, places

from safe_vllm.checks import compose
from safe_vllm.checks.compose_services import services, size
from safe_vllm.checks.finding import Finding
from safe_vllm.machine import manifest_files

SHIPPED = Path(__file__).parents[2] / "deploy" / "docker" / "compose.yaml"
[FILE] = manifest_files.read([str(SHIPPED)])
Change = Callable[[dict[str, Any]], object]


def put(key: str, value: object) -> Change:
    return lambda service: service.update({key: value})


def drop(key: str) -> Change:
    return lambda service: service.pop(key)


def env(name: str, value: object) -> Change:
    return lambda service: service["environment"].update({name: value})


def changed(*changes: Change) -> dict[str, Any]:
    file: dict[str, Any] = deepcopy(FILE)  # type: ignore[arg-type]
    for change in changes:
        change(file["services"]["llm"])
    return file


def found(*changes: Change) -> list[Finding]:
    """Return what is found in a changed file, what is fine aside."""
    findings = compose.checked("compose.yaml", changed(*changes))
    assert all(each.level == "ok" or (each.why and each.do) for each in findings)
    return [each for each in findings if each.level != "ok"]


def test_the_compose_file_that_we_ship_is_fine() -> None:
    assert found() == []
    assert len(compose.checked("compose.yaml", changed())) >= 6


@pytest.mark.parametrize(
    ("change", "name", "level", "what"),
    [
        (put("stop_grace_period", "60s"), "grace", "warning", "60 s is not above the 60 s"),
        (put("stop_grace_period", "1m"), "grace", "warning", "60 s is not above"),
        (drop("stop_grace_period"), "grace", "warning", "10 s, the default, is not above"),
        (put("stop_grace_period", "soon"), "grace", "problem", "'soon' is no time"),
        (env("SAFE_VLLM_STOP_TIMEOUT", "120"), "grace", "warning", "the 120 s that vLLM has"),
        (put("command", ["m", "--shutdown-timeout=100"]), "grace", "warning", "the 115 s that vLLM has"),
        (put("stop_signal", "SIGUSR1"), "grace", "problem", "SIGUSR1"),
        (drop("restart"), "restart", "note", "nothing starts it again"),
        (put("restart", "no"), "restart", "note", "nothing starts it again"),
        (put("restart", "always"), "restart", "note", "restart: always"),
        (put("restart", "unless-stopped"), "restart", "note", "restart: unless-stopped"),
        (drop("shm_size"), "shm", "warning", "64 MiB, the default"),
        (put("shm_size", "64mb"), "shm", "warning", "shm_size: 64mb"),
        (put("tmpfs", []), "writable", "warning", "temporary files (/tmp)"),
        (put("tmpfs", "/tmp"), "writable", "note", "without exec"),
        (env("HF_HOME", "/models"), "writable", "warning", "HF_HOME (/models)"),
        (put("volumes", ["cache:/var/cache/safe-vllm"]), "state", "warning", "/var/lib/safe-vllm is in no volume"),
        (put("volumes", ["s:/var/lib/safe-vllm:ro"]), "state", "warning", "/var/lib/safe-vllm is in no volume"),
        (env("SAFE_VLLM_STATE_DIR", "/tmp/state"), "state", "note", "/tmp/state is in a tmpfs"),
        (drop("deploy"), "gpus", "note", "no GPU"),
        (env("HF_TOKEN", "hf_abcdefghijklmnop"), "secrets", "warning", "HF_TOKEN"),
        (put("command", ["m", "--api-key", "sesame-sesame"]), "secrets", "warning", "a flag"),
        (put("env_file", "options.env"), "unseen", "warning", "what env_file names"),
        (put("extends", {"service": "base"}), "unseen", "warning", "what extends names"),
        (put("entrypoint", ["vllm", "serve"]), "command", "problem", "it runs vllm serve"),
        (put("entrypoint", "sh -c 'safe-vllm serve m'"), "command", "problem", "it runs sh"),
        (put("entrypoint", ["safe-vllm", "plan"]), "command", "problem", "it runs safe-vllm plan"),
        (put("healthcheck", {"test": ["CMD", "curl", "localhost:8000/health"]}), "health", "note", "/health"),
    ],
)
def test_what_is_wrong_is_found_and_nothing_else(change: Change, name: str, level: str, what: str) -> None:
    changes = [change] if name != "command" or level != "problem" else [change, put("image", "x"), put("command", [])]
    told = [(each.name.removeprefix("compose-"), each.level, each.what) for each in found(*changes)]
    assert [(each[0], each[1]) for each in told] == [(name, level)]
    assert what in told[0][2]
    assert told[0][2].startswith("service llm: ")


def test_a_health_check_needs_the_status_server() -> None:
    [told] = found(lambda service: service["environment"].pop("SAFE_VLLM_STATUS_ADDRESS"))
    assert (told.name, told.level) == ("compose-health", "warning")


@pytest.mark.parametrize(
    "change",
    [
        put("stop_grace_period", "${GRACE:-2m30s}"),
        put("environment", ["HF_TOKEN", "API_KEY=${API_KEY}", "SAFE_VLLM_STATUS_ADDRESS=0.0.0.0:9464"]),
        put("tmpfs", "/tmp:size=1g,exec"),
        put("volumes", [{"type": "volume", "source": "s", "target": "/var/lib/safe-vllm/"}, "c:/var/cache"]),
        put("entrypoint", "safe-vllm serve"),
        put("command", "Qwen/Qwen3-30B-A3B --port 8000"),
        lambda service: service.update(ipc="host", shm_size="1k"),
    ],
)
def test_what_is_as_good_is_fine(change: Change) -> None:
    assert found(change) == []


def test_keys_are_found_and_never_shown() -> None:
    told = found(env("HF_TOKEN", "sesame-sesame"), put("command", "m --api-key sesame-sesame"))
    assert "compose-secrets" in {each.name for each in told}
    assert not any("sesame" in str(each) for each in compose.checked("c", changed(put("command", "--api-key sesame"))))


def test_vllms_own_image_is_told_that_nobody_steps_down() -> None:
    file = {"services": {"a": {"image": "vllm/vllm-openai:v0.32.0", "command": "--model m"}, "b": {"image": "redis"}}}
    told = [each for each in compose.checked("c.yaml", file) if each.name == "compose-command"]
    assert [each.what for each in told] == ["service a: it runs vllm/vllm-openai:v0.32.0 --model m"]
    assert told[0].why == "nobody steps down after a kernel fault"


def test_a_file_in_which_nothing_runs_vllm_is_a_problem() -> None:
    [told] = compose.checked("c.yaml", {"services": {"a": {"image": "vllm/router:1"}, "b": None}})
    assert (told.level, told.what) == ("problem", "nothing in c.yaml runs vLLM")


@pytest.mark.parametrize(
    ("text", "bytes_"), [("16gb", 1 << 34), ("64m", 1 << 26), ("1.5GiB", 3 << 29), (1024, 1024), ("${S}", None)]
)
def test_sizes_are_read_as_docker_writes_them(text: object, bytes_: float | None) -> None:
    assert size(text) == bytes_


@pytest.mark.parametrize(
    ("devices", "count"),
    [([{"count": 2}], 2), ([{"count": "all"}], float("inf")), ([{"device_ids": ["0", "3"]}], 2), ([], None)],
)
def test_gpus_are_counted(devices: object, count: float | None) -> None:
    deploy = {"resources": {"reservations": {"devices": devices}}}
    [service] = services(changed(put("deploy", deploy)))
    assert service.gpus == count


@given(st.data(), THINGS)
def test_whatever_stands_in_the_place_of_something_the_checks_come_to_an_end(
    data: st.DataObject, thing: object
) -> None:
    file: Any = changed()
    way = data.draw(st.sampled_from([each for each in sorted(places(file), key=str) if len(each) > 1]))
    inner = file
    for key in way[:-1]:
        inner = inner[key]
    inner[way[-1]] = thing
    assert compose.checked("c.yaml", file)
