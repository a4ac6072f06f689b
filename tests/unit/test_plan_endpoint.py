"""Where the server will answer."""

from __future__ import annotations

import pytest

from safe_vllm.plan.endpoint import Endpoint, endpoint, shutdown_timeout_s


def test_without_flags_it_is_the_local_port_8000() -> None:
    assert endpoint(("m",), {}) == Endpoint("127.0.0.1", 8000)


@pytest.mark.parametrize(
    ("bound", "reached"),
    [("0.0.0.0", "127.0.0.1"), ("::", "::1"), ("10.1.2.3", "10.1.2.3"), ("", "127.0.0.1"), ("host", "host")],
)
def test_a_server_bound_to_every_address_is_reached_through_the_loopback(bound: str, reached: str) -> None:
    found = endpoint(("m", f"--host={bound}"), {})
    assert found is not None
    assert found.host == reached


def test_every_flag_counts_and_the_command_line_beats_the_file() -> None:
    line = "m --port=9 --uds /s --api-key k1 k2 --ssl-certfile c"
    found = endpoint(line.split(), {"VLLM_API_KEY": "other"}, {"port": 10, "host": "h"})
    assert found == Endpoint("h", 9, "/s", "k1", True)


def test_the_key_of_the_environment_is_used_and_never_shown() -> None:
    found = endpoint(("m",), {"VLLM_API_KEY": "hunter2"})
    assert found is not None
    assert found.api_key == "hunter2"
    assert "hunter2" not in repr(found)


def test_a_headless_server_answers_nowhere() -> None:
    assert endpoint(("m", "--headless"), {}) is None
    assert endpoint(("m",), {}, {"headless": True}) is None


@pytest.mark.parametrize("port", ["0", "00", "-1", "any"])
def test_a_port_that_nobody_knows_before_is_not_asked(port: str) -> None:
    """0 lets the kernel choose; what is no port, vLLM rejects itself."""
    assert endpoint(("m", f"--port={port}"), {}) is None
    assert endpoint(("m",), {}, {"port": port}) is None


def test_a_socket_file_needs_no_port() -> None:
    found = endpoint(("m", "--uds", "/s", "--port", "0"), {})
    assert found is not None
    assert found.uds == "/s"


def test_the_time_that_vllm_gives_its_requests_is_read() -> None:
    assert shutdown_timeout_s(("m", "--shutdown-timeout", "30")) == 30.0
    assert shutdown_timeout_s(("m",), {"shutdown_timeout": 5}) == 5.0
    assert shutdown_timeout_s(("m",)) == 0.0
