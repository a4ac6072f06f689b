"""Where the server will answer."""

from __future__ import annotations

import pytest

from safe_vllm.plan.endpoint import Endpoint, endpoint, shutdown_timeout_s


def found(line: str, environment: dict[str, str] | None = None, config: dict[str, object] | None = None) -> Endpoint:
    """Return the endpoint, which there must be."""
    place = endpoint(("m", *line.split()), environment or {}, config)
    assert place is not None
    return place


def test_without_flags_it_is_the_local_port_8000() -> None:
    assert endpoint(("m",), {}) == Endpoint("127.0.0.1", 8000)


@pytest.mark.parametrize(
    ("bound", "reached"),
    [
        ("0.0.0.0", "127.0.0.1"),
        ("::", "::1"),
        ("10.1.2.3", "10.1.2.3"),
        ("", "127.0.0.1"),
        ("localhost", "127.0.0.1"),
        ("fe80::1", "fe80::1"),
        ("host", "host"),
    ],
)
def test_a_server_bound_to_every_address_is_reached_through_the_loopback(bound: str, reached: str) -> None:
    assert found(f"--host={bound}").host == reached


def test_every_flag_counts_and_the_command_line_beats_the_file() -> None:
    line = "--port=9 --uds /s --api-key k1 k2 --ssl-certfile c --root-path /r"
    place = found(line, {"VLLM_API_KEY": "other"}, {"port": 10, "host": "h"})
    assert place == Endpoint("h", 9, "/s", "k1", True, root_path="/r")


@pytest.mark.parametrize("line", ["", "--ssl-certfile="])
def test_without_a_certificate_it_speaks_in_the_clear(line: str) -> None:
    assert not found(f"{line} --ssl-keyfile k --ssl-cert-reqs 2").uses_tls
    assert found(f"{line} --ssl-keyfile k --ssl-cert-reqs 2").certificate is None


@pytest.mark.parametrize(
    ("line", "certificate"),
    [
        ("--ssl-cert-reqs 2 --ssl-keyfile k", ("c", "k")),
        ("--ssl-cert-reqs=2", ("c", None)),
        ("--ssl-cert-reqs 1 --ssl-keyfile k", None),
        ("--ssl-keyfile k", None),
    ],
)
def test_its_own_certificate_is_only_borrowed_where_a_client_needs_one(
    line: str, certificate: tuple[str, str | None] | None
) -> None:
    assert found(f"--ssl-certfile c {line}").certificate == certificate


def test_the_key_of_the_environment_is_used_and_never_shown() -> None:
    place = found("", {"VLLM_API_KEY": "hunter2"})
    assert place.api_key == "hunter2"
    assert "hunter2" not in repr(place)


@pytest.mark.parametrize("line", ["--headless", "--api-server-count 0", "-asc=0", "--grpc", "--headless --port 9"])
def test_a_member_without_an_api_answers_nowhere(line: str) -> None:
    assert endpoint(("m", *line.split()), {}) is None
    assert endpoint(("m",), {}, {"headless": True}) is None
    assert endpoint(("m",), {}, {"api-server-count": 0}) is None


def test_several_api_servers_share_one_address() -> None:
    assert found("--api-server-count 4") == Endpoint("127.0.0.1", 8000)


def test_engines_with_a_port_each_are_all_asked() -> None:
    place = found("--port 9000 -dp 4 -dpl 3 -dpm --api-key k")
    assert [(each.port, each.more_ports, each.api_key) for each in place.each()] == [
        (9000, (), "k"),
        (9001, (), "k"),
        (9002, (), "k"),
    ]
    assert found("--port 9000 -dp 4 -dpl 3 -dpe").each() == (Endpoint("127.0.0.1", 9000),)
    assert found("--port 65534 -dpl 99999999999999 -dpm").more_ports == (65535,)


@pytest.mark.parametrize(
    ("root", "route", "asked"),
    [
        ("", "/v1/models", "/v1/models"),
        ("/api", "/v1/models", "/v1/models"),
        ("/v1", "/v1/models", "/v1/v1/models"),
        ("/v1", "/health", "/health"),
        ("/v1/", "/v1/models", "/v1/models"),
        ("/v", "/v1/models", "/v1/models"),
    ],
)
def test_a_root_path_is_only_written_where_it_would_be_taken_off(root: str, route: str, asked: str) -> None:
    assert found(f"--root-path={root}").path(route) == asked


@pytest.mark.parametrize("port", ["0", "00", "-1", "any"])
def test_a_port_that_nobody_knows_before_is_not_asked(port: str) -> None:
    """0 lets the kernel choose; what is no port, vLLM rejects itself."""
    assert endpoint(("m", f"--port={port}"), {}) is None
    assert endpoint(("m",), {}, {"port": port}) is None


def test_a_socket_file_needs_no_port() -> None:
    assert found("--uds /s --port 0").uds == "/s"


def test_the_time_that_vllm_gives_its_requests_is_read() -> None:
    assert shutdown_timeout_s(("m", "--shutdown-timeout", "30")) == 30.0
    assert shutdown_timeout_s(("m",), {"shutdown_timeout": 5}) == 5.0
    assert shutdown_timeout_s(("m",)) == 0.0
