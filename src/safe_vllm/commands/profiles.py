"""The story of ``profiles``: which there are, what one of them says, and what is wrong with a file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safe_vllm.data.strict_yaml import dump
from safe_vllm.errors import Status, Trouble, nearest
from safe_vllm.known import dialects
from safe_vllm.machine.facts import Machine, ProfileFile
from safe_vllm.machine.profile_files import Found, Shelf, named, profile_files, read, read_profiles
from safe_vllm.machine.rooted import is_file
from safe_vllm.plan.profile import SAFE, Profile
from safe_vllm.plan.profile_choice import best
from safe_vllm.plan.profile_reading import content_of, parse, problems_of
from safe_vllm.plan.secrets import hide_variable
from safe_vllm.plan.settings import normal

BACKENDS = ("auto", SAFE)
"""What stands for a backend and is none."""


@dataclass(frozen=True)
class Entry:
    """A profile in the list."""

    name: str
    description: str
    verified: tuple[str, ...]
    """Rungs that a public report verified on this hardware."""
    origin: str
    file: str
    problems: tuple[str, ...] = ()
    """What keeps it from being used; a launch on this machine would not start either."""


@dataclass(frozen=True)
class Listing:
    """All profiles, and which of them is for this machine."""

    profiles: tuple[Entry, ...]
    fits: str | None
    because: str


@dataclass(frozen=True)
class Checked:
    """A file and all that is wrong with it, one line each."""

    file: str
    problems: tuple[str, ...]
    status: Status = Status.STOPPED
    """How a launch with it would end: ``USAGE`` where there is none, ``CONFIGURATION`` where it says what is wrong."""


def listing(directory: str | None, vllm: Sequence[str]) -> Listing:
    """Return all profiles, with those in ``directory``, and the one for this machine and this ``vllm`` command."""
    shelf = profile_files(directory, os.environ)
    looked = [(found[-1], _read(found[-1], shelf)) for found in shelf.values()]
    sound = [parse(file) for _, file in looked if isinstance(file, ProfileFile)]
    try:
        profile, because = best(sound, _machine(vllm))
    except Trouble as trouble:
        profile, because = None, trouble.message
    return Listing(tuple(_entry(*each) for each in looked), profile.name if profile else None, because)


def listed(listing: Listing, output: str) -> str:
    """Return the list as text or as one JSON object."""
    if output == "json":
        return json.dumps(asdict(listing), ensure_ascii=False, indent=2)
    width = max(len(entry.name) for entry in listing.profiles)
    lines = [
        f"{'*' if entry.name == listing.fits else ' '} {entry.name:<{width}}  {entry.origin:<9}  {_told(entry)}"
        for entry in listing.profiles
    ]
    last = f"* for this machine: {listing.because}" if listing.fits else listing.because
    return "\n".join([*lines, last])


def shown(name: str, directory: str | None, output: str) -> str:
    """Return all that a profile says, together with what it extends, as YAML or as one JSON object."""
    (file,) = read_profiles(name, directory, os.environ)
    content = _without_secrets(content_of(file))
    chain = _chain(file)
    if output == "json":
        told = {"file": file.path, "origin": file.origin, "extends": chain[1:], "profile": content}
        return json.dumps(told, ensure_ascii=False, indent=2)
    return "\n".join(
        [*(f"# {'extends ' if at else ''}{path}" for at, path in enumerate(chain)), dump(content)]
    ).rstrip()


def _without_secrets(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a profile says, without the values of variables that hold secrets."""
    shown = {**content}
    if isinstance(variables := shown.get("environment"), dict):
        shown["environment"] = {name: hide_variable(name, str(value)) for name, value in variables.items()}
    if isinstance(ladder := shown.get("ladder"), (list, tuple)):
        shown["ladder"] = [_without_secrets(entry) for entry in ladder]
    return shown


def check(files: Sequence[str], directory: str | None) -> tuple[Checked, ...]:
    """Return everything that is wrong with these files; without any, with all profiles that are found."""
    shelf = profile_files(directory, os.environ)
    if not files:
        return tuple(_checked(found[-1], shelf) for found in shelf.values())
    return tuple(_checked_by_name(name, shelf) for name in files)


def _checked_by_name(name: str, shelf: Shelf) -> Checked:
    """Return what is wrong with the file of this path; where there is none, with the profile of this name."""
    try:
        return _checked(Found(Path(name), "file") if is_file(Path(name)) else named(name, shelf), shelf)
    except Trouble as trouble:
        return Checked(name, (str(trouble),), trouble.status)


def _checked(found: Found, shelf: Shelf) -> Checked:
    looked = _read(found, shelf)
    problems = tuple(_strange_backends(looked)) if isinstance(looked, ProfileFile) else looked
    return Checked(str(found.path), problems, Status.CONFIGURATION if problems else Status.STOPPED)


def status_of(checked: Sequence[Checked]) -> Status:
    """Return how the check ends: a mistake in a file counts for more than a file that is not there."""
    return max((each.status for each in checked), default=Status.STOPPED)


def told(checked: Sequence[Checked], output: str) -> str:
    """Return what a check found, as text or as one JSON list."""
    if output == "json":
        found = [{"file": each.file, "problems": each.problems} for each in checked]
        return json.dumps(found, ensure_ascii=False, indent=2)
    return "\n".join(line for each in checked for line in each.problems or (f"{each.file}: sound",))


def _read(found: Found, shelf: Shelf) -> ProfileFile | tuple[str, ...]:
    """Return a file that is sound, or what is wrong with it."""
    try:
        file = read(found, shelf)
    except Trouble as trouble:
        return (str(trouble),)
    return problems_of(file) or file


def _strange_backends(file: ProfileFile) -> Iterator[str]:
    """Yield the MoE backends of a sound file that no release of vLLM has."""
    profile = parse(file)
    places = [("moe_backend", profile.moe_backend)]
    places += [(f"ladder.{entry.rung}.moe_backend", entry.moe_backend) for entry in profile.ladder]
    known = sorted({*BACKENDS, *(choice.name for choice in dialects().table.moe_backends)})
    for place, backend in places:
        if backend is not None and normal(backend) not in known:
            near = nearest(normal(backend), known)
            hint = f"did you mean {near}?" if near else f"expected one of: {', '.join(known)}"
            yield f"{file.path}: {place}: no release of vLLM has the MoE backend {backend}; {hint}"


def _entry(found: Found, file: ProfileFile | tuple[str, ...]) -> Entry:
    name, path = found.path.stem, str(found.path)
    if not isinstance(file, ProfileFile):
        return Entry(name, "", (), found.origin, path, file)
    profile = parse(file)
    return Entry(name, profile.description, _verified(profile), found.origin, path)


def _verified(profile: Profile) -> tuple[str, ...]:
    return tuple(entry.rung for entry in profile.ladder if entry.status == "verified")


def _told(entry: Entry) -> str:
    if entry.problems:
        return f"cannot be used: {entry.problems[0]}"
    return entry.description + (f" (verified: {', '.join(entry.verified)})" if entry.verified else "")


def _chain(file: ProfileFile | None) -> list[str]:
    return [file.path, *_chain(file.base)] if file is not None else []


def _machine(vllm: Sequence[str]) -> Machine:
    """Return this machine, also where there is no vLLM."""
    from safe_vllm.machine import executable  # only the list asks for the machine
    from safe_vllm.machine.interpreter import script_of
    from safe_vllm.machine.look import look

    try:
        command: str | None = script_of(executable.find(tuple(vllm), os.environ), os.environ)
    except Trouble:
        command = None
    return look(command, (), os.environ)
