"""Starts ``safe-vllm`` with the fake vLLM, and sees what comes of it. Waits on conditions, never on a clock."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scenes import Scene, Step

from leftovers import Process, below
from waiting import T, free_port, wait_for

SAFE_VLLM = Path(sys.executable).with_name("safe-vllm")
FAKE = Path(__file__).with_name("fake_vllm") / "vllm"
DEADLINE_S = 30.0
"""How long a test waits for what must happen. Nothing is asserted about how long it really takes."""

Entry = dict[str, Any]


@dataclass(repr=False)
class Launch:
    """One ``safe-vllm`` under test."""

    process: subprocess.Popen[bytes]
    port: int
    journal_path: Path
    events_path: Path
    stdout_path: Path
    stderr_path: Path
    older: frozenset[Process]
    """What ran before this test."""
    environment: dict[str, str]
    """What it was started with."""

    def wait_for(self, what: str, condition: Callable[[], T], deadline_s: float = DEADLINE_S) -> T:
        """Return the first true value of ``condition``; fail, and tell all that is known, at the deadline."""
        return wait_for(what, condition, deadline_s)

    def let_pass(self, seconds: float) -> None:
        """Let time pass: what must not happen offers no condition to wait for."""
        until = time.monotonic() + seconds
        self.wait_for("time to pass", lambda: time.monotonic() > until)

    def wait_until_ready(self, rung: str | None = None) -> None:
        """Wait for our own line that says that the server answers."""
        ending = f" at rung {rung}" if rung else ""
        self._wait_while_running(
            f"ready{ending}", lambda: re.search(rf"safe-vllm: ready .*{ending}", self.stderr_text())
        )

    def wait_for_mark(self, name: str) -> None:
        """Wait until the fake has come to a place in its scene."""
        self._wait_while_running(f"mark {name}", lambda: name in self.marks())

    def _wait_while_running(self, what: str, condition: Callable[[], object]) -> None:
        def met() -> bool:
            if condition():
                return True
            assert self.process.poll() is None or condition(), f"ended while waiting for: {what}"
            return False

        self.wait_for(what, met)

    def wait_for_event(self, name: str, count: int = 1) -> Entry:
        """Wait for the event of that name, the ``count``th, and return it."""

        def heard() -> list[Entry]:
            return self.events(name)[count - 1 : count]

        return self.wait_for(f"event {name}", heard)[0]

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to safe-vllm alone."""
        self.process.send_signal(number)

    def finish(self, deadline_s: float = DEADLINE_S) -> int:
        """Wait for the end and return the status: a signal as its negative number."""
        self.wait_for("the end of safe-vllm", lambda: self.process.poll() is not None, deadline_s)
        assert not self.entries("bug")
        return self.process.returncode

    def stop(self) -> int:
        """Ask for the end as an operator does, and return the status."""
        self.signal(signal.SIGTERM)
        return self.finish()

    def survivors(self) -> list[str]:
        """Return the command lines of this test's processes that have not ended, safe-vllm aside."""
        return [str(left) for left in below(os.getpid(), self.older) if left.pid != self.process.pid]

    def request(self, method: str, path: str, body: object = None) -> int:
        """Ask the fake's server something and return the status of its answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            return connection.getresponse().status
        finally:
            connection.close()

    def play(self, *steps: Step) -> None:
        """Let the fake's server play some steps now."""
        assert self.request("POST", "/play", list(steps)) == 200

    def entries(self, kind: str) -> list[Entry]:
        """Return what the fake noted, of one kind."""
        return [entry for entry in _json_lines(self.journal_path) if entry["kind"] == kind]

    def attempts(self) -> list[Entry]:
        """Return what the fake noted at the start of each attempt."""
        return [entry for entry in self.entries("start") if entry["attempt"]]

    def leader(self) -> Process:
        """Return the leader of the latest attempt."""
        entry = self.attempts()[-1]
        return Process(entry["pid"], entry["born"])

    def kill_child(self, title: str, number: int) -> None:
        """Send a signal to the latest process of that title, when the guardian has seen it: see the fake's step."""
        child, facts = self.child(title), Path(f"/proc/{self.attempts()[-1]['parent']}/fdinfo")

        def is_watched() -> bool:
            return any(f"\nPid:\t{child.pid}\n" in _text(path) for path in facts.iterdir())

        self.wait_for(f"the guardian to watch {title}", is_watched)
        os.kill(child.pid, number)

    def child(self, title: str) -> Process:
        """Return the latest process of that title."""
        entry = [entry for entry in self.entries("process") if entry["title"] == title][-1]
        return Process(entry["pid"], entry["born"])

    def marks(self) -> list[str]:
        """Return the marks that the scenes have come to."""
        return [entry["name"] for entry in self.entries("mark")]

    def signals(self, title: str = "leader") -> list[str]:
        """Return the signals that a process noted."""
        return [entry["name"] for entry in self.entries("signal") if entry["title"] == title]

    def events(self, name: str | None = None) -> list[Entry]:
        """Return what ``--events`` got, all of it or of one name."""
        return [event for event in _json_lines(self.events_path) if name in (None, event["event"])]

    def rungs(self) -> list[str]:
        """Return the rung of every attempt, in order."""
        return [event["rung"] for event in self.events("attempt-started")]

    def stdout(self) -> bytes:
        """Return what came out so far."""
        return self.stdout_path.read_bytes()

    def stderr(self) -> bytes:
        """Return what came out so far, ours and theirs."""
        return self.stderr_path.read_bytes()

    def stderr_text(self) -> str:
        """Return it as text."""
        return self.stderr().decode(errors="replace") if self.stderr_path.exists() else ""

    def ours(self) -> str:
        """Return our own lines of it."""
        return "".join(re.findall(r"safe-vllm: [^\n]*\n", self.stderr_text()))

    def story(self) -> str:
        """Return what a person needs to see when a test fails."""
        noted = [
            {key: value for key, value in entry.items() if key not in ("environ", "descriptors", "headers", "at")}
            for entry in _json_lines(self.journal_path)
        ]
        parts = ["status: " + str(self.process.poll()), "stderr:", self.stderr_text()[-3000:], "journal:"]
        parts += [json.dumps(entry)[:400] for entry in noted[-25:]]
        parts += [bug["traceback"] for bug in self.entries("bug")]
        parts += ["events:", *(json.dumps(event)[:400] for event in self.events()[-15:])]
        return "\n".join([*parts, "survivors:", *self.survivors()])


