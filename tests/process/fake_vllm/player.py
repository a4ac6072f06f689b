# ruff: noqa: PTH109, PTH110, PTH115, PTH123, PTH208 - pathlib takes as long to import as all of the rest
"""Plays one scene per attempt in place of vLLM. Standard library only, quick to start.

``FAKE_VLLM_SCENES`` names a JSON file: a list of scenes, each a list of steps ``{"do": NAME, …}``.
``FAKE_VLLM_JOURNAL`` names the directory that gets the journal. The steps are the functions of ``STEPS``;
``scenes.py`` spells them for tests.
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import signal
import time
import traceback
from collections.abc import Iterator
from typing import Any

import journal

LONGEST_LIFE_S = 120
"""A test that went wrong must not leave a fake behind for ever."""

VERSION = "0.32.0"
UNSUPERVISED = ("-h", "-v", "--version")
Step = dict[str, Any]


class Actor:
    """One process of the fake: what it was asked, and what it started."""

    def __init__(self, title: str, attempt: int, words: list[str]) -> None:
        self.title = title
        self.attempt = attempt
        self.words = words
        self.children: dict[str, int] = {}
        self.parent = os.getppid()

    def play(self, steps: list[Step]) -> None:
        """Play the steps in order."""
        for step in steps:
            STEPS[step["do"]](self, step)

    def note(self, kind: str, **facts: Any) -> None:
        """Write into the journal who saw what."""
        journal.note(kind, title=self.title, attempt=self.attempt, **facts)


def main(argv: list[str]) -> None:
    """Play the scene of this attempt, or answer like a command that is over at once."""
    words = argv[1:]
    is_attempt = words[:1] == ["serve"] and not any(w in UNSUPERVISED or w.startswith("--help") for w in words)
    actor = Actor("leader", journal.next_attempt() if is_attempt else 0, words)
    left = journal.still_alive() if is_attempt else []
    actor.note("start", **_circumstances(len(argv)), left_from_before=left)
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # instead of Python's KeyboardInterrupt
    if not is_attempt:
        print(f"the fake vllm {VERSION} was asked:", *words, flush=True)
        os._exit(int(os.environ.get("FAKE_VLLM_STATUS", "0")))
    _perform(actor, _scene(actor.attempt))


def _scene(attempt: int) -> list[Step]:
    with open(os.environ["FAKE_VLLM_SCENES"], encoding="utf-8") as text:
        scenes: list[list[Step]] = json.load(text)
    if attempt > len(scenes):
        return [{"do": "mark", "name": "one attempt too many"}, {"do": "exit", "status": 99}]
    return scenes[attempt - 1]


def _perform(actor: Actor, steps: list[Step]) -> None:
    """Play a process from here to its end; it never returns into the code that forked it."""
    signal.alarm(LONGEST_LIFE_S)
    try:
        actor.play(steps)
        os._exit(0)
    except SystemExit as asked:
        os._exit(asked.code if isinstance(asked.code, int) else 1)
    except BaseException:  # noqa: BLE001 - a bug of the fake must reach the test
        actor.note("bug", traceback=traceback.format_exc())
        os._exit(98)


def _circumstances(words: int) -> dict[str, Any]:
    status = dict(line.split(":\t", 1) for line in _text("/proc/self/status").splitlines() if ":\t" in line)
    return {
        "argv": _text("/proc/self/cmdline").split("\0")[-words:-1] if words > 1 else [],
        "environ": _text("/proc/self/environ").rstrip("\0").split("\0"),
        "parent": os.getppid(),
        "group": os.getpgid(0),
        "session": os.getsid(0),
        "cwd": os.getcwd(),
        "descriptors": _descriptors(),
        "terminals": [os.isatty(number) for number in range(3)],
        "blocked_signals": status["SigBlk"],
        "ignored_signals": status["SigIgn"],
    }


def _text(path: str) -> str:
    """Return a file's bytes, each as the character of the same number."""
    with open(path, encoding="latin-1", newline="") as text:
        return text.read()


def _descriptors() -> dict[str, str]:
    found = {}
    for number in os.listdir("/proc/self/fd"):
        try:
            found[number] = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:  # the one that listed them
            continue
    return found


def write(actor: Actor, step: Step) -> None:
    """Write ``data`` (latin-1) to the stream ``to``, ``times`` over; ``{}`` in ``numbered`` data is the round."""
    data = step["data"].encode("latin-1")
    for turn in range(step.get("times", 1)):
        left = memoryview(data.replace(b"{}", b"%08d" % turn) if step.get("numbered") else data)
        while left:
            left = left[os.write(2 if step["to"] == "stderr" else 1, left) :]


