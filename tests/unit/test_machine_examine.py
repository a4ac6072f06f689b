"""Reading the state of a machine: from a machine laid out in a directory, and from this one."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from safe_vllm.machine.condition import LibraryPath, Port
from safe_vllm.machine.examine import examine, places
from safe_vllm.machine.ports import port
from safe_vllm.machine.requirements import pins


def laid_out(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_an_empty_machine_is_one_of_which_little_is_known(tmp_path: Path) -> None:
    found = examine({}, root=tmp_path)
    assert (found.shm_total_bytes, found.core_pattern, found.memory_bytes, found.init) == (None, None, None, None)
    assert (found.container, found.in_kubernetes, found.port, found.library_paths) == (None, False, None, ())
    assert {"core", "nofile", "memlock", "nproc", "stack"} == set(found.limits)


@pytest.mark.parametrize("cgroup", ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"])
def test_a_memory_limit_counts_where_it_is_below_what_there_is(tmp_path: Path, cgroup: str) -> None:
    root = laid_out(tmp_path, {"/proc/meminfo": "MemTotal:  8388608 kB\nMemFree: 1 kB\n", cgroup: "max\n"})
    assert (examine({}, root=root).memory_bytes, examine({}, root=root).is_memory_limited) == (8 << 30, False)
    for limit, expected in (("1073741824", (1 << 30, True)), ("9223372036854771712", (8 << 30, False))):
        found = examine({}, root=laid_out(tmp_path, {cgroup: f"{limit}\n"}))
        assert (found.memory_bytes, found.is_memory_limited) == expected


def test_containers_are_told_by_their_signs(tmp_path: Path) -> None:
    assert examine({"container": "lxc"}, root=tmp_path).container == "lxc"
    root = laid_out(tmp_path, {"/.dockerenv": "", "/proc/1/comm": "bash\n", "/sys/fs/cgroup/pids.max": "2048\n"})
    found = examine({}, root=root)
    assert (found.container, found.init, found.process_limit) == ("Docker", "bash", 2048)
    inside = examine({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, root=root)
    assert (inside.container, inside.in_kubernetes) == ("Kubernetes", True)


def test_library_paths_are_told_with_the_runtimes_in_them(tmp_path: Path) -> None:
    root = laid_out(tmp_path, {"/cuda/lib/libcudart.so.12": "", "/cuda/lib/libcudart.so.12.8.90": "", "/x/y": ""})
    found = examine({"CUDA_LIB_PATH": "/cuda/lib", "LD_LIBRARY_PATH": "/x::/none"}, root=root)
    assert found.library_paths == (
        LibraryPath("CUDA_LIB_PATH", "/cuda/lib", cuda_majors=("12",)),
        LibraryPath("LD_LIBRARY_PATH", "/x"),
        LibraryPath("LD_LIBRARY_PATH", "/none", exists=False),
    )


def test_each_directory_can_be_moved_by_the_variable_that_is_told_with_it(tmp_path: Path) -> None:
    for purpose, path, setting in places({"HOME": "/home/me"}):
        moved = {which: where for which, where, _ in places({"HOME": "/home/me", setting: str(tmp_path)})}
        assert path != moved[purpose]
        assert moved[purpose].startswith(str(tmp_path))


def test_a_directory_that_does_not_exist_yet_has_the_space_of_the_one_above(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in ("new/er", "file/below"):
        found = examine({"HF_HOME": str(tmp_path / place)}).disks[0]
        assert (found.path, found.is_writable) == (f"{tmp_path}/{place}/hub", True)
        assert found.free_bytes is not None


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_others_own_cannot_be_written() -> None:
    assert not examine({"HF_HOME": "/proc/1/x"}).disks[0].is_writable


@pytest.mark.parametrize("host", ["", "127.0.0.1", "localhost", "0.0.0.0"])
def test_a_port_that_somebody_listens_on_is_told_with_the_process(host: str) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        number = listener.getsockname()[1]
        found = port(host, number)
        assert found is not None
        assert found.trouble == "address already in use"
        assert found.holder is not None
        assert found.holder.endswith(f"({os.getpid()})")
    assert port(host, number) == Port(host, number)


@pytest.mark.parametrize(("host", "number"), [("a.name.that.needs.dns", 8000), ("", 0), ("", 70000)])
def test_what_cannot_be_tried_without_asking_somebody_is_not_tried(host: str, number: int) -> None:
    assert port(host, number) is None


def test_an_address_of_another_machine_cannot_be_bound() -> None:
    found = port("192.0.2.1", 8000)
    assert found is not None
    assert (found.trouble, found.holder) == ("cannot assign requested address", None)


def test_pins_are_read_from_the_metadata_of_vllm_alone(tmp_path: Path) -> None:
    requires = (
        "Requires-Dist: flashinfer-python==0.6.12\n"
        "Requires-Dist: torch (==2.11.0)\n"
        "Requires-Dist: torch==2.9.0; platform_machine == 's390x'\n"
        "Requires-Dist: flashinfer-cubin==9; extra == 'x'\n"
        "Requires-Dist: torchvision==0.26.0\n"
        "Requires-Dist: numba>=0.65\n"
    )
    laid_out(tmp_path, {"other-1.0.dist-info/METADATA": "Requires-Dist: torch==1.0\n"})
    assert pins([tmp_path]) == {}
    laid_out(tmp_path, {"vllm-0.23.0.dist-info/METADATA": requires})
    assert pins([tmp_path / "none", tmp_path]) == {"flashinfer-python": "0.6.12", "torch": "2.11.0"}
