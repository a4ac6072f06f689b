"""A systemd unit that runs safe-vllm: how it starts, stops and comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from safe_vllm.checks import unit_command, unit_ends, unit_surroundings
from safe_vllm.checks.finding import Finding
from safe_vllm.checks.unit_command import stop_s
from safe_vllm.checks.unit_spans import INFINITY
from safe_vllm.checks.unit_text import Unit, read, whole
from safe_vllm.early import STOP_SIGNALS
from safe_vllm.errors import Status

FIRST_WORD_S = 20.0
"""A slow machine's time until safe-vllm asks for more for the first time."""
BUSY_S = 10.0
"""A machine that is loading weights may let a process wait for seconds."""
STOPS = {name for stop in STOP_SIGNALS for name in (stop.name, str(int(stop)))}
FINAL = {
    Status.USAGE: "INVALIDARGUMENT",
    Status.HARDWARE: "UNAVAILABLE",
    Status.STUCK: "OSERR",
    Status.CONFIGURATION: "CONFIG",
    Status.BUG: "",
    Status.NOT_EXECUTABLE: "",
    Status.NOT_FOUND: "",
}
"""No restart helps against these; each has the name that systemd knows for it."""
PASSING = {Status.SPENT: "SOFTWARE", Status.PASSING: "TEMPFAIL"}
CORRECT = "correct it; no comment can stand behind a value"
BY_STATUS = ("on-failure", "always")

UnitCheck = Callable[[Unit], Iterator[Finding]]


def is_heard(unit: Unit) -> bool:
    """Return whether systemd listens to what safe-vllm reports."""
    return unit.value("Type") in ("notify", "notify-reload")


def lines(unit: Unit) -> Iterator[Finding]:
    """Look for lines that systemd would ignore."""
    if unit.strays:
        first, more = f"{unit.strays[0][:80]!r}", len(unit.strays) - 1
        others = f" and {more} other line{'s' if more > 1 else ''} are no settings"
        told = first + (others if more else " is no setting")
        why = "systemd ignores it, and says so only in its log"
        yield Finding("unit-lines", "warning", told, why, "write NAME=VALUE below a [Section]")


def refused(unit: Unit) -> Iterator[Finding]:
    """Look for settings that systemd passes over: what was there before them holds, or the default."""
    for name, why in unit.refused:
        yield Finding("unit-lines", "warning", f"systemd ignores the line with {name}", why, CORRECT)


def notify(unit: Unit) -> Iterator[Finding]:
    """Look at when the service counts as started, and whose word counts."""
    kind, access = unit.value("Type") or "simple", unit.value("NotifyAccess")
    if kind in ("forking", "oneshot"):
        why = "safe-vllm stays in the foreground: the start never ends, or ends in a time-out"
        yield Finding("unit-notify", "problem", f"Type={kind}", why, "Type=notify")
    elif kind == "notify-reload":
        why = "a reload sends SIGHUP, and that stops safe-vllm"
        yield Finding("unit-notify", "problem", f"Type={kind}", why, "Type=notify")
    elif kind != "notify":
        why = "it counts as started before the model is loaded, and its requests for more time to stop are not heard"
        yield Finding("unit-notify", "warning", f"Type={kind}", why, "Type=notify")
    elif access not in (None, "main", "none"):
        why = "a process of vLLM could speak for safe-vllm"
        yield Finding("unit-notify", "note", f"NotifyAccess={access}", why, "NotifyAccess=main")
    else:
        yield Finding("unit-notify", "ok", "started when a real completion came back (Type=notify)")


def start_timeout(unit: Unit) -> Iterator[Finding]:
    """Look at the time that safe-vllm has for its first word."""
    limit = unit.seconds("TimeoutStartSec")
    if is_heard(unit) and limit is not None and 0 < limit < FIRST_WORD_S:
        why = "the interpreter may take longer on a busy machine; after its first word safe-vllm asks for what it needs"
        yield Finding("unit-start", "warning", f"TimeoutStartSec={limit:g}", why, "TimeoutStartSec=60")


def kill(unit: Unit) -> Iterator[Finding]:
    """Look at who is signalled when the service stops."""
    mode, signal = unit.value("KillMode") or "control-group", unit.value("KillSignal") or "SIGTERM"
    if mode == "control-group":
        why = "every process of vLLM gets the stop signal at once: engines end under their requests"
        yield Finding("unit-kill", "warning", "KillMode=control-group, the default", why, "KillMode=mixed")
    elif mode in ("process", "none"):
        why = "what outlives a killed safe-vllm keeps the GPUs and the port"
        yield Finding("unit-kill", "problem", f"KillMode={mode}", why, "KillMode=mixed")
    else:
        yield Finding("unit-kill", "ok", f"safe-vllm gets the signal, what is left after it SIGKILL (KillMode={mode})")
    if signal not in STOPS:
        yield Finding(
            "unit-kill", "problem", f"KillSignal={signal}", "safe-vllm does not stop at it", "KillSignal=SIGTERM"
        )
    if unit.value("SendSIGKILL") and not unit.is_on("SendSIGKILL"):
        why = "a process that ignores SIGTERM keeps the GPU"
        yield Finding("unit-kill", "warning", "SendSIGKILL=no", why, "leave it out")


