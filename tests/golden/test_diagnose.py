"""``safe-vllm diagnose``: the verdict does not depend on what stored the log."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from safe_vllm.commands import diagnose as diagnosis
from waiting import free_port

Diagnosed = Callable[..., dict[str, Any]]
SAFE_VLLM = Path(sys.executable).with_name("safe-vllm")
HERE = Path(__file__).parent
TIME = "2026-06-11T17:03:35.123456789"
LOGS = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted((HERE / "corpus").glob("a-0*.json"))[:6]}


def lines(text: str) -> list[str]:
    return text.rstrip("\n").split("\n")


def each(form: Callable[[str], str]) -> Callable[[str], bytes]:
    return lambda text: "".join(form(line) + "\n" for line in lines(text)).encode()


def in_pieces(text: str) -> bytes:
    """Store long lines as a container runtime does: in pieces, all but the last marked as partial."""
    stored = []
    for line in lines(text):
        pieces = [line[at : at + 40] for at in range(0, len(line), 40)] or [""]
        stored += [f"{TIME}Z stderr P {piece}" for piece in pieces[:-1]] + [f"{TIME}Z stderr F {pieces[-1]}"]
    return "\n".join(stored).encode()


WRAPPINGS: dict[str, Callable[[str], bytes]] = {
    "gzip": lambda text: gzip.compress(text.encode()),
    "docker-json-file": each(lambda line: json.dumps({"log": f"{line}\n", "stream": "stderr", "time": f"{TIME}Z"})),
    "docker-compose": each(lambda line: f"vllm-1  | {line}"),
    "cri": each(lambda line: f"{TIME}Z stdout F {line}"),
    "cri-in-pieces": in_pieces,
    "kubectl-timestamps": each(lambda line: f"{TIME}Z {line}"),
    "journal-short": each(lambda line: f"Jun 11 17:03:35 gpu-7 safe-vllm[4711]: {line}"),
    "journal-json": each(lambda line: json.dumps({"_PID": "4711", "MESSAGE": line, "PRIORITY": "6"})),
    "journal-json-bytes": each(lambda line: json.dumps({"MESSAGE": list(line.encode()), "PRIORITY": "6"})),
    "carriage-returns": lambda text: text.replace("\n", "\r\n").encode(),
    "colours": each(lambda line: line.replace("ERROR", "\x1b[31mERROR\x1b[0m").replace("(Worker", "\x1b[0;36m(Worker")),
}


@pytest.fixture
def diagnosed(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Return what is told of a log, as programs get it."""

    def of(log: bytes, exit_status: int | None = None) -> dict[str, Any]:
        path = tmp_path / "vllm.log"
        path.write_bytes(log)
        told = diagnosis.told(diagnosis.of(str(path), exit_status, lambda count: None), "json")
        found: dict[str, Any] = json.loads(told)
        return found

    return of


@pytest.mark.parametrize("wrapping", WRAPPINGS)
@pytest.mark.parametrize("name", LOGS)
def test_the_verdict_does_not_depend_on_what_stored_the_log(name: str, wrapping: str, diagnosed: Diagnosed) -> None:
    case = LOGS[name]
    plain = diagnosed(case["transcript"].encode(), case["exit"])
    wrapped = diagnosed(WRAPPINGS[wrapping](case["transcript"]), case["exit"])
    keys = ("fault", "action", "phase", "suspect", "backend", "exit_status")
    assert {key: wrapped[key] for key in keys} == {key: plain[key] for key in keys}
    assert plain["fault"] == case["expect"]["class"]


def test_an_object_has_every_key(diagnosed: Diagnosed) -> None:
    keys = (
        "fault action phase suspect backend attention_backend all2all_backend vllm gpu reason evidence advice "
        "exit_status links attempts"
    )
    assert sorted(diagnosed(b"hello\n")) == sorted(keys.split())


def test_a_board_fault_in_a_whole_kernel_log_is_found(diagnosed: Diagnosed) -> None:
    log = "".join(f"[{at:5}.000001] usb 1-1: new device number {at}\n" for at in range(500))
    log += "[  612.345678] NVRM: Xid (PCI:0000:4e:00): 79, pid='<unknown>', GPU has fallen off the bus.\n"
    assert diagnosed(log.encode())["fault"] == "board"


