"""What the installed vLLM takes, found in the text of its source in milliseconds. Nothing of it is imported.

Four of the files have kept their places since vLLM 0.16; the flags of the HTTP server are in one that moves about.
https://github.com/vllm-project/vllm/blob/v0.33.0/vllm/engine/arg_utils.py
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from zlib import crc32

import msgspec

from safe_vllm.machine import cache
from safe_vllm.machine.facts import Surface
from safe_vllm.machine.rooted import text_of

READER = 1
"""To be raised with every change in how the source is read: what was read otherwise is then read again."""

ENGINE = "engine/arg_utils.py"
KERNEL = "config/kernel.py"
SPECULATIVE = "config/speculative.py"
LEVELS = "config/vllm.py"
ENVIRONMENT = "envs.py"
FRONT_END = ("entrypoints/*/cli_args.py", "entrypoints/**/cli_args.py")
"""Where the flags of the HTTP server may be, the usual places first."""

COMMENT = re.compile(r"^\s*#.*", re.MULTILINE)
FLAG = re.compile(r"""["'](--?[A-Za-z][\w-]*)["']\s*[,)]""")
FIELD = re.compile(r"^    ([a-z]\w*): ", re.MULTILINE)
CHOICES = re.compile(r"^MoEBackend\b[^=\n]*=\s*Literal\[(.*?)\]", re.MULTILINE | re.DOTALL)
QUOTED = re.compile(r"""["'](\w+)["']""")
VARIABLE = re.compile(r"""^    ["'](VLLM_\w+)["']\s*:""", re.MULTILINE)
LEVEL = re.compile(r"^OPTIMIZATION_LEVEL_0?(\d)\b[^=\n]*=\s*\{(.*?)^\}", re.MULTILINE | re.DOTALL)
AUTOTUNE = re.compile(r"""["']enable_flashinfer_autotune["']\s*:\s*(\w+)""")
AUTOTUNE_FLAG = "--enable-flashinfer-autotune"
BACKEND_FLAG = "--moe-backend"


class _Kept(msgspec.Struct):
    """What was read, and of which files."""

    reader: int
    files: dict[str, tuple[int, int]]
    surface: Surface


def surface(package: Path | None, environment: Mapping[str, str], root: Path = Path("/")) -> Surface | None:
    """Return what the vLLM in the directory ``package`` takes; ``None`` where there is no source of it."""
    files = _stamps(package) if package else {}
    if package is None or not files:
        return None
    place = cache.directory(environment, root)
    name = f"surface-{crc32(str(package).encode()):08x}.json"
    found = _decoded(cache.kept(place, name))
    if found and (found.reader, found.files) == (READER, files):
        return found.surface
    seen = read(package)
    cache.keep(place, name, msgspec.json.encode(_Kept(READER, files, seen)))
    return seen


def read(package: Path) -> Surface:
    """Return what the source in the directory ``package`` says."""
    flags = _flags(package)
    return Surface(
        flags=flags,
        moe_backends=_moe_backends(_code(package / KERNEL), flags),
        variables=frozenset(VARIABLE.findall(_code(package / ENVIRONMENT))) or None,
        levels_without_autotune=_levels_without_autotune(_code(package / LEVELS), flags),
    )


def _stamps(package: Path) -> dict[str, tuple[int, int]]:
    """Return when each source file was last changed, in nanoseconds, and its size."""
    found = {}
    for path in (
        *(package / name for name in (ENGINE, KERNEL, SPECULATIVE, LEVELS, ENVIRONMENT)),
        *_front_end(package),
    ):
        try:
            state = path.stat()
        except OSError:
            continue
        found[str(path)] = (state.st_mtime_ns, state.st_size)
    return found


def _decoded(content: bytes | None) -> _Kept | None:
    try:
        return msgspec.json.decode(content, type=_Kept) if content else None
    except (ValueError, RecursionError):  # msgspec's own errors are the former
        return None


def _code(path: Path) -> str:
    return COMMENT.sub("", text_of(path) or "")


def _front_end(package: Path) -> tuple[Path, ...]:
    return next((found for pattern in FRONT_END if (found := tuple(sorted(package.glob(pattern))))), ())


def _flags(package: Path) -> frozenset[str] | None:
    """Return all flags, short forms too, and as dotted ones the keys of those that are objects."""
    engine = frozenset(FLAG.findall(_code(package / ENGINE)))
    if not engine:
        return None
    keys = {
        *_keys("--kernel-config", _code(package / KERNEL), "KernelConfig"),
        *_keys("--speculative-config", _code(package / SPECULATIVE), "SpeculativeConfig"),
    }
    return engine.union(keys, *(_flags_of_front_end(_code(path)) for path in _front_end(package)))


def _keys(flag: str, code: str, name: str) -> Iterator[str]:
    return (f"{flag}.{field}" for field in _fields(code, name))


def _flags_of_front_end(code: str) -> frozenset[str]:
    """Return the flags written out, and those that are made of the fields of a class; without the latter none."""
    fields = {f"--{field.replace('_', '-')}" for field in _fields(code, r"\w*FrontendArgs")}
    return frozenset({*FLAG.findall(code), *fields} if fields else ())


def _fields(code: str, name: str) -> Iterator[str]:
    """Yield the annotated fields of the classes with this name."""
    for found in re.finditer(rf"^class {name}\b.*?(?=^\S|\Z)", code, re.MULTILINE | re.DOTALL):
        yield from FIELD.findall(found[0])


def _moe_backends(code: str, flags: frozenset[str] | None) -> tuple[str, ...] | None:
    found = CHOICES.search(code)
    if found is None:
        return () if flags and BACKEND_FLAG not in flags else None
    words = [word.strip() for word in found[1].split(",") if word.strip()]
    names = [QUOTED.fullmatch(word) for word in words]
    return tuple(name[1] for name in names if name) if all(names) else None


def _levels_without_autotune(code: str, flags: frozenset[str] | None) -> tuple[str, ...] | None:
    found = {level: AUTOTUNE.search(body) for level, body in LEVEL.findall(code)}
    if not any(found.values()):
        return () if flags and AUTOTUNE_FLAG not in flags else None
    values = {level: value[1] if value else "None" for level, value in found.items()}
    is_plain = set(values.values()) <= {"True", "False"}
    return tuple(sorted(level for level, value in values.items() if value == "False")) if is_plain else None
