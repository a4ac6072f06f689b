"""Understands a profile that was read: what it extends, what is wrong with it, and what it says in the end."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, cast

import msgspec

from safe_vllm.errors import Trouble, did_you_mean
from safe_vllm.machine.facts import Place, ProfileFile
from safe_vllm.plan.ladder import AS_ASKED, NO_AUTOTUNE, RUNG_NAMES
from safe_vllm.plan.profile import SAFE, Fits, Profile
from safe_vllm.plan.profile_errors import Problem, mistakes
from safe_vllm.plan.profile_merge import merged

HINT = "see docs/profiles.md"


def parse(file: ProfileFile) -> Profile:
    """Return the profile that a file describes, together with what it extends. Raises Trouble for the first mistake."""
    profile, wrong = _understood(file)
    if profile is None:
        more = f"and {len(wrong) - 1} more, `safe-vllm profiles check` tells all" if len(wrong) > 1 else HINT
        raise Trouble(wrong[0], hint=more)
    return profile


def problems_of(file: ProfileFile) -> tuple[str, ...]:
    """Return everything that is wrong with a file or with what it extends, one line each."""
    return _understood(file)[1]


def content_of(file: ProfileFile) -> dict[str, Any]:
    """Return what a sound file says together with what it extends, as YAML would say it in one file."""
    resolved = msgspec.structs.replace(parse(file), extends=None, without=())
    content: dict[str, Any] = msgspec.to_builtins(resolved)
    return content


def _understood(file: ProfileFile) -> tuple[Profile | None, tuple[str, ...]]:
    """Return the profile, or what is wrong: with the base first, since a mistake there may be all."""
    if file.base is not None and (wrong := problems_of(file.base)):
        return None, wrong
    own = list(mistakes(file.content, Profile)) or list(_nonsense(msgspec.convert(file.content, Profile), file))
    if own:
        return None, tuple(_located(problem, file) for problem in own)
    content = _with_base(file)
    profile = msgspec.convert(content, Profile)
    lacking = tuple(_located(problem, file) for problem in _lacking(profile, content))
    if lacking:
        return None, lacking
    ladder = tuple(entry for entry in profile.ladder if entry.rung not in profile.without)
    return msgspec.structs.replace(profile, ladder=ladder), ()


def _with_base(file: ProfileFile) -> Mapping[str, Any]:
    content = cast("Mapping[str, Any]", file.content)  # it was found to be a profile
    return merged(_with_base(file.base), content) if file.base is not None else content


def _located(problem: Problem, file: ProfileFile) -> str:
    line = next((file.lines[at] for at in _outwards(problem.place) if at in file.lines), None)
    return f"{file.path}:{line}: {problem}" if line is not None else f"{file.path}: {problem}"


def _outwards(place: Place) -> Iterator[Place]:
    """Yield a place and all that it lies in."""
    yield from (place[:length] for length in range(len(place), -1, -1))


def _nonsense(profile: Profile, file: ProfileFile) -> Iterator[Problem]:
    """Yield what is well-formed in one file and makes no sense."""
    stem = file.path.rpartition("/")[2].rpartition(".")[0]
    if stem and profile.name != stem:
        yield Problem(("name",), f"expected {stem!r}, as the file is called, got {profile.name!r}")
    if profile.moe_backend == SAFE:
        yield Problem(("moe_backend",), "only a rung can ask for the safe backend")
    yield from _bad_ranges(profile.fits)
    yield from _endless(profile)
    yield from _bad_rungs(profile)


def _bad_ranges(fits: Fits) -> Iterator[Problem]:
    for key in ("vllm", "flashinfer"):
        text: str | None = getattr(fits, key)
        if text is not None and not is_range(text):
            yield Problem(("fits", key), f"expected a range of versions such as '>=0.20,<0.24', got {text!r}")


def is_range(text: str) -> bool:
    """Return whether text is a range of versions as packaging tools write it."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        return bool(SpecifierSet(text))
    except InvalidSpecifier:
        return False


def _endless(profile: Profile) -> Iterator[Problem]:
    for section in ("limits", "policy"):
        numbers = msgspec.structs.asdict(getattr(profile, section))
        wild = (name for name, value in numbers.items() if isinstance(value, float) and not math.isfinite(value))
        yield from (Problem((section, name), "expected a finite number") for name in wild)


def _bad_rungs(profile: Profile) -> Iterator[Problem]:
    names = [entry.rung for entry in profile.ladder]
    if names != [name for name in RUNG_NAMES if name in names]:
        yield Problem(("ladder",), f"expected this order, each at most once: {', '.join(RUNG_NAMES)}")
    if AS_ASKED in profile.without:
        yield Problem(("without",), f"every ladder starts with {AS_ASKED}")
    for at, entry in enumerate(profile.ladder):
        if entry.rung in profile.without:
            yield Problem(("ladder", at, "rung"), "this rung is left out by the key 'without'")
        if entry.skip_autotune_ops and entry.rung != NO_AUTOTUNE:
            yield Problem(("ladder", at, "skip_autotune_ops"), f"belongs to the rung {NO_AUTOTUNE}")


def _lacking(profile: Profile, content: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield what is missing when everything that is extended has been added."""
    if not profile.description:
        yield Problem((), "the key 'description' is missing")
    if [entry.rung for entry in profile.ladder][:1] != [AS_ASKED]:
        yield Problem(("ladder",), f"the first rung must be {AS_ASKED}")
    yield from _reasons_for_nothing(content, ())
    for at, entry in enumerate(content.get("ladder", ())):
        yield from _reasons_for_nothing(entry, ("ladder", at))


def _reasons_for_nothing(content: Mapping[str, Any], place: Place) -> Iterator[Problem]:
    known = tuple(_keys(content))
    wrong = (key for key in content.get("reasons", ()) if key not in known)
    yield from (Problem((*place, "reasons", key), f"there is no such value{did_you_mean(key, known)}") for key in wrong)


def _keys(content: Mapping[str, Any]) -> Iterator[str]:
    """Yield the keys that a reason can be for, parts after what they are a part of."""
    for key, value in content.items():
        if key in ("name", "reasons", "because", "links", "status"):
            continue
        yield key
        if isinstance(value, dict):
            yield from (f"{key}.{part}" for part in value)
