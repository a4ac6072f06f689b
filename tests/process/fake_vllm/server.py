"""The fake's HTTP side: vLLM's routes, one request at a time, each answered as the scene says."""

from __future__ import annotations

import json
import os
import signal
import socket
from typing import TYPE_CHECKING, Any, NoReturn

import counters

if TYPE_CHECKING:
    from player import Actor, Step

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
REASONS = {200: "OK", 401: "Unauthorized", 404: "Not Found", 500: "Internal Server Error", 503: "Service Unavailable"}


class Asked(BaseException):
    """Somebody asked this server to stop."""


class EngineDead(BaseException):
    """A process that this server cannot do without has ended."""


class Server:
    """An endpoint that follows a script."""

    def __init__(self, actor: Actor, step: Step) -> None:
        self.actor = actor
        self.scripts: dict[str, list[Any]] = {
            route: list(step[route]) for route in ("health", "completions", "metrics")
        }
        self.steps = 0
        self.offers: list[str] = step["offers"]
        self.unanswered: list[socket.socket] = []
        self.key = option(actor.words, "--api-key")
        self.model = option(actor.words, "--served-model-name") or option(actor.words, "--model") or actor.words[1]

    def answer_one(self, listener: socket.socket) -> None:
        """Take one connection and do with it what the script says."""
        connection, _ = listener.accept()
        connection.settimeout(10)
        try:
            method, path, headers, body = read_request(connection)
            self.actor.note("request", method=method, path=path, headers=headers, body=body.decode("latin-1"))
            answer = self._answer(method, path, headers, body)
            if answer is None:
                self.unanswered.append(connection)
                return
            if answer != "drop":
                respond(connection, *answer)
        except (ConnectionError, TimeoutError):
            pass
        connection.close()

    def _answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Any:
        if path == "/play":
            self.actor.play(json.loads(body))
            return 200, {}
        if path == "/health":
            return self._scripted("health", {})
        if path.startswith("/v1/") and self.key and headers.get("authorization") != f"Bearer {self.key}":
            return 401, {"error": "Unauthorized"}
        if path == "/v1/models":
            return 200, {"object": "list", "data": [{"id": self.model, "object": "model", "max_model_len": 256}]}
        if method == "POST" and path in self.offers:
            content = json.loads(body)
            made = embedding(content) if path == "/v1/embeddings" else completion(self.model, content)
            return self._scripted("completions", made)
        if path == "/metrics":
            return self._metrics()
        if path in ("/version", "/ping", "/load"):
            return 200, {"version": "0.32.0"}
        return 404, {"error": "Not Found"}

    def _metrics(self) -> Any:
        """Answer with ``[RUNNING, WAITING]``, with ``grows`` after it when the engine makes a step each time."""
        script = self.scripts["metrics"]
        behaviour = script.pop(0) if len(script) > 1 else script[0]
        if not isinstance(behaviour, list):
            return (behaviour, "python_info 1.0\n") if isinstance(behaviour, int) else None
        self.steps += "grows" in behaviour
        return 200, counters.page(behaviour[0], behaviour[1], self.steps)

    def _scripted(self, route: str, body: dict[str, Any]) -> Any:
        """Follow the route's script: the next behaviour, the last one for ever."""
        script = self.scripts[route]
        behaviour = script.pop(0) if len(script) > 1 else script[0]
        if isinstance(behaviour, dict):
            self.actor.play(behaviour["first"])
            behaviour = behaviour["then"]
        if behaviour == "never":
            return None
        if behaviour == "odd":
            return 200, odd(body)
        return behaviour if behaviour == "drop" else (behaviour, body if behaviour == 200 else {"error": "scripted"})


def serve(actor: Actor, step: Step) -> None:
    """Serve until asked to stop (status 0, in good order) or until a child ends (also status 0, as vLLM does)."""
    listener = bound(option(actor.words, "--uds"), option(actor.words, "--host"), option(actor.words, "--port"))
    listener.listen(64)
    server = Server(actor, step)
    try:
        _heed(actor, step)
        os.write(2, b"INFO:     Application startup complete.\n")
        actor.note("mark", name="serving")
        while True:
            server.answer_one(listener)
    except Asked:
        _stop_cleanly(actor, server.unanswered)
    except EngineDead:
        _stop_as_if_clean(actor, step)


def bound(uds: str | None, host: str | None, port: str | None) -> socket.socket:
    """Return a socket with that address, or end as vLLM does where somebody has it."""
    family = socket.AF_UNIX if uds else socket.AF_INET6 if ":" in (host or "") else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(uds or (host or "0.0.0.0", int(port or "8000")))
    except OSError as refused:
        os.write(2, f"OSError: [Errno {refused.errno}] {refused.strerror}\n".encode())
        os._exit(1)
    return listener


