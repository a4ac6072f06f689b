"""What is said about the gates: the figures, and who is in the way."""

from __future__ import annotations

from safe_vllm.announce import gate_lines
from safe_vllm.machine.levels import GpuMemory, Holder

BEFORE = (GpuMemory("a", 0, 142_643, 143_771), GpuMemory("b", 1, 142_643, 143_771))
HELD = (
    Holder(4711, "VLLM::EngineCore", 140_000, is_ours=True),
    Holder(815, "python3", 2_000),
    Holder(7, None, None),
)
SHORT = GpuMemory("b", 1, 1_024, 143_771, HELD)


def test_memory_that_is_back_is_told_by_the_gpu_that_lacks_most() -> None:
    now = (BEFORE[0], GpuMemory("b", 1, 142_336, 143_771))
    assert gate_lines.memory_back(3.21, BEFORE, now) == [
        "GPU memory is back after 3.2 s: GPU 1 has 139.0 GiB free, 139.3 before the first attempt "
        "(of 2 GPUs the one that lacks most)"
    ]


def test_gpus_that_fell_silent_are_counted() -> None:
    (line,) = gate_lines.memory_back(0, BEFORE, BEFORE[:1])
    assert line.endswith("; 1 of 2 can no longer be read")
    assert "no GPU tells" in gate_lines.memory_back(0, BEFORE, ())[0]


def test_memory_that_is_held_is_told_with_its_holders() -> None:
    told = (
        "  GPU 1 has 1.0 GiB free, 139.3 before the first attempt; held by "
        "VLLM::EngineCore (4711, 140000 MiB, started by this launch), "
        "python3 (815, 2000 MiB, not started by this launch), "
        "a process that cannot be seen from here (7, not started by this launch)"
    )
    assert gate_lines.memory_awaited(BEFORE, [SHORT], 50) == ["waiting for GPU memory, at most 50 s", told]
    assert gate_lines.memory_held(50.2, BEFORE, [SHORT]) == [
        "GPU memory is not back after 50 s; going on all the same",
        told,
    ]


def test_memory_without_a_holder_says_so() -> None:
    (_, line) = gate_lines.memory_held(50, BEFORE, [GpuMemory("b", 1, 0, 143_771)])
    assert line.endswith("the driver names nobody who holds it")


def test_a_port_that_was_free_at_once_is_nothing_to_speak_of() -> None:
    assert gate_lines.port_free(0.01, "port 8000") == []
    assert gate_lines.port_free(2.5, "port 8000") == ["port 8000 is free after 2.5 s"]


def test_who_has_the_port_is_named_where_that_is_known() -> None:
    assert "by nginx (12);" in gate_lines.port_taken(10, "port 8000", "nginx (12)")
    assert "by a process that cannot be seen from here;" in gate_lines.port_taken(10, "port 8000", None)
    assert gate_lines.port_awaited("port 8000", None, 10) == [
        "waiting for port 8000, at most 10 s: it is taken by a process that cannot be seen from here"
    ]
