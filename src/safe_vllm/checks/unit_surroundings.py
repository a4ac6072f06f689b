"""A systemd unit that runs safe-vllm: what it takes away from it, and where things go.

https://www.freedesktop.org/software/systemd/man/latest/systemd.exec.html
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from safe_vllm.checks.finding import Finding
from safe_vllm.checks.unit_command import start_of
from safe_vllm.checks.unit_text import Unit, whole

GPU_DEVICES = ("nvidia", "kfd", "dri")
HOMES = ("/home/", "/root/", "/run/user/", "~", "%h")
CACHES = ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HOME", "XDG_CACHE_HOME", "VLLM_CACHE_ROOT")
DIRECTORIES = (
    ("CacheDirectory", "%C", "/var/cache"),
    ("StateDirectory", "%S", "/var/lib"),
    ("RuntimeDirectory", "%t", "/run"),
    ("LogsDirectory", "%L", "/var/log"),
)
"""What systemd makes for a service, and where."""
FAMILIES = ("AF_UNIX", "AF_INET", "AF_NETLINK")
"""vLLM's processes, its clients and NCCL, and NCCL's look at the network."""
FILES_NEEDED = 65535
TASKS_NEEDED = 4096
TAKEN = {
    "MemoryDenyWriteExecute": "torch.compile, Triton and CUDA write the code that they run",
    "PrivateNetwork": "no client can reach it",
    "PrivateDevices": "it hides the GPUs",
}
"""What ends a start, by the setting that does."""


def devices(unit: Unit) -> Iterator[Finding]:
    """Look for what takes away GPUs, memory or the network."""
    for name, why in TAKEN.items():
        if unit.is_on(name):
            yield Finding("unit-sandbox", "problem", f"{name}=yes", why, "leave it out")
    policy, allowed = unit.value("DevicePolicy") or "auto", unit.words("DeviceAllow")
    has_gpus = any(name in word for word in allowed for name in GPU_DEVICES)
    if (policy in ("closed", "strict") or allowed) and not has_gpus:
        what = f"DevicePolicy={policy}" + (f" and DeviceAllow={unit.value('DeviceAllow')}" if allowed else "")
        why = "what is not allowed by name is hidden, the GPUs too"
        do = "leave both out, or allow char-nvidia-frontend, char-nvidia-uvm and char-nvidia-caps"
        yield Finding("unit-sandbox", "problem", what, why, do)
    elif unit.is_on("ProtectClock") and not has_gpus:
        why = "before systemd 253 it hides all devices, the GPUs too (systemd#18142)"
        yield Finding("unit-sandbox", "warning", "ProtectClock=yes", why, "leave it out")


def sandbox(unit: Unit) -> Iterator[Finding]:
    """Look for limits on system calls, sockets and processes that vLLM or CUDA meet."""
    families = unit.words("RestrictAddressFamilies")
    lost = [family for family in FAMILIES if family not in families]
    if families and lost and not families[0].startswith("~"):
        why = "vLLM's processes, its clients and NCCL need them"
        yield Finding(
            "unit-sandbox", "problem", f"RestrictAddressFamilies without {', '.join(lost)}", why, "add them to it"
        )
    if filters := unit.values("SystemCallFilter"):
        why = "a call that is refused ends a process, or fails in ways that look like another fault"
        do = "leave it out, or try each model and each rung with it"
        yield Finding("unit-sandbox", "note", f"SystemCallFilter={filters[-1]}", why, do)
    if unit.value("ProcSubset") == "pid":
        why = "it hides /proc/driver/nvidia, /proc/meminfo and /proc/cpuinfo"
        yield Finding("unit-sandbox", "warning", "ProcSubset=pid", why, "leave it out")
    if (unit.value("OOMPolicy") or "stop") != "continue":
        why = "one process of vLLM that the kernel kills for memory stops the whole service, before safe-vllm can judge"
        yield Finding(
            "unit-sandbox", "note", f"OOMPolicy={unit.value('OOMPolicy') or 'stop'}", why, "OOMPolicy=continue"
        )


def _home_of(unit: Unit) -> str:
    """Return how much of the homes can be seen: ``yes`` means nothing, as for systemd."""
    value = (unit.value("ProtectHome") or "").lower()
    if value in ("read-only", "tmpfs"):
        return value
    if unit.is_on("ProtectHome"):
        return "yes"
    return "read-only" if unit.is_on("DynamicUser") else "no"


def homes(unit: Unit) -> Iterator[Finding]:
    """Look for models, caches and programs in homes that are hidden or cannot be written."""
    home = _home_of(unit)
    if home == "no":
        return
    variables, start = unit.variables(), start_of(unit)
    seen = [f"{name}={unit.value(name)}" for name in ("WorkingDirectory",) if _in_homes(unit.value(name) or "")]
    seen += [word for word in (*start.before, *start.options, *start.words) if word.startswith(HOMES)]
    seen += [f"{name}={value}" for name, value in variables.items() if name not in CACHES and _in_homes(value)]
    caches = [f"{name}={variables[name]}" for name in CACHES if _in_homes(variables.get(name, ""))]
    if home != "read-only" and (lost := [*seen, *caches]):
        do = "move it, or ProtectHome=no"
        why = "nothing there can be seen by the service"
        yield Finding("unit-home", "problem", f"ProtectHome={home} hides {', '.join(lost)}", why, do)
    elif caches:
        why = "models are downloaded and kernels compiled anew at each start, or the start fails"
        do = "move it below CacheDirectory=, or name it in ReadWritePaths="
        yield Finding(
            "unit-home", "warning", f"ProtectHome=read-only keeps {', '.join(caches)} from being written", why, do
        )
    elif not any(name in variables for name in CACHES):
        why = "models and compiled kernels are kept below HOME, in a home"
        has_file = bool(unit.values("EnvironmentFile"))
        what = f"ProtectHome={home}, and the unit moves no cache elsewhere"
        do = "CacheDirectory=safe-vllm and Environment=HOME=%C/safe-vllm"
        yield Finding("unit-home", "note" if has_file else "warning", what, why, do)
    else:
        yield Finding("unit-home", "ok", f"nothing of it lies in a home (ProtectHome={home})")


def writable(unit: Unit) -> Iterator[Finding]:
    """Look for caches that lie where ProtectSystem=strict lets nothing be written."""
    if not _is_strict(unit):
        return
    places = _writable(unit)
    caches = {name: value for name, value in unit.variables().items() if name in CACHES and not _in_homes(value)}
    locked = [f"{name}={value}" for name, value in caches.items() if not _is_below(value, places)]
    if locked:
        why = "models are downloaded and kernels compiled anew at each start, or the start fails"
        what = f"ProtectSystem=strict keeps {', '.join(locked)} from being written"
        yield Finding(
            "unit-writable", "warning", what, why, "name it in ReadWritePaths=, or move it below CacheDirectory="
        )


def _is_strict(unit: Unit) -> bool:
    """Return whether nothing can be written but what is named."""
    return unit.value("ProtectSystem") == "strict" or unit.is_on("DynamicUser")


def _writable(unit: Unit) -> list[str]:
    """Return the places that can be written all the same."""
    places = ["/tmp", "/var/tmp", "/dev", *unit.words("ReadWritePaths"), *unit.words("BindPaths")]
    for setting, *roots in DIRECTORIES:
        places += [f"{root}/{name}" for name in unit.words(setting) for root in roots]
    return places


def _is_below(path: str, places: Sequence[str]) -> bool:
    named = (place.lstrip("-+").partition(":")[0].rstrip("/") for place in places)
    return any(path == place or path.startswith(f"{place}/") for place in named)


def _in_homes(value: str) -> bool:
    return any(part.startswith(HOMES) for part in value.split(":"))


def state(unit: Unit) -> Iterator[Finding]:
    """Look for a place to remember what broke and what held."""
    place = start_of(unit).option("--state-dir", unit.variables())
    if place and _is_locked(place, unit):
        why = "what broke and what held is forgotten at each restart: nothing is kept where nothing can be written"
        do = "leave it out, with StateDirectory=safe-vllm; or name it in ReadWritePaths="
        what = f"ProtectSystem=strict keeps the state directory {place} from being written"
        yield Finding("unit-state", "warning", what, why, do)
    elif unit.values("StateDirectory"):
        yield Finding("unit-state", "ok", f"StateDirectory={unit.value('StateDirectory')}")
    elif place is None:
        why = "what broke and what held is forgotten at each restart, where the user has no HOME that can be written"
        yield Finding("unit-state", "warning", "there is no StateDirectory", why, "StateDirectory=safe-vllm")


def _is_locked(place: str, unit: Unit) -> bool:
    """Return whether it cannot be written, as far as the unit tells: of other specifiers that is not known."""
    is_known = place.startswith(("/", *(f"{specifier}/" for _, specifier, _ in DIRECTORIES)))
    is_hidden = _in_homes(place) and _home_of(unit) in ("yes", "tmpfs")  # told already
    return is_known and not is_hidden and _is_strict(unit) and not _is_below(place, _writable(unit))


def limits(unit: Unit) -> Iterator[Finding]:
    """Look at limits that are too low for vLLM, and at core files."""
    if unit.value("LimitMEMLOCK") != "infinity":
        why = "RDMA and NCCL pin memory; systemd's default is 8 MiB"
        yield Finding(
            "unit-limits", "note", f"LimitMEMLOCK={unit.value('LimitMEMLOCK') or '8M'}", why, "LimitMEMLOCK=infinity"
        )
    for name, needed in (("LimitNOFILE", FILES_NEEDED), ("TasksMax", TASKS_NEEDED)):
        hard = whole((unit.value(name) or "").rpartition(":")[2])
        if hard is not None and hard < needed:
            why = "vLLM opens a socket per request and starts a thread per core in each worker"
            yield Finding("unit-limits", "warning", f"{name}={hard}", why, f"at least {needed}")
    if unit.value("LimitCORE") == "infinity":
        why = "an engine's core file can have tens of GiB, and delays the restart while it is written"
        yield Finding(
            "unit-limits", "note", "LimitCORE=infinity", why, "LimitCORE=0, except while you look for a fault"
        )


def output(unit: Unit) -> Iterator[Finding]:
    """Look at where vLLM's output goes."""
    for name in ("StandardOutput", "StandardError"):
        target = unit.value(name) or "inherit"
        if target == "null":
            why = "vLLM's last words are the evidence; only reports keep an end of them"
            yield Finding("unit-output", "warning", f"{name}=null", why, "leave it out: the journal keeps it")
        elif target.startswith("file:"):
            why = "each start writes over what the last one left, from the beginning"
            yield Finding(
                "unit-output", "warning", f"{name}={target}", why, f"{name}=append:{target[5:]}, or the journal"
            )
        elif "+console" in target or target == "tty":
            why = "a slow console holds vLLM up, as it would any program"
            yield Finding("unit-output", "note", f"{name}={target}", why, "leave it out: the journal keeps it")


CHECKS = (devices, sandbox, homes, writable, state, limits, output)
