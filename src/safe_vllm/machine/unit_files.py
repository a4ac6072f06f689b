"""Reads systemd units with their drop-ins. What they say is ``checks.unit_text``'s business."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from safe_vllm.errors import Status, Trouble, reason_of
from safe_vllm.machine.rooted import is_mute

STDIN = "-"
SIZE_LIMIT = 1 << 20
"""Bytes. Whatever is larger was not meant to be a unit."""


def read(names: Sequence[str]) -> list[str]:
    """Return the texts of these files, each followed by the drop-ins beside it (``NAME.d/*.conf``).

    ``-`` is standard input, which is for the output of ``systemctl cat``. Raises Trouble where one cannot be read.
    """
    return [text for name in names for text in ([_of_stdin()] if name == STDIN else _of_file(Path(name)))]


def _of_stdin() -> str:
    if sys.stdin is None:
        raise Trouble("standard input is closed", hint="name a unit file", status=Status.USAGE)
    return _text("standard input", sys.stdin.buffer.read(SIZE_LIMIT + 1))


def _of_file(path: Path) -> list[str]:
    try:
        if is_mute(path):
            raise Trouble(f"{path} is no regular file", hint="name a unit file", status=Status.USAGE)
        drop_ins = sorted(Path(f"{path}.d").glob("*.conf"))
        return [_text(str(each), _start_of(each)) for each in (path, *drop_ins)]
    except OSError as error:
        reason = reason_of(error)
        name = error.filename or path
        raise Trouble(f"{name}: cannot be read: {reason}", hint="name a unit file", status=Status.USAGE) from None


def _start_of(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(SIZE_LIMIT + 1)


def _text(name: str, data: bytes) -> str:
    if len(data) > SIZE_LIMIT or b"\0" in data:
        raise Trouble(f"{name} is no unit file", hint="name a unit file", status=Status.USAGE)
    return data.decode(errors="replace")