def _heed(actor: Actor, step: Step) -> None:
    begun: list[type[BaseException]] = []

    def begin(ending: type[BaseException]) -> None:
        if not begun:  # a signal more, while the first one is being handled, must not break that off
            begun.append(ending)
            raise ending

    def stop(number: int, frame: object) -> None:
        actor.note("signal", name=signal.Signals(number).name)
        if step["stops"]:
            begin(Asked)

    def lost(number: int, frame: object) -> None:
        dead = False
        while (ended := _ended_child()) is not None:
            pid, status = ended
            titles = [title for title, child in actor.children.items() if child == pid]
            actor.note("child-ended", titles=titles, status=status)
            dead = dead or any(title.startswith("VLLM::") for title in titles)
        if dead and step["notices"]:
            begin(EngineDead)

    for number in STOP_SIGNALS:
        signal.signal(number, stop)
    signal.signal(signal.SIGCHLD, lost)
    lost(signal.SIGCHLD, None)  # one that ended before anybody listened


def _ended_child() -> tuple[int, int] | None:
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (pid, os.waitstatus_to_exitcode(status)) if pid else None


def _stop_cleanly(actor: Actor, unanswered: list[socket.socket]) -> NoReturn:
    """End the engine first, as vLLM does, then wait until whoever had asked hangs up, as its web server does."""
    _deafen()
    os.write(1, b"(APIServer pid=1) INFO 11-30 08:40:48 [launcher.py:137] [shutdown] API server: shutdown triggered\n")
    _end_children(actor)
    for connection in unanswered:
        connection.settimeout(None)
        while connection.recv(4096):
            pass
    os.write(2, b"INFO:     Finished server process [1]\n")
    actor.note("mark", name="clean shutdown")
    os._exit(0)


def _stop_as_if_clean(actor: Actor, step: Step) -> NoReturn:
    _deafen()
    os.write(
        2,
        b"ERROR 11-30 08:40:48 [async_llm.py:774] AsyncLLM output_handler failed.\n"
        b"vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. "
        b"See stack trace (above) for the root cause.\n"
        b"INFO:     Shutting down\nINFO:     Finished server process [1]\n",
    )
    _end_children(actor)
    os._exit(step["status"])


def _deafen() -> None:
    for number in (*STOP_SIGNALS, signal.SIGCHLD):
        signal.signal(number, signal.SIG_IGN if number != signal.SIGCHLD else signal.SIG_DFL)


def _end_children(actor: Actor) -> None:
    """End the children with the one signal that they cannot note: a noted one came from outside."""
    for pid in actor.children.values():
        try:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass


def option(words: list[str], name: str) -> str | None:
    """Return the value of ``--name VALUE`` or ``--name=VALUE``."""
    for place, word in enumerate(words):
        if word == name:
            return words[place + 1]
        if word.startswith(name + "="):
            return word.partition("=")[2]
    return None


def read_request(connection: socket.socket) -> tuple[str, str, dict[str, str], bytes]:
    """Return method, path, headers by lower-case name, and body."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65536)
        if not more:
            raise ConnectionError
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    while len(body) < int(headers.get("content-length", "0")):
        body += connection.recv(65536)
    method, path, _ = first.split(" ")
    return method, path.partition("?")[0], headers, body


def respond(connection: socket.socket, status: int, body: dict[str, Any] | str) -> None:
    """Send one answer and say that no other follows."""
    text = (body if isinstance(body, str) else json.dumps(body)).encode()
    head = f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n"
    connection.sendall(f"{head}Connection: close\r\n\r\n".encode() + text)


def completion(model: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Return what vLLM answers to a request for two tokens with their probabilities, for every prompt."""
    logprobs = {
        "text_offset": [0, 2],
        "token_logprobs": [-1.5, -2.25],
        "tokens": [" a", " b"],
        "top_logprobs": [{" a": -1.5}, {" b": -2.25}],
    }
    choice = {"text": " a b", "logprobs": logprobs, "finish_reason": "length", "stop_reason": None}
    prompts = asked.get("prompt")
    choices = [{"index": place, **choice} for place in range(len(prompts) if isinstance(prompts, list) else 1)]
    usage = {"prompt_tokens": 1, "total_tokens": 3, "completion_tokens": 2}
    return {
        "id": "cmpl-1",
        "object": "text_completion",
        "created": 1,
        "model": model,
        "choices": choices,
        "usage": usage,
    }


def odd(answer: dict[str, Any]) -> dict[str, Any]:
    """Return a completion as a model without sense makes it: one token, which is no character, again and again."""
    logprobs = {"tokens": ["\ufffd"] * 4, "token_logprobs": [-1.5] * 4}
    return answer | {"choices": [each | {"text": "\ufffd" * 4, "logprobs": logprobs} for each in answer["choices"]]}


def embedding(asked: dict[str, Any]) -> dict[str, Any]:
    """Return a vector for every text."""
    texts = asked["input"] if isinstance(asked["input"], list) else [asked["input"]]
    data = [{"index": place, "object": "embedding", "embedding": [0.6, 0.8]} for place in range(len(texts))]
    return {"object": "list", "data": data, "usage": {"prompt_tokens": 1, "total_tokens": 1}}
