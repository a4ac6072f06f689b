"""What can be counted of a launch, and how Prometheus reads it. The one module that knows prometheus_client."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, cast, get_args

from safe_vllm.announce.picture import Picture, State

NO_FAULTS = frozenset({"none", "stopped"})
"""Ends of attempts that nothing is wrong with."""

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Measure:
    """A metric with its values now; none where it does not apply."""

    name: str
    kind: Literal["gauge", "counter"]
    meaning: str
    values: Mapping[Labels, float]


def measures(picture: Picture, age_s: float, relayed: Mapping[str, int] | None = None) -> tuple[Measure, ...]:
    """Return every metric of a launch whose loop last turned so many seconds ago, and passed on so much."""
    found = [*_standing(picture), *_degraded(picture), *_counted(picture)]
    found.append(_gauge("heartbeat_age_seconds", "Since the loop of safe-vllm last turned.", age_s))
    if relayed is not None:
        streams = {_labels(stream=name): float(count) for name, count in relayed.items()}
        found.append(Measure("safe_vllm_relayed_bytes_total", "counter", "What vLLM printed, passed on.", streams))
    return tuple(found)


def exposition(found: Sequence[Measure]) -> tuple[str, bytes]:
    """Return the content type and the text. Raises ImportError where prometheus_client is not installed."""
    from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(cast(Any, _Collector(found)))
    return str(CONTENT_TYPE_LATEST), bytes(generate_latest(registry))


@dataclass(frozen=True, eq=False)
class _Collector:
    """What the registry asks; it keeps it by its identity."""

    found: Sequence[Measure]

    def collect(self) -> Iterator[Any]:
        """Return the metrics in the form that the registry wants."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        kinds = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily}
        for one in self.found:
            names = [name for name, _ in next(iter(one.values), ())]
            family = kinds[one.kind](one.name, one.meaning, labels=names)
            for labels, value in one.values.items():
                family.add_metric([text for _, text in labels], value)
            yield family


def _standing(picture: Picture) -> Iterator[Measure]:
    versions = {name: picture.versions.get(name) or "" for name in ("vllm", "flashinfer", "torch")}
    about = _labels(profile=picture.profile, **versions)
    yield Measure("safe_vllm_info", "gauge", "What is run; always 1.", {about: 1.0})
    yield _gauge("start_time_seconds", "When the launch began, in Unix time.", _unix(picture.started_at))
    yield _one_of("state", "In which state the launch is: 1 at one of them.", get_args(State), picture.state)
    yield _one_of("rung", "At which rung of the ladder: 1 at one of them.", picture.ladder, picture.rung)
    place = float(picture.ladder.index(picture.rung)) if picture.rung in picture.ladder else None
    yield _gauge("rung_index", "How many steps that is below what was asked for.", place)
    is_ready = picture.state == "ready"
    yield _gauge("ready", "Whether real requests were answered and no end is near.", is_ready)
    yield _gauge("seconds_to_ready", "From the start of vLLM until ready.", picture.ready_after_s)
    yield _gauge("proven", "Whether the rung has held for the proving window.", is_ready and picture.is_proven)
    yield _gauge("gate_waiting", "Whether a gate is waited for before the next attempt.", picture.waits_for is not None)


def _degraded(picture: Picture) -> Iterator[Measure]:
    degraded = None if picture.state == "ended" else picture.degraded
    since = _unix(degraded.since) if degraded else None
    yield _gauge("degraded", "Whether it runs below what was asked for.", degraded is not None)
    yield _gauge("degraded_since_timestamp_seconds", "Since when, in Unix time.", since)


def _counted(picture: Picture) -> Iterator[Measure]:
    faults = {
        _labels(fault=fault, phase=phase): float(times)
        for (fault, phase), times in picture.faults.items()
        if fault not in NO_FAULTS
    }
    yield _counter("attempts", "Attempts that were begun.", picture.attempt)
    yield _counter("failed_attempts", "Attempts that ended by a fault.", sum(faults.values()))
    yield Measure("safe_vllm_faults_total", "counter", "The same, by fault and phase.", faults)
    yield _counter("hangs", "Servers that were ended because they hung.", picture.hangs)
    yield _counter("incidents", "Reports that were written.", picture.incidents)
    yield _counter("gate_wait_seconds", "Waited for gates between attempts.", picture.gate_waited_s)


def _gauge(name: str, meaning: str, value: float | None) -> Measure:
    return Measure(f"safe_vllm_{name}", "gauge", meaning, {} if value is None else {(): float(value)})


def _counter(name: str, meaning: str, value: float) -> Measure:
    return Measure(f"safe_vllm_{name}_total", "counter", meaning, {(): float(value)})


def _one_of(name: str, meaning: str, known: Sequence[str], now: str) -> Measure:
    return Measure(f"safe_vllm_{name}", "gauge", meaning, {_labels(**{name: one}): float(one == now) for one in known})


def _labels(**texts: str) -> Labels:
    # a path may hold what is no UTF-8, and one bad label would cost every metric
    return tuple((name, text.encode(errors="replace").decode()) for name, text in texts.items())


def _unix(at: str) -> float | None:
    try:
        return datetime.fromisoformat(at.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None
