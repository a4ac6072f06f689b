"""A Kubernetes manifest that runs safe-vllm: how it starts, stops, and where it can write."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from safe_vllm.checks import manifest_probes, manifest_unseen
from safe_vllm.checks.finding import Finding, Level
from safe_vllm.checks.manifest_pods import Container, all_objects, containers, number, size
from safe_vllm.checks.manifest_sources import CACHES, CLAIM, dicts, name_of, part
from safe_vllm.checks.options import options
from safe_vllm.checks.shell import pause_s
from safe_vllm.checks.started import SHM, TEMPORARY, secrets, state_not_named, supervision
from safe_vllm.machine.condition import GIB

GRACE_S = 30.0
"""What Kubernetes gives where nothing is said."""
SHOWN = 5
"""Names of objects that are told."""

ManifestCheck = Callable[[Container], Iterator[Finding]]


def runs(container: Container) -> Iterator[Finding]:
    """Tell whether safe-vllm is the first process."""
    do = "command: [safe-vllm, serve], and the words for vLLM as args"
    yield from supervision(container.started, "manifest-command", do)


def settings(container: Container) -> Iterator[Finding]:
    """Look at our own options, also those in ConfigMaps that were given."""
    return options("manifest-options", container.started.start, container.started.variables)


def grace(container: Container) -> Iterator[Finding]:
    """Compare the time that Kubernetes gives with the one that a stop may take."""
    given = container.pod.get("terminationGracePeriodSeconds")
    limit = number(given, GRACE_S)
    (pause, is_known), needed = _pre_stop_s(container), container.started.stop_s
    beside = f" and the {pause:g} s of preStop" if pause else ""
    if limit <= needed + pause:
        where = "" if given is not None else ", the default,"
        what = f"terminationGracePeriodSeconds {limit:g}{where} is not above the {needed:g} s that vLLM has to end"
        why = "requests that are still served are cut off by SIGKILL"
        do = f"terminationGracePeriodSeconds: {needed + pause + 30:g}"
        yield Finding("manifest-grace", "warning", what + beside, why, do)
    elif not is_known:
        what = f"terminationGracePeriodSeconds {limit:g}, and how long preStop takes cannot be seen"
        why = f"it counts too, beside the {needed:g} s that vLLM has to end"
        yield Finding("manifest-grace", "note", what, why, "compare them yourself, or let preStop sleep alone")
    else:
        what = f"terminationGracePeriodSeconds {limit:g} is above the {needed:g} s that vLLM has to end{beside}"
        yield Finding("manifest-grace", "ok", what)


def _pre_stop_s(container: Container) -> tuple[float, bool]:
    """Return how long preStop takes, and whether all of it can be seen."""
    hook = part(container.spec, "lifecycle", "preStop")
    words = part(hook, "exec", "command")
    if isinstance(words, list):
        return pause_s([str(word) for word in words])
    return number(part(hook, "sleep", "seconds"), 0.0), True


def shared_memory(container: Container) -> Iterator[Finding]:
    """Look at /dev/shm, through which vLLM's processes talk."""
    volume = _volume_at(container, SHM)
    do = "mount an emptyDir with medium: Memory at /dev/shm"
    if container.pod.get("hostIPC") is True:
        yield Finding("manifest-shm", "ok", "it has the shared memory of the node")
    elif volume is None:
        why = "it has 64 MiB then: with several GPUs NCCL and vLLM's workers end with SIGBUS"
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
        yield Finding("manifest-restart", "note", "restartPolicy: Never", why, "restartPolicy: Always")
    else:
        yield Finding("manifest-restart", "ok", f"restartPolicy: {policy}")


def writable(container: Container) -> Iterator[Finding]:
    """Look for places that are written to and cannot be, and for state that goes with the container."""
    is_locked = part(container.spec, "securityContext", "readOnlyRootFilesystem") is True
    variables = container.started.variables
    wanted = {name: variables[name] for name in CACHES if name in variables}
    wanted |= {"temporary files": TEMPORARY}
    lost = [f"{name} ({place})" for name, place in wanted.items() if _volume_at(container, place) is None]
    if is_locked and lost:
        why = "vLLM downloads, compiles and talks through files there: it fails, or does all of it anew at each start"
        do = "mount a volume for each, and set HOME to the one for caches"
        yield Finding("manifest-writable", "warning", f"read-only: {', '.join(lost)}", why, do)
    elif is_locked:
        yield Finding("manifest-writable", "ok", "with its read-only root, all that it writes to are volumes")
    yield from _state(container)


