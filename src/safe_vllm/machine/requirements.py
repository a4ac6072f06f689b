"""The exact versions that the metadata of the installed vLLM asks for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from safe_vllm.machine.rooted import text_of

PIN = re.compile(r"^Requires-Dist:\s*(flashinfer[-_]python|flashinfer[-_]cubin|torch)\s*\(?==\s*([\w.+!]+)\)?\s*$")
"""Without a marker: what only an extra or another platform asks for is none of this."""


def pins(places: Iterable[Path]) -> Mapping[str, str]:
    """Return the pinned versions by distribution, from the first vLLM in ``places``; empty where there are none."""
    found = (path for place in places for path in sorted(place.glob("vllm*-*.dist-info/METADATA")))
    text = next((text for path in found if (text := text_of(path)) is not None), "")
    matches = (PIN.match(line) for line in text.splitlines())
    return {match[1].replace("_", "-"): match[2] for match in matches if match}
