"""Every known line is recognised by its own example, and ordinary output by none."""

from __future__ import annotations

import re

import pytest

from safe_vllm.data.strict_yaml import read_data
from safe_vllm.errors import Trouble
from safe_vllm.verdict.evidence import FAULTS, Setup
from safe_vllm.verdict.lines import parse as parse_line
from safe_vllm.verdict.scan import Scan
from safe_vllm.verdict.signatures import Signature, parse

# ruff: noqa: E501 - lines of a log are as long as they are

SIGNATURES = parse(read_data("signatures.yaml"))
ENTRY = {
    "name": "a-fault",
    "kind": "root",
    "fault": "launch-failure",
    "any": ["it broke"],
    "link": "https://example.org/1",
    "example": "it broke",
}
ORDINARY = """\
(APIServer pid=1) INFO 08-06 10:00:00 [loggers.py:259] Engine 000: Avg prompt throughput: 310.2 tokens/s, Avg generation throughput: 212.4 tokens/s, Running: 3 reqs, Waiting: 0 reqs, GPU KV cache usage: 2.0%, Prefix cache hit rate: 31.0%
(APIServer pid=1) INFO:     127.0.0.1:39100 - "POST /v1/chat/completions HTTP/1.1" 200 OK
(APIServer pid=1) INFO:     127.0.0.1:39100 - "GET /health HTTP/1.1" 200 OK
(EngineCore pid=92) INFO 05-01 16:52:10 [kv_cache_utils.py:1301] Maximum concurrency for 32,768 tokens per request: 9.71x
(Worker pid=9) INFO 05-01 16:52:10 [gpu_worker.py:1013] Free memory on device (178.2/183.3 GiB) on startup. Desired GPU memory utilization is (0.9, 164.9 GiB).
(APIServer pid=1) INFO 11-30 09:55:59 [launcher.py:195] Route: /health, Methods: GET
(Worker pid=9083) WARNING 11-30 09:55:56 [cpu_worker.py:114] libtcmalloc is not found in LD_PRELOAD.
INFO:     Started server process [1]
[W1130 09:51:25.120133664 utils.cpp:68] Warning: NUMA binding: Using MEMBIND policy
"""


def each(signature: Signature) -> str:
    return signature.name


@pytest.mark.parametrize("signature", SIGNATURES.all, ids=each)
def test_an_example_shows_its_own_signature(signature: Signature) -> None:
    match = SIGNATURES.match(parse_line(signature.example))
    assert match is not None
    assert (match.signature.name, match.kind) == (signature.name, signature.kind)


@pytest.mark.parametrize("signature", SIGNATURES.all, ids=each)
def test_an_example_is_found_in_a_stream(signature: Signature) -> None:
    found = Scan(SIGNATURES).feed("stderr", ORDINARY.encode() + signature.example.encode() + b"\n", 1.0)
    calm = parse_line(signature.example).is_calm
    # what a calm record says is looked at only where it can matter
    expected = [] if calm and signature.kind == "benign" else [signature.name]
    assert [evidence.signature for evidence in found] == expected


@pytest.mark.parametrize("signature", SIGNATURES.all, ids=each)
def test_a_signature_names_its_source(signature: Signature) -> None:
    assert re.match(r"https://\S+\Z", signature.link)


@pytest.mark.parametrize("line", ORDINARY.splitlines())
def test_an_ordinary_line_shows_no_fault(line: str) -> None:
    match = SIGNATURES.match(parse_line(line))
    assert match is None or match.fault is None


def test_ordinary_output_leaves_no_evidence() -> None:
    assert Scan(SIGNATURES).feed("stdout", ORDINARY.encode(), 0.0) == []


def test_each_fault_is_told_by_a_line_or_by_a_status() -> None:
    by_status = {"stopped", "none", "unknown"}
    assert {signature.fault for signature in SIGNATURES.all if signature.fault} | by_status == FAULTS


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: Data processing error: CAS service error : ReqwestMiddleware Error: Request failed after 5 retries",
        "RuntimeError: Data processing error: File reconstruction error: CAS Client Error: Request error: error sending request for url (https://transfer.xethub.hf.co/xorbs/x)",
        "RuntimeError: Data processing error: Internal Writer Error: Background writer channel closed",
        "RuntimeError: Network error: HTTP status server error (503 Service Unavailable) for url (https://cas-server.xethub.hf.co/v1)",
        'reqwest::Error { kind: Request, source: hyper_util::client::legacy::Error(Connect, ConnectError("dns error")) }',
        "requests.exceptions.ConnectionError: ('Connection aborted.', ConnectionResetError(104, 'Connection reset by peer'))",
        "urllib3.exceptions.ProtocolError: ('Connection broken: IncompleteRead(1024 bytes read)', IncompleteRead(1024 bytes read))",
        "httpx.RemoteProtocolError: peer closed connection without sending complete message body (received 1 bytes, expected 2)",
        "httpx.ReadError: [Errno 104] Connection reset by peer",
        "httpx.HTTPStatusError: Server error '502 Bad Gateway' for url 'https://huggingface.co/api/models/x'",
        "huggingface_hub.errors.HfHubHTTPError: 504 Server Error: Gateway Time-out for url: https://huggingface.co/x",
        "RuntimeError: An error occurred while downloading using `hf_transfer`. Consider disabling HF_HUB_ENABLE_HF_TRANSFER for better error handling.",
        "OSError: Consistency check failed: file should be of size 4976698672 but has size 3120 (model-00001.safetensors).",
        "aiohttp.client_exceptions.ServerDisconnectedError: Server disconnected",
        'botocore.exceptions.EndpointConnectionError: Could not connect to the endpoint URL: "https://s3.example.org/"',
    ],
)
def test_a_download_that_broke_off_is_the_hubs_fault(line: str) -> None:
    (found,) = Scan(SIGNATURES).feed("stderr", f"(Worker pid=9) {line}\n".encode(), 0.0)
    assert (found.kind, found.fault) == ("root", "hub")


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("RuntimeError: Data processing error: I/O error: No space left on device (os error 28)", "disk-full"),
        ("RuntimeError: Data processing error: I/O error: Permission denied: '/root/.cache' (os error 13)", "permission"),
        ("RuntimeError: [2] is setting up NCCL communicator and retrieving ncclUniqueId, but got error: Connection reset by peer", None),
        ("a:1:1 [0] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-q8Xw2k to 7340388 bytes", "shm"),
        ("Error while creating shared memory segment /dev/shm/nccl-q8Xw2k (size 7340384)", "shm"),
        ("Error while attaching to shared memory segment /dev/shm/nccl-q8Xw2k (size 7340384), error: x", "shm"),
        ("[1.2] NVRM: nvAssertOkFailedNoLog: Assertion failed: Out of memory [NV_ERR_NO_MEMORY] (0x51) returned from x", None),
        ("[1.2] NVRM: nvCheckOkFailedNoLog: Check failed: GPU lost from the bus [NV_ERR_GPU_IS_LOST] (0xF) returned from x", "board"),
    ],
)  # fmt: skip
def test_neighbours_are_told_apart(line: str, fault: str | None) -> None:
    (found,) = Scan(SIGNATURES).feed("stderr", f"{line}\n".encode(), 0.0)
    assert found.fault == fault


