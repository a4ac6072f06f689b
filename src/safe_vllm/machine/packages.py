"""Versions of vLLM, torch and FlashInfer, read from files in milliseconds. None of them is imported."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from safe_vllm.machine.facts import Installation
from safe_vllm.machine.interpreter import ask, interpreter_of, package_directories
from safe_vllm.machine.rooted import below, text_of

VERSION = r"^__version__\s*(?::[^=]*)?=\s*(?:version\s*=\s*)?['\"]([^'\"]+)"
CUDA = r"^cuda\s*(?::[^=]*)?=\s*['\"]([^'\"]+)"


def installation(script: str | None, environment: Mapping[str, str], root: Path = Path("/")) -> Installation:
    """Return what is installed for the interpreter of the ``vllm`` script (an absolute, resolved path)."""
    python = interpreter_of(script, environment, root) if script else None
    if script is None or python is None:
        return Installation(python)
    extra = [below(root, place) for place in environment.get("PYTHONPATH", "").split(":") if place.startswith("/")]
    found = installed_in(python, (*extra, *package_directories(python, script, root)), root)
    return found if found.vllm or root != Path("/") else installed_in(python, ask(python), root)


def installed_in(python: str, directories: Iterable[Path], root: Path = Path("/")) -> Installation:
    """Return the versions found in ``directories``, in the order in which Python would look."""
    places = [place for directory in directories for place in (directory, *_linked(directory, root))]
    torch = _first(places, "torch/version.py")
    return Installation(
        python=python,
        vllm=_match(VERSION, _first(places, "vllm/_version.py")) or _named(places, "vllm", "vllm_*"),
        torch=_match(VERSION, torch),
        torch_cuda=_match(CUDA, torch),
        flashinfer=_named(places, "flashinfer_python") or _match(VERSION, _first(places, "flashinfer/_build_meta.py")),
    )


def _first(places: Iterable[Path], name: str) -> str:
    return next((text for place in places if (text := text_of(place / name)) is not None), "")


def _match(pattern: str, text: str) -> str | None:
    found = re.search(pattern, text, re.MULTILINE)
    return found[1] if found else None


def _named(places: Iterable[Path], *distributions: str) -> str | None:
    """Return the version in the name of a distribution's metadata directory."""
    for place in places:
        for found in (path for name in distributions for path in place.glob(f"{name}-*.dist-info")):
            return found.name.removesuffix(".dist-info").partition("-")[2]
    return None


def _linked(directory: Path, root: Path) -> Iterator[Path]:
    """Yield the source directories of editable installs, which a ``.pth`` file or a finder module names."""
    for link in sorted(directory.glob("*.pth")):
        for line in (text_of(link) or "").splitlines():
            if line.startswith("/"):
                yield below(root, line.strip())
    for finder in sorted(directory.glob("__editable___vllm*_finder.py")):
        mapped = re.search(r"'vllm':\s*'([^']+)'", text_of(finder) or "")
        if mapped:
            yield below(root, mapped[1]).parent
