"""A Kubernetes manifest that runs safe-vllm: how it starts, stops, and where it can write."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from safe_vllm.checks import manifest_probes
from safe_vllm.checks.finding import Finding, Level
from safe_vllm.checks.manifest_pods import Container, containers, dicts, number, part, size
from safe_vllm.checks.unit_command import SHELLS
from safe_vllm.machine.condition import GIB
from safe_vllm.plan.secrets import NAME, hide

GRACE_S = 30.0
"""What Kubernetes gives where nothing is said."""
SHM = "/dev/shm"
TEMPORARY = "/tmp"
CACHES = ("HOME", "XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "VLLM_CACHE_ROOT")

ManifestCheck = Callable[[Container], Iterator[Finding]]


def runs(container: Container) -> Iterator[Finding]:
    """Tell whether safe-vllm is the first process."""
    do = "command: [safe-vllm, serve], and the words for vLLM as args"
    if not container.is_ours:
        shown = " ".join(hide(container.words))
        yield Finding("manifest-command", "problem", f"it runs {shown}", "nobody steps down after a kernel fault", do)
    elif container.first in SHELLS and not container.start.is_ours:
        why = "a shell is the first process, which does not pass SIGTERM on: vLLM is killed when the time is over"
        yield Finding(
            "manifest-command", "problem", f"it runs {container.first}", why, f"exec safe-vllm in it, or {do}"
        )
    elif not container.words:
        yield Finding("manifest-command", "ok", "it runs what its image says")
    elif container.start.is_ours and container.start.subcommand not in ("serve", None):
        what = f"it runs safe-vllm {container.start.subcommand}"
        yield Finding("manifest-command", "problem", what, "only `serve` supervises", do)
    else:
        yield Finding("manifest-command", "ok", f"it runs {' '.join(hide(container.words))}")


def grace(container: Container) -> Iterator[Finding]:
    """Compare the time that Kubernetes gives with the one that a stop may take."""
    given = container.pod.get("terminationGracePeriodSeconds")
    limit = number(given, GRACE_S)
    pause, needed = _pre_stop_s(container), container.stop_s
    beside = f" and the {pause:g} s of preStop" if pause else ""
    if limit > needed + pause:
        what = f"terminationGracePeriodSeconds {limit:g} is above the {needed:g} s that vLLM has to end{beside}"
        yield Finding("manifest-grace", "ok", what)
        return
    where = "" if given is not None else ", the default,"
    what = f"terminationGracePeriodSeconds {limit:g}{where} is not above the {needed:g} s that vLLM has to end{beside}"
    why = "requests that are still served are cut off by SIGKILL"
    yield Finding("manifest-grace", "warning", what, why, f"terminationGracePeriodSeconds: {needed + pause + 30:g}")


def _pre_stop_s(container: Container) -> float:
    return number(part(container.spec, "lifecycle", "preStop", "sleep", "seconds"), 0.0)


def shared_memory(container: Container) -> Iterator[Finding]:
    """Look at /dev/shm, through which vLLM's processes talk."""
    volume = _volume_at(container, SHM)
    do = "an emptyDir with medium: Memory, mounted at /dev/shm"
    if container.pod.get("hostIPC") is True:
        yield Finding("manifest-shm", "ok", "it has the shared memory of the node")
    elif volume is None:
        why = "64 MiB: with several GPUs NCCL and vLLM's workers end with SIGBUS"
        level: Level = "warning" if _gpus(container) > 1 else "note"
        yield Finding("manifest-shm", level, f"nothing is mounted at {SHM}", why, do)
    elif part(volume, "emptyDir", "medium") != "Memory":
        yield Finding("manifest-shm", "warning", f"{SHM} is not in memory", "every message goes to a disk", do)
    elif (limit := size(part(volume, "emptyDir", "sizeLimit"))) is not None and limit < GIB:
        what = f"{SHM} has {part(volume, 'emptyDir', 'sizeLimit')}"
        yield Finding("manifest-shm", "warning", what, "what does not fit ends with SIGBUS", "sizeLimit: 16Gi")
    else:
        yield Finding("manifest-shm", "ok", f"{SHM} is in memory")


def _gpus(container: Container) -> float:
    limits = part(container.spec, "resources", "limits")
    counts = limits.items() if isinstance(limits, Mapping) else ()
    return sum(size(count) or 0 for name, count in counts if str(name).endswith("/gpu"))


def restart(container: Container) -> Iterator[Finding]:
    """Look whether somebody starts it again."""
    policy = container.spec.get("restartPolicy") or container.pod.get("restartPolicy") or "Always"
    if policy == "Never":
        why = "a launch that ended with 70 (attempts spent) or 75 (may pass by itself) stays down"
        yield Finding("manifest-restart", "note", "restartPolicy: Never", why, "Always, or OnFailure")
    else:
        yield Finding("manifest-restart", "ok", f"restartPolicy: {policy}")


