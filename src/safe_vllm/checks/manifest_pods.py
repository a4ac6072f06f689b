"""What a Kubernetes manifest says of the containers that run vLLM, read as the kubelet reads it.

https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from safe_vllm.checks.manifest_sources import (
    Objects,
    Reference,
    dicts,
    expanded,
    name_of,
    part,
    references,
    variables,
)
from safe_vllm.checks.started import Started

CONTAINERS = "containers"
PORT = re.compile(r".*:(\d{1,5})\Z")
QUANTITY = re.compile(r"(\d+(?:\.\d+)?)(Ki|Mi|Gi|Ti|k|M|G|T|)\Z")
BYTES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12} | {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


@dataclass(frozen=True)
class Probe:
    """One of the three probes of a container, with what Kubernetes takes where nothing is said."""

    name: str
    path: str | None
    """``None``: it asks by other means than HTTP."""
    port: int | str | None
    delay_s: float
    period_s: float
    threshold: int
    timeout_s: float
    is_command: bool = False
    """It runs in the container, where 127.0.0.1 is the container's own."""
    scheme: str = "HTTP"
    host: str | None = None
    """Who is asked instead of the pod."""

    @property
    def patience_s(self) -> float:
        """From the first failure until Kubernetes acts."""
        return self.period_s * self.threshold

    @property
    def asks(self) -> str:
        """What it asks, for messages."""
        return self.path or "something other than an HTTP path"


@dataclass(frozen=True)
class Container:
    """A container that runs vLLM, and the pod around it."""

    where: str
    """The object and the container, for messages."""
    pod: Mapping[str, Any]
    spec: Mapping[str, Any]
    started: Started
    """Its command, with the variables whose values are known, also by a ConfigMap that was given."""
    references: tuple[Reference, ...] = ()
    """What it takes from other objects."""
    objects: Objects = field(default_factory=dict)
    """All that were given."""

    @property
    def is_all_known(self) -> bool:
        """Whether no variable that counts comes from an object that was not given."""
        return all(each.name in self.objects for each in self.references if each.matters and each.variable is not None)

    def probe(self, name: str) -> Probe | None:
        """Return ``startupProbe``, ``readinessProbe`` or ``livenessProbe``."""
        found = self.spec.get(name)
        if not isinstance(found, Mapping):
            return None
        numbers = (number(found.get(key), default) for key, default in PROBE_DEFAULTS)
        delay, period, threshold, timeout = numbers
        times = (delay, period, int(threshold), timeout)
        if "httpGet" not in found:
            asked = _words(part(found, "exec", "command"))
            path = next(iter(ENDPOINTS.findall(asked)), None)
            port = next(iter(ports_asked(asked)), None) if asked else self._port(found)
            return Probe(name, path, port, *times, is_command=bool(asked))
        path = str(part(found, "httpGet", "path") or "/").partition("?")[0]
        scheme, host = part(found, "httpGet", "scheme"), part(found, "httpGet", "host")
        return Probe(name, path, self._port(found), *times, scheme=str(scheme or "HTTP"), host=str(host or "") or None)

    def _port(self, probe: Mapping[str, Any]) -> int | str | None:
        asked = next((port for key in HANDLERS if (port := part(probe, key, "port")) is not None), None)
        named = {str(port.get("name")): port.get("containerPort") for port in dicts(self.spec.get("ports"))}
        found = str(named.get(str(asked), asked))
        return None if asked is None else int(found) if re.fullmatch(r"\d{1,5}", found) else found


ASKED_AT = re.compile(r"(?:(https?)://)?(?:\[[0-9a-fA-F:.]+\]|[\w.-]+)(?::(\d{1,5}))?(?:/livez|/readyz)")
DEFAULT_PORTS = {"http": "80", "https": "443"}
LARGEST = 1e9
PROBE_DEFAULTS = (("initialDelaySeconds", 0), ("periodSeconds", 10), ("failureThreshold", 3), ("timeoutSeconds", 1))
ENDPOINTS = re.compile(r"/livez|/readyz")
HANDLERS = ("httpGet", "tcpSocket", "grpc")


def containers(documents: Sequence[object]) -> tuple[Container, ...]:
    """Return the containers that run vLLM, under safe-vllm or not."""
    objects = tuple(all_objects(documents))
    seen: dict[str, Objects] = {}
    found = []
    for each in objects:
        for pod in _pods(each):
            namespace = _namespace(each)
            if namespace not in seen:
                seen[namespace] = _seen_from(namespace, objects)
            where = name_of(each)
            found += [_container(where, pod, spec, seen[namespace]) for spec in dicts(pod.get(CONTAINERS))]
    return tuple(each for each in found if each.started.is_ours or each.started.is_theirs)


def _namespace(each: Mapping[str, Any]) -> str:
    return str(part(each, "metadata", "namespace") or "")


def _seen_from(namespace: str, objects: Sequence[Mapping[str, Any]]) -> Objects:
    """Return the objects that a pod in a namespace can use, by their names; one that names none may be in any."""
    near = [each for each in objects if not namespace or _namespace(each) in ("", namespace)]
    return {name_of(each): each for each in sorted(near, key=lambda each: _namespace(each) == namespace)}


def ports_asked(command: str) -> set[int]:
    """Return the ports of the addresses in a command; empty where one of them is not understood."""
    found = [use[2] or DEFAULT_PORTS.get(use[1] or "") for use in ASKED_AT.finditer(command)]
    is_all = len(found) == len(ENDPOINTS.findall(command)) and None not in found
    return {int(port) for port in found if port} if is_all else set()


def _words(command: object) -> str:
    return " ".join(map(str, command)) if isinstance(command, list) else ""


def number(value: object, default: float) -> float:
    """Return a number, or what counts where there is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:  # also what is not a number
        return default
    return float(min(value, LARGEST))


def size(quantity: object) -> float | None:
    """Return a quantity in bytes; ``None``: there is none, or it is not understood."""
    found = QUANTITY.match(str(quantity))
    return float(found[1]) * BYTES[found[2]] if found else None


def all_objects(documents: Sequence[object]) -> Iterator[Mapping[str, Any]]:
    """Yield the objects in documents, those in lists too."""
    for each in documents:
        if isinstance(each, Mapping):
            is_list = str(each.get("kind")).endswith("List") and isinstance(each.get("items"), list)
            yield from all_objects(each["items"]) if is_list else [each]


def _pods(value: object) -> Iterator[Mapping[str, Any]]:
    """Yield what looks like the description of a pod, however deep: operators have kinds of their own."""
    if isinstance(value, Mapping):
        if dicts(value.get(CONTAINERS)):
            yield value
        for inner in value.values():
            yield from _pods(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _pods(inner)


def _container(owner: str, pod: Mapping[str, Any], spec: Mapping[str, Any], objects: Objects) -> Container:
    lists = [spec[key] for key in ("command", "args") if isinstance(spec.get(key), list)]
    where, known = f"{owner}, container {spec.get('name', '?')}", variables(spec, objects)
    words = tuple(expanded(str(word), known) for each in lists for word in each)
    started = Started(str(spec.get("image") or ""), words, has_command=bool(spec.get("command")), variables=known)
    return Container(where, pod, spec, started, references(spec, pod), objects)
