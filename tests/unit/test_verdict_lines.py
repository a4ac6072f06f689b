"""Every layout that vLLM and its libraries print is taken apart."""

# ruff: noqa: E501 - lines of a log are as long as they are

from __future__ import annotations

import pytest

from safe_vllm.verdict.lines import LONGEST_BYTES, Record, clean, parse, split


def never(record: Record) -> bool:
    return False


@pytest.mark.parametrize(
    ("line", "level", "process", "source", "message"),
    [
        ("(EngineCore pid=7061) ERROR 11-30 08:40:48 [core.py:1349] it broke", "ERROR", "EngineCore", "core.py", "it broke"),
        ("INFO 01-22 10:41:07 api_server.py:712] version 0.6.6", "INFO", None, "api_server.py", "version 0.6.6"),
        ("ERROR 06-15 13:57:57 [core.py:517]", "ERROR", None, "core.py", ""),
        ("ERROR 06-15 13:57:57 [v1/engine/core.py:517] x", "ERROR", None, "v1/engine/core.py", "x"),
        ("(VllmWorker TP0 pid=5549) WARNING 09-07 11:25:27 [nixl.py:1049] y", "WARNING", "VllmWorker TP0", "nixl.py", "y"),
        ("(VllmWorker rank=1 pid=75210) ERROR 05-10 16:00:15 [a.py:470] y", "ERROR", "VllmWorker rank=1", "a.py", "y"),
        (
            "(APIServer pid=32) (EngineCore_0 pid=296) (VllmWorker TP1 pid=8343) INFO 09-07 11:25:27 [a.py:1] z",
            "INFO",
            "VllmWorker TP1",
            "a.py",
            "z",
        ),
        ("(Worker_TP0 pid=1) 2026-06-11 17:03:32,437 - INFO - autotuner.py:622 - flashinfer.jit: [Autotuner]: x",
         "INFO", "Worker_TP0", "autotuner.py", "[Autotuner]: x"),
        ("[rank0]:[E606 17:08:46.976000479 ProcessGroupNCCL.cpp:2119] died", "ERROR", "rank0", "ProcessGroupNCCL.cpp", "died"),
        ("[rank0]:[F827 02:47:04.9 ProcessGroupNCCL.cpp:1557] hang", "CRITICAL", "rank0", "ProcessGroupNCCL.cpp", "hang"),
        ("[rank1]:[E ProcessGroupNCCL.cpp:563] old", "ERROR", "rank1", "ProcessGroupNCCL.cpp", "old"),
        ("[rank0]:E0912 11:54:57.351743 44 torch/_inductor/select_algorithm.py:2100] [7/0] x",
         "ERROR", "rank0", "torch/_inductor/select_algorithm.py", "[7/0] x"),
        ("[W1130 09:51:25.120133664 utils.cpp:68] Warning: NUMA", "WARNING", None, "utils.cpp", "Warning: NUMA"),
        ("[2025-04-15 00:31:11,406 E 808 18295] logging.cc:108: Unhandled", "ERROR", None, "logging.cc", "Unhandled"),
        ("[2025-11-04 23:10:40 TP0] Decode batch", None, "TP0", None, "Decode batch"),
        ("INFO:     Application startup complete.", "INFO", None, None, "Application startup complete."),
        ("(APIServer pid=1) ERROR:    Exception in ASGI application", "ERROR", "APIServer", None, "Exception in ASGI application"),
        ("(EngineCore pid=190) Traceback (most recent call last):", None, "EngineCore", None, "Traceback (most recent call last):"),
        ("[rank0]: RuntimeError: x", None, "rank0", None, "RuntimeError: x"),
        ("RuntimeError: x", None, None, None, "RuntimeError: x"),
        ("2025-11-02 13:13:01,001 - vllm.entrypoints.logger - INFO - fine", "INFO", None, "vllm.entrypoints.logger", "fine"),
        ("2025-08-01T08:01:22.575940Z ERROR core.run: it broke", "ERROR", None, "core.run", "it broke"),
        ("[66021.114092] NVRM: Xid (PCI:0000:01:00): 13", None, None, None, "[66021.114092] NVRM: Xid (PCI:0000:01:00): 13"),
        ("(RayWorkerWrapper pid=5280, ip=10.0.0.7) ERROR 04-26 01:59:07 worker_base.py:157] x",
         "ERROR", "RayWorkerWrapper", "worker_base.py", "x"),
    ],
)  # fmt: skip
def test_a_record_is_taken_apart(
    line: str, level: str | None, process: str | None, source: str | None, message: str
) -> None:
    record = parse(line)
    assert (record.level, record.process, record.source, record.message) == (level, process, source, message)
    assert record.text == line


