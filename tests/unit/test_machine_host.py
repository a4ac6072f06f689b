"""What is left of memory and disks, from files laid out as the kernel's are."""

from __future__ import annotations

from pathlib import Path

import pytest

from safe_vllm.machine.host import levels
from safe_vllm.machine.levels import Level

GROUP = "memory of the control group"
MEMORY = "MemTotal:       1000 kB\nMemFree:          10 kB\nMemAvailable:    400 kB\n"


def machine(root: Path, files: dict[str, str]) -> Path:
    """Lay out files."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def memory(root: Path) -> dict[str, tuple[int, int]]:
    found = [level for level in levels({"HOME": str(root)}, root) if level.kind == "memory"]
    return {level.name: (level.free_bytes, level.whole_bytes) for level in found}


def test_memory_is_what_programs_could_still_have(tmp_path: Path) -> None:
    assert memory(machine(tmp_path, {"proc/meminfo": MEMORY})) == {"memory": (400 << 10, 1000 << 10)}


def test_where_nothing_can_be_read_nothing_is_told(tmp_path: Path) -> None:
    assert memory(tmp_path) == {}


def group(root: Path, path: str, limit: str, used: int, **figures: int) -> None:
    folder = root / "sys/fs/cgroup" / path
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text("".join(f"{name} {value}\n" for name, value in figures.items()))


def test_a_control_group_allows_its_limit_less_what_cannot_be_given_back(tmp_path: Path) -> None:
    machine(tmp_path, {"proc/self/cgroup": "0::/\n"})
    group(tmp_path, "", "1000", 700, anon=400, inactive_file=100, active_file=50, slab_reclaimable=30, shmem=120)
    assert memory(tmp_path) == {GROUP: (480, 1000)}


def test_of_the_groups_above_each_other_the_tightest_counts(tmp_path: Path) -> None:
    machine(tmp_path, {"proc/self/cgroup": "0::/system.slice/vllm.service\n"})
    group(tmp_path, "system.slice/vllm.service", "max", 500)
    group(tmp_path, "system.slice", "2000", 1800)
    group(tmp_path, "", "5000", 3000)
    assert memory(tmp_path) == {GROUP: (200, 2000)}


def test_a_group_that_is_not_to_be_seen_from_inside_a_container_is_the_top_one(tmp_path: Path) -> None:
    machine(tmp_path, {"proc/self/cgroup": "0::/kubepods/pod1/abc\n"})
    group(tmp_path, "", "1000", 900)
    assert memory(tmp_path) == {GROUP: (100, 1000)}


@pytest.mark.parametrize(("limit", "expected"), [("1000", {GROUP: (350, 1000)}), ("9223372036854771712", {})])
def test_the_first_version_of_control_groups_is_read_too(
    tmp_path: Path, limit: str, expected: dict[str, tuple[int, int]]
) -> None:
    folder = tmp_path / "sys/fs/cgroup/memory/docker/abc"
    folder.mkdir(parents=True)
    machine(tmp_path, {"proc/self/cgroup": "9:name=systemd:/\n5:memory:/docker/abc\n0::/\n"})
    (folder / "memory.limit_in_bytes").write_text(f"{limit}\n")
    (folder / "memory.usage_in_bytes").write_text("800\n")
    (folder / "memory.stat").write_text("inactive_file 1\ntotal_inactive_file 100\ntotal_active_file 50\n")
    assert memory(tmp_path) == expected


def disks(environment: dict[str, str], root: Path) -> list[Level]:
    return [level for level in levels(environment, root) if level.kind == "disk"]


def test_a_file_system_is_told_once_by_the_nearest_directory_that_is_there(tmp_path: Path) -> None:
    everything = {"HOME": str(tmp_path), "TMPDIR": str(tmp_path), "CUDA_COREDUMP_FILE": str(tmp_path / "core.%p")}
    (level, *others) = disks(everything, tmp_path)
    assert level.name == f"space for Hugging Face cache ({tmp_path})"
    assert 0 < level.free_bytes <= level.whole_bytes
    assert not any(str(tmp_path) in other.name for other in others)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("/dev/shm/core.%e.%p\n", "core files (/dev/shm)"),
        ("|/lib/systemd/systemd-coredump %P\n", None),
        ("|/usr/share/apport/apport %p\n", None),
    ],
)
def test_where_core_files_go_counts(tmp_path: Path, pattern: str, expected: str | None) -> None:
    machine(tmp_path, {"proc/sys/kernel/core_pattern": pattern})
    told = [level.name for level in disks({"HOME": str(tmp_path), "TMPDIR": str(tmp_path)}, tmp_path)]
    assert [name for name in told if "/dev/shm" in name] == ([f"space for {expected}"] if expected else [])


def test_a_working_directory_that_was_removed_is_no_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert disks({"HOME": str(tmp_path)}, tmp_path)
