"""What a container takes from other objects: variables and volumes, and whether those objects were given.

https://kubernetes.io/docs/tasks/configure-pod-container/configure-pod-configmap/
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from safe_vllm.plan.intent import PREFIX
from safe_vllm.plan.secrets import NAME

Objects = Mapping[str, Mapping[str, Any]]
"""What was given, by kind and name, as in ``ConfigMap/options``."""
MAP, SECRET, CLAIM = "ConfigMap", "Secret", "PersistentVolumeClaim"
CACHES = ("HOME", "XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "VLLM_CACHE_ROOT")
USED = re.compile(r"\$\$|\$\((\w+)\)")


@dataclass(frozen=True)
class Reference:
    """An object that a container needs, and what for."""

    name: str
    """Kind and name."""
    variable: str | None = None
    """The variable that is taken from it; empty: all that it has; ``None``: it is a volume."""
    key: str | None = None
    mounted: str = ""
    """Where it is mounted, or the name of the volume."""
    is_optional: bool = False

    @property
    def matters(self) -> bool:
        """Whether any check would look at what it holds: not at a key for the hub, for one."""
        return self.variable in (None, "", *CACHES) or str(self.variable).startswith(PREFIX)


def part(value: Any, *keys: str) -> Any:
    """Return what these keys lead to, one in the other; ``None`` where there is nothing."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def dicts(value: object) -> list[Mapping[str, Any]]:
    """Return the mappings of a list; none where it is no list."""
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def name_of(each: Mapping[str, Any]) -> str:
    """Return kind and name of an object."""
    return f"{each.get('kind') or 'object'}/{part(each, 'metadata', 'name') or '?'}"


def variables(spec: Mapping[str, Any], objects: Objects) -> dict[str, str]:
    """Return the variables of a container whose values are known, each as the last word on it says."""
    found: dict[str, str] = {}
    for source in dicts(spec.get("envFrom")):
        for reference in _from(source):
            held = _held(objects.get(reference.name))
            found |= {f"{source.get('prefix') or ''}{name}": value for name, value in held.items()}
    for each in dicts(spec.get("env")):
        name, value = str(each.get("name")), each.get("value")
        found.pop(name, None)
        for reference in _of_variable(each):
            value = _held(objects.get(reference.name)).get(str(reference.key))
        if value is not None:
            found[name] = expanded(str(value), found)
    return found


def references(spec: Mapping[str, Any], pod: Mapping[str, Any]) -> tuple[Reference, ...]:
    """Return all that a container takes from objects beside its own."""
    volumes = {str(each.get("name")): each for each in dicts(pod.get("volumes"))}
    mounts = [(str(each.get("name")), str(each.get("mountPath"))) for each in dicts(spec.get("volumeMounts"))]
    return (
        *(found for source in dicts(spec.get("envFrom")) for found in _from(source)),
        *(found for each in dicts(spec.get("env")) for found in _of_variable(each)),
        *(found for name, place in mounts for found in _of_volume(volumes.get(name, {}), place)),
    )


def _from(source: Mapping[str, Any]) -> Iterator[Reference]:
    for key, kind in (("configMapRef", MAP), ("secretRef", SECRET)):
        if (name := part(source, key, "name")) is not None:
            yield Reference(f"{kind}/{name}", "", is_optional=part(source, key, "optional") is True)


def _of_variable(each: Mapping[str, Any]) -> Iterator[Reference]:
    for key, kind in (("configMapKeyRef", MAP), ("secretKeyRef", SECRET)):
        asked = part(each, "valueFrom", key)
        if (name := part(asked, "name")) is not None:
            is_optional = part(asked, "optional") is True
            yield Reference(f"{kind}/{name}", str(each.get("name")), str(part(asked, "key")), is_optional=is_optional)


def _of_volume(volume: Mapping[str, Any], place: str) -> Iterator[Reference]:
    sources = [volume, *dicts(part(volume, "projected", "sources"))]
    keys = (("persistentVolumeClaim", CLAIM, "claimName"), ("configMap", MAP, "name"), ("secret", SECRET, "secretName"))
    for source in sources:
        for key, kind, field in keys:
            name = part(source, key, field) or part(source, key, "name")
            if name is not None:
                yield Reference(f"{kind}/{name}", mounted=place, is_optional=part(source, key, "optional") is True)


def _held(given: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the variables that an object holds; of a Secret only those that are no secrets by their name."""
    plain = {str(name): str(value) for name, value in _items(given, "data")}
    if part(given, "kind") != SECRET:
        return plain
    told = {str(name): str(value) for name, value in _items(given, "stringData")}
    both = {name: _decoded(value) for name, value in plain.items()} | told
    return {name: value for name, value in both.items() if _is_option(name)}


def keys(given: Mapping[str, Any]) -> set[str]:
    """Return the names of all that an object holds."""
    return {str(name) for field in ("data", "stringData", "binaryData") for name, _ in _items(given, field)}


def _items(given: Mapping[str, Any] | None, field: str) -> list[tuple[object, object]]:
    data = part(given, field)
    return list(data.items()) if isinstance(data, Mapping) else []


def _is_option(name: str) -> bool:
    return (name in CACHES or name.startswith(PREFIX)) and not NAME.fullmatch(name)


def _decoded(value: str) -> str:
    try:
        return b64decode(value).decode(errors="replace")
    except (binascii.Error, ValueError):
        return value


def expanded(text: str, found: Mapping[str, str]) -> str:
    """Return a text with ``$(NAME)`` replaced as the kubelet does it; what is a secret or not known stays."""

    def value(use: re.Match[str]) -> str:
        name = use[1]
        return "$" if name is None else use[0] if NAME.fullmatch(name) else found.get(name, use[0])

    return USED.sub(value, text)
