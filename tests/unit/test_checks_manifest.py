"""What ``doctor --manifest`` finds in a Kubernetes manifest. Each case is one that we ship, with one thing changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from manifests import Document, documents, workload

from safe_vllm.checks import manifest
from safe_vllm.checks.finding import Finding
from safe_vllm.checks.manifest_pods import containers, size
from safe_vllm.checks.manifest_probes import ladder_s

Change = Callable[[Document, Document], object]
"""Changes a pod and its container."""
LADDER = "the ladder may need 3030 s"


def probe(path: str, period: int, threshold: int, port: object = 8000, **more: object) -> Document:
    return {"httpGet": {"path": path, "port": port}, "periodSeconds": period, "failureThreshold": threshold, **more}


def put(key: str, value: object) -> Change:
    return lambda pod, container: container.update({key: value})


def of_pod(key: str, value: object) -> Change:
    return lambda pod, container: pod.update({key: value})


def drop(key: str) -> Change:
    return lambda pod, container: container.pop(key)


def env(name: str, value: str) -> Change:
    return lambda pod, container: container["env"].append({"name": name, "value": value})


def without_mount(path: str) -> Change:
    def change(pod: Document, container: Document) -> None:
        container["volumeMounts"] = [each for each in container["volumeMounts"] if each["mountPath"] != path]

    return change


def volume(name: str, **what: object) -> Change:
    def change(pod: Document, container: Document) -> None:
        pod["volumes"] = [{"name": name, **what} if each["name"] == name else each for each in pod["volumes"]]

    return change


def pre_stop(*words: str) -> Change:
    return put("lifecycle", {"preStop": {"exec": {"command": list(words)}}})


def asked(name: str, url: str) -> Change:
    """Return a change that has a probe run a command in the container."""
    return put(name, {"exec": {"command": ["curl", "-sf", url]}, "timeoutSeconds": 5, "failureThreshold": 99})


def found(*changes: Change, name: str = "deployment.yaml") -> list[Finding]:
    """Return what is found in a changed workload, what is fine aside."""
    whole, pod, container = workload(name)
    for change in changes:
        change(pod, container)
    return [each for each in manifest.checked([whole, *documents("configmap.yaml")]) if each.level != "ok"]


WRONG = [
    (put("startupProbe", probe("/health", 15, 41)), "manifest-startup", "warning", f"after 615 s; {LADDER}"),
    (put("startupProbe", probe("/readyz", 10, 60, "status")), "manifest-startup", "warning", LADDER),
    (put("startupProbe", {"tcpSocket": {"port": "http"}}), "manifest-startup", "warning", "after 30 s"),
    (put("startupProbe", probe("/livez", 5, 2, "status")), "manifest-startup", "warning", "after 10 s"),
    (put("livenessProbe", probe("/health", 10, 3)), "manifest-liveness", "warning", f"after 30 s; {LADDER}"),
    (put("livenessProbe", probe("/health", 60, 60)), "manifest-liveness", "note", "waits for 3600 s"),
    (put("livenessProbe", probe("/readyz", 10, 6, "status")), "manifest-liveness", "warning", LADDER),
    (
        put("livenessProbe", probe("/livez", 10, 18, "status")),
        "manifest-liveness",
        "warning",
        "waits 1 s for an answer",
    ),
    (
        put("livenessProbe", probe("/livez", 5, 2, "status", timeoutSeconds=5)),
        "manifest-liveness",
        "warning",
        "acts after 10 s",
    ),
    (drop("livenessProbe"), "manifest-liveness", "note", "there is no livenessProbe"),
    (drop("readinessProbe"), "manifest-readiness", "warning", "there is no readinessProbe"),
    (put("readinessProbe", probe("/livez", 5, 1, "status")), "manifest-readiness", "warning", "/livez"),
    (put("readinessProbe", probe("/health", 5, 1)), "manifest-readiness", "note", "/health"),
    (put("livenessProbe", probe("/livez", 10, 18, 8000, timeoutSeconds=5)), "manifest-status", "problem", "port 8000"),
    (drop("envFrom"), "manifest-status", "problem", "--status-address is not given"),
    (env("SAFE_VLLM_STATUS_ADDRESS", "127.0.0.1:9464"), "manifest-status", "problem", "127.0.0.1:9464"),
    (of_pod("terminationGracePeriodSeconds", 65), "manifest-grace", "warning", "65 is not above the 60 s"),
    (lambda pod, _: pod.pop("terminationGracePeriodSeconds"), "manifest-grace", "warning", "30, the default, is not"),
    (env("SAFE_VLLM_STOP_TIMEOUT", "120"), "manifest-grace", "warning", "the 120 s that vLLM has"),
    (put("command", ["safe-vllm", "--stop-timeout=100", "serve"]), "manifest-grace", "warning", "the 100 s"),
    (put("args", ["tiny", "--shutdown-timeout", "300"]), "manifest-grace", "warning", "the 315 s"),
    (without_mount("/dev/shm"), "manifest-shm", "warning", "nothing is mounted at /dev/shm"),
    (volume("shm", emptyDir={}), "manifest-shm", "warning", "is not in memory"),
    (volume("shm", emptyDir={"medium": "Memory", "sizeLimit": "64Mi"}), "manifest-shm", "warning", "64Mi"),
    (of_pod("restartPolicy", "Never"), "manifest-restart", "note", "Never"),
    (without_mount("/tmp"), "manifest-writable", "warning", "temporary files (/tmp)"),
    (without_mount("/var/cache/safe-vllm"), "manifest-writable", "warning", "HOME (/var/cache/safe-vllm)"),
    (lambda _, container: container["volumeMounts"][1].update(readOnly=True), "manifest-writable", "warning", "HOME"),
    (env("HF_HOME", "/models"), "manifest-writable", "warning", "HF_HOME (/models)"),
    (without_mount("/var/lib/safe-vllm"), "manifest-state", "warning", "is in no volume that can be written"),
    (env("SAFE_VLLM_STATE_DIR", ""), "manifest-state", "note", "is not set"),
    (of_pod("enableServiceLinks", True), "manifest-links", "note", "is not false"),
    (env("HF_TOKEN", "hf_abcdefghijklmnop"), "manifest-secrets", "warning", "HF_TOKEN"),
    (put("args", ["tiny", "--api-key", "sesame-sesame"]), "manifest-secrets", "warning", "a flag"),
    (put("command", ["sh", "-c", "safe-vllm serve tiny"]), "manifest-command", "problem", "it runs sh"),
    (put("command", ["safe-vllm", "plan"]), "manifest-command", "problem", "it runs safe-vllm plan"),
    (put("command", ["/start.sh"]), "manifest-command", "note", "it runs /start.sh "),
    (put("command", ["sh", "-c", "exec /start.sh"]), "manifest-command", "note", "it runs sh -c exec /start.sh "),
    (
        put("command", ["timeout", "9", "safe-vllm", "serve"]),
        "manifest-command",
        "warning",
        "it runs timeout, and safe",
    ),
    (
        put("command", ["sh", "-c", "exec uv run safe-vllm serve"]),
        "manifest-command",
        "warning",
        "it runs uv, and safe",
    ),
    (env("SAFE_VLLM_OFF", "True"), "manifest-options", "warning", "SAFE_VLLM_OFF is set"),
    (
        env("SAFE_VLLM_STATUS_ADDRESS", ":9464"),
        "manifest-options",
        "problem",
        "STATUS_ADDRESS is ':9464', and safe-vllm",
    ),
    (env("SAFE_VLLM_STATUS_ADDRESS", "unix:/x"), "manifest-options", "problem", "'unix:/x'"),
    (env("SAFE_VLLM_STOP_TIMEOUT", "300s"), "manifest-options", "problem", "SAFE_VLLM_STOP_TIMEOUT is '300s'"),
    (put("command", ["safe-vllm", "--backoff=2s", "serve"]), "manifest-options", "problem", "--backoff is '2s'"),
    (env("SAFE_VLLM_STOP_TIMEOUT", "3e2"), "manifest-grace", "warning", "the 300 s that vLLM has"),
    (env("SAFE_VLLM_STOP_TIMOUT", "60"), "manifest-options", "warning", "SAFE_VLLM_STOP_TIMOUT is no variable of ours"),
    (pre_stop("sleep", "60"), "manifest-grace", "warning", "the 60 s that vLLM has to end and the 60 s of preStop"),
    (pre_stop("sh", "-c", "sleep 60"), "manifest-grace", "warning", "and the 60 s of preStop"),
    (pre_stop("/drain.sh"), "manifest-grace", "note", "how long preStop takes cannot be seen"),
    (asked("startupProbe", "http://127.0.0.1:9999/livez"), "manifest-status", "problem", "/livez at port 9999"),
    (
        put("readinessProbe", {"httpGet": {"path": "/readyz", "port": "status", "scheme": "HTTPS"}}),
        "manifest-status",
        "problem",
        "scheme HTTPS",
    ),
    (put("args", ["tiny", "--headless"]), "manifest-readiness", "warning", "a readinessProbe beside --headless"),
]


@pytest.mark.parametrize(("change", "name", "level", "what"), WRONG)
def test_what_is_wrong_is_found_and_nothing_else(change: Change, name: str, level: str, what: str) -> None:
    before, after = found(), found(change)
    new = [each for each in after if each not in before]
    assert [(each.name, each.level) for each in new] == [(name, level)]
    assert what in new[0].what
    assert new[0].why
    assert new[0].do


def test_a_container_that_runs_vllm_itself_is_told_that_nobody_steps_down() -> None:
    changes = [put("command", ["vllm", "serve"]), put("image", "vllm/vllm-openai:v0.32.0"), drop("envFrom")]
    whole, pod, container = workload("deployment.yaml")
    for change in changes:
        change(pod, container)
    container["env"] = []
    new = [each for each in manifest.checked([whole]) if each.name == "manifest-command"]
    assert [(each.level, each.why) for each in new] == [("problem", "nobody steps down after a kernel fault")]


def test_a_command_in_the_container_reaches_its_own_loopback() -> None:
    local = env("SAFE_VLLM_STATUS_ADDRESS", "127.0.0.1:9464")
    url = "http://127.0.0.1:9464"
    probes = (asked("startupProbe", f"{url}/livez"), asked("livenessProbe", f"{url}/livez"))
    assert found(local, *probes, asked("readinessProbe", f"{url}/readyz")) == found()
    assert [each.name for each in found(local, *probes) if each not in found()] == ["manifest-status"]


def test_an_address_that_is_refused_is_not_called_fine_beside_it() -> None:
    whole, _, container = workload("deployment.yaml")
    container["env"].append({"name": "SAFE_VLLM_STATUS_ADDRESS", "value": ":9464"})
    told = manifest.checked([whole, *documents("configmap.yaml")])
    assert [each for each in told if each.name == "manifest-status"] == []


def test_a_member_without_an_api_needs_no_readiness_probe() -> None:
    assert found(put("args", ["tiny", "--headless"]), drop("readinessProbe")) == found()


@pytest.mark.parametrize(
    "container",
    [
        {"image": "lmcache/lmstack-router", "args": ["--k8s-namespace", "vllm"]},
        {"image": "busybox", "command": ["wget"], "args": ["vllm:8000"]},
        {"image": "curl", "command": ["sh", "-c", "until curl http://vllm:8000/health; do sleep 5; done"]},
        {"image": "litellm", "args": ["--api_base", "http://vllm:8000/v1"]},
        {"image": "safe-vllm:1", "command": ["ray", "start", "--block"]},
        {"image": "safe-vllm:1", "command": ["sh", "-c", "ray start --block --address=$(LWS_LEADER_ADDRESS):6379"]},
        {"image": "safe-vllm:1", "command": ["sh", "-c", "bash /x/multi-node-serving.sh worker --ray_address=$(X)"]},
        {"image": "safe-vllm:1", "command": ["bash", "/x/multi-node-serving.sh", "worker"]},
        {
            "image": "oauth2-proxy",
            "args": ["--client-id=vllm"],
            "envFrom": [{"configMapRef": {"name": "safe-vllm-options"}}],
        },
        {"image": "proxy", "env": [{"name": "SAFE_VLLM_STATUS_ADDRESS", "value": "0.0.0.0:9464"}]},
    ],
)
def test_who_only_speaks_of_vllm_or_works_for_ray_is_left_alone(container: Document) -> None:
    whole, pod, _ = workload("deployment.yaml")
    pod["containers"].append({"name": "other", **container})
    assert [each.where for each in containers([whole, *documents("configmap.yaml")])] == [
        "Deployment/llm, container vllm"
    ]


@pytest.mark.parametrize(
    "image",
    ["vllm/vllm-openai:v0.32.0", "rocm/vllm-dev:main", "registry.redhat.io/rhaiis/vllm-cuda-rhel9:3.2", "intel/vllm"],
)
def test_images_of_vllms_own_are_known_by_their_names(image: str) -> None:
    pod = {"kind": "Pod", "spec": {"containers": [{"image": image, "args": ["--model", "m"]}]}}
    assert len(containers([pod])) == 1


def test_a_config_map_of_another_namespace_does_not_count() -> None:
    (options,) = documents("configmap.yaml")
    options["data"]["SAFE_VLLM_STOP_TIMEOUT"] = "900"

    def told(of_pod: str | None, of_map: str | None, *more: object) -> list[str]:
        whole, _, _ = workload("deployment.yaml")
        whole["metadata"]["namespace"] = of_pod
        given = {**options, "metadata": {**options["metadata"], "namespace": of_map}}
        found = manifest.checked([whole, given, *more])
        return [each.name for each in found if each.counts]

    assert told("a", "b") == ["manifest-unseen"]
    assert told("a", "a") == told("a", None) == told(None, "b") == ["manifest-grace"]
    short = documents("configmap.yaml")[0]
    assert told("a", "a", short) == ["manifest-grace"]  # the one that names its namespace counts


def test_an_entrypoint_of_the_image_needs_no_command() -> None:
    assert found(drop("command")) == found()


@pytest.mark.parametrize("command", [["sh", "-c", "exec safe-vllm serve tiny"], ["/opt/bin/safe-vllm", "serve"]])
def test_a_shell_that_becomes_safe_vllm_and_a_path_are_fine(command: list[str]) -> None:
    assert found(put("command", command)) == found()


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        (["--start-timeout", "100"], 530),
        (["--max-attempts", "2"], 1202),
        (["--backoff=0"], 3000),
        (["--backoff=100"], 3240),
        (["--max-attempts", "9" * 400], 3030),
    ],
)
def test_the_ladder_is_as_long_as_the_options_make_it(words: list[str], seconds: int) -> None:
    whole, _, container = workload("deployment.yaml")
    container["command"] = ["safe-vllm", *words, "serve"]
    (read,) = containers([whole])
    assert ladder_s(read) == seconds


def test_a_probe_that_runs_a_command_is_judged_by_the_endpoint_in_it() -> None:
    command = {"exec": {"command": ["curl", "-sf", "http://localhost:9464/livez"]}, "timeoutSeconds": 5}
    assert found(put("startupProbe", command), put("livenessProbe", command)) == found()


def test_a_start_up_probe_on_health_that_outlasts_the_ladder_is_fine() -> None:
    assert found(put("startupProbe", probe("/health", 10, 304))) == found()


def test_of_a_config_map_that_is_elsewhere_nothing_is_guessed() -> None:
    whole, _, _ = workload("deployment.yaml")
    assert [each for each in manifest.checked([whole]) if each.name == "manifest-status"] == []


def test_pods_are_found_in_lists_and_in_the_kinds_of_operators() -> None:
    _, pod, _ = workload("deployment.yaml")
    group = {
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "g"},
        "spec": {"leaderWorkerTemplate": {"a": {"spec": pod}}},
    }
    read = containers([{"kind": "List", "items": [{"kind": "Pod", "metadata": {"name": "p"}, "spec": pod}, group]}])
    assert [each.where for each in read] == ["Pod/p, container vllm", "LeaderWorkerSet/g, container vllm"]


def test_sidecars_are_left_alone() -> None:
    whole, pod, _ = workload("deployment.yaml")
    pod["containers"].append({"name": "proxy", "image": "vllm/router", "command": ["vllm-router"]})
    assert [each.where for each in containers([whole])] == ["Deployment/llm, container vllm"]


def test_a_manifest_that_runs_no_vllm_is_a_problem() -> None:
    (told,) = manifest.checked([{"kind": "Service"}, None, "text", [1]])
    assert (told.level, told.what) == ("problem", "nothing in it runs vLLM")


def test_of_two_volumes_the_deeper_one_holds_a_place() -> None:
    deeper = {"name": "locked", "mountPath": "/var/lib/safe-vllm/sub", "readOnly": True}
    changes = [lambda _, container: container["volumeMounts"].append(deeper)]
    assert found(*changes) == found()
    (new,) = [each for each in found(*changes, env("SAFE_VLLM_STATE_DIR", "/var/lib/safe-vllm/sub")) if each.counts]
    assert new.what.endswith("/var/lib/safe-vllm/sub is in no volume that can be written")


def test_secrets_in_a_command_are_not_repeated() -> None:
    assert not any("sesame" in str(each) for each in found(put("args", ["tiny", "--api-key", "sesame-sesame"])))
    whole, _, container = workload("deployment.yaml")
    container["args"] = ["tiny", "--api-key", "sesame-sesame"]
    assert not any("sesame" in str(each) for each in manifest.checked([whole]))
    whole["spec"]["template"]["spec"]["containers"] = [
        {"command": ["vllm", "serve", "tiny", "--api-key", "sesame-sesame"]}
    ]
    assert not any("sesame" in str(each) for each in manifest.checked([whole]))


def test_a_key_that_comes_from_another_variable_is_no_key() -> None:
    assert found(env("HF_TOKEN", "$(TOKEN)"), put("args", ["tiny", "--api-key", "$(KEY)"])) == found()


def test_nonsense_in_the_names_of_ports_and_volumes_is_passed_over() -> None:
    def change(pod: Document, container: Document) -> None:
        container["ports"].append({"name": [], "containerPort": {}})
        pod["volumes"].append({"name": {}})

    assert found(change) == found()


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [("64Mi", 1 << 26), ("1.5Gi", 3 << 29), ("2G", 2e9), (5, 5), ("", None), (None, None), ("x", None)],
)
def test_quantities_are_read_as_kubernetes_writes_them(text: object, bytes_: float | None) -> None:
    assert size(text) == bytes_


KEYS = st.sampled_from(("name", "value", "port", "path", "emptyDir", "medium", "command", "containers", "x"))
LEAVES = (
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(("safe-vllm", "/livez", "", "1" * 9999, 10**400))
)
THINGS = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5))


def places(value: object, way: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the way to every value in a document."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*way, key)
        yield from places(inner, (*way, key))


@given(st.data(), THINGS)
def test_whatever_stands_in_the_place_of_something_the_checks_come_to_an_end(
    data: st.DataObject, thing: object
) -> None:
    whole: Any = [*documents("deployment.yaml"), *documents("configmap.yaml")]
    way = data.draw(st.sampled_from(sorted(places(whole), key=str)))
    inner = whole
    for key in way[:-1]:
        inner = inner[key]
    inner[way[-1]] = thing
    assert manifest.checked(whole)