@pytest.mark.parametrize(
    ("name", "fault"), [("VLLM::Worker_TP", "illegal-memory-access"), ("python3", "illegal-memory-access"),
                        ("train.py", "unknown")]
)  # fmt: skip
def test_the_kernel_log_tells_why_a_server_died_without_a_word_unless_it_was_another_process(
    diagnosed: Diagnosed, name: str, fault: str
) -> None:
    log = "(APIServer pid=1) INFO 08-06 10:00:00 [api_server.py:1] vLLM API server version 0.26.0\n"
    log += f"[51002.114092] NVRM: Xid (PCI:0000:c1:00): 31, pid=84797, name={name}, channel 0x0000000a. MMU Fault\n"
    assert diagnosed(log.encode(), 1)["fault"] == fault


def test_what_cannot_be_judged_is_said_to_be_unknown(diagnosed: Diagnosed) -> None:
    found = diagnosed(b"hello\nworld\n", 1)
    assert (found["fault"], found["action"]) == ("unknown", "retry-safer")


def test_standard_input_is_read_when_no_file_is_named() -> None:
    log = LOGS["a-003"]["transcript"].encode()
    command = [SAFE_VLLM, "--output", "json", "diagnose", "--exit-status", "1"]
    answer = subprocess.run(command, input=log, capture_output=True, check=True, timeout=60)
    assert json.loads(answer.stdout)["fault"] == "illegal-memory-access"


def test_people_are_told_the_line_and_what_to_change(tmp_path: Path) -> None:
    case = LOGS["a-003"]
    path = tmp_path / "vllm.log"
    path.write_text(case["transcript"])
    answer = subprocess.run([SAFE_VLLM, "diagnose", path], capture_output=True, check=True, timeout=60, text=True)
    assert "illegal memory access" in answer.stdout
    assert "--no-enable-flashinfer-autotune" in answer.stdout
    assert answer.stderr == ""


@pytest.mark.parametrize("name", ["missing.log", "."])
def test_a_log_that_cannot_be_read_is_a_clear_error(name: str, tmp_path: Path) -> None:
    command = [SAFE_VLLM, "diagnose", tmp_path / name]
    answer = subprocess.run(command, capture_output=True, check=False, timeout=60, text=True)
    assert answer.returncode == 2
    assert "cannot be read" in answer.stderr


PACKED = gzip.compress(b"hello" * 9999, mtime=0)


@pytest.mark.parametrize(
    "damaged", [PACKED[:40], PACKED[:12] + b"\xff\xff" + PACKED[14:]], ids=["cut off", "overwritten"]
)
def test_a_damaged_archive_is_a_clear_error(damaged: bytes) -> None:
    answer = subprocess.run([SAFE_VLLM, "diagnose"], input=damaged, capture_output=True)
    assert answer.returncode == 2
    assert b"cannot be read" in answer.stderr


def test_an_empty_log_and_one_of_something_else_are_told_for_what_they_are(diagnosed: Diagnosed) -> None:
    assert diagnosed(b"")["reason"] == "the log is empty; nothing can be said from it"
    said = "no line of vLLM's was recognised in 2 lines; nothing can be said from it"
    assert diagnosed(b"hello\nworld\n")["reason"] == said
    found = diagnosed(b"hello\n", 3)
    assert found["reason"] == "no line of vLLM's was recognised in 1 line; all that is known is the status 3"


@pytest.mark.parametrize(("status", "fault"), [(139, "engine-signal"), (134, "engine-signal"), (137, "unknown")])
def test_a_status_as_a_shell_writes_it_is_a_signal(status: int, fault: str, diagnosed: Diagnosed) -> None:
    log = b"(APIServer pid=1) INFO 11-30 10:00:00 [x.py:1] all is well\n"
    assert diagnosed(log, status) == diagnosed(log, 128 - status)
    assert diagnosed(log, status)["fault"] == fault


def test_a_link_is_told_once(diagnosed: Diagnosed) -> None:
    for case in LOGS.values():
        links = diagnosed(case["transcript"].encode(), case["exit"])["links"]
        assert links
        assert len(links) == len(set(links))