def stop_timeout(unit: Unit) -> Iterator[Finding]:
    """Compare the time that systemd gives with the one that vLLM is given."""
    needed, given = stop_s(unit), unit.seconds("TimeoutStopSec")
    limit = 90.0 if given is None else given or INFINITY
    if limit > needed:
        yield Finding("unit-stop", "ok", f"TimeoutStopSec={limit:g} is above the {needed:g} s that vLLM has to end")
        return
    what = f"TimeoutStopSec={limit:g} is not above the {needed:g} s that vLLM has to end"
    do = f"TimeoutStopSec={needed + 30:g}"
    if is_heard(unit):
        yield Finding("unit-stop", "note", what, "safe-vllm asks for more while it stops; one that is stuck cannot", do)
    else:
        yield Finding("unit-stop", "warning", what, "requests that are still served are cut off by SIGKILL", do)


def restart(unit: Unit) -> Iterator[Finding]:
    """Compare what is started again with what the exit statuses mean."""
    mode, prevented = unit.value("Restart") or "no", set(unit.words("RestartPreventExitStatus"))
    if mode not in BY_STATUS:
        why = "a launch that ended with 70 (attempts spent) or 75 (may pass by itself) stays down"
        yield Finding("unit-restart", "note", f"Restart={mode}", why, "Restart=on-failure")
        return
    lost = [str(int(each)) for each, name in FINAL.items() if not prevented & {str(int(each)), name}]
    cut = [str(int(each)) for each, name in PASSING.items() if prevented & {str(int(each)), name}]
    if lost:
        what = f"restarts after {', '.join(lost)}"
        why = "no restart helps against these: see the exit statuses in the README"
        everything = " ".join(str(int(each)) for each in FINAL)
        yield Finding("unit-restart", "warning", what, why, f"RestartPreventExitStatus={everything}")
    if cut:
        why = "these may pass, and nobody starts it again"
        yield Finding(
            "unit-restart",
            "note",
            f"does not restart after {', '.join(cut)}",
            why,
            "take them out of RestartPreventExitStatus",
        )
    if mode == "always":
        why = "it also starts again what somebody stopped with a signal"
        yield Finding("unit-restart", "note", "Restart=always", why, "Restart=on-failure")
    yield from _pace(unit)
    if not lost and not cut:
        yield Finding(
            "unit-restart", "ok", f"Restart={mode}, but not after {' '.join(str(int(each)) for each in FINAL)}"
        )


def _pace(unit: Unit) -> Iterator[Finding]:
    pause = unit.seconds("RestartSec")
    pause_s = 0.1 if pause is None else pause
    if pause_s < BUSY_S:
        why = "what may pass by itself is given no time to, and each start loads the GPUs and the disk"
        yield Finding("unit-restart", "warning", f"RestartSec={pause_s:g}", why, "RestartSec=60")
        return
    interval, burst = unit.seconds("StartLimitIntervalSec"), whole(unit.value("StartLimitBurst") or "5")
    interval_s = BUSY_S if interval is None else interval
    longest = max(pause_s, unit.seconds("RestartMaxDelaySec") or 0)
    if burst is not None and burst * longest > interval_s:
        what = f"StartLimitBurst={burst} in {interval_s:g} s is never reached with {longest:g} s between starts"
        why = "it is started for ever, and never counts as failed"
        yield Finding("unit-restart", "note", what, why, "StartLimitIntervalSec=1d and StartLimitBurst=20 in [Unit]")


def watchdog(unit: Unit) -> Iterator[Finding]:
    """Look at how long a safe-vllm that stands still may do so."""
    limit = unit.seconds("WatchdogSec")
    if not limit:
        why = "a safe-vllm that stands still is not noticed, and with it vLLM's next death"
        yield Finding("unit-watchdog", "note", "there is no WatchdogSec", why, "WatchdogSec=180")
    elif limit < BUSY_S:
        why = "a busy machine lets its loop wait for seconds, and a server that works would be ended"
        yield Finding("unit-watchdog", "warning", f"WatchdogSec={limit:g}", why, "WatchdogSec=180")
    else:
        yield Finding("unit-watchdog", "ok", f"WatchdogSec={limit:g}, tied to the loop")


CHECKS: tuple[UnitCheck, ...] = (
    lines,
    refused,
    unit_command.runs,
    unit_command.variables,
    unit_command.settings,
    unit_command.secrets,
    notify,
    start_timeout,
    kill,
    stop_timeout,
    restart,
    watchdog,
    *unit_ends.CHECKS,
    *unit_surroundings.CHECKS,
)


def checked_each(units: Sequence[tuple[str, Sequence[str]]]) -> tuple[Finding, ...]:
    """Return what is found in each of several units; where there is but one, its name need not be told."""
    if len(units) == 1:
        return checked(units[0][1])
    return tuple(replace(found, what=f"{where}: {found.what}") for where, texts in units for found in checked(texts))


def checked(texts: Sequence[str]) -> tuple[Finding, ...]:
    """Return what all checks find in a unit file and its drop-ins, in their order."""
    unit = read(texts)
    checks = CHECKS if unit_command.is_about_vllm(unit) else (lines, refused, unit_command.runs)
    return tuple(finding for check in checks for finding in check(unit))
