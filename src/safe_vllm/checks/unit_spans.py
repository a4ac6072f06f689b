"""Spans of time as systemd writes them: https://www.freedesktop.org/software/systemd/man/latest/systemd.time.html"""

from __future__ import annotations

import re

INFINITY = float("inf")
SPAN = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Zµ]*)")
SECONDS = {
    **dict.fromkeys(("usec", "us", "µs"), 1e-6),
    **dict.fromkeys(("msec", "ms"), 1e-3),
    **dict.fromkeys(("", "seconds", "second", "sec", "s"), 1.0),
    **dict.fromkeys(("minutes", "minute", "min", "m"), 60.0),
    **dict.fromkeys(("hours", "hour", "hr", "h"), 3600.0),
    **dict.fromkeys(("days", "day", "d"), 86_400.0),
    **dict.fromkeys(("weeks", "week", "w"), 604_800.0),
}


def seconds(text: str) -> float | None:
    """Return a span of time as systemd.time(7) writes them; ``None``: it is none."""
    bare = text.strip()
    if bare == "infinity":
        return INFINITY
    parts = SPAN.findall(bare)
    if not parts or SPAN.sub("", bare).strip() or any(unit not in SECONDS for _, unit in parts):
        return None
    return float(sum(float(count) * SECONDS[unit] for count, unit in parts))


def is_span(text: str) -> bool:
    """Return whether it is one."""
    return seconds(text) is not None
