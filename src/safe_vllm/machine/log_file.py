"""Reading a log piece by piece: a file or standard input, plain or gzip."""

from __future__ import annotations

import gzip
import io
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, cast

from safe_vllm.errors import Status, Trouble, reason_of

CHUNK_BYTES = 256 * 1024
GZIP = b"\x1f\x8b"


def size(path: str | None) -> int | None:
    """Return how many bytes there are to read, or ``None`` where nobody knows."""
    try:
        found = os.fstat(0) if path is None else Path(path).stat()
    except OSError:
        return None
    return found.st_size or None


def chunks(path: str | None, on_progress: Callable[[int], None]) -> Iterator[bytes]:
    """Yield the log's bytes, decompressed; ``None`` is standard input. Tell how many stored bytes were read.

    Raises Trouble when it cannot be read.
    """
    path = None if path == "-" else path
    name = "standard input" if path is None else path or "''"
    try:
        with _opened(path) as file:
            yield from _counted(file, on_progress)
    except (OSError, EOFError, zlib.error) as error:  # the last one is what gzip says of damage in the middle
        raise Trouble(
            f"{name} cannot be read: {reason_of(error)}", hint="name a log file", status=Status.USAGE
        ) from None


def _opened(path: str | None) -> io.BufferedReader:
    if path is not None:
        return Path(path).open("rb")
    if sys.stdin is None:
        raise OSError("it is closed")
    return cast("io.BufferedReader", sys.stdin.buffer)


def _counted(file: io.BufferedReader, on_progress: Callable[[int], None]) -> Iterator[bytes]:
    is_packed = file.peek(2)[:2] == GZIP
    source = cast("IO[bytes]", gzip.open(file) if is_packed else file)  # noqa: SIM115  closed with the file
    at = 0
    while chunk := source.read(CHUNK_BYTES):
        now = file.tell() if file.seekable() else at + len(chunk)
        on_progress(now - at)
        at = now
        yield chunk
