"""What the check-up says about memory, disk, limits, the port, the kernel and what is around."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from cases import B200, MACHINE, case, found, levels, told

from safe_vllm.checks import resources, surroundings
from safe_vllm.machine.condition import GIB, MIB, Disk, Limit, Port
from safe_vllm.plan.ladder import Ladder, Plan, Rung

DOCKERS = {"shm_total_bytes": 64 * MIB, "shm_free_bytes": 64 * MIB}
ONE = replace(MACHINE, gpus=(B200,))


def test_dockers_small_shared_memory_is_a_problem_with_several_gpus() -> None:
    [(level, text)] = told(resources.shared_memory, case("m", "-tp", "2", state=DOCKERS))
    assert (level, "--shm-size" in text, "64 MiB free of 64 MiB" in text) == ("problem", True, True)
    assert levels(resources.shared_memory, case("m", state=DOCKERS)) == ["warning"]
    assert levels(resources.shared_memory, case("m", machine=ONE, state=DOCKERS)) == ["ok"]
    assert levels(resources.shared_memory, case("m", "-tp", "2")) == ["ok"]


def test_shared_memory_that_dead_servers_fill_is_told() -> None:
    full = {"shm_total_bytes": 16 * GIB, "shm_free_bytes": 300 * MIB}
    [(level, text)] = told(resources.shared_memory, case("m", "-tp", "2", state=full))
    assert (level, "dead servers" in text) == ("warning", True)
    assert levels(resources.shared_memory, case(state={"shm_total_bytes": None})) == ["warning"]


def test_little_memory_is_a_warning() -> None:
    assert levels(resources.memory, case()) == ["ok"]
    [(level, text)] = told(resources.memory, case(state={"memory_bytes": 4 * GIB, "is_memory_limited": True}))
    assert (level, text.startswith("4.0 GiB, a limit of the control group")) == ("warning", True)
    assert levels(resources.memory, case(state={"memory_bytes": None})) == []


@pytest.mark.parametrize(
    ("soft", "pattern", "level"),
    [
        (None, "core", "warning"),
        (None, "/var/cores/%p", "warning"),
        (50 * GIB, "core", "warning"),
        (None, "|/usr/lib/systemd/systemd-coredump", "ok"),
        (0, "core", "ok"),
        (2 * GIB, "core", "ok"),
    ],
)
def test_core_files_without_bounds_are_a_warning(soft: int | None, pattern: str, level: str) -> None:
    state: dict[str, Any] = {"limits": {"core": Limit(soft, None)}, "core_pattern": pattern}
    assert levels(resources.core_files, case(state=state)) == [level]


@pytest.mark.parametrize(
    ("setting", "free", "is_writable", "level"),
    [
        ("HF_HOME", 100 * GIB, True, "ok"),
        ("HF_HOME", 5 * GIB, True, "warning"),
        ("VLLM_CACHE_ROOT", 5 * GIB, True, "ok"),
        ("VLLM_CACHE_ROOT", GIB, True, "warning"),
        ("XDG_STATE_HOME", GIB, True, "ok"),
        ("XDG_STATE_HOME", 20 * MIB, True, "problem"),
        ("HF_HOME", 100 * GIB, False, "warning"),
    ],
)
def test_too_little_disk_is_told_with_what_moves_the_directory(
    setting: str, free: int, is_writable: bool, level: str
) -> None:
    disk = Disk("something", "/some/where", setting, free, is_writable)
    [finding] = found(resources.disks, case(state={"disks": (disk,)}))
    assert finding.level == level
    assert level == "ok" or (setting in finding.do and "/some/where" in finding.what)


def test_directories_that_share_a_full_disk_are_told_in_one_finding() -> None:
    settings = ("HF_HOME", "VLLM_CACHE_ROOT", "TRITON_CACHE_DIR")
    full = tuple(Disk(f"purpose {name}", f"/{name}", name, GIB) for name in settings)
    locked = Disk("locked", "/locked", "XDG_STATE_HOME", GIB, is_writable=False)
    [first, second] = found(resources.disks, case(state={"disks": (*full, locked)}))
    assert first.what == "cannot be written: locked (/locked)"
    assert second.what.startswith("1.0 GiB free for purpose HF_HOME (/HF_HOME), purpose VLLM_CACHE_ROOT")
    assert all(name in second.do for name in settings)


@pytest.mark.parametrize(
    ("name", "limit", "level"),
    [
        ("nofile", Limit(1024, 524288), "ok"),
        ("nofile", Limit(1024, 4096), "warning"),
        ("nofile", Limit(20000, 20000), "note"),
        ("nofile", Limit(1048576, 1048576), "ok"),
        ("nproc", Limit(1000, None), "warning"),
        ("stack", Limit(1 << 20, None), "warning"),
        ("stack", Limit(8 * MIB, None), "ok"),
        ("memlock", Limit(64 << 10, None), "ok"),
    ],
)
def test_limits_that_are_too_low_are_told(name: str, limit: Limit, level: str) -> None:
    assert levels(resources.limits, case(state={"limits": {name: limit}})) == [level]


def test_locked_memory_matters_with_infiniband_and_tasks_in_a_control_group() -> None:
    state = {"limits": {"memlock": Limit(64 << 10, None)}, "has_infiniband": True}
    assert levels(resources.limits, case(state=state)) == ["warning"]
    assert levels(resources.limits, case(state={"process_limit": 100})) == ["warning"]
    assert levels(resources.limits, case(state={"process_limit": 4096})) == ["ok"]


def test_a_port_that_is_taken_is_a_problem_and_its_holder_is_named() -> None:
    taken = Port("", 8000, "address already in use", "VLLM::EngineCor (77)")
    [(level, text)] = told(surroundings.port, case(state={"port": taken}))
    assert text.startswith("*:8000 cannot be bound: address already in use, held by VLLM::EngineCor (77)")
    assert (level, "another --port" in text) == ("problem", True)
    [(level, text)] = told(surroundings.port, case(state={"port": Port("10.9.9.9", 80, "permission denied")}))
    assert (level, "correct --host or --port" in text) == ("problem", True)
    assert levels(surroundings.port, case()) == ["ok"]
    assert levels(surroundings.port, case(state={"port": None})) == []


@pytest.mark.parametrize("written", ["abc", "99999999", "65536", "", "8000.5", "a\nb", "9" * 5000])
def test_a_port_that_is_none_is_a_problem(written: str) -> None:
    [(level, text)] = told(surroundings.port, case("m", "--port", written, state={"port": None}))
    assert level == "problem"
    assert "is no port" in text and len(text) < 300
    assert levels(surroundings.port, case("m", f"--port={written}")) == ["problem"]


@pytest.mark.parametrize("written", ["0", "80", "65535"])
def test_a_port_that_is_one_is_looked_at(written: str) -> None:
    assert levels(surroundings.port, case("m", "--port", written)) == ["ok"]


@pytest.mark.parametrize(
    ("release", "expected"),
    [("6.15.0", ["ok"]), ("7.0.1-x", ["ok"]), ("6.8.0-45-generic", ["note"]), ("5.2.1", ["problem"]), (None, [])],
)
def test_the_kernel_decides_what_is_known_of_ended_processes(release: str | None, expected: list[str]) -> None:
    assert levels(surroundings.kernel, case(state={"kernel": release})) == expected


def test_a_shell_as_process_1_of_a_container_is_noted() -> None:
    shell = {"container": "Docker", "init": "bash"}
    assert levels(surroundings.init, case(state=shell)) == ["note"]
    assert levels(surroundings.init, case(state={**shell, "is_init": True})) == ["ok"]
    assert levels(surroundings.init, case(state={"init": "bash"})) == ["ok"]
    assert levels(surroundings.init, case(state={"init": None})) == []


def test_in_kubernetes_the_probes_are_to_outlast_the_ladder() -> None:
    plan = Plan("b200", "", Ladder(tuple(Rung(name, ()) for name in ("as-asked", "no-autotune", "triton"))))
    [finding] = found(surroundings.kubernetes, case(state={"in_kubernetes": True}, plan=plan))
    assert (finding.level, "one start x 3" in finding.do) == ("note", True)
    assert levels(surroundings.kubernetes, case(state={"in_kubernetes": True})) == ["note"]
    assert levels(surroundings.kubernetes, case()) == []
