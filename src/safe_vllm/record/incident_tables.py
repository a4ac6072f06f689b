"""The tables of a report."""

from __future__ import annotations

from safe_vllm.record.incident import Ended, GpuKind, Incident, Variable
from safe_vllm.record.markdown import code, said, table
from safe_vllm.verdict.evidence import signal_name

GIB = 1 << 30
MIB = 1 << 20


def machine(incident: Incident) -> list[str]:
    """Return versions and GPUs; what was not found is left out."""
    known = incident.versions
    rows = (
        ("vLLM", known.vllm),
        ("FlashInfer", known.flashinfer),
        ("PyTorch", known.torch),
        ("CUDA of PyTorch", known.torch_cuda),
        ("NVIDIA driver", known.driver),
        ("CUDA of the driver", known.driver_cuda),
        ("Python", known.python),
        ("architecture", known.architecture),
        *(("GPUs", _gpus(kind)) for kind in incident.gpus),
    )
    return table(("what", "which"), [(name, said(value)) for name, value in rows if value])


def _gpus(kind: GpuKind) -> str:
    capability = f", compute capability {kind.compute_capability}" if kind.compute_capability else ""
    memory = f", {kind.memory_mib} MiB" if kind.memory_mib is not None else ""
    return f"{kind.count} x {kind.name}{capability}{memory}"


def attempts(incident: Incident) -> list[str]:
    """Return the attempts so far, this one last."""
    rows = [
        (
            str(past.attempt),
            said(past.rung),
            past.fault,
            past.phase,
            str(past.seconds),
            "never ready" if past.ready_for_s is None else str(past.ready_for_s),
        )
        for past in incident.history
    ]
    return table(("attempt", "rung", "fault", "phase", "seconds", "ready for, s"), rows)


def endings(incident: Incident) -> list[str]:
    """Return how processes below the leader ended."""
    rows = [(said(end.title), str(end.pid), _status(end)) for end in incident.ends]
    return table(("process", "pid", "end"), rows)


def _status(end: Ended) -> str:
    if end.status is None:
        return "unknown"
    return f"{end.status} ({signal_name(-end.status)})" if end.status < 0 else str(end.status)


def core_files(incident: Incident) -> list[str]:
    """Return where core files are and how large."""
    rows = [(code(core.path), core.kind, size(core.size_bytes)) for core in incident.cores]
    whole = size(sum(core.size_bytes for core in incident.cores))
    found = [f"{len(rows)} came while it ran, {whole} in all:", "", *table(("file", "of", "size"), rows), ""]
    place = [f"{said(incident.core_place)}."] if incident.core_place else []
    return [*(found if rows else ["None was found.", ""] if place else []), *place]


def caches(incident: Incident) -> list[str]:
    """Return what vLLM keeps from start to start."""
    rows = [(said(cache.what), code(cache.path), "suspect" if cache.is_suspect else "") for cache in incident.caches]
    return table(("what", "where", ""), rows)


def memory(incident: Incident) -> list[str]:
    """Return what GPUs and the machine had free."""
    gpus = [
        (f"GPU {gpu.gpu}", f"{gpu.total_mib} MiB", _mib(gpu.before_mib), _mib(gpu.after_mib))
        for gpu in incident.gpu_memory
    ]
    host = [
        (said(level.name), size(level.whole_bytes), _size(level.before_bytes), _size(level.after_bytes))
        for level in incident.host
    ]
    return table(("what", "all of it", "free before the first attempt", "free after this one"), [*gpus, *host])


def _mib(mib: int | None) -> str:
    return "not known" if mib is None else f"{mib} MiB"


def _size(size_bytes: int | None) -> str:
    return "not known" if size_bytes is None else size(size_bytes)


def size(size_bytes: int) -> str:
    """Return a size for people."""
    return f"{size_bytes / GIB:.1f} GiB" if size_bytes >= GIB / 10 else f"{size_bytes / MIB:.1f} MiB"


def variables(incident: Incident) -> list[str]:
    """Return the environment variables that matter."""
    return table(("name", "value"), [(code(known.name), _value(known)) for known in incident.environment])


def _value(known: Variable) -> str:
    return "set; its value is not told" if known.value is None else code(known.value)
