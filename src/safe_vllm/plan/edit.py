"""Changes flags in a command line: in the operator's own spelling where there is one, else by adding words.

Every other word stays where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from safe_vllm.plan.flags import Occurrence, end_of_options, read, scan
from safe_vllm.plan.grammar import FLAGS

Words = tuple[str, ...]
Config = Mapping[str, object] | None


def with_value(words: Sequence[str], name: str, value: str, config: Config = None) -> Words:
    """Return ``words`` in which the flag ``name`` has ``value``."""
    spelled = [found for found in scan(words) if found.flag.name == name and not found.key]
    changed = replaced(words, spelled, lambda found: spelled_with(found, value))
    if str(read(changed, config).setting(name).value) == value:
        return changed
    return appended(changed, (name, value))


def without_flag(words: Sequence[str], name: str) -> Words:
    """Return ``words`` without ``name``, except where a word behind it would become the value of a flag before it.

    What a ``--config`` file says of the flag remains.
    """
    return replaced(words, [place for place in scan(words) if place.flag.name == name and not _separates(words, place)])


def with_switch(words: Sequence[str], name: str, is_on: bool, config: Config = None) -> Words:
    """Return ``words`` in which the switch ``name`` is on or off. What is vLLM's default need not be said."""
    flag = FLAGS[name]
    wanted = flag.name if is_on else flag.negative
    contrary = [found for found in scan(words) if found.flag.name == name and found.is_on is not is_on]

    def instead(place: Occurrence) -> Words:
        return () if flag.default is is_on and not _separates(words, place) else (wanted,)

    changed = replaced(words, contrary, instead)
    if read(changed, config).setting(name).value is is_on:
        return changed
    return appended(changed, (wanted,))


def _separates(words: Sequence[str], place: Occurrence) -> bool:
    """Return whether a plain word follows: without this place, the flag before it might take that for its value."""
    behind = place.at + place.size
    return behind < len(words) and not words[behind].startswith("-")


def _nothing(_place: Occurrence) -> Words:
    return ()


def replaced(
    words: Sequence[str], places: Iterable[Occurrence], new: Callable[[Occurrence], Words] = _nothing
) -> Words:
    """Return ``words`` with each of ``places`` (in order) replaced by what ``new`` makes of it."""
    result: list[str] = []
    done = 0
    for place in places:
        result += [*words[done : place.at], *new(place)]
        done = place.at + place.size
    return (*result, *words[done:])


def appended(words: Sequence[str], new: Words) -> Words:
    """Return ``words`` with ``new`` behind the last option: at the end, or before a bare ``--``."""
    end = end_of_options(words)
    return (*words[:end], *new, *words[end:])


def spelled_with(place: Occurrence, value: str) -> Words:
    """Return the words of ``place`` with another value, in the same spelling."""
    return (f"{place.written}={value}",) if place.is_joined else (place.written, value)
