"""What a server that runs below what was asked for says about that, when it comes up and every hour."""

from __future__ import annotations

from safe_vllm.announce.picture import Degraded, Picture

EVERY_S = 3600.0


def lines(picture: Picture) -> list[str]:
    """Say that it is degraded, since when, why, what that costs and how to go back; nothing where it is not."""
    degraded = picture.degraded
    if degraded is None or picture.is_observed:
        return []
    return [_headline(picture, degraded), *(f"  {line}" for line in _details(degraded))]


def _headline(picture: Picture, degraded: Degraded) -> str:
    top = picture.ladder[0] if picture.ladder else "the top"
    return f"DEGRADED: this server runs at {degraded.rung}, not at {top}, since {degraded.since}: {degraded.reason}"


def _details(degraded: Degraded) -> list[str]:
    found = [f"costs: {cost}" for cost in degraded.costs]
    found += [f"fixed in: {version}" for version in degraded.fixed_in]
    return [*found, f"way back: {degraded.way_back}"]