@pytest.mark.parametrize(
    ("line", "shows"),
    [
        ('  File "/opt/conda/lib/python3.10/site-packages/vllm/config.py", line 43, in <module>', True),
        ('  File "/workspace/vllm/vllm/platforms/__init__.py", line 4, in <module>', True),
        ('  File "/opt/conda/bin/vllm", line 5, in <module>', False),
        ('  File "/opt/vllm/bin/vllm", line 5, in <module>', False),
        ('  File "/opt/vllm/lib/python3.12/site-packages/torch/__init__.py", line 5, in <module>', False),
        ('  File "/usr/lib/python3/dist-packages/vllm/entrypoints/openai/api_server.py", line 5, in <module>', False),
        ('  File "/usr/lib/python3/dist-packages/vllm/config.py", line 5, in load', False),
    ],
)
def test_a_frame_of_vllms_own_import_is_known(line: str, shows: bool) -> None:
    found = Scan(SIGNATURES).feed("stderr", f"{line}\n".encode(), 0.0)
    assert ("import-frame" in [e.signature for e in found]) is shows


def test_every_text_holds_a_needle() -> None:
    for signature in SIGNATURES.all:
        for text in signature.telling:
            assert any(needle in text for needle in SIGNATURES.needles), text


def test_an_entry_is_all_that_a_new_signature_needs() -> None:
    added = parse({"needles": ["rror"], "signatures": [ENTRY]})
    found = Scan(added).feed("stdout", b"fine\nand then it broke\nfine\n", 0.0)
    assert [(e.number, e.signature, e.fault) for e in found] == [(2, "a-fault", "launch-failure")]


def test_an_entry_is_all_that_tracking_needs() -> None:
    entry = {**ENTRY, "kind": "marker", "any": ["on a "], "pattern": "on a (?P<gpu>\\w+)", "example": "on a B200"}
    scan = Scan(parse({"needles": ["rror"], "signatures": [{key: entry[key] for key in entry.keys() - {"fault"}}]}))
    scan.feed("stdout", b"it runs on a B200\n", 0.0)
    assert scan.setup == Setup(gpu="B200")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "cause"}, r"signatures\[1\] \(a-fault\).kind: cause is not one of"),
        ({"fault": "broken"}, "broken is not one of"),
        ({"suspect": "me"}, "me is not one of"),
        ({"phase": "later"}, "later is not one of"),
        ({"any": []}, "expected a list of strings"),
        ({"any": "it broke"}, "expected a list of strings"),
        ({"starts": "yes"}, "expected a boolean"),
        ({"name": 3}, "expected a string"),
        ({"colour": "red"}, "unknown key colour"),
        ({"pattern": "it (?P<colour>broke)"}, "colour is not one of .*attention_backend"),
    ],
)
def test_a_wrong_entry_is_refused_by_name(change: dict[str, object], message: str) -> None:
    with pytest.raises(Trouble, match=message):
        parse({"needles": ["rror"], "signatures": [{**ENTRY, **change}]})


def test_an_entry_that_lacks_something_is_refused() -> None:
    with pytest.raises(Trouble, match="link is missing"):
        parse({"needles": ["rror"], "signatures": [{k: v for k, v in ENTRY.items() if k != "link"}]})


def test_a_name_is_used_once() -> None:
    with pytest.raises(Trouble, match="twice"):
        parse({"needles": ["rror"], "signatures": [ENTRY, ENTRY]})


@pytest.mark.parametrize("data", [None, [], {"signatures": {}}, {"signatures": ["text"], "needles": ["x"]}])
def test_what_is_no_table_is_refused(data: object) -> None:
    with pytest.raises(Trouble):
        parse(data)
