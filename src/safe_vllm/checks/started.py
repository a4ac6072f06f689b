"""What a container starts, whoever says so: Kubernetes or compose. And the findings that are the same for both."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from safe_vllm.checks.finding import Finding
from safe_vllm.checks.shell import SHELLS, basename
from safe_vllm.checks.start_words import INITS, Start, all_commands, runs_ours, runs_theirs, start_of_words
from safe_vllm.plan.flags import read
from safe_vllm.plan.grammar import HEADLESS
from safe_vllm.plan.option_values import seconds
from safe_vllm.plan.secrets import NAME, hide

SHM = "/dev/shm"
TEMPORARY = "/tmp"
OURS = re.compile(r"safe[-_]vllm")
OUR_START = ("safe-vllm", "serve")
"""What our image starts."""
WORKER = "worker"
"""What a script of vLLM's that starts Ray is told: https://github.com/vllm-project/vllm/tree/main/examples"""
THEIR_IMAGE = re.compile(
    r"(?:^|/)vllm(?:-(?:openai|cpu|cuda|rocm|xpu|tpu|hpu|gpu|dev|gaudi|neuron|spyre|ascend|server)[-\w]*)?(?=[:@]|\Z)"
)


@dataclass(frozen=True)
class Started:
    """An image, the words that it is started with, and variables."""

    image: str
    """Empty: it is not told."""
    words: tuple[str, ...]
    has_command: bool
    """Whether the words stand in place of what the image would start."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Those whose values are known."""

    @property
    def start(self) -> Start:
        """The command taken apart."""
        return start_of_words(self.words if self.has_command or not self.is_our_image else (*OUR_START, *self.words))

    @property
    def first(self) -> str:
        """The name of what becomes the first process; empty: the image says it."""
        return basename(self.words[0]) if self.words else ""

    @property
    def is_our_image(self) -> bool:
        """Whether its image is made as ours is, as far as the name tells."""
        return OURS.search(self.image) is not None

    @property
    def is_ours(self) -> bool:
        """Whether safe-vllm runs in it: a command is believed, the name of an image only where there is none."""
        return runs_ours(self.words) or (self.is_our_image and (not self.has_command or self._is_closed))

    @property
    def _is_closed(self) -> bool:
        """Whether it runs a file of which nothing is known, and which is not told to be a worker."""
        words = [word for command in all_commands(self.words)[-1:] for word in command if not word.startswith("-")]
        at = 1 if words and basename(words[0]) in SHELLS else 0
        return at < len(words) and words[at].endswith(".sh") and WORKER not in words

    @property
    def is_theirs(self) -> bool:
        """Whether a server of vLLM runs in it, by its words or, where it has no command, by the name of its image."""
        return runs_theirs(self.words) or (not self.has_command and THEIR_IMAGE.search(self.image) is not None)

    @property
    def shown(self) -> str:
        """What it runs, for messages."""
        return " ".join([*([] if self.has_command else [self.image or "what its image says"]), *hide(self.words)])

    @property
    def stop_s(self) -> float:
        """How long a stop may take."""
        return self.start.stop_s(self.variables)

    @property
    def has_api(self) -> bool:
        """Whether there will be a server that can be asked: a member of a group may have none."""
        return read(self.start.words).setting(HEADLESS).value is not True

    def option(self, name: str) -> str | None:
        """Return the value of one of our options, from the command line or its variable."""
        return self.start.option(name, self.variables)

    def number(self, name: str) -> float | None:
        """Return the value of one of our options that takes a number."""
        return seconds(self.option(name))


def supervision(started: Started, name: str, do: str) -> Iterator[Finding]:
    """Tell whether safe-vllm is the first process; ``do``: how that is written."""
    start = started.start
    if not started.is_ours:
        yield Finding(name, "problem", f"it runs {started.shown}", "nobody steps down after a kernel fault", do)
    elif started.first in SHELLS and not start.is_ours and runs_ours(started.words):
        why = "a shell is the first process, which does not pass SIGTERM on: vLLM is killed when the time is over"
        yield Finding(name, "problem", f"it runs {started.first}", why, f"exec safe-vllm in it, or {do}")
    elif not start.is_ours:
        why = "whether that becomes `safe-vllm serve`, and passes SIGTERM on to it, cannot be seen"
        yield Finding(name, "note", f"it runs {started.shown}", why, do)
    elif start.subcommand != "serve":
        what = f"it runs safe-vllm {start.subcommand or 'without a subcommand'}"
        yield Finding(name, "problem", what, "only `serve` supervises", do)
    elif start.stays and start.stays not in INITS:
        why = f"{start.stays} stays the first process, and whether it passes SIGTERM on cannot be seen"
        yield Finding(name, "warning", f"it runs {start.stays}, and safe-vllm below it", why, do)
    else:
        yield Finding(name, "ok", f"it runs {started.shown}")


def secrets(started: Started, name: str, *, where: str, is_from: str, why: str, do: str) -> Iterator[Finding]:
    """Look for keys that can be read ``where`` they stand; a value with what it ``is_from`` comes from elsewhere."""
    pairs, words = started.variables.items(), started.words
    names = [variable for variable, value in pairs if NAME.fullmatch(variable) and value and is_from not in value]
    flags = [word for word, shown in zip(words, hide(words), strict=True) if word != shown and is_from not in word]
    if names or flags:
        told = ", ".join([*names, *(["a flag"] if flags else [])])
        yield Finding(name, "warning", f"{told} has its value in the {where}", why, do)


def state_not_named(name: str) -> Finding:
    """Tell that nobody says where to remember."""
    why = "where the image does not say it either, what broke is forgotten with each container"
    do = "mount a volume, and set SAFE_VLLM_STATE_DIR to a directory in it"
    return Finding(name, "note", "SAFE_VLLM_STATE_DIR is not set", why, do)
