"""What follows from a profile beside its ladder: the limits of the launch, and what is known of the device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from safe_vllm.machine.facts import Machine
from safe_vllm.plan.intent import Limits
from safe_vllm.plan.profile import Profile, reason_of
from safe_vllm.plan.profile_choice import names_gpu


def limits_of(profile: Profile, asked: Mapping[str, Any]) -> Limits:
    """Return the limits of the launch: what the operator ``asked`` for by name, else the profile's, else our own."""
    stated = msgspec.structs.asdict(profile.policy)
    return Limits(**{**{name: value for name, value in stated.items() if value is not msgspec.UNSET}, **asked})


def device_lines(profile: Profile, machine: Machine, *, with_reasons: bool = True) -> tuple[str, ...]:
    """Return what one GPU has, a line each; of one that the profile does not name, what all of its generation have."""
    limits = profile.limits
    shown: list[tuple[str, float | None, str]] = [
        ("shared_memory_per_block_kib", limits.shared_memory_per_block_kib, "KiB of shared memory per thread block")
    ]
    if names_gpu(profile.fits, machine):
        shown.append(("sms", limits.sms, "streaming multiprocessors"))
        shown.append(("memory_gib", limits.memory_gib, "GiB of memory"))
    stated = [(key, f"{value:g} {unit}") for key, value, unit in shown if value is not None]
    return tuple(f"{text}{_told(profile, key) if with_reasons else ''}" for key, text in stated)


def _told(profile: Profile, key: str) -> str:
    reason = reason_of(profile, f"limits.{key}")
    return f" ({', '.join([reason.because, *reason.links])})" if reason else ""