def vllm_of(directory: Path, scenes: list[tuple[str, int]]) -> Path:
    """Return a ``vllm`` that prints another log each time, and ends as told."""
    for number, (log, status) in enumerate(scenes):
        (directory / f"log-{number}").write_text(log)
        (directory / f"status-{number}").write_text(str(status))
    script = directory / "vllm"
    script.write_text(
        f"#!/bin/sh\ncd {directory}\nn=$(ls | grep -c ^ran-)\ntouch ran-$n\ncat log-$n\nexit $(cat status-$n)\n"
    )
    script.chmod(0o755)
    return script


@pytest.mark.parametrize("output", ["text", "json"])
def test_a_launch_of_ours_is_judged_attempt_by_attempt(output: str, tmp_path: Path, diagnosed: Diagnosed) -> None:
    crash, refused = LOGS["a-003"], "vllm: error: unrecognized arguments: --x\n"
    vllm = vllm_of(tmp_path, [(crash["transcript"], crash["exit"]), (refused, 2)])
    command = [SAFE_VLLM, "--output", output, "--no-canary", "--backoff", "0", "--max-attempts", "2", "--vllm", vllm]
    launch = subprocess.run(
        [*command, "serve", "m", "--port", str(free_port())],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        timeout=120,
    )
    found = diagnosed(launch.stdout)
    assert [(at["attempt"], at["fault"]) for at in found["attempts"]] == [
        (1, "illegal-memory-access"),
        (2, "bad-argument"),
    ]
    assert [at["rung"] for at in found["attempts"]] == ["as-asked", "no-autotune"]
    assert (found["fault"], found["phase"]) == ("bad-argument", "init")
    assert launch.stdout.split(b"\n")[found["evidence"][0]["line"] - 1] == refused.strip().encode()


@pytest.mark.parametrize("wrapping", WRAPPINGS)
def test_starts_are_told_apart_whatever_stored_the_log(wrapping: str, diagnosed: Diagnosed) -> None:
    banner = "(APIServer pid=1) INFO 11-30 10:00:00 [api_server.py:1] vLLM API server version 0.11.0\n"
    log = f"safe-vllm: vLLM 0.11.0, profile b200 (it fits)\n{banner}{LOGS['a-003']['transcript'].rstrip()}\n"
    log += (
        f"safe-vllm: attempt 1 at as-asked ended after 9 s: x\nsafe-vllm: attempt 2 starts now at triton; x\n{banner}"
    )
    found = diagnosed(WRAPPINGS[wrapping](log + banner))
    assert [(at["attempt"], at["rung"], at["fault"]) for at in found["attempts"]] == [
        (1, "as-asked", "illegal-memory-access"),
        (2, "triton", "unknown"),
        (3, None, "none"),
    ]


def test_people_see_all_starts_and_the_last_that_failed(tmp_path: Path) -> None:
    banner = "(APIServer pid={}) INFO 11-30 10:00:00 [api_server.py:1] vLLM API server version 0.11.0\n"
    path = tmp_path / "vllm.log"
    path.write_text(banner.format(1) + LOGS["a-003"]["transcript"] + banner.format(2))
    told = diagnosis.told(diagnosis.of(str(path), None, lambda count: None), "text")
    assert lines(told)[:6] == [
        "the log tells of 2 starts of vLLM",
        "  1: illegal-memory-access, phase autotune, action retry-safer",
        "  2: none, phase init, action none",
        "",
        "the last start did not fail: nothing in the output tells of a failure",
        "the last that failed, 1:",
    ]
    assert " of the log: " in told


def test_of_a_log_of_many_starts_the_last_are_listed(tmp_path: Path) -> None:
    banner = "(APIServer pid=1) INFO 11-30 10:00:00 [api_server.py:1] vLLM API server version 0.11.0\n"
    path = tmp_path / "vllm.log"
    path.write_text(banner * 100)
    found = diagnosis.of(str(path), None, lambda count: None)
    assert [attempt.number for attempt in found.attempts] == list(range(69, 101))
    assert "the log tells of 100 starts of vLLM, of which the last 32 are listed" in diagnosis.told(found, "text")


