"""Core files are found where the kernel and the CUDA driver put them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from safe_vllm.machine.cores import MOST_FILES, CoreFile, Cores, cores

STARTED = 1_000_000.0


def root_with(tmp_path: Path, pattern: str, uses_pid: str = "0") -> Path:
    kernel = tmp_path / "proc/sys/kernel"
    kernel.mkdir(parents=True)
    (kernel / "core_pattern").write_text(f"{pattern}\n")
    (kernel / "core_uses_pid").write_text(f"{uses_pid}\n")
    return tmp_path


def lay(root: Path, path: str, size: int = 3, *, at: float = STARTED + 5) -> CoreFile:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"x" * size)
    os.utime(file, (at, at))
    return CoreFile(path, size)


def found_in(root: Path, environment: dict[str, str] | None = None, **more: object) -> Cores:
    return cores(STARTED, environment or {}, directory="/srv", root=root, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("pattern", "uses_pid", "name", "other"),
    [
        ("core", "0", "/srv/core", "/srv/core.12"),
        ("core", "1", "/srv/core.12", "/srv/core"),
        ("core.%e.%p", "1", "/srv/core.VLLM::Worker.12", "/srv/core.python.12.3x"),
        ("/var/cores/%h-%t-%s.dump", "0", "/var/cores/host-99-11.dump", "/srv/host-99-11.dump"),
        ("crash/%%-%p", "0", "/srv/crash/%-12", "/srv/crash/x-12"),
    ],
)
def test_files_that_fit_the_kernels_pattern_are_found(
    tmp_path: Path, pattern: str, uses_pid: str, name: str, other: str
) -> None:
    root = root_with(tmp_path, pattern, uses_pid)
    lay(root, other)
    wanted = lay(root, name, 7)
    found = found_in(root)
    assert found.files == (wanted,)
    assert found.size_bytes == 7
    assert str(Path("/srv") / pattern) in found.where


def test_files_older_than_the_attempt_and_what_is_no_file_are_not_its_own(tmp_path: Path) -> None:
    root = root_with(tmp_path, "core.%p")
    lay(root, "/srv/core.1", at=STARTED - 60)
    (root / "srv/core.2").mkdir()
    (root / "srv/core.3").symlink_to("core.4")
    wanted = lay(root, "/srv/core.4", at=STARTED)
    assert found_in(root).files == (wanted,)


def test_a_limit_of_zero_means_that_there_are_none(tmp_path: Path) -> None:
    root = root_with(tmp_path, "core")
    lay(root, "/srv/core")
    found = found_in(root, core_limit=0)
    assert found.files == ()
    assert "limit on core files is 0" in found.where


@pytest.mark.parametrize(
    ("pattern", "file", "said"),
    [
        ("|/lib/systemd/systemd-coredump %P %u", "/var/lib/systemd/coredump/core.VLLM.0.ab.12.99.zst", "coredumpctl"),
        ("|/usr/share/apport/apport -p%p", "/var/crash/_usr_bin_python3.0.crash", "apport in /var/crash"),
        ("|/usr/libexec/abrt-hook-ccpp %s", None, "abrt list"),
        ("|/opt/collect --pid %p", None, "handed to /opt/collect"),
        ("|", None, "handed to nobody"),
        ("", None, "does not tell"),
    ],
)
def test_who_collects_core_files_is_told(tmp_path: Path, pattern: str, file: str | None, said: str) -> None:
    root = root_with(tmp_path, pattern)
    wanted = (lay(root, file),) if file else ()
    found = found_in(root)
    assert found.files == wanted
    assert said in found.where


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ({"CUDA_COREDUMP_FILE": "/data/gpu.%h.%p.%t"}, "/data/gpu.host.12.99"),
        ({"CUDA_COREDUMP_FILE": "gpu.%p"}, "/srv/gpu.12"),
        ({"CUDA_ENABLE_COREDUMP_ON_EXCEPTION": "1"}, "/srv/core_99_host_12.nvcudmp"),
        ({"CUDA_ENABLE_COREDUMP_ON_EXCEPTION": "1"}, "/srv/core.cuda.host.12"),
    ],
)
def test_core_dumps_of_gpus_are_found(tmp_path: Path, environment: dict[str, str], name: str) -> None:
    root = root_with(tmp_path, "")
    lay(root, name, 9)
    assert found_in(root, environment).files == (CoreFile(name, 9, "gpu"),)


def test_without_core_dumps_of_gpus_switched_on_none_is_looked_for(tmp_path: Path) -> None:
    root = root_with(tmp_path, "")
    lay(root, "/srv/core.cuda.host.12")
    assert found_in(root, {"CUDA_ENABLE_COREDUMP_ON_EXCEPTION": "0"}).files == ()


def test_a_core_dump_that_the_output_names_is_found_once(tmp_path: Path) -> None:
    root = root_with(tmp_path, "")
    lay(root, "/tmp/cuda_coredump_host.12.99", 5)
    lines = ["[06:43:15.209195] coredump: Writing ELF file to /tmp/cuda_coredump_host.12.99"]
    wanted = (CoreFile("/tmp/cuda_coredump_host.12.99", 5, "gpu"),)
    assert found_in(root, lines=lines).files == wanted
    environment = {"CUDA_COREDUMP_FILE": "/tmp/cuda_coredump_%h.%p.%t"}
    assert found_in(root, environment, lines=lines * 2).files == wanted


@pytest.mark.parametrize("pattern", ["/nowhere/core", "/srv/file/core", "/pid-%p/core", "/a\0b/core"])
def test_a_place_that_cannot_be_looked_at_is_none(tmp_path: Path, pattern: str) -> None:
    root = root_with(tmp_path, pattern)
    lay(root, "/srv/file")
    assert found_in(root).files == ()


def test_a_directory_without_end_is_not_looked_through(tmp_path: Path) -> None:
    root = root_with(tmp_path, "core.%p")
    for number in range(MOST_FILES + 20):
        lay(root, f"/srv/core.{number}")
    assert len(found_in(root).files) == MOST_FILES
    assert len(found_in(root, most_entries=10).files) == 10


def test_a_process_that_dies_here_leaves_a_file_that_is_found(tmp_path: Path) -> None:
    pattern = Path("/proc/sys/kernel/core_pattern").read_text().strip()
    if pattern.startswith("|") or "/" in pattern:
        pytest.skip(f"core files of this machine go to {pattern}")
    dies = (
        "import os, resource; hard = resource.getrlimit(resource.RLIMIT_CORE)[1];"
        "resource.setrlimit(resource.RLIMIT_CORE, (hard, hard)); print(hard, flush=True); os.abort()"
    )
    started_at = time.time()
    died = subprocess.run([sys.executable, "-I", "-S", "-c", dies], cwd=tmp_path, capture_output=True, check=False)
    if died.stdout.strip() == b"0" or not list(tmp_path.iterdir()):
        pytest.skip("no core files are written here")
    found = cores(started_at, {}, directory=str(tmp_path))
    assert [Path(file.path).parent for file in found.files] == [tmp_path]
    assert found.size_bytes > 0
