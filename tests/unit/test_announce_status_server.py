"""What probes, people and Prometheus are answered, by a real server at a real port."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import reduce
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from doc_tables import plain, rows

from safe_vllm.announce.picture import Picture, facts
from safe_vllm.announce.status_http import MOST, REQUEST_BYTES
from safe_vllm.announce.status_server import BEAT_EVERY_S, StatusServer
from safe_vllm.announce.teller import Teller
from safe_vllm.errors import Status, Trouble
from safe_vllm.plan.status_address import Address, address, apart_from
from safe_vllm.record.events import EventLog

DEADLINE_S = 30.0
ANYWHERE = Address("127.0.0.1", 0)
PATHS = ("/livez", "/readyz", "/status", "/metrics")
STARTED: dict[str, Any] = {
    "launch": "7-a",
    "launcher_pid": 7,
    "profile": "b200",
    "ladder": ["as-asked", "triton"],
    "entry": "as-asked",
    "versions": {"vllm": "0.32.0"},
}


def event(name: str, **fields: Any) -> dict[str, Any]:
    return {"event": name, "time": "2026-03-01T12:00:00.000Z", "attempt": 1, "rung": "as-asked", **fields}


LOADS = (event("launch-started", **STARTED), event("attempt-started"), event("phase", phase="autotune"))
SERVES = (*LOADS, event("ready", after_s=64.2, note=""))
DIED = (*SERVES, event("attempt-ended", fault="illegal-memory-access", phase="serving", reason="a fault"))
DOWN = (*DIED, event("step", attempt=2, rung="triton", reason="a fault"))
AGAIN = (*DOWN, event("attempt-started", attempt=2, rung="triton"))
ASKED = (*SERVES, event("stop-asked"))
OVER = (*ASKED, event("launch-ended", status=0, reason="asked to stop, and everything ended"))

LAUNCHES: dict[str, tuple[dict[str, Any], ...]] = {
    "the plan is made, nothing runs yet": LOADS[:1],
    "vLLM loads, autotunes, captures": LOADS,
    "/health answers, the canary is under way": (*LOADS, event("phase", phase="first-inference")),
    "the canary has passed": SERVES,
    "the canary has passed at a lower rung": (*AGAIN, event("ready", attempt=2, rung="triton", after_s=70.0, note="")),
    "a server that hangs is being ended": (*SERVES, event("hang", processes=3, problem="")),
    "an attempt has ended, back-off": DOWN,
    "a gate is waited for: memory, port": (*DOWN, event("gate", gate="gpu-memory", outcome="waiting", waited_s=0.0)),
    "the next rung loads": AGAIN,
    "a stop was asked for, requests are finished": ASKED,
    "the launch is over, output is still delivered": OVER,
    "our loop stands still while vLLM serves": SERVES,
}
"""How a launch comes into each row of the table in docs/status.md."""
STANDS_STILL = "our loop stands still while vLLM serves"


@dataclass
class Stand:
    """A status server and the timers of a loop, which comes round when the test says so."""

    server: StatusServer
    timers: list[tuple[float, Callable[[], None]]] = field(default_factory=list)
    listeners: list[Any] = field(default_factory=list)
    problems: tuple[str, ...] = ()

    def begin(self) -> Stand:
        self.problems = self.server.attend(lambda seconds, due: self.timers.append((seconds, due)), self.listeners)
        return self

    def happen(self, *events: dict[str, Any]) -> Picture:
        """Let these events happen, from the beginning of a launch on."""
        picture = Picture()
        for one in events:
            picture = picture.after(one)
            for listener in self.listeners:
                listener(one, picture)
        return picture

    def turn(self) -> None:
        """Let every timer come once."""
        due, self.timers = self.timers, []
        for _, callback in due:
            callback()

    def connect(self) -> socket.socket:
        assert self.server.port is not None
        return socket.create_connection(("127.0.0.1", self.server.port), DEADLINE_S)

    def ask(self, path: str, method: str = "GET") -> http.client.HTTPResponse:
        """Return the answer; what it holds has been read into ``text``."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=DEADLINE_S)
        with closing(connection):
            connection.request(method, path)
            answer = connection.getresponse()
            answer.text = answer.read().decode()  # type: ignore[attr-defined]
            return answer

    def says(self, path: str) -> tuple[int, str]:
        answer = self.ask(path)
        return answer.status, answer.text  # type: ignore[attr-defined]


