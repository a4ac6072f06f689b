"""A compose file that runs safe-vllm: how it stops, comes back, and where it can write."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from safe_vllm.checks.compose_services import Service, services, settled, size
from safe_vllm.checks.finding import Finding, Level
from safe_vllm.checks.manifest_pods import ENDPOINTS
from safe_vllm.checks.manifest_sources import CACHES, part
from safe_vllm.checks.unit_command import SHELLS
from safe_vllm.checks.unit_file import STOPS
from safe_vllm.checks.unit_text import seconds
from safe_vllm.machine.condition import GIB
from safe_vllm.plan.secrets import NAME, hide

GRACE_S = 10.0
"""What docker gives where nothing is said."""
SHM, TEMPORARY = "/dev/shm", "/tmp"
STATE = "/var/lib/safe-vllm"
"""Where our image keeps it."""
ServiceCheck = Callable[[Service], Iterator[Finding]]


def unseen(service: Service) -> Iterator[Finding]:
    """Tell what is said of it elsewhere."""
    lost = [name for name in ("env_file", "extends") if service.spec.get(name)]
    if lost:
        what = f"what {' and '.join(lost)} names was not looked at"
        do = "check what `docker compose config` prints: it has all of it in one file"
        yield Finding("compose-unseen", "warning", what, "options of safe-vllm may stand there", do)


def runs(service: Service) -> Iterator[Finding]:
    """Tell whether safe-vllm is the first process."""
    container, do = service.container, "entrypoint: [safe-vllm, serve], and the words for vLLM as command"
    if not container.is_ours:
        what = f"it runs {container.shown}"
        yield Finding("compose-command", "problem", what, "nobody steps down after a kernel fault", do)
    elif container.first in SHELLS and not container.start.is_ours:
        why = "a shell is the first process, which does not pass SIGTERM on: vLLM is killed when the time is over"
        what = f"it runs {container.first}"
        yield Finding("compose-command", "problem", what, why, f"exec safe-vllm in it, or {do}")
    elif container.start.is_ours and container.start.subcommand not in ("serve", None):
        what = f"it runs safe-vllm {container.start.subcommand}"
        yield Finding("compose-command", "problem", what, "only `serve` supervises", do)
    else:
        yield Finding("compose-command", "ok", f"it runs {container.shown}")


def grace(service: Service) -> Iterator[Finding]:
    """Compare the time that docker gives with the one that a stop may take."""
    given, needed = service.spec.get("stop_grace_period"), service.container.stop_s
    limit = GRACE_S if given is None else seconds(settled(given))
    do = f"stop_grace_period: {needed + 30:g}s"
    if limit is None:
        what = f"stop_grace_period {str(given)[:40]!r} is no time"
        yield Finding("compose-grace", "problem", what, "compose refuses the file", do)
    elif limit > needed:
        yield Finding("compose-grace", "ok", f"stop_grace_period {limit:g} s is above the {needed:g} s of a stop")
    else:
        where = "" if given is not None else ", the default,"
        what = f"stop_grace_period {limit:g} s{where} is not above the {needed:g} s that vLLM has to end"
        yield Finding("compose-grace", "warning", what, "requests that are still served are cut off by SIGKILL", do)
    signal = settled(service.spec.get("stop_signal", "SIGTERM"))
    if not {signal, f"SIG{signal}"} & STOPS:
        why = "safe-vllm does not stop at it"
        yield Finding("compose-grace", "problem", f"stop_signal {signal[:40]}", why, "leave it out")


def restart(service: Service) -> Iterator[Finding]:
    """Look whether somebody starts it again, and for how long."""
    condition = part(service.spec, "deploy", "restart_policy", "condition")
    policy = settled(service.spec.get("restart") or condition or "no")
    do = "restart: on-failure:10"
    if policy in ("no", "none", "False"):
        why = "a launch that ended with 70 (attempts spent) or 75 (may pass by itself) stays down"
        yield Finding("compose-restart", "note", "nothing starts it again", why, do)
    elif policy in ("always", "unless-stopped", "any", "on-failure") and condition is None:
        why = "after 69, 71 and 78 no restart helps, and docker cannot tell them apart: it is started for ever"
        yield Finding("compose-restart", "note", f"restart: {policy}", why, do)
    else:
        yield Finding("compose-restart", "ok", f"restart: {policy}")


def shared_memory(service: Service) -> Iterator[Finding]:
    """Look at /dev/shm, through which vLLM's processes talk."""
    given, mount = service.spec.get("shm_size"), service.mount_at(SHM)
    why, do = "with several GPUs NCCL and vLLM's workers end with SIGBUS", "shm_size: 16gb, or ipc: host"
    level: Level = "warning" if (service.gpus or 0) > 1 else "note"
    if service.spec.get("ipc") == "host" or mount is not None:
        yield Finding("compose-shm", "ok", f"{SHM} is that of the host" if mount is None else f"{SHM} is mounted")
    elif given is None:
        yield Finding("compose-shm", level, f"{SHM} has 64 MiB, the default", why, do)
    elif (limit := size(given)) is not None and limit < GIB:
        yield Finding("compose-shm", level, f"shm_size: {settled(given)}", why, do)
    else:
        yield Finding("compose-shm", "ok", f"{SHM} has {settled(given)[:40]}")


