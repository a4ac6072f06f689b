"""What a compose file says of the services that run vLLM, read as docker compose reads it.

https://docs.docker.com/reference/compose-file/services/
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from safe_vllm.checks.manifest_sources import dicts, part
from safe_vllm.checks.shell import pause_s
from safe_vllm.checks.started import Started
from safe_vllm.checks.unit_text import split

DEFAULT = re.compile(r"\$\{\w+:?-([^{}]*)\}")
SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgtp]?)i?b?\Z", re.IGNORECASE)
POWERS = "kmgtp"
SPAN = re.compile(r"(\d+(?:\.\d+)?)(us|µs|ms|ns|s|m|h|d|w)")
SECONDS = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86_400.0,
    "w": 604_800.0,
}


@dataclass(frozen=True)
class Mount:
    """A place in a container that is not part of its image."""

    target: str
    is_tmpfs: bool = False
    is_locked: bool = False
    options: str = ""

    @property
    def size(self) -> float | None:
        """How much a tmpfs may hold, in bytes; ``None``: nobody says."""
        told = (option.removeprefix("size=") for option in self.options.split(",") if option.startswith("size="))
        return size(next(told, ""))


@dataclass(frozen=True)
class Service:
    """A service that runs vLLM."""

    where: str
    spec: Mapping[str, Any]
    started: Started
    """Its command and variables."""
    mounts: tuple[Mount, ...]

    def mount_at(self, place: str) -> Mount | None:
        """Return the mount that holds a place."""
        found = [each for each in self.mounts if place == each.target or place.startswith(f"{each.target}/")]
        return max(found, key=lambda each: len(each.target), default=None)

    @property
    def pre_stop_s(self) -> tuple[float, bool]:
        """How long the hooks before a stop take, and whether all of it can be seen."""
        spans = [pause_s(_words(each.get("command"))) for each in dicts(self.spec.get("pre_stop"))]
        return sum(span for span, _ in spans), all(is_known for _, is_known in spans)

    @property
    def gpus(self) -> float | None:
        """How many GPUs it is given, infinity for all; ``None``: none are asked for."""
        devices = dicts(part(self.spec, "deploy", "resources", "reservations", "devices")) + dicts(
            self.spec.get("gpus")
        )
        counts = [_count(each) for each in devices]
        if self.spec.get("gpus") == "all" or self.spec.get("runtime") == "nvidia":
            counts.append(float("inf"))
        return sum(counts) if counts else None


def is_compose(document: object) -> bool:
    """Return whether a document is a compose file."""
    return isinstance(document, Mapping) and "kind" not in document and isinstance(document.get("services"), Mapping)


def services(document: Mapping[str, Any]) -> tuple[Service, ...]:
    """Return the services that run vLLM, under safe-vllm or not."""
    found = [_service(str(name), spec) for name, spec in document["services"].items() if isinstance(spec, Mapping)]
    return tuple(each for each in found if each.started.is_ours or each.started.is_theirs)


def size(quantity: object) -> float | None:
    """Return a size in bytes; ``None``: there is none, or it is not understood."""
    found = SIZE.match(settled(quantity))
    return float(found[1]) * 1024.0 ** (POWERS.find(found[2].lower()) + 1 if found[2] else 0) if found else None


def seconds(span: object) -> float | None:
    """Return a span of time in seconds; ``None``: compose knows no such one, as without a unit."""
    text = settled(span)
    if text == "0":
        return 0.0
    parts = SPAN.findall(text)
    return None if not parts or SPAN.sub("", text) else sum(float(count) * SECONDS[unit] for count, unit in parts)


def is_open(value: object) -> bool:
    """Return whether a variable stands in it whose value is not in the file."""
    return "$" in settled(value)


def settled(value: object) -> str:
    """Return a value with what compose takes where a variable is not set."""
    text = str(value)
    while (outer := DEFAULT.sub(lambda use: use[1], text)) != text:  # from the innermost default outwards
        text = outer
    return text.replace("$$", "$")


def _service(name: str, spec: Mapping[str, Any]) -> Service:
    words = (*_words(spec.get("entrypoint")), *_words(spec.get("command")))
    has_command, image = bool(spec.get("entrypoint")), settled(spec.get("image") or "")
    started = Started(image, words, has_command=has_command, variables=dict(_variables(spec)))
    return Service(f"service {name}", spec, started, tuple(_mounts(spec)))


def _words(value: object) -> tuple[str, ...]:
    return tuple(map(settled, value)) if isinstance(value, list) else split(settled(value)) if value else ()


def _variables(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the variables whose values stand in the file."""
    given = spec.get("environment")
    pairs = given.items() if isinstance(given, Mapping) else ()
    lines = given if isinstance(given, list) else ()
    yield from ((str(name), settled(value)) for name, value in pairs if value is not None)
    for name, equals, value in (str(line).partition("=") for line in lines):
        if equals:
            yield name, settled(value)


def _mounts(spec: Mapping[str, Any]) -> Iterator[Mount]:
    temporary, volumes = spec.get("tmpfs"), spec.get("volumes")
    for line in temporary if isinstance(temporary, list) else [temporary] if temporary else []:
        target, _, options = settled(line).partition(":")
        yield Mount(_bare(target), is_tmpfs=True, is_locked="ro" in options.split(","), options=options)
    for each in volumes if isinstance(volumes, list) else ():
        if isinstance(each, Mapping):
            is_locked, is_tmpfs = each.get("read_only") is True, each.get("type") == "tmpfs"
            options = f"size={settled(part(each, 'tmpfs', 'size') or '')}"
            yield Mount(_bare(settled(each.get("target"))), is_tmpfs, is_locked, options)
        else:
            parts = settled(each).split(":")
            target = parts[1] if len(parts) > 1 else parts[0]
            yield Mount(_bare(target), is_locked="ro" in ",".join(parts[2:]).split(","))


def _bare(place: str) -> str:
    return place.rstrip("/") or "/"


def _count(device: Mapping[str, Any]) -> float:
    ids = device.get("device_ids")
    if isinstance(ids, list):
        return len(ids)
    count = settled(device.get("count", "all"))
    return float(count) if re.fullmatch(r"\d{1,6}", count) else float("inf")
