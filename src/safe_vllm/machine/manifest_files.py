"""Reads Kubernetes manifests and compose files. What they say is ``checks.given``'s business."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from safe_vllm.errors import Status, Trouble, reason_of
from safe_vllm.machine.rooted import exists, is_directory, is_mute

STDIN = "-"
SIZE_LIMIT = 16 << 20
"""Bytes. What a chart renders can be long."""
BOUNDARY = re.compile(r"^---(?=\s|\Z)", re.MULTILINE)
"""No text within a document can have it at the beginning of a line."""
TEMPLATE = re.compile(r"\{\{-?\s*[.$\w/\"(]")
OF_HELM = re.compile(r"\{\{-?\s*(?:\$?\.(?:Values|Release|Chart|Capabilities|Files|Template)\b|(?:include|tpl)\b)")
"""What cannot be meant for anything else, such as a chat template or an alert."""
HOLDERS = ("ConfigMap", "Secret", "PrometheusRule")
"""Kinds that may hold templates of others."""
SECTION = re.compile(r"^\[(?:Unit|Service|Install|Timer|Socket)\]\s*$", re.MULTILINE)
ENDINGS = (".json", ".yaml", ".yml")
"""Of the files of a directory that ``kubectl apply -f`` takes."""
RENDERED = {
    "Chart.yaml": "helm template",
    "kustomization.yaml": "kustomize build",
    "kustomization.yml": "kustomize build",
    "Kustomization": "kustomize build",
}
"""What renders a directory that has such a file."""
UTF_16 = (b"\xff\xfe", b"\xfe\xff")
"""What a redirection in PowerShell begins with."""
DEFINITION = re.compile(r"^kind:\s*(CustomResourceDefinition)\s*$", re.MULTILINE)
"""Longer than all else that a chart prints, and nothing in it is ever run."""
KIND = re.compile(r"""^(?:---\s*)?(?:\{\s*)?["']?kind["']?\s*:""", re.MULTILINE)
"""What objects of Kubernetes have, and compose files have not."""
MARK = re.compile(r"""^[\s{-]*["']?(?:apiVersion|kind|services)["']?\s*:""", re.MULTILINE)
"""What one of the two has, however broken the rest is."""
LARGEST = 1 << 62
RENDERERS = "`helm template`, `kustomize build` or `docker compose config`"
HINT = f"name a manifest or a compose file, or - for what {RENDERERS} prints"


def each(names: Sequence[str]) -> list[tuple[str, list[object]]]:
    """Return the documents of each file by its name; a directory stands for the files in it. Raises Trouble."""
    if names.count(STDIN) > 1:
        raise Trouble("standard input can be read but once", hint="give - once", status=Status.USAGE)
    files = [file for name in names for file in _files(name)]
    return [("standard input" if name == STDIN else name, list(_documents(name, _text(name)))) for name in files]


def _files(name: str) -> list[str]:
    if name == STDIN or not is_directory(Path(name)):
        return [name]
    for marker, command in RENDERED.items():
        if exists(Path(name) / marker):
            hint = f"pipe it in: {command} {name} | safe-vllm doctor --manifest -"
            raise Trouble(f"{name} has a {marker}, from which manifests are made", hint=hint, status=Status.USAGE)
    try:
        found = sorted(str(path) for path in Path(name).iterdir() if path.suffix in ENDINGS)
    except OSError as error:
        raise Trouble(f"{name}: cannot be read: {reason_of(error)}", hint=HINT, status=Status.USAGE) from None
    if not found:
        raise Trouble(f"{name} is a directory without manifests", hint=HINT, status=Status.USAGE)
    return found


def _documents(name: str, text: str) -> Iterator[object]:
    where = "standard input" if name == STDIN else name
    if SECTION.search(text):
        hint = f"check it with: safe-vllm doctor --unit {name}"
        raise Trouble(f"{where} is a systemd unit, not a manifest", hint=hint, status=Status.USAGE)
    start, line, is_meant = 0, 0, MARK.search(text) is not None
    for end in [*(found.start() for found in BOUNDARY.finditer(text)), len(text)]:
        part, start = text[start:end], end
        if not _is_empty(part):
            yield _document(part, where, line, is_meant=is_meant)
        line += part.count("\n")  # so that messages name the line of the file


def _document(part: str, where: str, line: int, *, is_meant: bool) -> object:
    from safe_vllm.data.strict_yaml import load_foreign

    if definition := DEFINITION.search(part):
        return {"kind": definition[1]}
    try:
        found = _plain(load_foreign(part, where=where, line=line, is_of_kubernetes=KIND.search(part) is not None))
    except Trouble as trouble:
        if TEMPLATE.search(part):
            raise _template(where) from None
        hint = trouble.hint if is_meant else f"it looks like no manifest: {HINT}"
        raise Trouble(trouble.message, hint=hint, status=Status.USAGE) from None
    if _is_template(found):
        raise _template(where)
    return found


def _template(where: str) -> Trouble:
    return Trouble(f"{where} is a template, not a manifest", hint=HINT, status=Status.USAGE)


def _is_template(document: object) -> bool:
    """Return whether a document that is good YAML has places that are still to be filled in."""
    kind = document.get("kind") if isinstance(document, Mapping) else None
    return kind not in HOLDERS and any(_is_open(key, text) for key, text in _texts(document))


def _is_open(key: object, text: str) -> bool:
    return OF_HELM.search(text) is not None or (key == "image" and "{{" in text)


def _texts(value: object, key: object = None) -> Iterator[tuple[object, str]]:
    """Yield every text in a document, with the key that it stands at."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping):
        for inner, each in value.items():
            yield from _texts(each, inner)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each, key)


def _plain(value: Any) -> Any:
    """Return a value with its merge keys followed, and without numbers that could not even be printed."""
    if isinstance(value, dict):
        own = {key: _plain(inner) for key, inner in value.items() if key != "<<"}
        merged = value.get("<<")
        others = [_plain(each) for each in (merged if isinstance(merged, list) else [merged])]
        return {key: inner for each in reversed(others) if isinstance(each, dict) for key, inner in each.items()} | own
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, int) and abs(value) > LARGEST:
        return LARGEST if value > 0 else -LARGEST
    return value


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
    except ValueError:
        raise Trouble(f"{name!r} is no file name", hint=HINT, status=Status.USAGE) from None


def _decoded(name: str, data: bytes) -> str:
    encoding = "utf-16" if data.startswith(UTF_16) else "utf-8"
    text = data.decode(encoding, errors="replace")
    if len(data) > SIZE_LIMIT or "\0" in text:
        raise Trouble(f"{name} is no manifest", hint=HINT, status=Status.USAGE)
    return text.removeprefix("\ufeff").replace("\r\n", "\n")
