"""What ``doctor --manifest`` finds in a compose file. Each case is the one that we ship, with one thing changed."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from manifests import read
from test_checks_manifest import THINGS, places

from safe_vllm.checks import compose
from safe_vllm.checks.compose_services import services, size
from safe_vllm.checks.finding import Finding

SHIPPED = Path(__file__).parents[2] / "deploy" / "docker" / "compose.yaml"
[FILE] = read(SHIPPED)
Change = Callable[[dict[str, Any]], object]


def put(key: str, value: object) -> Change:
    return lambda service: service.update({key: value})


def drop(key: str) -> Change:
    return lambda service: service.pop(key)


def env(name: str, value: object) -> Change:
    return lambda service: service["environment"].update({name: value})


def tmpfs_in_long(target: str) -> Change:
    def change(service: dict[str, Any]) -> None:
        service["tmpfs"] = []
        service["volumes"].append({"type": "tmpfs", "target": target, "tmpfs": {"size": 1 << 30}})

    return change


def asks(command: str) -> Change:
    return put("healthcheck", {"test": command})


def swarm(policy: dict[str, Any]) -> Change:
    def change(service: dict[str, Any]) -> None:
        del service["restart"]
        service["deploy"]["restart_policy"] = policy

    return change


def changed(*changes: Change) -> dict[str, Any]:
    file: dict[str, Any] = deepcopy(FILE)
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
        (put("stop_grace_period", 90), "grace", "problem", "'90' is no time"),
        (put("stop_grace_period", "2min"), "grace", "problem", "'2min' is no time"),
        (put("stop_grace_period", "${GRACE}"), "grace", "note", "stop_grace_period: ${GRACE}"),
        (put("stop_signal", "SIGUSR1"), "grace", "problem", "SIGUSR1"),
        (put("stop_signal", "${SIGNAL}"), "grace", "note", "stop_signal: ${SIGNAL}"),
        (drop("restart"), "restart", "note", "nothing starts it again"),
        (put("restart", "no"), "restart", "note", "nothing starts it again"),
        (put("restart", "always"), "restart", "note", "restart: always"),
        (put("restart", "unless-stopped"), "restart", "note", "restart: unless-stopped"),
        (put("restart", "on-failure"), "restart", "note", "restart: on-failure"),
        (put("restart", "on-failure:0"), "restart", "note", "restart: on-failure:0"),
        (put("restart", "sometimes"), "restart", "problem", "restart: sometimes is no policy"),
        (put("restart", "unless-stopped:3"), "restart", "problem", "restart: unless-stopped:3 is no policy"),
        (put("restart", "no:3"), "restart", "problem", "restart: no:3 is no policy"),
        (put("restart", "on-failure:often"), "restart", "problem", "restart: on-failure:often is no policy"),
        (put("restart", "${AGAIN}"), "restart", "note", "restart: ${AGAIN}"),
        (swarm({}), "restart", "note", "restart: any"),
        (swarm({"condition": "none"}), "restart", "note", "nothing starts it again"),
        (swarm({"condition": "on-failure", "max_attempts": "x"}), "restart", "problem", "is no policy"),
        (drop("shm_size"), "shm", "warning", "64 MiB, the default"),
        (put("shm_size", "64mb"), "shm", "warning", "shm_size: 64mb"),
        (put("shm_size", "lots"), "shm", "problem", "shm_size 'lots' is no size"),
        (put("shm_size", "${SHM}"), "shm", "note", "shm_size: ${SHM}"),
        (put("ipc", "service:db"), "shm", "note", "/dev/shm is that of service:db"),
        (put("tmpfs", ["/tmp:exec", "/dev/shm:size=64m"]), "shm", "warning", "a tmpfs of less than a GiB"),
        (put("tmpfs", ["/tmp:exec", "/dev/shm:ro"]), "shm", "problem", "cannot be written"),
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
        (put("entrypoint", ["safe-vllm"]), "command", "problem", "it runs safe-vllm without a subcommand"),
        (asks("curl localhost:8000/health"), "health", "note", "/health"),
        (asks("exit 0"), "health", "note", "neither /readyz nor /livez"),
        (asks("curl localhost:8000/v1/models"), "health", "note", "neither /readyz nor /livez"),
        (asks("curl localhost:8000/healthz"), "health", "note", "neither /readyz nor /livez"),
        (asks("curl http://localhost:9999/readyz"), "health", "warning", "at port 9999, and --status-address is 0.0"),
        (asks("curl http://localhost/readyz"), "health", "warning", "asks at port 80, "),
        (asks("curl localhost:$$PORT/readyz"), "health", "note", "asks for /livez or /readyz, and --status-address"),
        (
            env("SAFE_VLLM_STATUS_ADDRESS", "[::]:99"),
            "health",
            "warning",
            "at port 9464, and --status-address is [::]:99",
        ),
        (env("SAFE_VLLM_STATUS_ADDRESS", ":9999"), "options", "problem", "SAFE_VLLM_STATUS_ADDRESS is ':9999'"),
        (env("SAFE_VLLM_OFF", 1), "options", "warning", "SAFE_VLLM_OFF is set"),
        (env("SAFE_VLLM_STATEDIR", "/x"), "options", "warning", "SAFE_VLLM_STATEDIR is no variable of ours"),
        (env("SAFE_VLLM_STATE_DIR", "${STATE}"), "state", "note", "SAFE_VLLM_STATE_DIR: ${STATE}"),
        (put("entrypoint", "timeout 9 safe-vllm serve"), "command", "warning", "it runs timeout, and safe-vllm below"),
        (put("pre_stop", [{"command": "sleep 60"}]), "grace", "warning", "end and the 60 s of pre_stop"),
        (put("pre_stop", [{"command": ["/drain"]}]), "grace", "note", "how long pre_stop takes cannot be seen"),
        (put("stop_grace_period", "${A:-${B:-5s}}"), "grace", "warning", "5 s is not above"),
        (tmpfs_in_long("/tmp"), "writable", "note", "without exec"),
        (env("SAFE_VLLM_STATUS_ADDRESS", "${AT}"), "health", "note", "--status-address is ${AT}"),
        (put("healthcheck", {"test": ["curl", "x"]}), "health", "problem", "begins with neither CMD nor CMD-SHELL"),
    ],
)
def test_what_is_wrong_is_found_and_nothing_else(change: Change, name: str, level: str, what: str) -> None:
    of_no_image = [put("image", "x"), put("command", []), env("SAFE_VLLM_STATE_DIR", "/var/lib/safe-vllm")]
    changes = [change] if name != "command" or level != "problem" else [change, *of_no_image]
    told = [(each.name.removeprefix("compose-"), each.level, each.what) for each in found(*changes)]
    assert [(each[0], each[1]) for each in told] == [(name, level)]
    assert what in told[0][2]
    assert told[0][2].startswith("service llm: ")


def test_a_health_check_needs_the_status_server() -> None:
    [told] = found(lambda service: service["environment"].pop("SAFE_VLLM_STATUS_ADDRESS"))
    assert (told.name, told.level) == ("compose-health", "warning")


@pytest.mark.parametrize(
    "healthcheck",
    [
        {"test": ["NONE"]},
        {"test": "NONE"},
        {"test": "curl localhost:8000/v1/models", "disable": True},
        {"interval": "5s"},
        {"test": []},
        "x",
    ],
)
def test_nothing_is_said_of_a_health_check_that_is_none(healthcheck: object) -> None:
    told = compose.checked("c.yaml", changed(put("healthcheck", healthcheck)))
    assert not [each for each in told if each.name == "compose-health"]


def test_where_options_may_stand_elsewhere_a_health_check_is_not_called_fine() -> None:
    changes = (put("env_file", "x.env"), lambda service: service["environment"].pop("SAFE_VLLM_STATUS_ADDRESS"))
    assert not [each for each in compose.checked("c.yaml", changed(*changes)) if each.name == "compose-health"]


def test_another_image_may_keep_its_state_anywhere() -> None:
    own = (put("image", "my-vllm"), put("entrypoint", ["safe-vllm", "serve"]))
    [told] = found(*own)
    assert (told.name, told.level, told.what) == (
        "compose-state",
        "note",
        "service llm: SAFE_VLLM_STATE_DIR is not set",
    )
    assert found(*own, env("SAFE_VLLM_STATE_DIR", "/var/lib/safe-vllm")) == []
    assert found(*own, put("entrypoint", ["safe-vllm", "--state-dir", "/var/lib/safe-vllm", "serve"])) == []


def test_a_script_that_may_become_anything_is_not_called_fine() -> None:
    [told] = found(put("entrypoint", ["/start.sh"]))
    assert (told.name, told.level) == ("compose-command", "note")
    assert "it runs /start.sh " in told.what


@pytest.mark.parametrize(
    "change",
    [
        swarm({"condition": "on-failure", "max_attempts": 3}),
        asks("curl -f http://[::1]:9464/readyz || exit 1"),
        put("healthcheck", {"test": ["CMD-SHELL", "wget -q -O- 127.0.0.1:9464/livez"]}),
        put("tmpfs", ["/tmp:exec", "/dev/shm:size=16g"]),
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


def test_services_that_only_ask_vllm_are_left_alone() -> None:
    file = changed()
    file["services"] |= {
        "litellm": {"image": "litellm", "command": "--api_base http://vllm:8000/v1"},
        "wait": {"image": "curl", "command": "sh -c 'until curl -sf http://vllm:8000/health; do sleep 2; done'"},
        "nginx": {"image": "nginx", "entrypoint": ["/wait-for-it.sh", "vllm:8000", "--", "nginx"]},
        "proxy": {"image": "proxy", "environment": {"SAFE_VLLM_STATUS_ADDRESS": "0.0.0.0:9464"}},
    }
    assert [each.where for each in services(file)] == ["service llm"]


def test_what_compose_filled_in_it_can_leave_out() -> None:
    [told] = found(env("HF_TOKEN", "hf_abcdefghijklmnop"))
    assert "--no-interpolate" in told.do


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
