"""A systemd unit that runs safe-vllm: settings that end a server which works, or make an end look like none."""

from __future__ import annotations

import re
from collections.abc import Iterator

from safe_vllm.checks.finding import Finding
from safe_vllm.checks.unit_text import Unit
from safe_vllm.errors import Status

NAMES = {
    "INVALIDARGUMENT": Status.USAGE,
    "UNAVAILABLE": Status.HARDWARE,
    "SOFTWARE": Status.SPENT,
    "OSERR": Status.STUCK,
    "TEMPFAIL": Status.PASSING,
    "CONFIG": Status.CONFIGURATION,
}
"""What systemd calls them."""
HANG_UP = re.compile(r"\bkill\b.*(?:HUP|-1\b)")


def success(unit: Unit) -> Iterator[Finding]:
    """Look for exit statuses that are called a success: after one ``on-failure`` does not start it again."""
    words = unit.words("SuccessExitStatus")
    told = {NAMES.get(word, word) for word in words}
    found = [str(int(each)) for each in Status if each and (each in told or str(int(each)) in told)]
    if found:
        what = f"SuccessExitStatus has {', '.join(found)}"
        why = "the unit does not count as failed then, and Restart=on-failure does not start it again"
        yield Finding("unit-restart", "warning", what, why, "leave it out: safe-vllm ends with 0 where it was stopped")


def reload(unit: Unit) -> Iterator[Finding]:
    """Look for a reload that is a stop."""
    if any(HANG_UP.search(value) for value in unit.values("ExecReload")):
        why = "safe-vllm takes SIGHUP for a request to stop"
        yield Finding("unit-kill", "warning", "ExecReload sends SIGHUP", why, "leave it out")


def runtime(unit: Unit) -> Iterator[Finding]:
    """Look for an end that is set from the beginning."""
    limit = unit.seconds("RuntimeMaxSec")
    if limit is not None and limit != float("inf"):
        why = "systemd ends a server that works after this time, and counts it as failed"
        yield Finding("unit-restart", "warning", f"RuntimeMaxSec={limit:g}", why, "leave it out")


CHECKS = (success, reload, runtime)
