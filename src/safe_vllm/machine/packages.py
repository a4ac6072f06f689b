"""Versions of vLLM, torch and FlashInfer, read from files in milliseconds. None of them is imported."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from safe_vllm.machine.facts import Installation
from safe_vllm.machine.interpreter import ask, behind, interpreter_of, package_directories
from safe_vllm.machine.rooted import below, exists, text_of

VERSION = r"^(?:__version__|version)\s*(?::[^=\n]*)?=\s*(?:version\s*=\s*)?['\"]([^'\"]+)"
CUDA = r"^cuda\s*(?::[^=\n]*)?=\s*['\"]([^'\"]+)"
ROCM = r"^hip\s*(?::[^=\n]*)?=\s*['\"]([^'\"]+)"
NOT_BUILT = ("0.0.0", "0.0.0+unknown", "dev")
"""What stands in place of a version in a source tree that was never built."""

FLASHINFER = "flashinfer/_build_meta.py"
CUBIN = "flashinfer_cubin/_build_meta.py"
JIT_CACHE = "flashinfer_jit_cache/_build_meta.py"
"""FlashInfer compares the versions in these three files when it is imported:
https://github.com/flashinfer-ai/flashinfer/blob/main/flashinfer/jit/env.py
"""


@dataclass(frozen=True)
class Survey:
    """What is installed, and where Python would look for it."""

    installation: Installation
    places: tuple[Path, ...] = ()
    """Directories that hold packages, in the order in which Python looks."""

    def package(self, name: str) -> Path | None:
        """Return the directory of an importable package."""
        found = (place / name for place in self.places)
        return next((path for path in found if exists(path / "__init__.py")), None)


def survey(script: str | None, environment: Mapping[str, str], root: Path = Path("/")) -> Survey:
    """Return what is installed for the interpreter of the ``vllm`` script (an absolute, resolved path)."""
    script = behind(script, environment, root) if script else None
    python = interpreter_of(script, environment, root) if script else None
    if script is None or python is None:
        return Survey(Installation(python))
    extra = [below(root, place) for place in environment.get("PYTHONPATH", "").split(":") if place.startswith("/")]
    found = installed_in(python, (*extra, *package_directories(python, script, root)), root)
    return found if found.installation.vllm or root != Path("/") else installed_in(python, ask(python), root)


def installed_in(python: str, directories: Iterable[Path], root: Path = Path("/")) -> Survey:
    """Return the versions found in ``directories``, in the order in which Python would look."""
    places = tuple(_each_once(place for each in directories for place in (each, *_linked(each, root))))
    metadata = tuple(path for place in places for path in _metadata(place))
    torch = _first(places, "torch/version.py")
    cuda = _match(CUDA, torch)
    versions = Installation(
        python=python,
        vllm=plain_version(_vllm(places, metadata)),
        torch=_match(VERSION, torch),
        torch_cuda=cuda,
        flashinfer=_match(VERSION, _first(places, FLASHINFER)) or _named(metadata, "flashinfer_python"),
        flashinfer_cubin=_match(VERSION, _first(places, CUBIN)) or _named(metadata, "flashinfer_cubin"),
        flashinfer_jit_cache=_match(VERSION, _first(places, JIT_CACHE)) or _named(metadata, "flashinfer_jit_cache"),
        torch_rocm=_match(ROCM, torch),
        cuda_runtime=_runtime(metadata, cuda) if cuda else None,
    )
    return Survey(versions, places)


def plain_version(version: str | None) -> str | None:
    """Return a version as everybody else writes it; builds from a tag may be called ``v0.23.0``."""
    return re.sub(r"^v(?=\d)", "", version) if version else None


def _each_once(places: Iterable[Path]) -> Iterator[Path]:
    """Yield the directories that exist, each under its first name: ``lib64`` is often ``lib``."""
    seen = set()
    for place in places:
        with suppress(OSError):
            status = place.stat()
            if (status.st_dev, status.st_ino) not in seen:
                seen.add((status.st_dev, status.st_ino))
                yield place


def _vllm(places: Sequence[Path], metadata: Sequence[Path]) -> str | None:
    """Return the version that vLLM calls itself; a source tree that was never built has only its metadata."""
    home = next((place / "vllm" for place in places if exists(place / "vllm" / "__init__.py")), None)
    own = (text_of(home / "_version.py") if home else None) or ""
    if found := _match(VERSION, own) or _named(metadata, "vllm"):
        return found
    # Builds go by other names too, and other packages have "vllm" in theirs.
    return next((_version_of(path) for path in metadata if "vllm" in path.name.lower() and _owns(path, "vllm")), None)


def _runtime(metadata: Iterable[Path], cuda: str) -> str | None:
    """Return the version of the CUDA runtime; from CUDA 13 on the distribution's name has no number."""
    major = cuda.partition(".")[0]
    return _named(metadata, f"nvidia_cuda_runtime_cu{major}" if major in ("11", "12") else "nvidia_cuda_runtime")