def people_see(tmp_path: Path, log: str, exit_status: int | None = None) -> list[str]:
    path = tmp_path / "vllm.log"
    path.write_text(log)
    return lines(diagnosis.told(diagnosis.of(str(path), exit_status, lambda count: None), "text"))


ARGUMENTS = "(APIServer pid=1) INFO 11-30 10:00:00 [api_utils.py:286] non-default args: {}\n"
FAULT = "(Worker pid=12) ERROR 11-30 10:01:00 [m.py:7] torch.AcceleratorError: CUDA error: misaligned address\n"


@pytest.mark.parametrize("log", ["", "hello\nworld\n"])
def test_of_a_log_that_says_nothing_nothing_is_said(log: str, tmp_path: Path) -> None:
    todo = "what to do: nothing can be said from this log; give vLLM's whole output, or its --exit-status"
    assert people_see(tmp_path, log)[-1] == todo
    assert todo not in people_see(tmp_path, ARGUMENTS.format("{'model': 'm'}"))
    assert todo not in people_see(tmp_path, log, 1)


def test_only_rungs_that_change_something_are_named(tmp_path: Path) -> None:
    told = people_see(tmp_path, ARGUMENTS.format("{'enable_expert_parallel': True}") + FAULT)
    rungs = [
        line.strip().split(":")[0] for line in told[told.index("what to do: start it again with safer settings") :]
    ]
    assert rungs[1:4] == ["no-autotune", "triton", "no-expert-parallel"]


def test_where_no_rung_changes_anything_this_is_said(tmp_path: Path) -> None:
    cpu = "(EngineCore pid=2) INFO 11-30 10:00:01 [cpu.py:1] Using CPU MoE backend\n"
    config = "(EngineCore pid=2) INFO 11-30 10:00:01 [core.py:1] Initializing a V1 LLM engine (v0.11.0) with config: "
    log = ARGUMENTS.format("{'model': 'm'}") + cpu + config + "model='m', device_config=cpu, seed=0\n" + FAULT
    assert any(
        line.startswith("what to do: no rung of safe-vllm changes anything") for line in people_see(tmp_path, log)
    )


def test_advice_and_rung_do_not_say_the_same_and_each_has_its_link(tmp_path: Path) -> None:
    told = people_see(tmp_path, LOGS["a-003"]["transcript"])
    assert len([line for line in told if "--no-enable-flashinfer-autotune" in line]) == 1
    (rung,) = (line for line in told if line.startswith("  no-autotune: "))
    assert rung.endswith("; see https://github.com/vllm-project/vllm/pull/45002")
    assert not any(line.startswith("see ") for line in told)


def test_a_link_into_source_code_is_for_programs_alone(tmp_path: Path, diagnosed: Diagnosed) -> None:
    log = "vllm serve: error: unrecognized arguments: --x\n"
    assert any("/blob/" in link for link in diagnosed(log.encode(), 2)["links"])
    assert not any("/blob/" in line for line in people_see(tmp_path, log, 2))


@pytest.mark.parametrize(
    ("line", "todo"),
    [
        (
            "OSError: [Errno 98] Address already in use",
            "free the port, then start it again; it may also pass by itself",
        ),
        (
            "OSError: We couldn't connect to 'https://huggingface.co' to load the files",
            "make the model hub reachable, then start it again; it may also pass by itself",
        ),
    ],
)
def test_what_may_pass_is_not_forbidden(line: str, todo: str, tmp_path: Path) -> None:
    log = ARGUMENTS.format("{'model': 'm'}") + f"(APIServer pid=1) ERROR 11-30 10:00:01 [x.py:1] {line}\n"
    assert f"what to do: {todo}" in people_see(tmp_path, log, 1)


def test_what_is_unknown_is_left_out(tmp_path: Path) -> None:
    told = people_see(tmp_path, FAULT)
    assert "fault misaligned-address, phase init" in told


def test_people_see_the_beginning_of_a_long_line_and_programs_more_of_it(tmp_path: Path, diagnosed: Diagnosed) -> None:
    log = FAULT.rstrip() + "x" * 900 + "\n"
    (shown,) = (line for line in people_see(tmp_path, log) if line.startswith("root "))
    assert len(shown.split("; see ")[0]) < 200
    assert len(diagnosed(log.encode())["evidence"][0]["text"]) > 900
