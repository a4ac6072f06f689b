"""The YAML file that ``vllm serve --config FILE`` names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from safe_vllm.errors import Trouble
from safe_vllm.machine.rooted import is_file, text_of

BOOLEANS = {"yes": True, "on": True, "no": False, "off": False}
"""Words that are booleans to vLLM, which reads YAML 1.1, and plain strings to our stricter reader."""


def config_of(words: Sequence[str]) -> Mapping[str, object] | None:
    """Return the mapping in the file that ``words`` name; ``None`` where there is none or vLLM will reject it.

    vLLM takes only the form of two words; ``--config=FILE`` is accepted and ignored.
    """
    named = [words[at + 1] for at, word in enumerate(words[:-1]) if word == "--config"]
    is_named = len(named) == 1 and named[0].endswith((".yaml", ".yml"))
    # Only a regular file: what is read from a FIFO would be gone for vLLM.
    text = text_of(Path(named[0])) if is_named and is_file(Path(named[0])) else None
    return _mapping(text, named[0]) if text else None


def _mapping(text: str, where: str) -> Mapping[str, object] | None:
    from safe_vllm.data.strict_yaml import load

    try:
        value = load(text, where=where, may_repeat=True)
    except Trouble:
        return None
    return {str(key): _as_vllm_reads(item) for key, item in value.items()} if isinstance(value, dict) else None


def _as_vllm_reads(value: object) -> object:
    return BOOLEANS.get(value.lower(), value) if isinstance(value, str) else value