@dataclass(repr=False)
class Stage:
    """A test's own place: directories, an environment, a port, and a fake vLLM."""

    root: Path
    binaries: Path
    """The directory of the fake ``vllm``."""
    older: frozenset[Process]
    environment: dict[str, str] = field(default_factory=dict)
    launches: list[Launch] = field(default_factory=list)

    def start(
        self,
        *scenes: Scene,
        words: Sequence[str | bytes] | None = None,
        options: Sequence[str] = ("--backoff", "0.01"),
        subcommand: Sequence[str | bytes] = ("serve",),
        prefix: Sequence[str] = (),
        environment: dict[str, str] | None = None,
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        **popen: Any,
    ) -> Launch:
        """Start ``PREFIX safe-vllm OPTIONS SUBCOMMAND WORDS`` in a session of its own.

        Without ``words``: a model and a free port. Streams are files in the test's directory, or the descriptor given.
        """
        place = self.root / f"launch{len(self.launches)}"
        place.mkdir()
        port = free_port()
        chosen = ["tiny", "--host", "127.0.0.1", "--port", str(port)] if words is None else [*words]
        files = {name: (place / name).open("wb") for name in ("stdout", "stderr")}
        events = place / "events.jsonl"
        given = self._environment(place, scenes, events) | (environment or {})
        command = [*prefix, str(SAFE_VLLM), *options, *subcommand, *chosen]
        process: subprocess.Popen[bytes] = subprocess.Popen(
            command,
            env=given,
            stdin=subprocess.DEVNULL if stdin is None else stdin,
            stdout=files["stdout"] if stdout is None else stdout,
            stderr=files["stderr"] if stderr is None else stderr,
            start_new_session=True,
            **{"cwd": place, **popen},
        )
        for file in files.values():
            file.close()
        journal = place / "journal" / "journal"
        self.launches.append(
            Launch(process, port, journal, events, place / "stdout", place / "stderr", self.older, given)
        )
        return self.launches[-1]

    def _environment(self, place: Path, scenes: Sequence[Scene], events: Path) -> dict[str, str]:
        (place / "journal").mkdir()
        script = place / "scenes.json"
        script.write_text(json.dumps(scenes))
        ours = {
            "PATH": f"{self.binaries}:{os.defpath}",
            "LANG": "C.UTF-8",
            "FAKE_VLLM_SCENES": str(script),
            "FAKE_VLLM_JOURNAL": str(place / "journal"),
            "SAFE_VLLM_EVENTS": str(events),
        }
        return ours | {name: os.environ[name] for name in ("HOME", *XDG)} | self.environment


XDG = ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR")


def install(root: Path, *, vllm: str = "0.32.0", torch: str = "2.13.0+cpu", cuda: str | None = None) -> Path:
    """Lay out an environment with the fake ``vllm`` in it, as pip would, and return its ``bin``."""
    python = Path(sys.executable).resolve()
    packages = root / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    binaries = root / "bin"
    binaries.mkdir(parents=True)
    (root / "pyvenv.cfg").write_text(f"home = {python.parent}\ninclude-system-site-packages = false\n")
    (binaries / "python").symlink_to(python)
    _distribution(packages, "vllm", vllm, {"_version.py": f"__version__ = version = {vllm!r}\n"})
    versions = f"__version__ = {torch!r}\ndebug = False\ncuda: Optional[str] = {cuda!r}\n"
    _distribution(packages, "torch", torch, {"version.py": "from typing import Optional\n\n" + versions})
    script = binaries / "vllm"
    script.write_text(
        f"#!{binaries}/python -IS\n__file__ = {str(FAKE)!r}\nexec(compile(open(__file__).read(), __file__, 'exec'))\n"
    )
    script.chmod(0o755)
    return binaries


def _distribution(packages: Path, name: str, version: str, modules: dict[str, str]) -> None:
    for file, text in {"__init__.py": "", **modules}.items():
        (packages / name).mkdir(parents=True, exist_ok=True)
        (packages / name / file).write_text(text)
    metadata = packages / f"{name}-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _json_lines(path: Path) -> list[Entry]:
    """Return the complete lines of a file that may be growing, or not be there yet."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]
