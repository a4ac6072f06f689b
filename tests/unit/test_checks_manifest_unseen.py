"""What ``doctor --manifest`` says of objects that a manifest refers to, and what it reads of those that were given."""

from __future__ import annotations

import pytest
from manifests import Document, documents, workload
from test_checks_manifest import Change, drop, found, probe, put, volume

from safe_vllm.checks import manifest
from safe_vllm.checks.finding import Finding
from safe_vllm.checks.manifest_pods import containers


def unseen(
    *given: object, change: Change = lambda pod, container: None, name: str = "deployment.yaml"
) -> list[Finding]:
    """Return what is said of objects that a changed workload refers to, with these objects beside it."""
    whole, pod, container = workload(name)
    change(pod, container)
    findings = manifest.checked([whole, *given])
    assert all(each.level == "ok" or (each.why and each.do) for each in findings)
    return [each for each in findings if each.name == "manifest-unseen"]


def add(key: str, item: object) -> Change:
    return lambda pod, container: container[key].append(item)


def taken(field: str, name: str, key: str = "K", **more: object) -> Change:
    """Return a change that takes our time to stop from another object."""
    ref = {"name": name, "key": key, **more}
    return add("env", {"name": "SAFE_VLLM_STOP_TIMEOUT", "valueFrom": {field: ref}})


def mounted(**source: object) -> Change:
    def change(pod: Document, container: Document) -> None:
        pod["volumes"].append({"name": "more", **source})
        container["volumeMounts"].append({"name": "more", "mountPath": "/more"})

    return change


def test_a_config_map_that_was_not_given_is_told_with_where_to_give_it() -> None:
    [told] = unseen()
    assert (told.level, told.what) == (
        "warning",
        "Deployment/llm, container vllm: ConfigMap/safe-vllm-options is not in the files given: "
        "what it sets was not looked at",
    )
    assert "--manifest FILE" in told.do
    assert "kubectl get configmap safe-vllm-options -o yaml" in told.do
    assert unseen(*documents("configmap.yaml")) == []


@pytest.mark.parametrize(
    ("change", "level", "what"),
    [
        (add("envFrom", {"secretRef": {"name": "s"}}), "note", "Secret/s is not in the files given: what it sets"),
        (add("envFrom", {"configMapRef": {"name": "m", "optional": True}}), "note", "ConfigMap/m is not in the files"),
        (
            taken("configMapKeyRef", "m"),
            "warning",
            "ConfigMap/m is not in the files given: the value of SAFE_VLLM_STOP",
        ),
        (taken("secretKeyRef", "s"), "note", "Secret/s is not in the files given: the value of SAFE_VLLM_STOP_TIMEOUT"),
        (mounted(configMap={"name": "m"}), "note", "ConfigMap/m is not in the files given: what is mounted at /more"),
        (mounted(secret={"secretName": "s"}), "note", "Secret/s is not in the files given: what is mounted at /more"),
        (
            mounted(persistentVolumeClaim={"claimName": "c"}),
            "note",
            "PersistentVolumeClaim/c is not in the files given",
        ),
        (mounted(projected={"sources": [{"secret": {"name": "s"}}]}), "note", "Secret/s is not in the files given"),
        (put("args", ["m", "--config", "/more/c.yaml"]), "note", "--config names a file in the container"),
    ],
)
def test_whatever_was_not_given_and_not_looked_at_is_told(change: Change, level: str, what: str) -> None:
    [told] = unseen(*documents("configmap.yaml"), change=change)
    assert (told.level, what in told.what) == (level, True)


def test_a_key_for_the_hub_in_a_secret_is_no_gap() -> None:
    assert not any("HF_TOKEN" in each.what or "Secret" in each.what for each in unseen())


