"""The signatures that ship with us, read once."""

from __future__ import annotations

from functools import cache

from safe_vllm.data.strict_yaml import read_data
from safe_vllm.verdict.signatures import Signatures, parse


@cache
def signatures() -> Signatures:
    """Return every line of vLLM's that we know."""
    return parse(read_data("signatures.yaml"))
