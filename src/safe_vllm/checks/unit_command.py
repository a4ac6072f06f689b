"""What a unit starts: whether it is safe-vllm, and what stands between systemd and it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from safe_vllm.checks.finding import Finding
from safe_vllm.checks.unit_text import Unit, split
from safe_vllm.plan.endpoint import shutdown_timeout_s, stop_limit_s
from safe_vllm.plan.intent import Limits
from safe_vllm.plan.secrets import NAME, hide

OURS = "safe-vllm"
MODULE = "safe_vllm"
PREFIXES = "@-:+!|"
"""Marks before a command: https://www.freedesktop.org/software/systemd/man/latest/systemd.service.html#Command%20lines"""
SHELLS = ("sh", "bash", "dash", "ash", "zsh", "ksh")
CLIENTS = ("docker", "podman", "nerdctl", "ctr", "sudo", "su", "runuser", "srun", "screen", "tmux", "script")
"""What stays between systemd and the command, or has another service start it."""
EXECS = re.compile(r"(?:^|[;&|\n]|\bthen|\bdo)\s*exec\s+(?P<command>[^;&|\n]*safe[-_]vllm[^;&|\n]*)")
"""A script that becomes safe-vllm."""
VALUELESS = ("--no-canary", "--observe-only", "--help", "-h", "--version")


@dataclass(frozen=True)
class Start:
    """The command of a unit, taken apart."""

    before: tuple[str, ...] = ()
    """What stands before safe-vllm; all of the command where it is not there."""
    options: tuple[str, ...] = ()
    subcommand: str | None = None
    words: tuple[str, ...] = ()
    """What vLLM gets."""
    is_ours: bool = False


def start_of(unit: Unit) -> Start:
    """Return what ``ExecStart=`` runs."""
    words = split((unit.value("ExecStart") or "").lstrip(PREFIXES))
    if words and _name(words[0]) in SHELLS and (becomes := EXECS.search(words[-1])):
        words = split(becomes["command"])
    at = next((place for place, word in enumerate(words) if _is_ours(words, place)), None)
    if at is None:
        return Start(words)
    rest = words[at + 1 :]
    place = next((place for place in range(len(rest)) if not _is_option(rest, place)), len(rest))
    subcommand = rest[place] if place < len(rest) else None
    return Start(words[:at], rest[:place], subcommand, rest[place + 1 :], is_ours=True)


def _is_ours(words: Sequence[str], at: int) -> bool:
    name = _name(words[at])
    return name == OURS or (name == MODULE and at > 0 and words[at - 1] == "-m")


def _name(word: str) -> str:
    return word.rpartition("/")[2]


def _is_option(words: Sequence[str], at: int) -> bool:
    """Return whether a word is one of our options, or the value of the one before it."""
    before = words[at - 1] if at else ""
    takes_value = before.startswith("--") and "=" not in before and before not in VALUELESS
    return words[at].startswith("-") or (takes_value and _is_option(words, at - 1))


def is_about_vllm(unit: Unit) -> bool:
    """Whether there is a command, and any setting that speaks of vLLM: else nothing is worth a look but the command."""
    return bool(unit.values("ExecStart")) and any("vllm" in value.lower() for _, value in unit.assignments)


def runs(unit: Unit) -> Iterator[Finding]:
    """Tell whether it is ``safe-vllm serve`` that is started, and the one whom systemd signals and hears."""
    start, commands = start_of(unit), unit.values("ExecStart")
    first = _name(start.before[0]) if start.before else ""
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
    start = start_of(unit)
    ours = _number(start.options, "--stop-timeout")
    asked = ours if ours is not None else _float(unit.variables().get("SAFE_VLLM_STOP_TIMEOUT"))
    own = Limits().stop_timeout_s if asked is None else asked
    return stop_limit_s(own, shutdown_timeout_s(start.words))


def _number(words: Sequence[str], flag: str) -> float | None:
    found = None
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name == flag:
            found = _float(value if equals else next(iter(words[place + 1 : place + 2]), None))
    return found


def _float(text: str | None) -> float | None:
    return float(text) if text and re.fullmatch(r"\d+(\.\d+)?", text) else None