def _first(places: Iterable[Path], name: str) -> str:
    return next((text for place in places if (text := text_of(place / name)) is not None), "")


def _match(pattern: str, text: str) -> str | None:
    found = re.search(pattern, text, re.MULTILINE)
    return found[1] if found and found[1] not in NOT_BUILT else None


def _metadata(place: Path) -> list[Path]:
    """Return the metadata of a directory's distributions, of two with one name the newer version first."""
    found = [place / name for name in _listed(place) if name.endswith((".dist-info", ".egg-info"))]
    return sorted(found, key=lambda path: [int(number) for number in re.findall(r"\d+", path.name)], reverse=True)


def _listed(place: Path) -> list[str]:
    try:
        return sorted(os.listdir(place))  # noqa: PTH208  much faster than pathlib for a thousand names
    except OSError:
        return []


def _named(metadata: Iterable[Path], distribution: str) -> str | None:
    """Return the version of a distribution by its metadata."""
    found = (path for path in metadata if _name_of(path) == distribution)
    return next((version for path in found if (version := _version_of(path))), None)


def _name_of(path: Path) -> str:
    return re.sub(r"[-_.]+", "_", path.stem.partition("-")[0]).lower()


def _version_of(path: Path) -> str | None:
    """Return the version in the name of a metadata directory, or in the file where the name has none."""
    if path.suffix == ".dist-info":
        return path.name.removesuffix(".dist-info").partition("-")[2] or None
    return _match(r"^Version:\s*(\S+)", text_of(path / "PKG-INFO", 4096) or "")


def _owns(path: Path, package: str) -> bool:
    """Return whether a distribution installed this package."""
    if package in (text_of(path / "top_level.txt") or "").split():
        return True
    return f"\n{package}/__init__.py," in "\n" + (text_of(path / "RECORD") or "")


def _linked(directory: Path, root: Path) -> Iterator[Path]:
    """Yield the source directories of editable installs, however a build tool names them."""
    names = _listed(directory)
    for link in (name for name in names if name.endswith(".pth")):
        lines = (line.strip() for line in (text_of(directory / link) or "").splitlines())
        paths = (line for line in lines if line and not line.startswith(("#", "import ", "import\t")))
        yield from (below(root, path) if path.startswith("/") else directory / path for path in paths)
    for finder in (name for name in names if name.startswith("__editable___") and name.endswith("_finder.py")):
        mapped = re.findall(r"'(?:vllm|flashinfer|torch)':\s*'([^']+)'", text_of(directory / finder) or "")
        yield from (below(root, path).parent for path in mapped)
    for origin in (name for name in names if name.startswith("vllm") and name.endswith(".dist-info")):
        if (path := _editable(text_of(directory / origin / "direct_url.json") or "")) is not None:
            yield below(root, path)


def _editable(text: str) -> str | None:
    """Return the directory that an editable install came from: https://peps.python.org/pep-0660/."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    is_editable = isinstance(value, dict) and (value.get("dir_info") or {}).get("editable")
    return str(value.get("url", "")).removeprefix("file://") if is_editable else None