@pytest.fixture
def thread_errors(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return what went wrong in any thread: a launch ends at once for it."""
    found: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", found.append)
    return found


@pytest.fixture
def build(thread_errors: list[Any]) -> Iterator[Callable[..., Stand]]:
    """Return how to have a server; none of its threads may ever fail."""
    with ExitStack() as stack:

        def made(at: Address = ANYWHERE, **how: Any) -> Stand:
            stand = Stand(StatusServer(at, **how))
            stack.callback(stand.server.close)
            return stand.begin()

        yield made
    assert thread_errors == []


@pytest.fixture
def stand(build: Callable[..., Stand]) -> Stand:
    """Return a server that answers."""
    return build()


def until(what: str, condition: Callable[[], object]) -> None:
    """Wait for it."""
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, f"waited in vain for: {what}"
        time.sleep(0.01)


def raw(stand: Stand, request: bytes) -> bytes:
    """Return all that comes back."""
    with stand.connect() as connection:
        found = b""
        try:
            connection.sendall(request)
            while chunk := connection.recv(65536):
                found += chunk
        except ConnectionError:
            pass
        return found


# The table of docs/status.md


@pytest.mark.parametrize("row", rows("status.md", "launch"), ids=lambda row: row[0])
def test_each_row_of_the_documented_table_is_what_the_server_answers(
    build: Callable[..., Stand], row: list[str]
) -> None:
    launch, *told = map(plain, row)
    stand = build(second_look_s=0.0)
    stand.happen(*LAUNCHES[launch])
    if launch == STANDS_STILL:
        stand.server.beaten_at = float("-inf")
    states = json.loads(stand.says("/status")[1])["state"]
    assert [*(str(stand.says(path)[0]) for path in PATHS[:3]), states] == told
    assert stand.says("/metrics")[0] == (200 if find_spec("prometheus_client") else 501)


def test_the_documented_table_has_every_state_and_every_launch_we_can_think_of() -> None:
    found = [plain(row[0]) for row in rows("status.md", "launch")]
    assert found == list(LAUNCHES)
    assert {plain(row[-1]) for row in rows("status.md", "launch")} == {
        "starting",
        "ready",
        "stepping-down",
        "stopping",
        "ended",
    }
    assert [plain(row[0]) for row in rows("status.md", "path")] == list(PATHS)


# What stands in the answers


@pytest.mark.parametrize(
    ("launch", "reason"),
    [
        (None, "the plan is being made\n"),
        ("vLLM loads, autotunes, captures", "attempt 1 starting at rung as-asked, phase autotune\n"),
        ("an attempt has ended, back-off", "attempt 1 ended (illegal-memory-access); next at rung triton\n"),
        ("a gate is waited for: memory, port", "waiting for gpu-memory before attempt 2 at rung triton\n"),
        ("a stop was asked for, requests are finished", "stopping, at rung as-asked\n"),
        (
            "the launch is over, output is still delivered",
            "ended with status 0: asked to stop, and everything ended\n",
        ),
    ],
)
def test_who_is_not_ready_says_why(stand: Stand, launch: str | None, reason: str) -> None:
    if launch:
        stand.happen(*LAUNCHES[launch])
    assert stand.says("/readyz") == (503, reason)


def test_who_is_ready_says_at_which_rung_and_if_that_is_not_the_one_that_was_asked_for(stand: Stand) -> None:
    stand.happen(*SERVES)
    assert stand.says("/readyz") == (200, "ready at rung as-asked\n")
    stand.happen(*LAUNCHES["the canary has passed at a lower rung"])
    assert stand.says("/readyz") == (200, "ready at rung triton, degraded: a fault\n")


def test_status_is_all_that_is_known_of_the_launch(stand: Stand) -> None:
    picture = stand.happen(*DOWN)
    answer = stand.ask("/status")
    assert answer.headers["Content-Type"] == "application/json"
    told = json.loads(answer.text)  # type: ignore[attr-defined]
    assert told == json.loads(json.dumps(facts(picture)))
    assert told["faults"] == [{"fault": "illegal-memory-access", "phase": "serving", "times": 1}]


def test_no_answer_may_be_kept_or_taken_for_a_page(stand: Stand) -> None:
    for path in (*PATHS, "/"):
        headers = stand.ask(path).headers
        assert (headers["Cache-Control"], headers["X-Content-Type-Options"]) == ("no-store", "nosniff")
        assert "Python" not in headers["Server"]


class Nobody:
    """Whom our own lines go to here."""

    def say(self, line: str) -> None:
        pass


SECRETS = ("sk-planted-secret-0123456789", "hf_plantedtoken0123456789", "hunter2hunter2", "plantedkey77")


def test_secrets_in_what_happened_are_in_no_answer(stand: Stand) -> None:
    key, token, password, other = SECRETS
    teller = Teller(Nobody(), False, EventLog(None), listeners=stand.listeners)
    leaky = f"cannot reach https://me:{password}@hub/x with HF_TOKEN={token} --api-key {other} Bearer {key}"
    teller.tell("launch-started", (), **{**STARTED, "entry": "triton", "because": leaky, "costs": {"triton": leaky}})
    teller.tell("attempt-started", (), attempt=1, rung="triton")
    for state, fields in (
        ("ready", {"after_s": 1.0, "note": leaky}),
        ("attempt-ended", {"fault": "unknown", "phase": "serving", "reason": leaky, "evidence": [{"text": leaky}]}),
        ("step", {"reason": leaky}),
        ("gate", {"gate": "port", "outcome": "waiting", "waited_s": 0.0, "holder": leaky}),
        ("launch-ended", {"status": 70, "reason": leaky}),
    ):
        teller.tell(state, (), **{"attempt": 1, "rung": "triton", **fields})
        for path in PATHS:
            answer = stand.ask(path)
            told = f"{answer.text} {answer.headers}"  # type: ignore[attr-defined]
            assert not [secret for secret in SECRETS if secret in told]
    assert "cannot reach https://***@hub/x" in stand.says("/readyz")[1]


def test_a_path_that_is_no_text_spoils_no_answer(stand: Stand) -> None:
    odd = os.fsdecode(b'/profiles/\xff\n"quoted"\\')
    stand.happen(event("launch-started", **{**STARTED, "profile": odd, "entry": "triton", "because": odd}))
    assert json.loads(stand.says("/status")[1])["profile"] == odd
    stand.happen(event("launch-started", **STARTED), event("launch-ended", status=78, reason=odd))
    status, told = stand.says("/readyz")
    assert (status, told.count("\n")) == (503, 1)


# The protocol


@pytest.mark.parametrize("path", [*PATHS, "/nowhere"])
def test_head_is_answered_as_get_is_without_the_body(stand: Stand, path: str) -> None:
    stand.happen(*SERVES)
    full, head = stand.ask(path), stand.ask(path, "HEAD")
    assert (head.status, head.headers["Content-Type"]) == (full.status, full.headers["Content-Type"])
    assert int(head.headers["Content-Length"]) > 0
    assert raw(stand, f"HEAD {path} HTTP/1.0\r\n\r\n".encode()).endswith(b"\r\n\r\n")


@pytest.mark.parametrize("path", ["/", "/livez/", "/LIVEZ", "/status/secrets"])
def test_any_other_path_is_not_found_and_says_which_there_are(stand: Stand, path: str) -> None:
    for method in ("GET", "POST"):
        assert stand.ask(path, method).status == 404
    assert all(known in stand.says(path)[1] for known in PATHS)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"])
def test_any_other_method_is_not_allowed(stand: Stand, method: str) -> None:
    answer = stand.ask("/status", method)
    assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")


def test_what_comes_with_such_a_request_is_read_before_it_is_answered(stand: Stand) -> None:
    with stand.connect() as connection:
        connection.sendall(b"POST /status HTTP/1.0\r\nContent-Length: 4\r\n\r\n")
        for _ in range(20):  # others are answered meanwhile
            assert stand.ask("/livez").status == 200
        connection.setblocking(False)
        with pytest.raises(BlockingIOError):
            connection.recv(1)
        connection.settimeout(DEADLINE_S)
        connection.sendall(b"body")
        assert connection.recv(64).startswith(b"HTTP/1.0 405 ")


def test_what_stands_behind_a_question_mark_changes_nothing(stand: Stand) -> None:
    assert stand.ask("/livez?verbose=1").status == 200


def test_nonsense_is_answered_or_dropped_and_nothing_is_said_on_stderr(
    stand: Stand, capfd: pytest.CaptureFixture[str]
) -> None:
    for nonsense in (b"\r\n\r\n", b"GET\r\n\r\n", b"GET /livez HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00", b"\0" * 500):
        with stand.connect() as connection:
            connection.sendall(nonsense)
    assert raw(stand, b"a b c d\r\n\r\n") == b"Bad request version ('d')\n"
    told = raw(stand, b"GET /<script> HTTP/1.0\r\n" + b"x: y\r\n" * 101 + b"\r\n")
    assert told.startswith(b"HTTP/1.0 431 ")
    assert b"Content-Type: text/plain" in told
    assert stand.ask("/livez").status == 200
    assert capfd.readouterr() == ("", "")


def test_a_request_that_is_too_long_is_answered(stand: Stand) -> None:
    fillers = b"x-filler: " + b"y" * 1000 + b"\r\n"
    with stand.connect() as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\n" + fillers * (REQUEST_BYTES // 1000 + 2))
        told = connection.recv(65536)
        for _ in range(3):  # who is not through yet is not cut off
            connection.sendall(fillers)
        while chunk := connection.recv(65536):
            told += chunk
    assert told.startswith(b"HTTP/1.0 431 ") and told.endswith(b"\r\n\r\nthe request is too long\n")
    assert raw(stand, b"GET /" + b"x" * 2 * REQUEST_BYTES + b" HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.0 431 ")
    head = b"POST /livez HTTP/1.1\r\nContent-Length: 8000\r\n" + fillers * (REQUEST_BYTES // 1000 - 4) + b"\r\n"
    assert raw(stand, head + b"x" * 8000).startswith(b"HTTP/1.0 405 ")
    assert b" 200 " in raw(stand, b"GET /livez HTTP/1.1\r\n" + fillers * (REQUEST_BYTES // 1000 - 2) + b"\r\n")


# The loop, and those who are slow


def test_livez_is_red_when_the_loop_stands_still_and_green_when_it_turns_again(build: Callable[..., Stand]) -> None:
    stand = build(second_look_s=0.0)
    assert [seconds for seconds, _ in stand.timers] == [BEAT_EVERY_S]
    assert stand.ask("/livez").status == 200
    stand.server.beaten_at -= 20.0
    status, told = stand.says("/livez")
    assert (status, "stands still for 20 s" in told) == (503, True)
    stand.turn()
    assert stand.ask("/livez").status == 200
    assert [seconds for seconds, _ in stand.timers] == [BEAT_EVERY_S]


def test_after_a_suspension_livez_waits_for_the_loop_before_it_says_red(build: Callable[..., Stand]) -> None:
    stand = build(second_look_s=DEADLINE_S)
    stand.server.beaten_at -= 3600.0
    with stand.connect() as connection:
        connection.sendall(b"GET /livez HTTP/1.0\r\n\r\n")
        for _ in range(20):  # others are answered meanwhile
            assert stand.ask("/readyz").status == 503
        connection.setblocking(False)
        with pytest.raises(BlockingIOError):
            connection.recv(1)
        stand.turn()
        connection.settimeout(DEADLINE_S)
        assert connection.recv(64).startswith(b"HTTP/1.0 200 ")


def test_two_hundred_who_say_nothing_keep_out_no_probe_and_hold_up_no_loop(build: Callable[..., Stand]) -> None:
    before, stand = threading.active_count(), build(patience_s=1000.0)
    with ExitStack() as stack:
        slow = [stack.enter_context(stand.connect()) for _ in range(200)]
        for connection in slow[::2]:
            connection.sendall(b"GET /sta")
        for number in range(1000):
            stand.turn()
            stand.happen(*SERVES, event("proven", number=number))
        assert stand.says("/readyz") == (200, "ready at rung as-asked\n")
        assert json.loads(stand.says("/status")[1])["is_proven"] is True
        assert stand.ask("/livez").status == 200
        until("few threads", lambda: threading.active_count() <= before + 1 + MOST)
        slow[-1].sendall(b"GET /livez HTTP/1.0\r\n\r\n")  # those who came last were not cut off for it
        assert slow[-1].recv(64).startswith(b"HTTP/1.0 200 ")


@pytest.mark.parametrize("now_and_then", [b"x", b""])
def test_neither_silence_nor_a_byte_now_and_then_holds_a_connection(
    build: Callable[..., Stand], now_and_then: bytes
) -> None:
    stand = build(patience_s=0.3)
    with stand.connect() as connection:
        connection.sendall(b"GET /livez HTTP/1.0\r\n")
        connection.settimeout(0.01)

        def is_over() -> bool:
            try:
                connection.sendall(now_and_then)
                heard = connection.recv(100)
            except TimeoutError:
                return False
            except ConnectionError:
                return True
            assert heard == b""
            return True

        until("the end of its patience", is_over)


def test_a_bug_in_an_answer_is_told_to_who_asked_and_ends_nothing(build: Callable[..., Stand]) -> None:
    def broken() -> dict[str, int]:
        raise KeyError("stdout")

    stand = build(relayed=broken)
    status, told = stand.says("/metrics")
    assert (status, "this is a bug in safe-vllm" in told) == (500, True)
    assert stand.ask("/livez").status == 200


# The address


@pytest.mark.parametrize(
    ("text", "host", "port", "shown"),
    [
        ("127.0.0.1:9464", "127.0.0.1", 9464, "127.0.0.1:9464"),
        ("0.0.0.0:1", "0.0.0.0", 1, "0.0.0.0:1"),
        (" localhost:65535\n", "127.0.0.1", 65535, "127.0.0.1:65535"),
        ("[::1]:9464", "::1", 9464, "[::1]:9464"),
        ("[::]:80", "::", 80, "[::]:80"),
    ],
)
def test_an_address_is_understood(text: str, host: str, port: int, shown: str) -> None:
    assert address(text) == Address(host, port)
    assert str(address(text)) == shown


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "not of the form HOST:PORT"),
        ("9464", "not of the form HOST:PORT"),
        ("::1:9464", "not of the form HOST:PORT"),
        ("http://127.0.0.1:9464", "not of the form HOST:PORT"),
        ("[::1]", "not of the form HOST:PORT"),
        (":9464", "does not say at which address"),
        ("127.0.0.1:", "'' is no port"),
        ("127.0.0.1:0", "'0' is no port"),
        ("127.0.0.1:65536", "'65536' is no port"),
        ("127.0.0.1:-1", "'-1' is no port"),
        ("127.0.0.1:9464x", "'9464x' is no port"),
        ("127.0.0.1:\u0663", "is no port"),
        ("127.0.0.1:" + "9" * 5000, "is no port"),
        ("300.0.0.1:9464", "'300.0.0.1' is no IP address"),
        ("127.1:9464", "'127.1' is no IP address"),
        ("status.example:9464", "names are not looked up"),
        ("127.0.0.1\0:9464", "is no IP address"),
        ("[127.0.0.1]:9464", "'127.0.0.1' is no IPv6 address"),
        ("[]:9464", "'' is no IPv6 address"),
    ],
)
def test_an_address_that_is_not_understood_ends_with_a_sentence_and_an_example(text: str, what: str) -> None:
    with pytest.raises(Trouble) as caught:
        address(text)
    assert what in caught.value.message
    assert caught.value.message.startswith("--status-address ")
    assert "127.0.0.1:9464" in str(caught.value.hint)
    assert caught.value.status == Status.USAGE
    assert "\n" not in str(caught.value)


def test_the_port_that_vllm_is_to_have_is_not_for_us() -> None:
    apart_from(Address("0.0.0.0", 9464), (8000, 8001))
    with pytest.raises(Trouble, match="vLLM is to answer at this port") as caught:
        apart_from(Address("0.0.0.0", 8001), (8000, 8001))
    assert caught.value.status == Status.USAGE


@pytest.mark.parametrize(("at", "asks"), [("::1", "::1"), ("::", "::1"), ("::", "127.0.0.1")])
def test_ipv6_is_served_too_and_every_address_of_it_includes_ipv4(
    build: Callable[..., Stand], at: str, asks: str
) -> None:
    if not Path("/proc/net/if_inet6").exists():
        pytest.skip("this machine has no IPv6")
    stand = build(Address(at, 0))
    assert stand.problems == ()
    connection = http.client.HTTPConnection(asks, stand.server.port, timeout=DEADLINE_S)
    with closing(connection):
        connection.request("GET", "/livez")
        assert connection.getresponse().status == 200


def test_an_address_that_is_taken_is_told_of_and_had_when_it_is_free(build: Callable[..., Stand]) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        stand = build(Address("127.0.0.1", taken), open_every_s=0.0)
        [problem] = stand.problems
        assert problem.startswith(f"no status server at 127.0.0.1:{taken}: address already in use; ")
        assert "--status-address" in problem
        stand.turn()
        assert stand.server.port is None
    stand.happen(*SERVES)
    stand.turn()
    assert stand.server.port == taken
    assert stand.ask("/readyz").status == 200


def test_an_address_of_another_machine_is_told_of_too(build: Callable[..., Stand]) -> None:
    [problem] = build(Address("192.0.2.1", 9464)).problems
    assert "cannot assign requested address" in problem


def test_the_port_is_free_at_once_after_the_end_whoever_still_hangs_on(build: Callable[..., Stand]) -> None:
    stand = build(open_every_s=0.0)
    assert stand.ask("/livez").status == 200
    port = stand.server.port
    with stand.connect() as slow:
        slow.sendall(b"GET /li")
        stand.server.close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        following = build(Address("127.0.0.1", int(port or 0)))
        assert following.problems == ()
        assert following.ask("/livez").status == 200
    stand.turn()
    assert stand.server.port is None


LIST_SOCKETS = """
from pathlib import Path
for path in Path("/proc/self/fd").iterdir():
    if path.is_symlink() and str(path.readlink()).startswith("socket:"):
        print(path.readlink())
"""


def sockets() -> set[str]:
    """Return the sockets that this process has open."""
    found = (str(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.is_symlink())
    return {one for one in found if one.startswith("socket:")}


def test_no_child_inherits_a_socket_of_the_server(build: Callable[..., Stand]) -> None:
    before = sockets()
    stand = build()
    with stand.connect() as connection, socket.socket() as handed_on:
        handed_on.set_inheritable(True)  # to see that the child would see one
        connection.sendall(b"GET /li")
        until("two ends of a connection, one that listens, and one for the child", lambda: len(sockets() - before) == 4)
        ours = sockets() - before
        found = subprocess.run([sys.executable, "-c", LIST_SOCKETS], close_fds=False, capture_output=True, text=True)
        expected = {f"socket:[{os.fstat(handed_on.fileno()).st_ino}]"}
    assert ours & set(found.stdout.split("\n")) == expected


def test_without_the_option_nothing_of_it_is_loaded() -> None:
    script = (
        "import sys, safe_vllm.launcher\n"
        "print([name for name in ('http.server', 'prometheus_client', 'safe_vllm.announce.status_server', "
        "'safe_vllm.announce.metrics') if name in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert told.stdout == "[]\n"


def test_events_and_pictures_are_those_of_the_launch(stand: Stand) -> None:
    assert reduce(Picture.after, DOWN, Picture()) == stand.happen(*DOWN) == stand.server.picture
