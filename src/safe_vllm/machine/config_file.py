"""The YAML file that ``vllm serve --config FILE`` names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from safe_vllm.errors import Trouble
from safe_vllm.machine.rooted import exists, text_of

BOOLEANS = {"yes": True, "on": True, "no": False, "off": False}
"""Words that are booleans to vLLM, which reads YAML 1.1, and plain strings to our stricter reader."""


def config_of(words: Sequence[str]) -> Mapping[str, object] | None:
    """Return the mapping in the file that ``words`` name; ``None`` where there is none or vLLM will reject it.

    vLLM takes only the form of two words; ``--config=FILE`` is accepted and ignored.
    """
    found = _read(words)
    return found if isinstance(found, dict) else None


def trouble_of(words: Sequence[str]) -> str | None:
    """Return why the file that ``words`` name is not read; ``None``: it is, or none is named."""
    found = _read(words)
    return found if isinstance(found, str) else None


def _read(words: Sequence[str]) -> dict[str, object] | str | None:
    """Return what is in the file, or why that is not known."""
    named = [words[at + 1] for at, word in enumerate(words[:-1]) if word == "--config"]
    if len(named) != 1:
        return "--config is there more than once" if named else None
    name, path = named[0], Path(named[0])
    if not name.endswith((".yaml", ".yml")):
        return f"{name} is no .yaml file"
    if not exists(path):
        return f"{name} does not exist"
    # Only a regular file: what is read from a FIFO would be gone for vLLM.
    text = text_of(path)
    return f"{name} cannot be read" if text is None else _mapping(text, name)


def _mapping(text: str, where: str) -> dict[str, object] | str | None:
    from safe_vllm.data.strict_yaml import load_foreign

    if not text:
        return None
    try:
        value = load_foreign(text, where=where)
    except Trouble as trouble:
        return trouble.message
    if not isinstance(value, dict):
        return f"{where} holds no settings"
    return {str(key): _as_vllm_reads(item) for key, item in value.items()}


def _as_vllm_reads(value: object) -> object:
    return BOOLEANS.get(value.lower(), value) if isinstance(value, str) else value
