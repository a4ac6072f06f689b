"""Reads Kubernetes manifests. What they say is ``checks.manifest``'s business."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from safe_vllm.errors import Status, Trouble, reason_of
from safe_vllm.machine.rooted import is_mute

STDIN = "-"
SIZE_LIMIT = 16 << 20
"""Bytes. What a chart renders can be long."""
BOUNDARY = re.compile(r"^---(?=\s|\Z)", re.MULTILINE)
"""No text within a document can have it at the beginning of a line."""
TEMPLATE = re.compile(r"\{\{-?\s*[.$\w]")
HINT = "name a manifest, or - for what `helm template` or `kustomize build` prints"


def read(names: Sequence[str]) -> list[object]:
    """Return the documents of these files; ``-`` is standard input. Raises Trouble where one cannot be read."""
    return [document for name in names for document in _documents(name, _text(name))]


def _documents(name: str, text: str) -> Iterator[object]:
    from safe_vllm.data.strict_yaml import load

    if TEMPLATE.search(text):
        raise Trouble(f"{name} is a template, not a manifest", hint=HINT, status=Status.USAGE)
    where = "standard input" if name == STDIN else name
    start = 0
    for end in [*(found.start() for found in BOUNDARY.finditer(text)), len(text)]:
        before = "\n" * text.count("\n", 0, start)  # so that messages name the line of the file
        if not _is_empty(text[start:end]):
            yield load(before + text[start:end], where=where, may_repeat=True)
        start = end


def _is_empty(document: str) -> bool:
    """Return whether it has nothing but comments, and directives for the document after it."""
    lines = (line.strip() for line in document.removeprefix("---").splitlines())
    return all(not line or line.startswith(("#", "%", "...")) for line in lines)


def _text(name: str) -> str:
    if name == STDIN:
        if sys.stdin is None:
            raise Trouble("standard input is closed", hint=HINT, status=Status.USAGE)
        return _decoded("standard input", sys.stdin.buffer.read(SIZE_LIMIT + 1))
    path = Path(name)
    try:
        if is_mute(path):
            raise Trouble(f"{path} is no regular file", hint=HINT, status=Status.USAGE)
        with path.open("rb") as file:
            return _decoded(name, file.read(SIZE_LIMIT + 1))
    except OSError as error:
        reason = reason_of(error)
        raise Trouble(f"{name}: cannot be read: {reason}", hint=HINT, status=Status.USAGE) from None


def _decoded(name: str, data: bytes) -> str:
    if len(data) > SIZE_LIMIT or b"\0" in data:
        raise Trouble(f"{name} is no manifest", hint=HINT, status=Status.USAGE)
    return data.decode(errors="replace").removeprefix("\ufeff").replace("\r\n", "\n")
