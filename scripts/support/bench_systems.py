"""The supervisors that stand side by side: how each is told to look after one program, else with its own settings."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

Words = Sequence[str]


@dataclass(frozen=True)
class System:
    """One supervisor."""

    name: str
    program: str
    """What it is called on PATH."""
    command: Callable[[str, Words, Path], Words]
    """From the program's path, the words to run, and a directory for its settings."""
    relays: bool = True
    """Whether the output goes through it; else the child writes to where it writes itself."""
    restarts: bool = True
    environment: Callable[[Path], Mapping[str, str]] = field(default=lambda place: {})

    def path(self) -> str | None:
        """Return where it is installed: beside this Python or on PATH."""
        return shutil.which(self.program, path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}")


def _ours(program: str, words: Words, place: Path) -> Words:
    vllm, *rest = words
    return (program, "--backoff", "0", "--vllm", vllm, *rest)


def _nothing(program: str, words: Words, place: Path) -> Words:
    return words


def _tini(program: str, words: Words, place: Path) -> Words:
    return (program, "-s", "--", *words)  # a subreaper: it is not the first process here


def _supervisord(program: str, words: Words, place: Path) -> Words:
    settings = place / "supervisord.conf"
    settings.write_text(
        f"[supervisord]\nnodaemon=true\nuser={os.getuid()}\nlogfile={os.devnull}\nlogfile_maxbytes=0\n"
        f"pidfile={place}/supervisord.pid\n[program:vllm]\ncommand={' '.join(words)}\nautorestart=true\n"
        "stdout_logfile=/dev/stdout\nstdout_logfile_maxbytes=0\nredirect_stderr=true\n"
    )
    return (program, "-c", str(settings))


def _circusd(program: str, words: Words, place: Path) -> Words:
    settings = place / "circus.ini"
    addresses = "".join(f"{name} = ipc://{place}/{name}\n" for name in ("endpoint", "pubsub_endpoint"))
    settings.write_text(
        f"[circus]\n{addresses}[watcher:vllm]\ncmd = {' '.join(words)}\ncopy_env = True\n"
        "stdout_stream.class = StdoutStream\nstderr_stream.class = StdoutStream\n"
    )
    return (program, str(settings))


def _honcho(program: str, words: Words, place: Path) -> Words:
    (place / "Procfile").write_text(f"vllm: exec {' '.join(words)}\n")
    return (program, "-f", str(place / "Procfile"), "start")


def _prefix(program: str, words: Words, place: Path) -> Words:
    return (program, *words)


def _standard_supervisor(place: Path) -> Mapping[str, str]:
    return {
        "SUPERVISOR_CONFIG_PATH": f"{place}/standard.conf",
        "SUPERVISOR_SUPERVISORD_PIDFILE": f"{place}/standard.pid",
    }


def _torchrun(program: str, words: Words, place: Path) -> Words:
    return (program, "--standalone", "--nproc-per-node", "1", "--max-restarts", "3", "--no-python", *words)


NOTHING = System("no supervisor", "sh", _nothing, relays=False, restarts=False)
OURS = System("safe-vllm", "safe-vllm", _ours)
SYSTEMS = (
    NOTHING,
    OURS,
    System("tini", "tini", _tini, relays=False, restarts=False),
    System("supervisord", "supervisord", _supervisord),
    System("circusd", "circusd", _circusd),
    System("honcho", "honcho", _honcho, restarts=False),
    System("standard-supervisor", "standard-supervisor", _prefix, environment=_standard_supervisor),
    System("torchrun", "torchrun", _torchrun, relays=False),
)