def writable(container: Container) -> Iterator[Finding]:
    """Look for places that are written to and cannot be, and for state that goes with the container."""
    is_locked = part(container.spec, "securityContext", "readOnlyRootFilesystem") is True
    variables = container.variables
    wanted = {name: variables[name] for name in CACHES if name in variables}
    wanted |= {"temporary files": TEMPORARY}
    lost = [f"{name} ({place})" for name, place in wanted.items() if _volume_at(container, place) is None]
    if is_locked and lost:
        why = "vLLM downloads, compiles and talks through files there: it fails, or does all of it anew at each start"
        do = "a volume for each, and HOME on the one for caches"
        yield Finding("manifest-writable", "warning", f"read-only: {', '.join(lost)}", why, do)
    elif is_locked:
        yield Finding("manifest-writable", "ok", "with its read-only root, all that it writes to are volumes")
    yield from _state(container)


def _state(container: Container) -> Iterator[Finding]:
    place = container.option("--state-dir")
    volume = _volume_at(container, place) if place else None
    do = "a volume, and SAFE_VLLM_STATE_DIR with a directory in it"
    if not place:
        why = "where the image does not say it either, what broke is forgotten with each container"
        yield Finding("manifest-state", "note", "SAFE_VLLM_STATE_DIR is not set", why, do)
    elif volume is None:
        why = "what broke is forgotten with each container, and the next one breaks in the same way"
        yield Finding("manifest-state", "warning", f"{place} is in no volume", why, do)
    elif "emptyDir" in volume:
        why = "it outlives the container, but not the pod"
        yield Finding("manifest-state", "note", f"{place} is in an emptyDir", why, "a PersistentVolumeClaim")
    else:
        yield Finding("manifest-state", "ok", f"{place} outlives the pod")


def _volume_at(container: Container, place: str) -> Mapping[str, Any] | None:
    """Return the volume that holds a place and can be written."""
    mounts = [each for each in dicts(container.spec.get("volumeMounts")) if _is_below(place, each.get("mountPath"))]
    if not mounts:
        return None
    mount = max(mounts, key=lambda each: len(str(each["mountPath"])))
    if mount.get("readOnly") is True:
        return None
    named = {str(each.get("name")): each for each in dicts(container.pod.get("volumes"))}
    return named.get(str(mount.get("name")), {})  # of a claim that a StatefulSet makes, nothing more is known


def _is_below(place: str, mount: object) -> bool:
    folder = str(mount or "").rstrip("/")
    return bool(mount) and (place == folder or place.startswith(f"{folder}/"))


def links(container: Container) -> Iterator[Finding]:
    """Look for variables that Kubernetes makes of the names of services."""
    if container.pod.get("enableServiceLinks") is not False:
        why = "of a service that is called vllm Kubernetes makes VLLM_PORT=tcp://…, and vLLM does not start with that"
        yield Finding("manifest-links", "note", "enableServiceLinks is not false", why, "enableServiceLinks: false")


def secrets(container: Container) -> Iterator[Finding]:
    """Look for keys where everybody who may read the manifest can read them."""
    names = [name for name, value in container.variables.items() if NAME.fullmatch(name) and "$(" not in value]
    words = container.words
    flags = [word for word, shown in zip(words, hide(words), strict=True) if word != shown and "$(" not in word]
    if names or flags:
        told = ", ".join([*names, *(["a flag"] if flags else [])])
        why = "manifests and command lines are read by many"
        yield Finding("manifest-secrets", "warning", f"{told} has its value in the manifest", why, "a secretKeyRef")


CHECKS: tuple[ManifestCheck, ...] = (
    runs,
    *manifest_probes.CHECKS,
    grace,
    restart,
    shared_memory,
    writable,
    links,
    secrets,
)


def checked(documents: Sequence[object]) -> tuple[Finding, ...]:
    """Return what all checks find in the objects of a manifest, in their order."""
    found = containers(documents)
    if not found:
        why = "no object in it has a container that runs safe-vllm or vLLM, as far as the manifest tells"
        do = "command: [safe-vllm, serve], or name the file with the pod"
        return (Finding("manifest-command", "problem", "nothing in it runs vLLM", why, do),)
    return tuple(_told(finding, each) for each in found for check in CHECKS for finding in check(each))


def _told(finding: Finding, container: Container) -> Finding:
    return Finding(finding.name, finding.level, f"{container.where}: {finding.what}", finding.why, finding.do)