def _state(container: Container) -> Iterator[Finding]:
    place = container.started.option("--state-dir")
    volume = _volume_at(container, place) if place else None
    do = "mount a volume, and set SAFE_VLLM_STATE_DIR to a directory in it"
    if not place:
        yield state_not_named("manifest-state")
    elif volume is None:
        why = "what broke is forgotten with each container, and the next one breaks in the same way"
        yield Finding("manifest-state", "warning", f"{place} is in no volume that can be written", why, do)
    elif "emptyDir" in volume:
        why = "it outlives the container, but not the pod"
        yield Finding(
            "manifest-state",
            "note",
            f"{place} is in an emptyDir",
            why,
            "mount a PersistentVolumeClaim there, as statefulset.yaml does",
        )
    else:
        yield Finding("manifest-state", "ok", f"{place} outlives the pod")


def _volume_at(container: Container, place: str) -> Mapping[str, Any] | None:
    """Return the volume that holds a place and can be written."""
    mounts = [each for each in dicts(container.spec.get("volumeMounts")) if _is_below(place, each.get("mountPath"))]
    if not mounts:
        return None
    mount = max(mounts, key=lambda each: len(str(each["mountPath"])))
    named = {str(each.get("name")): each for each in dicts(container.pod.get("volumes"))}
    volume = named.get(str(mount.get("name")), {})  # of a claim that a StatefulSet makes, nothing more is known
    is_locked = mount.get("readOnly") is True or part(volume, "persistentVolumeClaim", "readOnly") is True
    return None if is_locked or _is_for_readers(volume, container) else volume


def _is_for_readers(volume: Mapping[str, Any], container: Container) -> bool:
    """Whether it is a claim, as far as it was given, that nobody may write."""
    name = part(volume, "persistentVolumeClaim", "claimName")
    modes = part(container.objects.get(f"{CLAIM}/{name}"), "spec", "accessModes")
    return isinstance(modes, list) and modes == ["ReadOnlyMany"]


def _is_below(place: str, mount: object) -> bool:
    folder = str(mount or "").rstrip("/")
    return bool(mount) and (place == folder or place.startswith(f"{folder}/"))


def links(container: Container) -> Iterator[Finding]:
    """Look for variables that Kubernetes makes of the names of services."""
    if container.pod.get("enableServiceLinks") is not False:
        why = "of a service that is called vllm Kubernetes makes VLLM_PORT=tcp://…, and vLLM does not start with that"
        yield Finding("manifest-links", "note", "enableServiceLinks is not false", why, "enableServiceLinks: false")


def keys(container: Container) -> Iterator[Finding]:
    """Look for keys where everybody who may read the manifest can read them."""
    why, do = "manifests and command lines are read by many", "take it from a Secret: valueFrom, secretKeyRef"
    yield from secrets(container.started, "manifest-secrets", where="manifest", is_from="$(", why=why, do=do)


def texts(container: Container) -> Iterator[Finding]:
    """Look for numbers and truth values where Kubernetes takes text alone."""
    wrong = [str(each.get("name")) for each in dicts(container.spec.get("env")) if _is_no_text(each.get("value"))]
    for key in ("command", "args"):
        words = container.spec.get(key)
        wrong += [f"{key} {word}" for word in (words if isinstance(words, list) else []) if _is_no_text(word)]
        wrong += [key] if words is not None and not isinstance(words, list) else []
    wrong += [f"{each} of {name}" for name, keys in _no_texts(container) for each in keys]
    if wrong:
        why = "Kubernetes takes nothing but text there, and refuses the manifest"
        do = "quote numbers, true, yes, on and their opposites; write command and args as lists"
        yield Finding("manifest-values", "problem", f"no text: {', '.join(wrong)}", why, do)


def _no_texts(container: Container) -> Iterator[tuple[str, list[str]]]:
    """Yield the objects that the container takes variables from, each with its keys that hold no text."""
    for name in dict.fromkeys(each.name for each in container.references if each.variable is not None):
        data = part(container.objects.get(name), "data")
        if isinstance(data, Mapping):
            yield name, [str(key) for key, value in data.items() if _is_no_text(value)]


def _is_no_text(value: object) -> bool:
    return value is not None and not isinstance(value, str)


CHECKS: tuple[ManifestCheck, ...] = (
    *manifest_unseen.CHECKS,
    runs,
    settings,
    *manifest_probes.CHECKS,
    grace,
    restart,
    shared_memory,
    writable,
    links,
    keys,
    texts,
)


def checked(documents: Sequence[object]) -> tuple[Finding, ...]:
    """Return what all checks find in the objects of a manifest, in their order."""
    found = containers(documents)
    if not found:
        names = [name_of(each) for each in all_objects(documents)]
        shown = ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
        why = f"no container in {shown or 'it'} runs safe-vllm or vLLM, as far as its command and image tell"
        do = "command: [safe-vllm, serve], or name the file with the pod"
        return (Finding("manifest-command", "problem", "nothing in it runs vLLM", why, do),)
    return tuple(_told(finding, each) for each in found for check in CHECKS for finding in check(each))


def _told(finding: Finding, container: Container) -> Finding:
    return Finding(finding.name, finding.level, f"{container.where}: {finding.what}", finding.why, finding.do)