@pytest.mark.parametrize(
    "front",
    [
        "vllm-dspark-1  | ",
        "2026-03-11T17:57:09.855212259Z ",
        "2026-03-11T17:57:09.855212259+00:00 stdout F ",
        "Aug 19 18:34:30 host-a vllm[8707]: ",
        "Aug  9 18:34:30 host-a docker/web[8707]: ",
        "[8123311.402188] host-a vllm[8707]: ",
        "vllm-1  | 2026-03-11T17:57:09.855212259Z ",
        "[pod/vllm-0/vllm] 2026-03-11T17:57:09.855212259Z ",
    ],
)
def test_what_stands_in_front_of_a_stored_line_is_passed_over(front: str) -> None:
    line = "(EngineCore pid=7061) INFO 11-30 08:40:48 [core.py:1349] fine"
    assert (parse(front + line).message, parse(front + line).is_calm) == ("fine", True)
    assert parse(front + "RuntimeError: x").message == "RuntimeError: x"


LOOSE = [
    "vllm-7d9f8b6c5-x2k4q vllm ",
    "vllm-7d9f8b6c5-x2k4q › vllm ",
    "17:57:09 ",
    "Aug 19 17:57:09 ",
    "[2026-03-11 17:57:09] ",
    "[17:57:09] ",
    "417:",
    "417-",
    "logs/vllm.log:417:",
]


@pytest.mark.parametrize("front", LOOSE)
@pytest.mark.parametrize(
    "line",
    [
        "(EngineCore pid=7061) INFO 11-30 08:40:48 [core.py:1349] fine",
        "INFO 11-30 08:40:48 [core.py:1349] fine",
        "INFO:     fine",
        "2026-11-30 08:40:48,001 - vllm.core - INFO - fine",
    ],
)
def test_what_might_stand_anywhere_is_passed_over_where_a_record_follows(front: str, line: str) -> None:
    assert (parse(front + line).message, parse(front + line).is_calm) == ("fine", True)


@pytest.mark.parametrize("front", [front for front in LOOSE if not front.startswith("[2026")])
def test_what_might_stand_anywhere_is_kept_where_none_follows(front: str) -> None:
    assert parse(front + "RuntimeError: x").message == front + "RuntimeError: x"


def test_the_words_of_an_error_are_not_taken_for_a_front() -> None:
    line = "RuntimeError: CUDA error: misaligned address(Worker pid=1) INFO 11-30 08:40:48 [core.py:1] fine"
    assert parse(line).message == line


def test_the_clock_of_a_record_is_read() -> None:
    assert parse("ERROR 06-15 13:57:57 [core.py:517] x").clock == "06-15 13:57:57"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('INFO:     127.0.0.1:39100 - "POST /v1/completions HTTP/1.1" 200 OK', ("POST", "/v1/completions", 200)),
        (
            '(APIServer pid=1) INFO:     [::1]:8 - "GET /health HTTP/1.1" 503 Service Unavailable',
            ("GET", "/health", 503),
        ),
        (
            'INFO:     1.2.3.4:5 - "GET /?q=it said "Xid 79" HTTP/1.1" 404 Not Found',
            ("GET", '/?q=it said "Xid 79"', 404),
        ),
        ("INFO:     Started server process [1]", None),
    ],
)
def test_an_access_record_tells_the_request(line: str, told: tuple[str, str, int] | None) -> None:
    assert parse(line).request == told