@pytest.mark.parametrize(
    ("change", "given"),
    [
        (taken("configMapKeyRef", "m"), {"kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"K": "200"}}),
        (
            add("envFrom", {"prefix": "SAFE_", "configMapRef": {"name": "m"}}),
            {"kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"VLLM_STOP_TIMEOUT": "200"}},
        ),
        (
            add("envFrom", {"secretRef": {"name": "m"}}),
            {"kind": "Secret", "metadata": {"name": "m"}, "data": {"SAFE_VLLM_STOP_TIMEOUT": "MjAw"}},
        ),
        (
            add("envFrom", {"secretRef": {"name": "m"}}),
            {"kind": "Secret", "metadata": {"name": "m"}, "stringData": {"SAFE_VLLM_STOP_TIMEOUT": "200"}},
        ),
        (put("command", ["safe-vllm", "--stop-timeout=$(LONG)", "serve"]), {"kind": "ConfigMap"}),
    ],
)
def test_what_was_given_is_looked_at_wherever_it_stands(change: Change, given: Document) -> None:
    def changed(pod: Document, container: Document) -> None:
        container["env"].append({"name": "LONG", "value": "200"})
        change(pod, container)

    whole, pod, container = workload("deployment.yaml")
    changed(pod, container)
    findings = manifest.checked([whole, *documents("configmap.yaml"), {"kind": "ConfigMapList", "items": [given]}])
    assert [each.what.rpartition(": ")[2][:60] for each in findings if each.name == "manifest-grace"] == [
        "terminationGracePeriodSeconds 90 is not above the 200 s that vLLM has to end and the 5 s of preStop"[:60]
    ]


def test_a_key_that_an_object_lacks_keeps_the_container_from_starting() -> None:
    given = {"kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"other": "1"}}
    [told] = unseen(*documents("configmap.yaml"), given, change=taken("configMapKeyRef", "m"))
    assert (told.level, "ConfigMap/m has no K" in told.what) == ("problem", True)
    assert unseen(*documents("configmap.yaml"), given, change=taken("configMapKeyRef", "m", optional=True)) == []


def test_the_last_word_on_a_variable_counts_also_where_it_is_not_known() -> None:
    [told] = unseen(
        {"kind": "ConfigMap", "metadata": {"name": "safe-vllm-options"}, "data": {"SAFE_VLLM_STOP_TIMEOUT": "200"}},
        change=taken("configMapKeyRef", "elsewhere"),
    )
    assert "elsewhere" in told.what
    whole, pod, container = workload("deployment.yaml")
    taken("fieldRef", "x")(pod, container)
    [read] = containers([whole, {"kind": "ConfigMap", "metadata": {"name": "safe-vllm-options"}, "data": OPTIONS}])
    assert (OPTIONS["SAFE_VLLM_STOP_TIMEOUT"], read.started.variables.get("SAFE_VLLM_STOP_TIMEOUT")) == ("200", None)


OPTIONS = {"SAFE_VLLM_STOP_TIMEOUT": "200"}


def test_secrets_that_were_given_are_never_shown() -> None:
    secret = {"kind": "Secret", "metadata": {"name": "s"}, "stringData": {"HF_TOKEN": "sesame1", "X": "sesame2"}}
    whole, _, container = workload("deployment.yaml")
    container["envFrom"].append({"secretRef": {"name": "s"}})
    container["args"] += ["$(HF_TOKEN)", "--x=$(X)", "$$(X)"]
    findings = manifest.checked([whole, secret])
    assert not any("sesame" in str(each) for each in findings)
    assert any("--x=$(X) $(X)" in each.what for each in findings if each.name == "manifest-command")
    assert not any("HF_TOKEN" in each.what for each in findings if each.name == "manifest-secrets")


def test_a_claim_for_readers_alone_holds_no_state() -> None:
    claim: Document = {"kind": "PersistentVolumeClaim", "metadata": {"name": "c"}, "spec": {"accessModes": []}}
    of_claim = volume("state", persistentVolumeClaim={"claimName": "c"})
    whole, pod, container = workload("deployment.yaml")
    of_claim(pod, container)
    for modes, level in ((["ReadWriteOnce"], "ok"), (["ReadOnlyMany"], "warning")):
        claim["spec"]["accessModes"] = modes
        findings = manifest.checked([whole, claim])
        assert [each.level for each in findings if each.name == "manifest-state"] == [level]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (add("env", {"name": "SAFE_VLLM_STOP_TIMEOUT", "value": 60}), "no text: SAFE_VLLM_STOP_TIMEOUT"),
        (put("args", ["m", "--port", 8000]), "no text: args 8000"),
        (put("args", "m --port 8000"), "no text: args"),
    ],
)
def test_what_kubernetes_refuses_for_not_being_text_is_told(change: Change, what: str) -> None:
    [told] = [each for each in found(change) if each.name == "manifest-values"]
    assert (told.level, told.what.endswith(what)) == ("problem", True)


@pytest.mark.parametrize("image", ["vllm/vllm-openai:v0.32.0", "rocm/vllm@sha256:1", "r.io/vllm-cpu-release-repo"])
def test_an_image_of_vllms_without_a_command_runs_vllm(image: str) -> None:
    pod = {"kind": "Pod", "spec": {"containers": [{"name": "v", "image": image, "args": ["--model", "m"]}]}}
    [told] = [each for each in manifest.checked([pod]) if each.name == "manifest-command"]
    assert (told.level, told.what) == ("problem", f"Pod/?, container v: it runs {image} --model m")


def test_vllm_itself_in_our_image_is_not_us() -> None:
    [told] = [each for each in found(put("command", ["vllm", "serve"])) if each.name == "manifest-command"]
    assert (told.level, told.why) == ("problem", "nobody steps down after a kernel fault")


def test_the_words_of_an_image_that_is_ours_are_those_after_serve() -> None:
    new = [each for each in found(drop("command"), put("args", ["m", "--shutdown-timeout", "300"])) if each.counts]
    assert ["the 315 s" in each.what for each in new] == [True]


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), -1, True, 10**400])
def test_numbers_that_are_none_count_as_not_given(value: object) -> None:
    assert not [each for each in found(put("livenessProbe", probe("/livez", 10, value, "status"))) if not each.what]


def test_a_vllm_without_us_beside_one_with_us_is_told_and_a_benchmark_is_not() -> None:
    pod = {
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {
            "containers": [
                {"name": "other", "command": ["vllm", "serve", "m"]},
                {"name": "load", "command": ["vllm", "bench", "serve"]},
            ]
        },
    }
    read = containers([*documents("deployment.yaml"), pod])
    assert [each.where for each in read] == ["Deployment/llm, container vllm", "Pod/p, container other"]
