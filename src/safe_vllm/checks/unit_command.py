"""What a unit starts: whether it is safe-vllm, and what stands between systemd and it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from safe_vllm.checks.finding import Finding
from safe_vllm.checks.options import options
from safe_vllm.checks.shell import SHELLS, basename
from safe_vllm.checks.start_words import CLIENTS, Start, start_of_words
from safe_vllm.checks.unit_text import Unit, split
from safe_vllm.plan.secrets import NAME, hide

PREFIXES = "@-:+!|"
"""Marks before a command: https://www.freedesktop.org/software/systemd/man/latest/systemd.service.html#Command%20lines"""


def start_of(unit: Unit) -> Start:
    """Return what ``ExecStart=`` runs."""
    return start_of_words(split((unit.value("ExecStart") or "").lstrip(PREFIXES)))


def is_about_vllm(unit: Unit) -> bool:
    """Whether there is a command, and any setting that speaks of vLLM: else nothing is worth a look but the command."""
    return bool(unit.values("ExecStart")) and any("vllm" in value.lower() for _, value in unit.assignments)


def runs(unit: Unit) -> Iterator[Finding]:
    """Tell whether it is ``safe-vllm serve`` that is started, and the one whom systemd signals and hears."""
    start, commands = start_of(unit), unit.values("ExecStart")
    first = basename(start.before[0]) if start.before else ""
    shown = " ".join(hide(split(commands[-1]))) if commands else ""
    do = "ExecStart=/usr/bin/env safe-vllm serve …, or the absolute path of safe-vllm"
    if not commands:
        why = "there is nothing to start, or it is in a file that was not given; nothing else was checked"
        do = "pipe in all of it: systemctl cat NAME | safe-vllm doctor --unit -"
        yield Finding("unit-command", "problem", "there is no ExecStart", why, do)
    elif not is_about_vllm(unit):
        why = "nothing in the unit speaks of vLLM, so nothing else of it was checked"
        yield Finding("unit-command", "problem", f"ExecStart does not run safe-vllm: {shown}", why, do)
    elif first in SHELLS:
        why = "the shell is the main process: it takes the stop signal, and what safe-vllm reports is not heard"
        yield Finding(
            "unit-command", "problem", f"ExecStart runs a shell: {shown}", why, f"exec safe-vllm in it, or {do}"
        )
    elif first in CLIENTS:
        why = (
            f"{first} is the main process, or has another service start it: systemd neither hears nor signals safe-vllm"
        )
        yield Finding("unit-command", "problem", f"ExecStart runs {first}: {shown}", why, do)
    elif not start.is_ours:
        why = "nobody steps down after a kernel fault"
        yield Finding("unit-command", "problem", f"ExecStart does not run safe-vllm: {shown}", why, do)
    elif start.subcommand != "serve":
        why = "only `serve` supervises" if start.subcommand else "nothing says what it is to do"
        yield Finding("unit-command", "problem", f"ExecStart does not say `safe-vllm serve`: {shown}", why, do)
    elif len(commands) > 1:
        why = "systemd refuses the unit; a drop-in adds to the line before it"
        yield Finding(
            "unit-command", "problem", "there are several ExecStart", why, "an empty ExecStart= before the last"
        )
    elif start.stays:
        why = f"{start.stays} stays the main process: systemd signals that one, and does not hear safe-vllm"
        yield Finding("unit-command", "warning", f"ExecStart runs {start.stays}: {shown}", why, do)
    else:
        yield Finding("unit-command", "ok", f"runs {shown}")


def variables(unit: Unit) -> Iterator[Finding]:
    """Look for variables in the command that nothing sets."""
    used = re.findall(r"(?<!\$)\$\{?([A-Za-z_]\w*)", unit.value("ExecStart") or "")
    has_file = bool(unit.values("EnvironmentFile") or unit.values("PassEnvironment"))
    lost = sorted({name for name in used if name not in unit.variables()})
    if lost and not has_file:
        what = f"{', '.join(lost)} in ExecStart is set by nothing"
        why = "systemd puts nothing in its place: the words are missing"
        yield Finding("unit-command", "problem", what, why, "add Environment= or EnvironmentFile=")


def settings(unit: Unit) -> Iterator[Finding]:
    """Look at our own options."""
    return options("unit-options", start_of(unit), unit.variables())


def secrets(unit: Unit) -> Iterator[Finding]:
    """Look for keys where every user of the machine can read them."""
    names = [name for name in unit.variables() if NAME.fullmatch(name)]
    words = split(unit.value("ExecStart") or "")
    flags = [word.partition("=")[0] for word, shown in zip(words, hide(words), strict=True) if word != shown]
    hidden = ["a flag" if not flag.startswith("-") else flag for flag in flags]
    if told := [*names, *hidden]:
        why = "units and command lines can be read by every user of the machine"
        do = "put it into the environment file, mode 0600: HF_TOKEN, VLLM_API_KEY"
        yield Finding("unit-secrets", "warning", f"{', '.join(told)} in the unit", why, do)


def stop_s(unit: Unit) -> float:
    """Return how long a stop may take, as far as the unit says."""
    return start_of(unit).stop_s(unit.variables())
