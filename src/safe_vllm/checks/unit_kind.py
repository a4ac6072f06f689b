"""Tells whether what was given is a service's unit at all, and what it is instead."""

from __future__ import annotations

import re
from collections.abc import Sequence

from safe_vllm.checks.unit_text import SECTION, Unit, lines, read
from safe_vllm.errors import Status, Trouble

Given = tuple[str, Sequence[str]]
"""The name of a file, and its text with those of its drop-ins."""
STARTERS = ("Timer", "Socket", "Path")
"""Sections of units that start another one."""
DROP_IN = ".conf"
OTHERS = ("Mount", "Automount", "Swap", "Slice", "Scope", "Network", "Link", "NetDev")
QUADLETS = ("Container", "Pod", "Kube")
YAML = re.compile(r"^(?:apiVersion|kind|services|metadata|spec)\s*:", re.MULTILINE)
VARIABLE = re.compile(r"(?:export\s+)?[A-Za-z_]\w*=")
HINT = "name a unit file, or pipe in what `systemctl cat NAME` prints"


def refuse_what_is_none(files: Sequence[Given]) -> None:
    """Raise Trouble for a file that is no unit, and where there are units but none of a service."""
    for where, texts in files:
        if texts and not _sections(texts[:1]) and any(lines(texts[0])):
            raise Trouble(
                f"{where} is no systemd unit: it has no [Service]", hint=_instead(where, texts[0]), status=Status.USAGE
            )
    sections = _sections([text for _, texts in files for text in texts])
    where = files[0][0] if files else ""
    if "Service" in sections:
        return
    if kind := next((name for name in STARTERS if name in sections), None):
        hint = f"name that one: {_started(where, files[0][1])}"
        raise Trouble(f"{where} is a {kind.lower()} unit, which starts another one", hint=hint, status=Status.USAGE)
    if kind := next((name for name in OTHERS if name in sections), None):
        raise Trouble(f"{where} is a {kind.lower()} unit, not a service", hint=HINT, status=Status.USAGE)
    if any(name in sections for name in QUADLETS):
        hint = "check the unit that podman makes of it: systemctl cat NAME.service | safe-vllm doctor --unit -"
        raise Trouble(f"{where} is a quadlet, not a unit", hint=hint, status=Status.USAGE)


def units(files: Sequence[Given]) -> list[tuple[str, list[str]]]:
    """Return each whole unit by its name with the drop-ins given behind it; those before the first belong to that."""
    found: list[tuple[str, list[str]]] = []
    is_headed = False
    for where, texts in files:
        is_unit = _is_whole(where, texts)
        if not found or (is_unit and is_headed):
            found.append((where, [*texts]))
        else:
            found[-1] = (where if is_unit else found[-1][0], [*found[-1][1], *texts])
        is_headed = is_headed or is_unit
    return found


def _is_whole(where: str, texts: Sequence[str]) -> bool:
    """Return whether a file has a command of its own; a drop-in takes back the one before it first."""
    own = (value for name, value in read(texts[:1]).assignments if name == "ExecStart")
    return not where.endswith(DROP_IN) and bool(next(own, ""))


def _sections(texts: Sequence[str]) -> set[str]:
    return {found[1] for text in texts for line in lines(text) if (found := SECTION.fullmatch(line))}


def _started(where: str, texts: Sequence[str]) -> str:
    unit: Unit = read(texts)
    stem = where.rpartition("/")[2].rpartition(".")[0] or "NAME"
    return unit.value("Unit") or unit.value("Service") or f"{stem}.service"


def _instead(where: str, text: str) -> str:
    if YAML.search(text):
        return f"check a manifest with: safe-vllm doctor --manifest {where}"
    if all(VARIABLE.match(line) for line in lines(text)):
        return "it looks like an environment file: name the unit that has it as its EnvironmentFile"
    return HINT
