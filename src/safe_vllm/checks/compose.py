"""A compose file that runs safe-vllm: how it stops, comes back, and where it can write."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from safe_vllm.checks.compose_health import health
from safe_vllm.checks.compose_services import Mount, Service, is_open, seconds, services, settled, size
from safe_vllm.checks.finding import Finding, Level
from safe_vllm.checks.manifest_sources import CACHES, part
from safe_vllm.checks.options import options
from safe_vllm.checks.started import SHM, TEMPORARY, secrets, state_not_named, supervision
from safe_vllm.checks.unit_file import STOPS
from safe_vllm.machine.condition import GIB

GRACE_S = 10.0
"""What docker gives where nothing is said."""
STATE = "/var/lib/safe-vllm"
"""Where our image keeps it."""
NEVER = ("no", "none", "False")
COUNTED = ("on-failure", "any")
EVER = ("always", "unless-stopped", *COUNTED)
"""Policies, and those that a number of restarts can be given with; ``none`` and ``any`` are Swarm's."""
REFUSED = "compose refuses the file"
ENOUGH = "shm_size: 16gb, or ipc: host"
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
    do = "entrypoint: [safe-vllm, serve], and the words for vLLM as command"
    yield from supervision(service.started, "compose-command", do)


def settings(service: Service) -> Iterator[Finding]:
    """Look at our own options."""
    return options("compose-options", service.started.start, service.started.variables)


def grace(service: Service) -> Iterator[Finding]:
    """Compare the time that docker gives with the one that a stop may take."""
    given, needed = service.spec.get("stop_grace_period"), service.started.stop_s
    pause, is_known = service.pre_stop_s
    limit = GRACE_S if given is None else seconds(given)
    do, beside = f"stop_grace_period: {needed + pause + 30:g}s", f" and the {pause:g} s of pre_stop" if pause else ""
    if is_open(given):
        yield _untold("compose-grace", "stop_grace_period", given)
    elif limit is None:
        what = f"stop_grace_period {settled(given)[:40]!r} is no time"
        yield Finding("compose-grace", "problem", what, REFUSED, do)
    elif limit <= needed + pause:
        where = "" if given is not None else ", the default,"
        what = f"stop_grace_period {limit:g} s{where} is not above the {needed:g} s that vLLM has to end{beside}"
        yield Finding("compose-grace", "warning", what, "requests that are still served are cut off by SIGKILL", do)
    elif not is_known:
        what, why = f"stop_grace_period {limit:g} s, and how long pre_stop takes cannot be seen", "it counts too"
        yield Finding("compose-grace", "note", what, why, "compare them yourself")
    else:
        what = f"stop_grace_period {limit:g} s is above the {needed:g} s of a stop{beside}"
        yield Finding("compose-grace", "ok", what)
    signal = settled(service.spec.get("stop_signal", "SIGTERM"))
    if is_open(signal):
        yield _untold("compose-grace", "stop_signal", signal)
    elif not {signal, f"SIG{signal}"} & STOPS:
        why = "safe-vllm does not stop at it"
        yield Finding("compose-grace", "problem", f"stop_signal {signal[:40]}", why, "leave it out")


def restart(service: Service) -> Iterator[Finding]:
    """Look whether somebody starts it again, and for how long."""
    policy, count = _restarts(service)
    told = policy[:40] + (f":{count[:12]}" if count is not None else "")
    do = "restart: on-failure:10"
    if is_open(told):
        yield _untold("compose-restart", "restart", told)
    elif policy in NEVER and count is None:
        why = "a launch that ended with 70 (attempts spent) or 75 (may pass by itself) stays down"
        yield Finding("compose-restart", "note", "nothing starts it again", why, do)
    elif policy not in (EVER if count is None else COUNTED) or not re.fullmatch(r"[0-9]{1,9}", count or "0"):
        yield Finding("compose-restart", "problem", f"restart: {told} is no policy", "docker refuses it", do)
    elif not int(count or 0):
        why = "after 69, 71 and 78 no restart helps, and docker cannot tell them apart: it is started for ever"
        yield Finding("compose-restart", "note", f"restart: {told}", why, do)
    else:
        yield Finding("compose-restart", "ok", f"restart: {told}")


def _restarts(service: Service) -> tuple[str, str | None]:
    """Return the policy, and how often it is started at most."""
    below = part(service.spec, "deploy", "restart_policy")
    if service.spec.get("restart") or not isinstance(below, Mapping):
        name, colon, count = settled(service.spec.get("restart") or "no").partition(":")
        return name, count if colon else None
    attempts = below.get("max_attempts")
    return settled(below.get("condition") or "any"), None if attempts is None else settled(attempts)


