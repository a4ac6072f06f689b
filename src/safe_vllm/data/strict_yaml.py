"""YAML without surprises: the one module that imports yaml."""

from __future__ import annotations

import re
from importlib import resources
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


def _trouble(error: Exception, where: str) -> Trouble:
    mark = getattr(error, "problem_mark", None)
    place = f"{where}:{mark.line + 1}" if mark is not None else where
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return Trouble(f"{place}: {problem}", hint="correct the YAML at that place")


def load(text: str | bytes, *, where: str, may_repeat: bool = False) -> object:
    """Return the one document in ``text``. ``where`` names the file in messages; raises ``Trouble``.

    ``may_repeat``: of a key that is there twice the last one counts, for files that are not ours to complain about.
    """
    try:
        return yaml.load(text, Loader=_LenientLoader if may_repeat else _StrictLoader)
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError) as error:
        raise _trouble(error, where) from error


def read_data(name: str) -> object:
    """Return what the file ``name``, shipped in ``safe_vllm/data``, holds."""
    return load(resources.files("safe_vllm.data").joinpath(name).read_bytes(), where=name)
