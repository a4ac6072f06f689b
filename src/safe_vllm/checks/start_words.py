"""What a command starts: whether it is safe-vllm, and what stands between it and whoever starts it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from safe_vllm.checks.shell import basename, commands, script_of, without_exec
from safe_vllm.plan.endpoint import shutdown_timeout_s, stop_limit_s
from safe_vllm.plan.intent import PREFIX, Limits
from safe_vllm.plan.option_values import seconds

OURS = "safe-vllm"
MODULE = "safe_vllm"
BECOME = (
    *("env", "nice", "ionice", "numactl", "taskset", "chrt", "setpriv", "stdbuf", "exec", "nohup", "prlimit", "chroot"),
    *("chpst", "gosu", "su-exec", "setuidgid", "softlimit", "systemd-cat"),
)
"""Programs that become the command that they are given: nobody stays in between."""
INITS = ("tini", "tini-static", "dumb-init", "catatonit", "docker-init")
"""First processes that pass signals on."""
CLIENTS = ("docker", "podman", "nerdctl", "ctr", "sudo", "su", "runuser", "srun", "screen", "tmux", "script")
"""What stays, or has another service start the command."""
STAYERS = (
    *("timeout", "uv", "uvx", "conda", "mamba", "micromamba", "poetry", "pipenv", "pixi", "hatch", "rye", "time"),
    *("strace", "nsys", "ncu", "compute-sanitizer", "flock", "setsid", "unshare", "watch", "xargs", "ssh", "mpirun"),
    *("torchrun", "opentelemetry-instrument", "ddtrace-run", "systemd-run", "systemd-inhibit", "faketime", "xvfb-run"),
)
"""What stays between, as far as is known."""
PYTHON = re.compile(r"python[\d.]*")
VALUELESS = ("--no-canary", "--observe-only", "--help", "-h", "--version")
SERVERS = ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server", "vllm.entrypoints.grpc_server")
"""Modules of vLLM's that serve."""


@dataclass(frozen=True)
class Start:
    """A command, taken apart."""

    before: tuple[str, ...] = ()
    """What stands before safe-vllm; all of the command where it is not there."""
    options: tuple[str, ...] = ()
    subcommand: str | None = None
    words: tuple[str, ...] = ()
    """What vLLM gets."""
    is_ours: bool = False

    @property
    def stays(self) -> str:
        """The name of what stays the process that was started, with safe-vllm below it; empty: nothing does."""
        names = [basename(word) for word in self.before]
        if not names or (PYTHON.fullmatch(names[0]) and self.before[-1] == "-m"):
            return ""
        if names[0] not in BECOME:
            return names[0]
        return next((name for name in names if name in (*STAYERS, *CLIENTS, *INITS)), "")

    def option(self, name: str, variables: Mapping[str, str]) -> str | None:
        """Return the value of one of our options: the last on the command line, or its variable's."""
        found = variables.get(PREFIX + name.removeprefix("--").replace("-", "_").upper())
        for at, word in enumerate(self.options):
            flag, equals, value = word.partition("=")
            if flag == name and (equals or at + 1 < len(self.options)):
                found = value if equals else self.options[at + 1]
        return found

    def stop_s(self, variables: Mapping[str, str]) -> float:
        """Return how long a stop may take, as far as the command and variables say."""
        asked = seconds(self.option("--stop-timeout", variables))
        own = Limits().stop_timeout_s if asked is None else asked
        return stop_limit_s(own, shutdown_timeout_s(self.words))


def start_of_words(words: Sequence[str]) -> Start:
    """Return what words start; of a shell, what its script becomes."""
    held = tuple(words)
    if (script := script_of(held)) is not None:
        becomes = (without_exec(each) for each in commands(script) if each[0] == "exec")
        return next((found for each in becomes if (found := _taken_apart(each)).is_ours), Start(held))
    return _taken_apart(held)


def all_commands(words: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Return every command that words run: they are one, or those in the script of a shell."""
    script = script_of(words)
    return (tuple(words),) if script is None else tuple(map(without_exec, commands(script)))


def runs_ours(words: Sequence[str]) -> bool:
    """Return whether words run safe-vllm, by whatever way."""
    return any(_taken_apart(each).is_ours for each in all_commands(words))


def runs_theirs(words: Sequence[str]) -> bool:
    """Return whether words run a server of vLLM: the host that it may be on has the same name."""
    return any(_is_theirs(each, at) for each in all_commands(words) for at in range(len(each)))


def _is_theirs(words: Sequence[str], at: int) -> bool:
    after = words[at + 1] if at + 1 < len(words) else None
    is_program = basename(words[at]) == "vllm" or (words[at] == "vllm" and at > 0 and words[at - 1] == "-m")
    return (is_program and after == "serve") or (words[at] == "-m" and after in SERVERS)


def _taken_apart(words: tuple[str, ...]) -> Start:
    found = (_split(words, at) for at in range(len(words)) if _is_ours(words, at))
    return next((each for each in found if _is_meant(each)), Start(words))


def _split(words: tuple[str, ...], at: int) -> Start:
    rest = words[at + 1 :]
    place = next((place for place in range(len(rest)) if not _is_option(rest, place)), len(rest))
    subcommand = rest[place] if place < len(rest) else None
    return Start(words[:at], rest[:place], subcommand, rest[place + 1 :], is_ours=True)


def _is_meant(start: Start) -> bool:
    """Return whether it is run, and not a word for something else such as ``pip install``."""
    return not start.stays or start.subcommand == "serve" or start.stays in (*CLIENTS, *STAYERS, *INITS)


def _is_ours(words: Sequence[str], at: int) -> bool:
    name = basename(words[at])
    return name == OURS or (name == MODULE and at > 0 and words[at - 1] == "-m")


def _is_option(words: Sequence[str], at: int) -> bool:
    """Return whether a word is one of our options, or the value of the one before it."""
    before = words[at - 1] if at else ""
    takes_value = before.startswith("--") and "=" not in before and before not in VALUELESS
    return words[at].startswith("-") or (takes_value and _is_option(words, at - 1))
