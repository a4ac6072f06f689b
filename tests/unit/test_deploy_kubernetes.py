"""The Kubernetes manifests that we ship: what the published schemas take, and what safe-vllm and vLLM need of a pod."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from manifests import DOCUMENTS, NAMES, ROOT, WORKLOADS, documents, options, workload

from safe_vllm.checks import manifest
from safe_vllm.checks.manifest_pods import containers, size
from safe_vllm.checks.manifest_probes import ladder_s
from safe_vllm.cli.main import cli
from safe_vllm.plan.intent import Limits
from safe_vllm.plan.secrets import NAME

SCHEMAS = {path.stem: path for path in Path(__file__).with_name("kubernetes").glob("v*.json")}
API = {"apps/v1": "io.k8s.api.apps.v1", "v1": "io.k8s.api.core.v1"}
STATE, CACHE = "/var/lib/safe-vllm", "/var/cache/safe-vllm"
OBJECTS = [(name, at) for name in NAMES for at in range(len(DOCUMENTS[name]))]


@cache
def schema(version: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(SCHEMAS[version].read_text())
    return found


def refused(version: str, found: dict[str, Any]) -> list[str]:
    """Return what a version of Kubernetes does not take."""
    kind = f"{API[found['apiVersion']]}.{found['kind']}"
    validator = Draft202012Validator({**schema(version), "$ref": f"#/$defs/{kind}"})
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(found)]


def mounts(container: dict[str, Any]) -> dict[str, str]:
    return {each["mountPath"]: each["name"] for each in container["volumeMounts"]}


def variables(container: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["value"] for each in container["env"] if "value" in each}


def seconds(probe: dict[str, Any]) -> int:
    return int(probe["periodSeconds"] * probe["failureThreshold"])


def test_there_are_schemas_of_the_oldest_and_the_newest_kubernetes_that_we_look_at() -> None:
    assert sorted(SCHEMAS) == ["v1.30", "v1.37"]


@pytest.mark.parametrize("version", sorted(SCHEMAS))
@pytest.mark.parametrize(("name", "at"), OBJECTS)
def test_every_object_is_one_that_the_published_schema_takes(version: str, name: str, at: int) -> None:
    assert refused(version, documents(name)[at]) == []


@pytest.mark.parametrize("version", sorted(SCHEMAS))
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("readinessprobe", {}),
        ("command", "safe-vllm serve"),
        ("livenessProbe", {"httpGet": {"path": "/livez"}}),
        ("startupProbe", {"periodSeconds": "5"}),
        ("volumeMounts", [{"name": "state"}]),
        ("securityContext", {"readOnlyRootFileSystem": True}),
    ],
)
def test_the_schemas_refuse_what_is_wrong(version: str, key: str, value: object) -> None:
    found, _, container = workload("deployment.yaml")
    container[key] = value
    assert len(refused(version, found)) == 1


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize(
    ("probe", "path"), [("startupProbe", "/livez"), ("livenessProbe", "/livez"), ("readinessProbe", "/readyz")]
)
def test_p11_start_up_and_liveness_ask_for_livez_and_readiness_for_readyz(name: str, probe: str, path: str) -> None:
    _, _, container = workload(name)
    assert container[probe]["httpGet"] == {"path": path, "port": "status"}
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert options()["SAFE_VLLM_STATUS_ADDRESS"] == f"0.0.0.0:{ports['status']}"
    assert container[probe]["timeoutSeconds"] >= 3  # /livez waits up to two seconds for the loop


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_start_up_probe_waits_longer_than_the_ladder_may_need(name: str) -> None:
    found, _, container = workload(name)
    (read,) = containers([found, *documents("configmap.yaml")])
    assert seconds(container["startupProbe"]) > ladder_s(read) > 5 * 600


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_launcher_that_stands_still_is_noticed_but_not_at_once(name: str) -> None:
    _, _, container = workload(name)
    assert 60 <= seconds(container["livenessProbe"]) <= 600
    assert seconds(container["readinessProbe"]) <= 10


@pytest.mark.parametrize("name", WORKLOADS)
def test_p9_the_grace_period_exceeds_the_stop_deadline(name: str) -> None:
    _, pod, container = workload(name)
    deadline = float(options()["SAFE_VLLM_STOP_TIMEOUT"])
    pause = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert deadline == Limits().stop_timeout_s
    assert pod["terminationGracePeriodSeconds"] >= deadline + pause + 15


@pytest.mark.parametrize("name", WORKLOADS)
def test_it_is_the_first_process_without_a_shell_and_without_an_init(name: str) -> None:
    _, pod, container = workload(name)
    assert container["command"] == ["safe-vllm", "serve"]
    assert "shareProcessNamespace" not in pod
    assert pod["restartPolicy"] == "Always"
    assert pod["enableServiceLinks"] is False
    assert pod["automountServiceAccountToken"] is False


@pytest.mark.parametrize("name", WORKLOADS)
def test_nobody_in_it_is_root_or_may_become_it(name: str) -> None:
    _, pod, container = workload(name)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == 2000
    assert pod["securityContext"]["fsGroup"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not {"hostPID", "hostIPC", "hostNetwork"} & set(pod)


@pytest.mark.parametrize("name", WORKLOADS)
def test_with_the_read_only_root_every_place_that_is_written_to_is_a_volume(name: str) -> None:
    found, pod, container = workload(name)
    assert set(mounts(container)) == {STATE, CACHE, "/tmp", "/dev/shm"}
    assert not any(each.get("readOnly") for each in container["volumeMounts"])
    claimed = {each["metadata"]["name"] for each in found["spec"].get("volumeClaimTemplates", [])}
    assert {each["name"] for each in pod["volumes"]} | claimed == set(mounts(container).values())
    assert variables(container) == {"SAFE_VLLM_STATE_DIR": STATE, "HOME": CACHE}


def test_the_state_of_a_stateful_set_outlives_the_pod() -> None:
    found, _, container = workload("statefulset.yaml")
    claimed = {each["metadata"]["name"] for each in found["spec"]["volumeClaimTemplates"]}
    assert claimed == {mounts(container)[STATE], mounts(container)[CACHE]}


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_shared_memory_is_memory_and_large_enough(name: str) -> None:
    _, pod, container = workload(name)
    (shm,) = [each["emptyDir"] for each in pod["volumes"] if each["name"] == mounts(container)["/dev/shm"]]
    assert shm["medium"] == "Memory"
    assert 1 << 30 <= (size(shm["sizeLimit"]) or 0) < (size(container["resources"]["limits"]["memory"]) or 0)


@pytest.mark.parametrize("name", WORKLOADS)
def test_it_gets_as_many_gpus_as_vllm_is_told_to_use(name: str) -> None:
    _, _, container = workload(name)
    assert f"--tensor-parallel-size={container['resources']['limits']['nvidia.com/gpu']}" in container["args"]


def test_a_deployment_does_not_want_the_gpus_twice() -> None:
    found, _, _ = workload("deployment.yaml")
    assert found["spec"]["strategy"] == {"type": "Recreate"}
    assert found["spec"]["progressDeadlineSeconds"] > seconds(workload("deployment.yaml")[2]["startupProbe"])


def test_both_workloads_run_the_same_pod_but_for_its_volumes() -> None:
    (_, first, _), (_, second, _) = map(workload, WORKLOADS)
    kept = {each["name"]: each for each in second["volumes"]}
    assert {each["name"] for each in first["volumes"]} - set(kept) == {"state", "cache"}
    first["volumes"] = [each for each in first["volumes"] if each["name"] in kept]
    assert first == second


@pytest.mark.parametrize("name", WORKLOADS)
def test_services_and_options_are_found_by_their_names(name: str) -> None:
    found, _, container = workload(name)
    labels = found["spec"]["template"]["metadata"]["labels"]
    assert found["spec"]["selector"]["matchLabels"].items() <= labels.items()
    services = {each["metadata"]["name"]: each for each in documents("service.yaml")}
    ports = {each["name"] for each in container["ports"]}
    for service in services.values():
        assert service["spec"]["selector"].items() <= labels.items()
        assert {each["targetPort"] for each in service["spec"]["ports"]} <= ports
    if "serviceName" in found["spec"]:
        assert services[found["spec"]["serviceName"]]["spec"]["clusterIP"] == "None"
    (reference,) = container["envFrom"]
    assert reference["configMapRef"]["name"] == documents("configmap.yaml")[0]["metadata"]["name"]


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_variable_of_ours_is_one_that_safe_vllm_reads(name: str) -> None:
    read = {f"SAFE_VLLM_{(option.name or '').upper()}" for option in cli.params}
    given = {*options(), *variables(workload(name)[2])} - {"HOME"}
    assert given <= read


def test_no_service_has_a_name_of_which_kubernetes_makes_a_variable_of_vllms_or_ours() -> None:
    for each in documents("service.yaml"):
        assert not each["metadata"]["name"].replace("-", "_").upper().startswith(("VLLM", "SAFE_VLLM"))


@pytest.mark.parametrize("name", WORKLOADS)
def test_keys_come_from_secrets(name: str) -> None:
    _, _, container = workload(name)
    keys = [each for each in container["env"] if NAME.fullmatch(each["name"])]
    assert [each["name"] for each in keys] == ["HF_TOKEN"]
    assert all("secretKeyRef" in each["valueFrom"] for each in keys)
    assert not any(NAME.fullmatch(name) for name in options())


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_image_is_named_with_a_version_and_without_a_registry(name: str) -> None:
    _, _, container = workload(name)
    image, _, tag = container["image"].partition(":")
    assert "." not in image.partition("/")[0]
    assert tag not in ("", "latest")


@pytest.mark.parametrize("name", WORKLOADS)
def test_doctor_finds_nothing_wrong_with_what_we_ship(name: str) -> None:
    found = manifest.checked([*documents(name), *documents("configmap.yaml")])
    assert [finding for finding in found if finding.counts] == []
    assert len(found) >= 9


def test_every_manifest_is_told_of_in_the_documentation() -> None:
    text = (ROOT / "docs" / "kubernetes.md").read_text()
    assert [name for name in NAMES if name not in text] == []
