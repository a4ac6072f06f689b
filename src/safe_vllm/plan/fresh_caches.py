"""What is kept from one start to the next, where it is, and how a rung gets it anew in a directory of ours."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from string import Template

from safe_vllm.plan.dialect import Dialect
from safe_vllm.plan.dialect_table import Cache
from safe_vllm.plan.edit import Config, Words
from safe_vllm.plan.flags import read
from safe_vllm.plan.grammar import COMPILATION_CONFIG
from safe_vllm.plan.json_flag import json_setting, with_json_setting
from safe_vllm.plan.ladder import Rung
from safe_vllm.plan.ray import reaching

CACHE_KEY = "cache_dir"
"""Where the compiled graphs of one server are, if not below the root.

https://github.com/vllm-project/vllm/blob/v0.33.0/vllm/compilation/backends.py#L1086
"""
OF_WORDS = "the graphs that vLLM compiled, by --compilation-config"
HOME = "~/"

Environment = Mapping[str, str]


def with_fresh_caches(
    rung: Rung,
    directory: str,
    environment: Environment,
    dialect: Dialect,
    config: Config = None,
    also: Collection[str] = (),
) -> Rung:
    """Return the rung with its caches in ``directory``, whatever the operator's ``environment`` says of them.

    What takes long to make again stays where it is, unless ``also`` names it as the table of caches does. Ray's workers
    get the same directories. Whether caches are pinned is for the caller to ask.
    """
    before = {**environment, **dict(rung.environment)}
    moved = [cache for cache in dialect.caches if not cache.stays or cache.name in also]
    fresh = {cache.variable: f"{directory}/{cache.name}" for cache in moved}
    # what stays may have been below a directory that has just been moved
    after = {**before, **fresh}
    stays = [(cache, _place(cache, before)) for cache in dialect.caches if not after.get(cache.variable)]
    kept = {cache.variable: at for cache, at in stays if at and at[0] == "/" and at != _place(cache, after)}
    words = rung.words
    if compile_cache(words, config) is not None:
        words = with_json_setting(words, COMPILATION_CONFIG, CACHE_KEY, f"{directory}/graphs", config)
    moved_rung = replace(rung, words=words, environment=tuple({**dict(rung.environment), **fresh, **kept}.items()))
    return reaching(moved_rung, environment, dialect, config)


def caches_of(
    environment: Environment, dialect: Dialect, words: Words = (), config: Config = None
) -> tuple[tuple[str, str], ...]:
    """Return what is kept and where, for a server that gets these words and all of this environment."""
    places = [(cache.what, _place(cache, environment)) for cache in dialect.caches]
    if by_words := compile_cache(words, config):
        places.insert(0, (OF_WORDS, by_words))
    return tuple((what, place) for what, place in places if place)


def compile_cache(words: Words, config: Config = None) -> str | None:
    """Return the directory that the words give to compiled graphs; ``None``: none."""
    setting = json_setting(read(words, config), COMPILATION_CONFIG, CACHE_KEY)
    return str(setting.value) if setting and setting.value else None


def _place(cache: Cache, environment: Environment) -> str | None:
    """Return where a cache is; ``None``: a variable that tells is not set. Without ``HOME`` it may start with ``~``."""
    known = {name: value for name, value in environment.items() if value}
    if cache.variable in known:
        return _expanded("/".join(part for part in (known[cache.variable], cache.inside) if part), known)
    for template in cache.otherwise:
        try:
            return _expanded(Template(template).substitute(known), known)
        except KeyError:
            continue
    return None


def _expanded(path: str, known: Environment) -> str:
    is_home = path.startswith(HOME) and "HOME" in known
    return f"{known['HOME'].rstrip('/')}/{path[len(HOME) :]}" if is_home else path
