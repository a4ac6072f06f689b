"""Where the canary goes, and that no server can keep it for ever."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from api import always, serving

from safe_vllm.attempt.canary import send
from safe_vllm.attempt.readiness import is_healthy
from safe_vllm.plan.endpoint import Endpoint

ANSWERS = {
    "/health": always(200),
    "/v1/completions": always(200, {"choices": [{"text": "a"}] * 8}),
}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make two certificates that know nothing of each other, and a key for each."""
    if not shutil.which("openssl"):
        pytest.skip("makes its certificates with openssl")
    place = tmp_path_factory.mktemp("certificates")
    for name in ("own", "other"):
        files = ["-keyout", f"{name}.key", "-out", f"{name}.pem"]
        how = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}.example.org"]
        subprocess.run(["openssl", "req", *how, *files], cwd=place, check=True, capture_output=True)
    return place


def context(certificates: Path, trusted: str | None = None) -> ssl.SSLContext:
    """Return the server's side: with its own certificate, and perhaps wanting one of the client."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificates / "own.pem", certificates / "own.key")
    if trusted:
        tls.verify_mode = ssl.CERT_REQUIRED
        tls.load_verify_locations(certificates / f"{trusted}.pem")
    return tls


def test_a_certificate_for_another_name_is_no_hindrance(certificates: Path) -> None:
    with serving(ANSWERS, context(certificates)) as (_, place):
        assert is_healthy(place)
        assert send(place).result == "answered"
        assert not is_healthy(replace(place, uses_tls=False))


def test_where_a_client_certificate_is_wanted_the_servers_own_may_do(certificates: Path) -> None:
    own = (str(certificates / "own.pem"), str(certificates / "own.key"))
    with serving(ANSWERS, context(certificates, trusted="own")) as (_, place):
        assert send(replace(place, certificate=own)).result == "answered"


@pytest.mark.parametrize("certificate", ["own.pem", "missing.pem"])
def test_a_server_that_turns_us_away_is_up_and_cannot_be_proved(certificates: Path, certificate: str) -> None:
    own = (str(certificates / certificate), str(certificates / "own.key"))
    with serving(ANSWERS, context(certificates, trusted="other")) as (api, place):
        stranger = replace(place, certificate=own)
        assert is_healthy(stranger)
        said = send(stranger)
    assert (said.result, said.detail) == ("refused", "the server wants a client certificate")
    assert api.asked == []


def test_nobody_there_is_not_healthy_even_where_a_client_certificate_is_wanted() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        place = Endpoint("127.0.0.1", bound.getsockname()[1], uses_tls=True, certificate=("a", "b"))
        assert not is_healthy(place)
        assert send(place).result == "failed"


@pytest.mark.parametrize("place", [Endpoint("h.invalid", 9), Endpoint("h..x" * 30, 9), Endpoint("x", 0, "/none" * 99)])
def test_an_address_that_leads_nowhere_fails(place: Endpoint) -> None:
    assert not is_healthy(place)
    assert send(place).result == "failed"


def test_every_port_must_be_healthy() -> None:
    with serving(ANSWERS) as (_, place), serving({"/health": always(503)}) as (_, other):
        assert is_healthy(place)
        assert not is_healthy(replace(place, more_ports=(other.port,)))


def test_the_root_path_is_asked_where_it_would_be_taken_off() -> None:
    with serving({"/v1/v1/models": always(200, {"data": [{"id": "m"}]})}) as (api, place):
        send(replace(place, root_path="/v1"))
    assert api.asked[1][0] == "/v1/v1/completions"


@contextmanager
def dripping(first: bytes) -> Iterator[Endpoint]:
    """Accept, begin an answer, and then send a byte now and then, for ever."""
    is_over = threading.Event()

    def drip(client: socket.socket) -> None:
        with suppress(OSError), client:
            client.sendall(first)
            while not is_over.wait(0.02):
                client.sendall(b"x")

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=drip, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield Endpoint("127.0.0.1", listener.getsockname()[1])
        is_over.set()
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nX: ",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n",
    ],
)
def test_a_server_that_drips_has_not_answered(first: bytes) -> None:
    with dripping(first) as place:
        said = send(place, timeout_s=0.3)
    assert (said.result, said.detail) == ("hung", "0.3 s, /v1/models")


def test_a_server_that_says_nothing_has_not_answered() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        said = send(Endpoint("127.0.0.1", silent.getsockname()[1]), timeout_s=0.2)
    assert said.result == "hung"


def test_what_is_asked_first_shares_one_limit() -> None:
    """A server that takes its time for every refusal cannot keep us for longer than one that says nothing."""
    hold = threading.Event()

    def slow(asked: object) -> tuple[int, object]:
        hold.wait(0.15)
        return 404, None

    with serving({"/v1/completions": slow, "/v1/chat/completions": slow, "/v1/embeddings": slow}) as (api, place):
        said = send(place, timeout_s=0.3)
    assert said.result == "hung"
    assert len(api.paths()) < 7
