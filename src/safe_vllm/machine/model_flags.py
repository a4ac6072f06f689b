"""What a command line says about the model: its name, and the few flags that decide which files describe it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

SHORTEST = {
    "--revision": "--rev",
    "--download-dir": "--dow",
    "--hf-config-path": "--hf-c",
    "--hf-overrides": "--hf-o",
    "--load-format": "--load-f",
    "--quantization": "--quantization",
}
"""The flags and the shortest beginning that argparse takes for each:
https://github.com/vllm-project/vllm/blob/v0.32.0/vllm/engine/arg_utils.py
"""
SHORT = {"-q": "--quantization"}


@dataclass(frozen=True)
class Asked:
    """The model that was asked for. ``None``: not said."""

    names: tuple[str, ...] = ()
    """What may be the model, in vLLM's order of precedence."""
    name: str | None = None
    """The one of them that can be told without knowing every flag."""
    revision: str | None = None
    download_dir: str | None = None
    config_path: str | None = None
    """Another model whose configuration is to be used."""
    quantization: str | None = None
    load_format: str | None = None
    overrides: Mapping[str, object] = field(default_factory=dict)
    """What replaces parts of the configuration."""


def asked(words: Sequence[str], config: Mapping[str, object] | None = None) -> Asked:
    """Read the words after ``vllm serve``, and the mapping of the ``--config`` file where they do not say."""
    in_file = {f"--{str(name).replace('_', '-')}": value for name, value in (config or {}).items()}
    said = {**in_file, **{name: value for name, key, value in _spelled(words) if not key}}
    text = {name: str(said[name]) for name in SHORTEST if said.get(name) is not None}
    return Asked(
        names=candidates(words, config),
        name=next(_certain(words, config), None),
        revision=text.get("--revision"),
        download_dir=text.get("--download-dir"),
        config_path=text.get("--hf-config-path"),
        quantization=text.get("--quantization"),
        load_format=text.get("--load-format"),
        overrides=_dotted(words) or _mapping(said.get("--hf-overrides")),
    )


def candidates(words: Sequence[str], config: Mapping[str, object] | None = None) -> tuple[str, ...]:
    """Return what may be the model among the words after ``vllm serve``, in vLLM's order of precedence.

    A model behind flags that we do not know cannot be told from their values, so the last word is only a guess.
    """
    last = words[-1:] if words and not words[-1].startswith("-") else ()
    return tuple(dict.fromkeys((*_certain(words, config), *last)))


def _certain(words: Sequence[str], config: Mapping[str, object] | None) -> Iterator[str]:
    yield from (after for word, after in pairwise(words) if word == "--model")
    yield from (word.removeprefix("--model=") for word in words if word.startswith("--model="))
    yield from words[:1] if words and not words[0].startswith("-") else ()
    yield from [str(config["model"])] if config and "model" in config else []


def _spelled(words: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield long form, dotted key and value of each flag that concerns us."""
    for word, after in pairwise((*words, "")):
        if word == "--":
            return
        spelled, joined, value = word.partition("=")
        head, _, key = spelled.partition(".")
        if name := _flag(head.replace("_", "-")):
            yield name, key, value if joined else after


def _flag(head: str) -> str | None:
    fits = (name for name, shortest in SHORTEST.items() if name.startswith(head) and head.startswith(shortest))
    return SHORT.get(head) or next(fits, None)


def _dotted(words: Sequence[str]) -> Mapping[str, object]:
    """Return the overrides that are spelled ``--hf-overrides.key value``; vLLM then forgets those given as a whole."""
    found: dict[str, object] = {}
    for name, key, value in _spelled(words):
        if name == "--hf-overrides" and key:
            *path, last = key.split(".")
            inner: dict[str, object] = found
            for part in path:
                below = inner.setdefault(part, {})
                inner = below if isinstance(below, dict) else {}
            inner[last] = _value(value)
    return found


def _mapping(value: object) -> Mapping[str, object]:
    whole = _value(value) if isinstance(value, str) else value
    return whole if isinstance(whole, dict) else {}


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
