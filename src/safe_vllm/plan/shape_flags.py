"""Which flags of ``vllm serve`` decide what runs on the GPUs and in what shape, and what they say in one form. Pure.

Names, short forms and shortest beginnings are those of vLLM's ``EngineArgs``:
https://github.com/vllm-project/vllm/blob/v0.32.0/vllm/engine/arg_utils.py
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from safe_vllm.plan.edit import Config
from safe_vllm.plan.flags import LONGEST_NUMBER, Occurrence, config_words, finder, read, scan
from safe_vllm.plan.grammar import (
    AUTOTUNE,
    COMPILATION_CONFIG,
    FLAGS,
    KERNEL_CONFIG,
    MOE_BACKEND,
    SPECULATIVE_CONFIG,
    SPECULATIVE_METHOD,
)
from safe_vllm.plan.secrets import hide
from safe_vllm.plan.settings import AUTOTUNE_KEY, BACKEND_KEY, autotune, moe_backend
from safe_vllm.plan.shape_table import MORE, PLACES, SPECULATIVE_MODEL, SPECULATIVE_TOKENS

DRAFTER = {SPECULATIVE_METHOD: "method", SPECULATIVE_MODEL: "model", SPECULATIVE_TOKENS: "num_speculative_tokens"}
"""Flags that stand for keys of the drafter's configuration."""

OBJECTS = {
    KERNEL_CONFIG: (BACKEND_KEY, AUTOTUNE_KEY),
    SPECULATIVE_CONFIG: (),
    COMPILATION_CONFIG: ("cache_dir", "debug_dump_path"),
}
"""Flags of the grammar that take an object, and what of it is read apart, or says only where things lie."""

ELSEWHERE = frozenset(
    {
        "--data-parallel-rank",
        "--data-parallel-start-rank",
        "--node-rank",
        "--headless",
        "--api-server-count",
        "--grpc",
        "--host",
        "--port",
        "--uds",
        "--api-key",
        "--ssl-keyfile",
        "--ssl-certfile",
        "--ssl-cert-reqs",
        "--root-path",
        "--shutdown-timeout",
        "--model",
        "--config",
    }
)
"""Flags of the grammar that are not of the sort: of the front end, of a place in a group, and what is read apart."""

_find = finder({**FLAGS, **MORE})
NUMBER = re.compile(r"\d+(?:\.\d+)?", re.ASCII)


def shape(words: Sequence[str], config: Config, off_at: Collection[str]) -> dict[str, str]:
    """Return what is not as it is by default, by the long form of its flag, whatever spelling and file it came from.

    ``off_at``: the optimisation levels at which autotune is off. Secrets are hidden.
    """
    found = {**dict(_of_grammar(words, config)), **dict(_of_more(words, config))}
    found[SPECULATIVE_CONFIG] = _drafter(found)
    found[MOE_BACKEND] = _text(moe_backend(words, config).value)
    found[AUTOTUNE] = _text(autotune(words, config, off_at).value)
    defaults = {name: _text(flag.default) for name, flag in {**FLAGS, **MORE}.items()}
    return {
        name: hide((f"{name}={value}",))[0].removeprefix(f"{name}=")
        for name, value in sorted(found.items())
        if value and value != defaults[name]
    }


def _of_grammar(words: Sequence[str], config: Config) -> Iterator[tuple[str, str]]:
    """Yield the flags of the grammar; those that have a home in JSON too are left for others."""
    reading = read(words, config)
    for name in FLAGS.keys() - ELSEWHERE:
        if name in OBJECTS:
            whole = _merged([(place.key, place.values[0]) for place in reading.all(name)])
            yield name, _json({key: value for key, value in whole.items() if key not in OBJECTS[name]})
        else:
            yield name, _text(reading.setting(name).value)


def _drafter(found: dict[str, str]) -> str:
    """Return the drafter's configuration, with what single flags say of it, which are taken out of ``found``."""
    said = {key: _value(value) for flag, key in DRAFTER.items() if (value := found.pop(flag, ""))}
    whole = json.loads(found[SPECULATIVE_CONFIG] or "{}")
    return _json({**whole, **said})


def _of_more(words: Sequence[str], config: Config) -> Iterator[tuple[str, str]]:
    spelled: dict[str, list[Occurrence]] = {}
    for place in spellings(words, config):
        if place.flag.name in MORE:
            spelled.setdefault(place.flag.name, []).append(place)
    for name, places in spelled.items():
        last = places[-1]
        if last.flag.kind == "switch":
            yield name, _text(last.is_on)
        elif last.key or last.values[0].lstrip().startswith("{"):
            whole = _merged([(place.key, place.values[0]) for place in places])
            yield name, _json({key: value for key, value in whole.items() if key not in PLACES.get(name, ())})
        else:
            yield name, " ".join(_text(value) for value in last.values)


def spellings(words: Sequence[str], config: Config) -> tuple[Occurrence, ...]:
    """Return each place where a flag is spelled that decides what runs, those of the configuration file first."""
    return (*scan(config_words(config) if config else (), "config", _find), *scan(words, find=_find))


def option(words: Sequence[str], name: str, config: Config = None) -> str | None:
    """Return the value of a flag that takes one, also of one that no rung changes; ``None``: it is not given."""
    values = [place.values[0] for place in spellings(words, config) if place.flag.name == name and not place.key]
    return values[-1] if values else None


def has(words: Sequence[str], name: str) -> bool:
    """Return whether a flag is given; ``--no-`` and the rest of it: whether it is switched off."""
    return any(name == (place.flag.name if place.is_on else place.flag.negative) for place in spellings(words, None))


def _merged(places: Sequence[tuple[str, str]]) -> Mapping[str, object]:
    """Return the object that vLLM makes of all places of a flag: dotted keys replace JSON, and the last JSON counts."""
    dotted = [(key, value) for key, value in places if key]
    if not dotted:
        whole = _value(places[-1][1]) if places else {}
        return whole if isinstance(whole, dict) else {"": whole}
    merged: dict[str, object] = {}
    for key, value in dotted:
        *path, last = key.replace("-", "_").split(".")
        inner = merged
        for part in path:
            below = inner.setdefault(part, {})
            inner = below if isinstance(below, dict) else {}
        inner[last] = _value(value)
    return merged


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return {"true": True, "false": False}.get(text.lower(), text)


def _json(value: Mapping[str, object]) -> str:
    return json.dumps(value, sort_keys=True) if value else ""


def _text(value: object) -> str:
    """Return a value as text; numbers in the shortest form."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "on" if value else "off"
    text = str(value)
    is_number = NUMBER.fullmatch(text) and len(text) <= LONGEST_NUMBER
    return f"{float(text):.15g}" if is_number else text