def fork(actor: Actor, step: Step) -> None:
    """Start a process called ``title`` that plays ``steps``; go on when it has made itself up, and so have its own.

    With ``keeps_title``, it is called so in the journal only, and otherwise as the one that forked it.
    """
    heard, told = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(heard)
        if step.get("leaves_session"):
            os.setsid()
        if step.get("double") and os.fork():
            os._exit(0)
        born = Actor(step["title"], actor.attempt, actor.words)
        if not step.get("keeps_title"):
            _make_up(step["title"])
        for name in ("SIGTERM", "SIGINT", "SIGCHLD"):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
        for name in step.get("ignores", ()):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
        born.note("process")
        first = list(itertools.takewhile(lambda each: each["do"] in ("fork", "on-signal"), step["steps"]))
        _perform(born, [*first, {"do": "tell", "descriptor": told}, *step["steps"][len(first) :]])
    os.close(told)
    os.read(heard, 1)
    os.close(heard)
    if step.get("double"):
        os.waitpid(child, 0)
    else:
        actor.children[step["title"]] = child


def tell(actor: Actor, step: Step) -> None:
    """Let the parent go on. A byte, not an end of file: processes that were forked meanwhile hold the pipe too."""
    os.write(step["descriptor"], b".")
    os.close(step["descriptor"])


def _make_up(title: str) -> None:
    """Take a title as setproctitle does: over the argument vector, and, shortened, as the command's name."""
    fields = _text("/proc/self/stat").rsplit(")", 1)[1].split()
    start, end = int(fields[45]), int(fields[46])
    with open("/proc/self/mem", "r+b", 0) as memory:
        memory.seek(start)
        memory.write(title.encode()[: end - start - 1].ljust(end - start, b"\0"))
    with open("/proc/self/comm", "wb", 0) as name:
        name.write(title.encode()[:15])


def on_signal(actor: Actor, step: Step) -> None:
    """From now on, note each of ``signals`` and play ``steps`` instead of dying of it."""

    def caught(number: int, frame: object) -> None:
        actor.note("signal", name=signal.Signals(number).name)
        actor.play(step.get("steps", []))

    for name in step["signals"]:
        signal.signal(getattr(signal, name), caught)


def hold(actor: Actor, step: Step) -> None:
    """Stay until a signal ends this process."""
    while True:
        signal.pause()


def wait_for_file(actor: Actor, step: Step) -> None:
    """Go on when the file is there; whoever makes it is the one who says when."""
    while not os.path.exists(step["path"]):
        time.sleep(0.005)


def wait_for_child(actor: Actor, step: Step) -> None:
    """Go on when a child has ended."""
    _, status = os.wait()
    actor.note("child-ended", status=os.waitstatus_to_exitcode(status))


def wait_for_parent(actor: Actor, step: Step) -> None:
    """Go on when the parent has ended."""
    while os.getppid() == actor.parent:
        time.sleep(0.005)


def kill(actor: Actor, step: Step) -> None:
    """Send ``signal`` to this attempt's process called ``title``, also to one that is no child of this one."""
    os.kill(_pid(actor, step), getattr(signal, step["signal"]))


def wait_until_watched(actor: Actor, step: Step) -> None:
    """Go on when the leader's parent holds a pidfd of the process called ``title``, and has looked at it since.

    vLLM's processes live for seconds before anything can kill them; a scene must not be over before it was seen, nor
    while the one who looks still knows the name that it had before.
    """
    wanted, watcher = f"\nPid:\t{_pid(actor, step)}\n", _parent_of(_pid(actor, {"title": "leader"}))
    while not any(wanted in text for text in _descriptor_facts(watcher)):
        time.sleep(0.005)
    enough = _pauses(watcher) + 3
    while _pauses(watcher) < enough:
        time.sleep(0.005)


def _pauses(pid: int) -> int:
    """Return how often a process has gone to sleep by itself: between two looks it does."""
    return int(_text(f"/proc/{pid}/status").rsplit("\nvoluntary_ctxt_switches:", 1)[1].split()[0])


def _pid(actor: Actor, step: Step) -> int:
    noted = [entry for entry in journal.entries() if entry["kind"] in ("process", "start")]
    pid: int = [e["pid"] for e in noted if e["title"] == step["title"] and e["attempt"] == actor.attempt][-1]
    return pid


def _parent_of(pid: int) -> int:
    return int(_text(f"/proc/{pid}/stat").rsplit(")", 1)[1].split()[1])


def _descriptor_facts(pid: int) -> Iterator[str]:
    for number in os.listdir(f"/proc/{pid}/fdinfo"):
        try:
            yield _text(f"/proc/{pid}/fdinfo/{number}")
        except OSError:  # closed by now
            continue