def writable(service: Service) -> Iterator[Finding]:
    """Look for places that are written to and cannot be, and for state that goes with the container."""
    variables = service.container.variables
    wanted = {name: variables[name] for name in CACHES if name in variables} | {"temporary files": TEMPORARY}
    mounts = {name: service.mount_at(place) for name, place in wanted.items()}
    lost = [f"{name} ({wanted[name]})" for name, mount in mounts.items() if mount is None or mount.is_locked]
    if service.spec.get("read_only") is True and lost:
        why = "vLLM downloads, compiles and talks through files there: it fails, or does all of it anew at each start"
        yield Finding(
            "compose-writable", "warning", f"read-only: {', '.join(lost)}", why, "give each a volume or a tmpfs"
        )
    scratch = service.mount_at(TEMPORARY)
    if scratch and scratch.is_tmpfs and "exec" not in scratch.options.split(","):
        why = "docker lets no program in a tmpfs run, and compiled kernels are loaded from there"
        yield Finding("compose-writable", "note", f"{TEMPORARY} is a tmpfs without exec", why, "tmpfs: /tmp:exec")
    yield from _state(service)


def _state(service: Service) -> Iterator[Finding]:
    place = service.container.option("--state-dir") or STATE
    mount, do = (
        service.mount_at(place),
        f"mount a volume there, and set SAFE_VLLM_STATE_DIR={place} if the image does not",
    )
    if mount is None or mount.is_locked:
        why = "what broke is forgotten with each container, and the next one breaks in the same way"
        yield Finding("compose-state", "warning", f"{place} is in no volume that can be written", why, do)
    elif mount.is_tmpfs:
        why = "what broke is forgotten when the container is stopped"
        yield Finding("compose-state", "note", f"{place} is in a tmpfs", why, do)
    else:
        yield Finding("compose-state", "ok", f"{place} outlives the container")


def health(service: Service) -> Iterator[Finding]:
    """Look at what the health check asks."""
    asked = settled(part(service.spec, "healthcheck", "test") or "")
    address = service.container.option("--status-address")
    if ENDPOINTS.search(asked) and address is None and not service.spec.get("env_file"):
        do = "SAFE_VLLM_STATUS_ADDRESS: 0.0.0.0:9464"
        what = "the health check asks for /livez or /readyz, and --status-address is not given"
        yield Finding("compose-health", "warning", what, "nothing answers there, unless the image says so", do)
    elif "/health" in asked:
        why = "it is red while the model loads and while it steps down; Swarm and autoheal end what is unhealthy"
        do = "ask for /readyz of --status-address, or /livez where the unhealthy are ended"
        yield Finding("compose-health", "note", "the health check asks for vLLM's /health", why, do)
    elif asked:
        yield Finding("compose-health", "ok", "the health check asks for what safe-vllm answers")


def gpus(service: Service) -> Iterator[Finding]:
    """Look whether it is given any GPU."""
    if service.gpus is None and not service.spec.get("devices"):
        why = "vLLM finds no device, unless it is a build for the CPU"
        yield Finding("compose-gpus", "note", "it is given no GPU", why, "gpus: all, or devices below deploy")


def secrets(service: Service) -> Iterator[Finding]:
    """Look for keys where everybody who may read the file can read them."""
    container = service.container
    names = [name for name, value in container.variables.items() if NAME.fullmatch(name) and value and "$" not in value]
    words = container.words
    flags = [word for word, shown in zip(words, hide(words), strict=True) if word != shown and "$" not in word]
    if names or flags:
        told = ", ".join([*names, *(["a flag"] if flags else [])])
        do = "name the variable without a value: compose takes it from your environment, or from .env"
        yield Finding("compose-secrets", "warning", f"{told} has its value in the file", "files are read by many", do)


CHECKS: tuple[ServiceCheck, ...] = (
    unseen,
    runs,
    health,
    grace,
    restart,
    shared_memory,
    writable,
    gpus,
    secrets,
)


def checked(where: str, document: Mapping[str, Any]) -> tuple[Finding, ...]:
    """Return what all checks find in a compose file, in their order."""
    found = services(document)
    if not found:
        why = "no service in it runs safe-vllm or vLLM, as far as its command, image and variables tell"
        do = "entrypoint: [safe-vllm, serve], or name the file with the service"
        return (Finding("compose-command", "problem", f"nothing in {where} runs vLLM", why, do),)
    return tuple(_told(finding, each) for each in found for check in CHECKS for finding in check(each))


def _told(finding: Finding, service: Service) -> Finding:
    return Finding(finding.name, finding.level, f"{service.where}: {finding.what}", finding.why, finding.do)