def _untold(name: str, key: str, value: object) -> Finding:
    """Tell of a value that is not in the file."""
    why = "it holds a variable whose value is not in the file, so it was not looked at"
    do = "check what `docker compose config` prints: it has the values"
    return Finding(name, "note", f"{key}: {settled(value)[:40]}", why, do)


def shared_memory(service: Service) -> Iterator[Finding]:
    """Look at /dev/shm, through which vLLM's processes talk."""
    given, shared = service.spec.get("shm_size"), settled(service.spec.get("ipc") or "")
    mount = next((each for each in service.mounts if each.target == SHM), None)
    if mount is not None:
        yield from _mounted(mount, service)
    elif shared == "host":
        yield Finding("compose-shm", "ok", f"{SHM} is that of the host")
    elif shared.startswith(("service:", "container:")):
        why = "its size is said there, and was not looked at"
        yield Finding("compose-shm", "note", f"{SHM} is that of {shared[:40]}", why, "give it some GiB there")
    elif given is None:
        yield _small(service, f"{SHM} has 64 MiB, the default")
    elif is_open(given):
        yield _untold("compose-shm", "shm_size", given)
    elif (limit := size(given)) is None:
        yield Finding("compose-shm", "problem", f"shm_size {settled(given)[:40]!r} is no size", REFUSED, ENOUGH)
    elif limit < GIB:
        yield _small(service, f"shm_size: {settled(given)}")
    else:
        yield Finding("compose-shm", "ok", f"{SHM} has {settled(given)}")


def _mounted(mount: Mount, service: Service) -> Iterator[Finding]:
    if mount.is_locked:
        yield Finding("compose-shm", "problem", f"{SHM} cannot be written", "vLLM's processes talk through it", ENOUGH)
    elif mount.size is not None and mount.size < GIB:
        yield _small(service, f"{SHM} is a tmpfs of less than a GiB")
    else:
        yield Finding("compose-shm", "ok", f"{SHM} is mounted")


def _small(service: Service, what: str) -> Finding:
    level: Level = "warning" if (service.gpus or 0) > 1 else "note"
    why = "with several GPUs NCCL and vLLM's workers end with SIGBUS"
    return Finding("compose-shm", level, what, why, ENOUGH)


def writable(service: Service) -> Iterator[Finding]:
    """Look for places that are written to and cannot be, and for state that goes with the container."""
    variables = service.started.variables
    wanted = {name: variables[name] for name in CACHES if name in variables and not is_open(variables[name])}
    wanted["temporary files"] = TEMPORARY
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
    started = service.started
    place = started.option("--state-dir") or (STATE if started.is_our_image else None)
    if place is None:
        yield state_not_named("compose-state")
        return
    if is_open(place):
        yield _untold("compose-state", "SAFE_VLLM_STATE_DIR", place)
        return
    mount = service.mount_at(place)
    do = f"mount a volume there, and set SAFE_VLLM_STATE_DIR={place} if the image does not"
    if mount is None or mount.is_locked:
        why = "what broke is forgotten with each container, and the next one breaks in the same way"
        yield Finding("compose-state", "warning", f"{place} is in no volume that can be written", why, do)
    elif mount.is_tmpfs:
        why = "what broke is forgotten when the container is stopped"
        yield Finding("compose-state", "note", f"{place} is in a tmpfs", why, do)
    else:
        yield Finding("compose-state", "ok", f"{place} outlives the container")


def gpus(service: Service) -> Iterator[Finding]:
    """Look whether it is given any GPU."""
    if service.gpus is None and not service.spec.get("devices"):
        why = "vLLM finds no device, unless it is a build for the CPU"
        yield Finding("compose-gpus", "note", "it is given no GPU", why, "gpus: all, or devices below deploy")


def keys(service: Service) -> Iterator[Finding]:
    """Look for keys where everybody who may read the file can read them."""
    do = "name the variable without a value; what `docker compose config` filled in it leaves with --no-interpolate"
    why = "files are read by many"
    yield from secrets(service.started, "compose-secrets", where="file", is_from="$", why=why, do=do)


CHECKS: tuple[ServiceCheck, ...] = (
    unseen,
    runs,
    settings,
    health,
    grace,
    restart,
    shared_memory,
    writable,
    gpus,
    keys,
)


def checked(where: str, document: Mapping[str, Any]) -> tuple[Finding, ...]:
    """Return what all checks find in a compose file, in their order."""
    found = services(document)
    if not found:
        why = "no service in it runs safe-vllm or vLLM, as far as its command and image tell"
        do = "entrypoint: [safe-vllm, serve], or name the file with the service"
        return (Finding("compose-command", "problem", f"nothing in {where} runs vLLM", why, do),)
    return tuple(_told(finding, each) for each in found for check in CHECKS for finding in check(each))


def _told(finding: Finding, service: Service) -> Finding:
    return Finding(finding.name, finding.level, f"{service.where}: {finding.what}", finding.why, finding.do)
