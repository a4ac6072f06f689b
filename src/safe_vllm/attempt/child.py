"""Starting a guardian with its leader, and talking to it."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from safe_vllm.attempt import terminal
from safe_vllm.attempt.tree import SHORTAGES
from safe_vllm.early import STOP_SIGNALS
from safe_vllm.errors import Status, Trouble, reason_of
from safe_vllm.plan.command import Command

# `-I -S`: nothing but the standard library is needed, and nothing the operator installed shall run here.
# Once it runs, it calls itself "guardian": `pkill -f safe-vllm` shall not hit both of us.
_RUN_GUARDIAN = "import sys; sys.path.append(sys.argv.pop()); from safe_vllm.attempt.guardian import main; main()"


def ignored_signals() -> frozenset[int]:
    """Return the stop signals that whoever started us wants ignored, as ``nohup`` does with SIGHUP.

    SIGTERM is not among them: a launcher that cannot be asked to stop can only be killed.
    """
    ignorable = set(STOP_SIGNALS) - {signal.SIGTERM}
    return frozenset(number for number in ignorable if signal.getsignal(number) == signal.SIG_IGN)


def open_missing_descriptors() -> None:
    """Put /dev/null where stdin, stdout or stderr is closed, or a pipe of ours would take its number."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)  # the guardian and vLLM would meet the same trap
    os.close(descriptor)


def inherited_environment() -> dict[str, str]:
    """Return the environment as we were given it: Python itself may have added LC_CTYPE (PEP 538)."""
    environment = dict(os.environ)
    try:
        given = Path("/proc/self/environ").read_bytes()
    except OSError:
        return environment
    if b"\0LC_CTYPE=" not in b"\0" + given:
        environment.pop("LC_CTYPE", None)
    return environment


ANSWER_WITHIN_S = 10.0
"""A guardian that is still silent then hangs, and the tree must be ended without it."""


@dataclass
class Child:
    """A running guardian: its number, the pipe it obeys, the pipe it reports on, and the leader's output pipes."""

    pid: int
    control: int
    report: int
    stdout: int
    stderr: int | None
    """``None`` when the leader writes both streams to one pipe."""
    lacks_terminal: str | None = None
    """Why the leader writes to a pipe although we write to a terminal."""
    answer_due_at: float | None = None
    """When the guardian must have answered the last order."""

    def order(self, verb: str, argument: float, now: float) -> None:
        """Send one line to the guardian; one that is gone needs no orders, and one that was stopped is woken."""
        try:
            os.write(self.control, f"{verb} {argument}\n".encode())
        except BrokenPipeError:
            return
        os.kill(self.pid, signal.SIGCONT)
        self.answer_due_at = now + ANSWER_WITHIN_S

    def on_answer(self) -> None:
        """Note that the guardian obeyed."""
        self.answer_due_at = None

    def kill_if_silent(self, now: float) -> None:
        """Kill a guardian that owes us an answer: its tree is handed to us then."""
        if self.answer_due_at is not None and now >= self.answer_due_at:
            self.answer_due_at = None
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Let go of the guardian. The output pipes belong to whoever reads them."""
        os.close(self.control)
        os.close(self.report)


PASSES = (*SHORTAGES, errno.EAGAIN, errno.ETXTBSY)
"""What keeps a program from being executed now, and maybe not in a while."""
LIMITS = "check the limits on processes, open files and memory"


@contextmanager
def room() -> Iterator[None]:
    """Raise Trouble in place of an OSError: this machine lets us start nothing."""
    try:
        yield
    except OSError as error:
        raise Trouble(f"no process can be started: {reason_of(error)}", hint=LIMITS, status=Status.PASSING) from error


def not_executed(program: str, number: int) -> Trouble:
    """Return what to say of a program that could not be executed, by the errno."""
    reason = reason_of(OSError(number, os.strerror(number)))
    if number in PASSES:
        hint = f"{LIMITS}, and start it again"
        return Trouble(f"{program} cannot be executed now: {reason}", hint=hint, status=Status.PASSING)
    hint = "see its permissions and first line"
    return Trouble(f"{program} cannot be executed: {reason}", hint=hint, status=Status.NOT_EXECUTABLE)


def spawn(command: Command, ignored: frozenset[int], *, has_one_stream: bool) -> Child:
    """Start a guardian that starts the command. Raises OSError when this machine lets us start nothing."""
    with ExitStack() as ours:
        stdout, stdout_end, lacks_terminal = _channel(1, ours)
        stderr, stderr_end, lacks_too = (None, stdout_end, None) if has_one_stream else _channel(2, ours)
        (control_end, control), (report, report_end) = _kept(os.pipe(), ours), _kept(os.pipe(), ours)
        brief = _brief(command, [stdout_end, stderr_end], ignored)
        theirs = {brief, control_end, report_end, stdout_end, stderr_end}
        for descriptor in theirs:
            os.set_inheritable(descriptor, True)
        source = str(Path(__file__).parents[2])
        words = [sys.executable, "-I", "-S", "-c", _RUN_GUARDIAN, *map(str, (brief, control_end, report_end)), source]
        # A session of its own: what kills our process group must not kill the one who is to end the tree.
        pid = os.posix_spawn(sys.executable, words, _needed_by_python(command.environment), setsid=True)
        ours.pop_all()
    for descriptor in theirs:
        os.close(descriptor)
    return Child(pid, control, report, stdout, stderr, lacks_terminal or lacks_too)


def _kept(pair: tuple[int, int], until: ExitStack) -> tuple[int, int]:
    """Have both descriptors closed if nothing comes of it."""
    for descriptor in pair:
        until.callback(os.close, descriptor)
    return pair


def _needed_by_python(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what an interpreter may need to start at all; the rest of the environment is none of the guardian's."""
    return {name: environment[name] for name in ("LD_LIBRARY_PATH",) if name in environment}


def _channel(descriptor: int, until: ExitStack) -> tuple[int, int, str | None]:
    """Return our end and the child's end of what leads to our own descriptor: a terminal if that is one, or a pipe.

    Also why it is a pipe where we have a terminal: a machine has only so many.
    """
    lacks = None
    if os.isatty(descriptor):
        try:
            return (*_kept(terminal.open_pair(descriptor), until), None)
        except OSError as error:
            lacks = reason_of(error)
    return (*_kept(os.pipe(), until), lacks)


def _brief(command: Command, output: list[int], ignored: frozenset[int]) -> int:
    """Return a descriptor from which the guardian reads what to start; secrets stay off every command line."""
    content = {
        "argv": [os.fsencode(word).decode("latin-1") for word in command.argv],
        "environment": {
            os.fsencode(name).decode("latin-1"): os.fsencode(value).decode("latin-1")
            for name, value in command.environment.items()
        },
        "output": output,
        "ignored": sorted(ignored),
    }
    descriptor = os.memfd_create("brief")
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(json.dumps(content).encode())
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
