"""YAML without surprises: the one module that imports yaml."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from safe_vllm.errors import Trouble

try:  # libyaml parses our tables about ten times faster; a wheel without it still works
    from yaml import CSafeLoader as _Base
except ImportError:  # pragma: no cover
    from yaml import SafeLoader as _Base  # type: ignore[assignment]


class _StrictLoader(_Base):
    """The safe loader, with duplicate keys refused and only unmistakable scalars converted."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - the attribute that PyYAML reads

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """Return the mapping of ``node``; a key that is there twice is an error."""
        seen: dict[Any, Any] = {}
        for key_node, _ in getattr(node, "value", ()):
            key = (key_node.tag, key_node.value) if isinstance(key_node, yaml.ScalarNode) else None
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f'the key "{key_node.value}" is already in line {seen[key] + 1}', key_node.start_mark
                )
            if key is not None:
                seen[key] = key_node.start_mark.line
        return super().construct_mapping(node, deep=deep)


MISTAGGED = (AttributeError, LookupError, TypeError)
"""What PyYAML raises where a value is not of its tag's kind, as in ``!!bool x``."""
BROKEN = (yaml.YAMLError, ValueError, RecursionError, OverflowError, *MISTAGGED)

DEPTH_LIMIT = 100
"""Levels of a document whose lines are asked for. No file of ours has ten."""
SIZE_LIMIT = 20_000
"""Values of such a document, aliases followed: a few lines of aliases can stand for billions of values."""

Place = tuple[str | int, ...]


class _LenientLoader(_StrictLoader):
    """The same, but of a key that is there twice the last one counts, as with PyYAML itself."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """Return the mapping of ``node``."""
        return _Base.construct_mapping(self, node, deep=deep)


# yes, no, on, off, 1:30, 2026-01-01, 0777 and 1_000 stay the strings that they look like
for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", "~nN\0"),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)|0x[0-9a-fA-F]+", "-+0123456789"),
    ("float", r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", "-+.0123456789"),
):
    _StrictLoader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})\Z"), [c.replace("\0", "") for c in _first]
    )


class _KubernetesLoader(_LenientLoader):
    """Takes a word for what kubectl takes it for, which reads YAML 1.1: ``yes`` and ``017`` are no texts.

    https://github.com/yaml/go-yaml/blob/v2.4.0/resolve.go
    """

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - the attribute that PyYAML reads
    bool_values = {**_Base.bool_values, "y": True, "n": False}  # noqa: RUF012 - likewise


_FLOAT = r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
for _tag, _pattern, _first in (
    ("bool", "|".join(f"{word}|{word.title()}|{word.upper()}" for word in _KubernetesLoader.bool_values), "yYnNtTfFoO"),
    ("null", r"~|null|Null|NULL|", "~nN\0"),
    ("int", r"[-+]?(?:0b[01][01_]*|0o[0-7][0-7_]*|0[0-7_]*|[1-9][0-9_]*|0x[0-9a-fA-F][0-9a-fA-F_]*)", "-+0123456789"),
    ("float", rf"{_FLOAT}|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)", "-+.0123456789"),
):
    _KubernetesLoader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})\Z"), [c.replace("\0", "") for c in _first]
    )


def _trouble(error: Exception, where: str, line: int = 0) -> Trouble:
    mark = getattr(error, "problem_mark", None)
    place = f"{where}:{line + mark.line + 1}" if mark is not None else where
    if isinstance(error, MISTAGGED):
        problem = "a value is not of its tag's kind (the tags begin with !!)"
    else:
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return Trouble(f"{place}: {problem}", hint="correct the YAML at that place")


def load(text: str | bytes, *, where: str) -> object:
    """Return the one document in ``text``. ``where`` names the file in messages; raises ``Trouble``."""
    try:
        return yaml.load(text, Loader=_StrictLoader)
    except BROKEN as error:
        raise _trouble(error, where) from error


def load_foreign(text: str | bytes, *, where: str, line: int = 0, is_of_kubernetes: bool = False) -> object:
    """Return the one document in a text that begins so many lines into a file that is not ours to complain about.

    Of a key that is there twice the last one counts. What is too deep or too large is refused, as by
    ``load_with_lines``. ``is_of_kubernetes``: words count as kubectl reads them.
    """
    try:
        return _lenient((_KubernetesLoader if is_of_kubernetes else _LenientLoader)(text), where)
    except BROKEN as error:
        raise _trouble(error, where, line) from error


def _lenient(loader: Any, where: str) -> object:
    try:
        node = loader.get_single_node()
        for count, (place, _) in enumerate(_lines(node, (), 0)):
            if len(place) > DEPTH_LIMIT or count > SIZE_LIMIT:
                raise Trouble(f"{where}: nested too deeply, or too many values", hint="write it out")
        return None if node is None else loader.construct_document(node)
    finally:
        loader.dispose()


def load_with_lines(text: str | bytes, *, where: str) -> tuple[object, dict[Place, int]]:
    """Return the one document in ``text``, and the line of every value in it by the keys and indices that lead there.

    Raises ``Trouble``, also for a document that is too deep or too large to be meant.
    """
    try:
        loader = _StrictLoader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None, {}
            lines: dict[Place, int] = {}
            for place, line in _lines(node, (), node.start_mark.line):
                lines[place] = line + 1
                if len(place) > DEPTH_LIMIT or len(lines) > SIZE_LIMIT:
                    at = lines[place[:1]]  # deeper down an alias would name the line of its anchor
                    raise Trouble(f"{where}:{at}: nested too deeply, or too many values", hint="write it out")
            return loader.construct_document(node), lines
        finally:
            loader.dispose()
    except BROKEN as error:
        raise _trouble(error, where) from error


def _lines(node: Any, place: Place, line: int) -> Iterator[tuple[Place, int]]:
    """Yield every place at and below a node with its line; that of a key for a value in a mapping."""
    yield place, line
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from _lines(value, (*place, str(key.value)), key.start_mark.line)
    elif isinstance(node, yaml.SequenceNode):
        for at, item in enumerate(node.value):
            yield from _lines(item, (*place, at), item.start_mark.line)


class _StrictDumper(yaml.SafeDumper):
    """Quotes every text that our loader, or a YAML 1.1 loader, would take for something else."""


_StrictDumper.yaml_implicit_resolvers = {
    first: [
        *yaml.SafeDumper.yaml_implicit_resolvers.get(first, []),
        *_StrictLoader.yaml_implicit_resolvers.get(first, []),
    ]
    for first in {*yaml.SafeDumper.yaml_implicit_resolvers, *_StrictLoader.yaml_implicit_resolvers}
}


def dump(value: object) -> str:
    """Return a value as YAML that ``load`` gives back."""
    return yaml.dump(value, Dumper=_StrictDumper, sort_keys=False, allow_unicode=True, width=100)


def read_data(name: str) -> object:
    """Return what the file ``name``, shipped in ``safe_vllm/data``, holds."""
    return load(Path(__file__).with_name(name).read_bytes(), where=name)  # importlib.resources is slow to import
