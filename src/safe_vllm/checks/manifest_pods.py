"""What a Kubernetes manifest says of the containers that run vLLM, read as the kubelet reads it.

https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/
"""

from __future__ import annotations

import re
import shlex
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
from safe_vllm.checks.unit_command import SHELLS, Start, start_of, stop_s
from safe_vllm.checks.unit_text import Unit
from safe_vllm.plan.secrets import hide

OURS = re.compile(r"safe[-_]vllm")
THEIRS = re.compile(r"(?<![-\w])vllm(?![-\w])")
OTHERS = ("bench", "run-batch", "collect-env", "chat", "complete")
"""Subcommands of vLLM's that serve nobody."""
THEIR_IMAGE = re.compile(r"(?:^|/)vllm(?:-(?:openai|cpu|rocm|xpu|tpu|hpu|gpu|dev)[-\w]*)?(?=[:@]|\Z)")
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
    words: tuple[str, ...]
    """What it runs, as far as the manifest says."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Those whose values are known, also by a ConfigMap that was given."""
    references: tuple[Reference, ...] = ()
    """What it takes from other objects."""
    objects: Objects = field(default_factory=dict)
    """All that were given."""

    @property
    def is_all_known(self) -> bool:
        """Whether no variable that counts comes from an object that was not given."""
        return all(each.name in self.objects for each in self.references if each.matters and each.variable is not None)

    @property
    def start(self) -> Start:
        """The command taken apart."""
        return start_of(self._as_unit)

    @property
    def first(self) -> str:
        """The name of what becomes the first process; empty: the image says it."""
        return self.words[0].rpartition("/")[2] if self.words else ""

    @property
    def is_ours(self) -> bool:
        """Whether safe-vllm runs in it, by its command, else by the name of its image, or variables for it."""
        if any(map(OURS.search, self.words)):
            return True
        is_vllm_alone = self.has_command and any(map(THEIRS.search, self.words))
        return not is_vllm_alone and self._is_named_ours

    @property
    def _is_named_ours(self) -> bool:
        is_ours = OURS.search(str(self.spec.get("image", ""))) is not None
        return is_ours or any(name.startswith("SAFE_VLLM_") for name in self.variables)

    @property
    def is_theirs(self) -> bool:
        """Whether vLLM runs in it, by its command or, where it has none, by the name of its image."""
        is_by_image = not self.has_command and THEIR_IMAGE.search(str(self.spec.get("image")))
        return bool(is_by_image) or (any(map(THEIRS.search, self.words)) and not set(OTHERS) & set(self.words))

    @property
    def has_command(self) -> bool:
        """Whether the words stand in place of what the image would start."""
        return bool(self.spec.get("command") or self.spec.get("entrypoint"))

    @property
    def shown(self) -> str:
        """What it runs, for messages."""
        image = str(self.spec.get("image") or "what its image says")
        return " ".join([*([] if self.has_command else [image]), *hide(self.words)])

    @property
    def stop_s(self) -> float:
        """How long a stop may take."""
        return stop_s(self._as_unit)

    @property
    def _as_unit(self) -> Unit:
        """The command and the variables, as a systemd unit would hold them; a shell's script is its last word."""
        words = self.words
        if not self.has_command and self._is_named_ours:  # what its image starts goes before
            words = ("safe-vllm", "serve", *words)
        if self.first in SHELLS:
            script = next((at for at, word in enumerate(words) if re.fullmatch(r"-[a-z]*c", word)), len(words)) + 1
            words = words[: script + 1]
        pairs = [("Environment", shlex.quote(f"{name}={value}")) for name, value in self.variables.items()]
        return Unit((("ExecStart", shlex.join(words)), *pairs))

    def option(self, name: str) -> str | None:
        """Return the value of one of our options, from the command line or its variable."""
        options = self.start.options
        for at, word in enumerate(options):
            flag, equals, value = word.partition("=")
            if flag == name and (equals or at + 1 < len(options)):
                return value if equals else options[at + 1]
        return self.variables.get("SAFE_VLLM_" + name.removeprefix("--").replace("-", "_").upper())

    def number(self, name: str) -> float | None:
        """Return the value of one of our options that takes a number."""
        value = self.option(name) or ""
        return float(value) if re.fullmatch(r"\d+(\.\d+)?", value) else None

    def probe(self, name: str) -> Probe | None:
        """Return ``startupProbe``, ``readinessProbe`` or ``livenessProbe``."""
        found = self.spec.get(name)
        if not isinstance(found, Mapping):
            return None
        command = part(found, "exec", "command")
        asked = (
            part(found, "httpGet", "path") if "httpGet" in found else next(iter(ENDPOINTS.findall(str(command))), None)
        )
        path = str(asked).partition("?")[0] if asked else "/" if "httpGet" in found else None
        numbers = (number(found.get(key), default) for key, default in PROBE_DEFAULTS)
        delay, period, threshold, timeout = numbers
        return Probe(name, path, self._port(found), delay, period, int(threshold), timeout)

    def _port(self, probe: Mapping[str, Any]) -> int | str | None:
        asked = next((port for key in HANDLERS if (port := part(probe, key, "port")) is not None), None)
        named = {str(port.get("name")): port.get("containerPort") for port in dicts(self.spec.get("ports"))}
        found = str(named.get(str(asked), asked))
        return None if asked is None else int(found) if re.fullmatch(r"\d{1,5}", found) else found


LARGEST = 1e9
PROBE_DEFAULTS = (("initialDelaySeconds", 0), ("periodSeconds", 10), ("failureThreshold", 3), ("timeoutSeconds", 1))
ENDPOINTS = re.compile(r"/livez|/readyz")
HANDLERS = ("httpGet", "tcpSocket", "grpc")


def containers(documents: Sequence[object]) -> tuple[Container, ...]:
    """Return the containers that run vLLM, under safe-vllm or not."""
    objects = {name_of(each): each for each in all_objects(documents)}
    found = [
        _container(f"{name_of(each)}, container {spec.get('name', '?')}", pod, spec, objects)
        for each in all_objects(documents)
        for pod in _pods(each)
        for spec in dicts(pod.get(CONTAINERS))
    ]
    return tuple(each for each in found if each.is_ours or each.is_theirs)


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


def _container(where: str, pod: Mapping[str, Any], spec: Mapping[str, Any], objects: Objects) -> Container:
    lists = [spec[key] for key in ("command", "args") if isinstance(spec.get(key), list)]
    known = variables(spec, objects)
    words = tuple(expanded(str(word), known) for each in lists for word in each)
    return Container(where, pod, spec, words, known, references(spec, pod), objects)
