"""The tables of a report."""

from __future__ import annotations

from safe_vllm.record.incident import CacheUsed, Earlier, Ended, Incident, Variable
from safe_vllm.record.incident_setup import GpuKind
from safe_vllm.record.markdown import code, said, table
from safe_vllm.verdict.evidence import signal_name

GIB = 1 << 30
MIB = 1 << 20
OWNERS = {"process": "a process, written by the kernel", "gpu": "a GPU, written by the CUDA driver"}
REMEDY = "safe-vllm changed nothing in what is suspect. Move it aside and start again to see whether it was that; "
NOT_FRESH = "no attempt of this launch had fresh caches so far."
UNREAD = " (not read by the installed version)"


def machine(incident: Incident) -> list[str]:
    """Return versions, GPUs and settings; what was not found is left out."""
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
        *((setting.name, setting.value) for setting in incident.settings),
    )
    return table(("what", "which"), [(name, said(value)) for name, value in rows if value])


def _gpus(kind: GpuKind) -> str:
    capability = f", compute capability {kind.compute_capability}" if kind.compute_capability else ""
    memory = f", {kind.memory_mib} MiB" if kind.memory_mib is not None else ""
    return f"{kind.count} x {kind.name}{capability}{memory}"


def attempts(incident: Incident) -> list[str]:
    """Return the attempts so far, this one last, and the rungs that were not run."""
    tried = [(said(past.rung), _attempt(past, incident), said(past.reason or past.fault)) for past in incident.history]
    following = incident.sequel.rung
    then = [(said(following), f"{incident.attempt + 1}, next", "")] if following else []
    rest = [(said(each.rung), "not run", said(each.because)) for each in incident.untried]
    return table(("rung", "attempt", "what came of it, or why it was not run"), [*tried, *then, *rest])


def _attempt(past: Earlier, incident: Incident) -> str:
    ready = "never ready" if past.ready_for_s is None else f"ready for {past.ready_for_s} s"
    caches = ", with fresh caches" if past.has_fresh_caches else ""
    report = f", report {code(past.report)}" if past.report else ""
    this = " (this one)" if past.attempt == incident.attempt else ""
    return f"{past.attempt}{this}: {past.seconds} s, {ready}{caches}{report}"


def endings(incident: Incident) -> list[str]:
    """Return how processes below the leader ended."""
    rows = [(said(end.title), str(end.pid), _status(end)) for end in incident.ends]
    return table(("process", "pid", "end"), rows)


def _status(end: Ended) -> str:
    if end.status is None:
        return "unknown"
    return f"killed by {signal_name(-end.status)} ({end.status})" if end.status < 0 else f"status {end.status}"


def core_files(incident: Incident) -> list[str]:
    """Return where core files are and how large."""
    rows = [(code(core.path), OWNERS.get(core.kind, core.kind), size(core.size_bytes)) for core in incident.cores]
    whole = size(sum(core.size_bytes for core in incident.cores))
    found = [f"New files while it ran: {len(rows)}, {whole} in all.", "", *table(("file", "of", "size"), rows), ""]
    place = [f"Where the kernel puts them: {said(incident.core_place)}."] if incident.core_place else []
    return [*(found if rows else ["New files while it ran: none.", ""] if place else []), *place]


def caches(incident: Incident) -> list[str]:
    """Return what vLLM keeps from start to start, and what to do with what is suspect."""
    rows = [(said(cache.what), code(cache.path), _suspicion(cache)) for cache in incident.caches]
    remedy = ["", _remedy(incident)] if any(cache.is_suspect for cache in incident.caches) else []
    return [*table(("what", "where", ""), rows), *remedy]


def _remedy(incident: Incident) -> str:
    fresh = [str(past.attempt) for past in incident.history if past.has_fresh_caches]
    return REMEDY + (f"of this launch, attempt {', '.join(fresh)} had fresh caches." if fresh else NOT_FRESH)


def _suspicion(cache: CacheUsed) -> str:
    return f"suspect: {said(cache.because)}" if cache.is_suspect else ""


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
    value = "set; its value is not told" if known.value is None else code(known.value)
    return value + (UNREAD if known.is_unread else "")