HEADS = 20
MOST_BIRTHS = 6000


def hydra(actor: Actor, step: Step) -> None:
    """Be born again every few milliseconds, and replace who was killed, so that no list of processes is ever true.

    There are never more than ``HEADS`` at work: each has a place with a stamp of life, and who lost his place ends.
    All end after so many births, or after ``lives_s`` seconds.
    """
    import mmap

    places = memoryview(mmap.mmap(-1, 16 * HEADS + 8)).cast("q")  # of each head: its number, and when it last lived
    place, number, until = 0, 0, time.monotonic() + step["lives_s"]
    while (now := time.monotonic()) < until and places[2 * HEADS] < MOST_BIRTHS:
        if places[2 * place] != number:
            os._exit(0)
        places[2 * place + 1] = int(now * 1000)
        time.sleep(0.001)
        free = [n for n in range(HEADS) if places[2 * n + 1] < now * 1000 - 8][:1]
        places[2 * HEADS] += 1
        if free == [HEADS - 1] and not places[2 * HEADS - 1]:
            mark(actor, {"name": "grown"})
        if free:
            places[2 * free[0]], places[2 * free[0] + 1] = time.monotonic_ns(), int(now * 1000)
            if os.fork() == 0:
                place, number = free[0], places[2 * free[0]]
        elif os.fork():
            os._exit(0)
    mark(actor, {"name": "of old age"})


def look_at(actor: Actor, step: Step) -> None:
    """Ask the file system about a path."""
    os.lstat(step["path"])


def become_user(actor: Actor, step: Step) -> None:
    """Be another user from now on, as what ``sudo`` starts is; the journal is not for them."""
    os.setuid(step["uid"])


def lock_memory(actor: Actor, step: Step) -> None:
    """Wait for a page of the file ``path``, and for the lock on our memory that the one who waits there holds.

    From then on nobody can read what is in our memory, such as our command line, before the page is there.
    """
    import ctypes
    import mmap
    import threading

    new = ctypes.CDLL(None).mmap
    new.restype = ctypes.c_void_p
    new.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    page = new(None, mmap.PAGESIZE, mmap.PROT_READ, mmap.MAP_SHARED, os.open(step["path"], os.O_RDONLY), 0)
    memory = os.open("/proc/self/mem", os.O_RDONLY)
    threading.Thread(target=lambda: os.pread(memory, 8, page), daemon=True).start()
    wait_for_file(actor, {"path": step["until"]})
    mark(actor, {"name": "locked"})
    new(None, mmap.PAGESIZE, mmap.PROT_READ, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)


def mark(actor: Actor, step: Step) -> None:
    """Tell the test that the scene has come to here."""
    actor.note("mark", name=step["name"])


def repeat(actor: Actor, step: Step) -> None:
    """Play ``steps`` again and again, with a pause between, until the file ``path`` is there, or so many ``times``."""
    for _ in range(step["times"]) if "times" in step else itertools.count():
        if os.path.exists(step.get("path", "")):
            return
        actor.play(step["steps"])
        time.sleep(step["pause_s"])


def churn(actor: Actor, step: Step) -> None:
    """Write ``mib`` MiB to nowhere."""
    with open(os.devnull, "wb", 0) as nowhere:
        for _ in range(step["mib"]):
            nowhere.write(bytes(1 << 20))


def fill(actor: Actor, step: Step) -> None:
    """Leave ``mib`` MiB in the file ``path``."""
    with open(step["path"], "wb") as file:
        for _ in range(step["mib"]):
            file.write(bytes(1 << 20))


def die(actor: Actor, step: Step) -> None:
    """End by a signal, without leaving a core file."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    number = getattr(signal, step["signal"])
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    hold(actor, step)


def leave(actor: Actor, step: Step) -> None:
    """End with ``status``."""
    os._exit(step["status"])


def serve(actor: Actor, step: Step) -> None:
    """Answer requests until something ends it."""
    import server  # sockets take time to import, and most scenes never come to this

    server.serve(actor, step)


STEPS = {
    "write": write,
    "fork": fork,
    "tell": tell,
    "on-signal": on_signal,
    "hold": hold,
    "wait-for-file": wait_for_file,
    "wait-for-child": wait_for_child,
    "wait-for-parent": wait_for_parent,
    "kill": kill,
    "wait-until-watched": wait_until_watched,
    "hydra": hydra,
    "look-at": look_at,
    "become-user": become_user,
    "lock-memory": lock_memory,
    "mark": mark,
    "fill": fill,
    "repeat": repeat,
    "churn": churn,
    "die": die,
    "exit": leave,
    "serve": serve,
}
