"""Reads systemd units with their drop-ins. What they say is ``checks.unit_text``'s business."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from safe_vllm.errors import Status, Trouble, reason_of
from safe_vllm.machine.rooted import is_directory, is_file, is_mute

STDIN = "-"
SIZE_LIMIT = 1 << 20
"""Bytes. Whatever is larger was not meant to be a unit."""
MASK = Path("/dev/null")
HINT = "name a unit file, or pipe in what `systemctl cat NAME` prints"


def each(names: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Return the text of each file, with those of the drop-ins beside it (``NAME.d/*.conf``), by its name.

    ``-`` is standard input, which is for the output of ``systemctl cat``. Raises Trouble where one cannot be read.
    """
    if names.count(STDIN) > 1:
        raise Trouble("standard input can be read but once", hint="give - once", status=Status.USAGE)
    return [(_named(name), [_of_stdin()] if name == STDIN else _of_file(name)) for name in names]


def _named(name: str) -> str:
    return "standard input" if name == STDIN else name


def _of_stdin() -> str:
    if sys.stdin is None:
        raise Trouble("standard input is closed", hint="name a unit file", status=Status.USAGE)
    return _text("standard input", sys.stdin.buffer.read(SIZE_LIMIT + 1))


def _of_file(name: str) -> list[str]:
    path = Path(name)
    if is_directory(path):
        raise Trouble(f"{name}: cannot be read: is a directory", hint=_beside(path), status=Status.USAGE)
    try:
        if path.resolve() == MASK:
            raise Trouble(f"{name} is masked: nothing can start it", hint="systemctl unmask it", status=Status.USAGE)
        if is_mute(path):
            raise Trouble(f"{path} is no regular file", hint=HINT, status=Status.USAGE)
        drop_ins = sorted(Path(f"{path}.d").glob("*.conf"))
        return [_text(str(each), _start_of(each)) for each in (path, *drop_ins)]
    except OSError as error:
        reason = reason_of(error)
        where = error.filename or path
        hint = _missing(path) if isinstance(error, FileNotFoundError) else HINT
        raise Trouble(f"{where}: cannot be read: {reason}", hint=hint, status=Status.USAGE) from None
    except (ValueError, RuntimeError):  # a NUL in the name; links that lead to each other
        raise Trouble(f"{name!r} is no file name", hint=HINT, status=Status.USAGE) from None


def _beside(directory: Path) -> str:
    """Return what to name instead of a directory, which may be one of drop-ins."""
    if directory.suffix != ".d":
        return HINT
    unit = directory.with_suffix("")
    if is_file(unit):
        return f"name the unit, and its drop-ins are read with it: {unit}"
    return f"pipe in the unit with its drop-ins: systemctl cat {unit.name} | safe-vllm doctor --unit -"


def _missing(path: Path) -> str:
    """Return where the unit may be: behind systemctl, or in a template."""
    at, instance = path.name.partition("@")[0], path.name.partition("@")[2]
    template = path.with_name(f"{at}@{path.suffix}")
    if instance and is_file(template):
        return f"an instance has no file of its own: name {template}"
    return f"if it is installed: systemctl cat {path.name} | safe-vllm doctor --unit -"


def _start_of(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(SIZE_LIMIT + 1)


def _text(name: str, data: bytes) -> str:
    if len(data) > SIZE_LIMIT or b"\0" in data:
        raise Trouble(f"{name} is no unit file", hint="name a unit file", status=Status.USAGE)
    return data.decode(errors="replace")
