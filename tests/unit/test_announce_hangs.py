"""What is said of a hang: where the processes are, those at the same place together."""

from __future__ import annotations

from safe_vllm.announce.hangs import FRAMES, blind, stacks

TEXT = """Python v3.12.3 (/usr/bin/python3.12)

Thread 9 (idle): "Thread-1"
    wait (threading.py:355)
Thread 1 (active): "MainThread"
    synchronize (torch/cuda/streams.py:235)
    execute_model (vllm/v1/worker/gpu_worker.py:700)"""


def test_processes_at_the_same_place_share_their_frames() -> None:
    taken = [(11, "VLLM::Worker_TP0", TEXT), (12, "VLLM::Worker_TP1", TEXT)]
    assert stacks(taken, 3, "") == [
        "vLLM hangs, and is ended now",
        "  stacks of 2 of its 3 processes, innermost frame first:",
        "  VLLM::Worker_TP0 (11), VLLM::Worker_TP1 (12)",
        "    synchronize (torch/cuda/streams.py:235)",
        "    execute_model (vllm/v1/worker/gpu_worker.py:700)",
    ]


def test_a_deep_stack_is_cut_at_its_outer_end() -> None:
    deep = 'Thread 1 (active): "MainThread"\n' + "".join(f"    f{number} (x.py:1)\n" for number in range(50))
    lines = stacks([(1, "vllm", "\n" + deep)], 1, "")
    assert len(lines) == 3 + FRAMES
    assert lines[3] == "    f0 (x.py:1)"


def test_what_is_not_known_is_said_with_its_reason() -> None:
    assert stacks([], 4, "py-spy is not installed") == [
        "vLLM hangs, and is ended now",
        "  no stacks of its 4 processes: py-spy is not installed",
    ]
    assert blind("why") == ["hangs in service will not be noticed: why"]