def test_colours_and_line_ends_are_taken_off() -> None:
    line = b"\x1b[1;36m(EngineCore_DP0 pid=55393)\x1b[0;0m ERROR 01-04 04:31:09 [core.py:844] x\r\n"
    assert clean(line) == "(EngineCore_DP0 pid=55393) ERROR 01-04 04:31:09 [core.py:844] x"


@pytest.mark.parametrize("escape", ["#033", "\\x1b", "\\u001b", "\\033", "^["])
def test_colours_that_a_store_wrote_out_are_taken_off(escape: str) -> None:
    line = f"{escape}[1;36m(EngineCore_DP0 pid=55393){escape}[0;0m ERROR 01-04 04:31:09 [core.py:844] x"
    assert clean(line.encode()) == "(EngineCore_DP0 pid=55393) ERROR 01-04 04:31:09 [core.py:844] x"


def test_bytes_that_are_no_text_are_replaced() -> None:
    assert clean(b"a\xff\x00b") == "a\ufffd\x00b"


def test_the_rest_of_an_endless_line_is_not_looked_at() -> None:
    assert len(clean(b"x" * (LONGEST_BYTES + 5))) == LONGEST_BYTES


def test_a_record_behind_a_progress_bar_is_found() -> None:
    bar = "[AutoTuner]: Tuning flashinfer::trtllm_bf16_moe:   0%|    | 0/21 [00:00<?, ?profile/s]"
    found = split(f"{bar}(Worker_TP3 pid=84) ERROR 06-11 17:03:35 [m.py:987] it broke", never)
    assert [(record.process, record.message) for record in found] == [(None, bar), ("Worker_TP3", "it broke")]


def test_two_records_on_one_line_are_told_apart() -> None:
    found = split("(A pid=1) ERROR 06-11 17:03:35 [m.py:1] one(B pid=2) ERROR 06-11 17:03:35 [m.py:2] two", never)
    assert [(record.process, record.message) for record in found] == [("A", "one"), ("B", "two")]


def test_a_record_that_quotes_is_not_taken_apart() -> None:
    line = "(A pid=1) INFO 06-11 17:03:35 [logger.py:1] Received request: (B pid=2) ERROR 06-11 17:03:35 [m.py:2] two"
    assert [record.process for record in split(line, lambda record: "Received" in record.message)] == ["A"]


def test_a_record_that_is_an_object_is_taken_apart() -> None:
    line = '{"asctime": "11-30 08:40:48", "levelname": "ERROR", "filename": "core.py", "message": "it broke"}'
    (record,) = split(line, never)
    assert (record.level, record.source, record.message, record.clock) == (
        "ERROR",
        "core.py",
        "it broke",
        "11-30 08:40:48",
    )
    assert record.text == line


def test_a_traceback_inside_an_object_is_as_many_records_as_it_has_lines() -> None:
    line = '{"level": "ERROR", "message": "(Worker_TP0 pid=4) failed", "exc_info": "Traceback:\\nRuntimeError: CUDA"}'
    told = [(record.process, record.level, record.message) for record in split(line, never)]
    assert told == [
        ("Worker_TP0", "ERROR", "failed"),
        ("Worker_TP0", "ERROR", "Traceback:"),
        ("Worker_TP0", "ERROR", "RuntimeError: CUDA"),
    ]


def test_an_access_record_inside_an_object_tells_the_request() -> None:
    line = r'{"levelname": "INFO", "message": "1.1.1.1:1 - \"POST /v1/completions HTTP/1.1\" 200"}'
    assert [record.request for record in split(line, never)] == [("POST", "/v1/completions", 200)]


@pytest.mark.parametrize(
    "line", ['{"a": 1}', '{"level": 3, "message": "x"}', '{"message": "x"', "{'message': 'x'}", "{"]
)
def test_an_object_that_is_no_record_is_a_line_as_any_other(line: str) -> None:
    assert [record.message for record in split(line, never)] == [line]
