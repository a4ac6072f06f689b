"""Draws what one attempt of the fake plays in a random act."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from chaos_voice import ROLES, TWO_STREAMS, Voice
from scenes import (
    DEAF,
    ENGINE,
    HOLD,
    MISSING_MODEL,
    PORT_IN_USE,
    REFUSED_BACKEND,
    TOO_LITTLE_MEMORY,
    WAIT_FOR_CHILD,
    WORKER,
    Scene,
    Step,
    argparse_error,
    die,
    fail,
    fork,
    ima_at_startup,
    kill,
    leave,
    on_signal,
    serve,
    wait_until_watched,
    write,
)

SHUTDOWN = "(APIServer pid=1) INFO 11-30 08:40:48 [launcher.py:137] [shutdown] API server: shutdown triggered\n"
COREDUMP = "\ncoredump: Detected an exception of type CUDBG_EXCEPTION_WARP_ILLEGAL_ADDRESS (14)\n"
COREDUMP_GOES_ON = "\ncoredump: Writing GPU core dump, 12% done\n"
FAULT_SIGNALS = ("SIGSEGV", "SIGABRT", "SIGILL", "SIGFPE", "SIGBUS", "SIGTRAP", "SIGKILL")
STOPS = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT")


@dataclass(frozen=True)
class Attempt:
    """What one attempt of the fake plays."""

    kind: str
    """A name, and the signals that end its processes."""
    scene: Scene
    voices: tuple[Voice, ...]


def draw_attempt(dice: random.Random, number: int) -> Attempt:
    """Return what an attempt plays; ``number`` from 1."""
    voices = {role: Voice(number, role) for role in ROLES}
    weights = [weight for weight, _ in KINDS.values()]
    kind = dice.choices(tuple(KINDS), [0, *weights[1:]] if number == 1 and dice.random() < 0.4 else weights)[0]
    parts = _Parts(dice, voices)
    scene = [*parts.chat("leader"), *parts.extras(), *KINDS[kind][1](parts)]
    return Attempt(" ".join([kind, *parts.signals]), scene, tuple(voices.values()))


@dataclass
class _Parts:
    """The parts that a scene is made of, some of them at random."""

    dice: random.Random
    voices: dict[str, Voice]
    signals: list[str] = field(default_factory=list)
    """What some process dies of."""

    def chat(self, role: str) -> Scene:
        """Say something, or much, or nothing."""
        steps: Scene = []
        for _ in range(self.dice.choices((0, 1, 3), (3, 4, 1))[0]):
            is_flood = self.dice.random() < 0.2
            size = self.dice.choice((8_000, 60_000)) if is_flood else self.dice.choice((1, 40, 700))
            stream, end = self.dice.choice(TWO_STREAMS), self.dice.choice(("\n", "\n", "\r", ""))
            steps += self.voices[role].says(stream, size, end, self.dice.choice((1, 8)) if is_flood else 1)
        return steps

    def extras(self) -> Scene:
        """Start processes that leave, hold the pipes, or are deaf."""
        steps: Scene = []
        if self.dice.random() < 0.3:
            is_deaf = self.dice.random() < 0.2
            away = {"leaves_session": self.dice.random() < 0.7, "double": self.dice.random() < 0.7}
            steps.append(fork("escapee", *self.chat("escapee"), HOLD, ignores=DEAF if is_deaf else [], **away))
        if self.dice.random() < 0.2:
            steps.append(fork("holder", HOLD))
        if self.dice.random() < 0.1:
            again = fork("reborn", HOLD, leaves_session=True, double=True)
            steps.append(fork("phoenix", on_signal("SIGTERM", steps=[again, leave(0)]), HOLD))
        return steps

    def engine(self, *steps: Step) -> Step:
        """Start an engine core, perhaps with a worker."""
        if self.dice.random() < 0.5:
            return fork(ENGINE, *self.chat("engine"), *(steps or (HOLD,)))
        worker = fork(WORKER, *self.chat("worker"), *(steps or (HOLD,)))
        return fork(ENGINE, worker, *self.chat("engine"), WAIT_FOR_CHILD, leave(1))

    def serve(self, **how: object) -> Scene:
        """Come up and serve."""
        late = {"health": ((503,) * self.dice.randint(1, 4) + (200,))} if self.dice.random() < 0.3 else {}
        metrics = self.dice.choice((([0, 0],), ([2, 1, "grows"],), ([2, 1],), (500,), (404,), ("never",), ("drop",)))
        rest = {"metrics": metrics, "stops": self.dice.random() < 0.85, "notices": self.dice.random() < 0.85}
        return [self.engine(), *self.chat("leader"), serve(**{**rest, **late, **how})]  # type: ignore[arg-type]

    def signal(self, among: tuple[str, ...]) -> str:
        """Choose a signal to die of."""
        self.signals.append(self.dice.choice(among))
        return self.signals[-1]

    def engine_dies(self) -> Scene:
        """Lose an engine process before there is anything to serve."""
        of = self.signal(FAULT_SIGNALS)
        ends = [leave(self.dice.choice((0, 1)))] if self.dice.random() < 0.5 else [HOLD]
        return [fork(ENGINE, wait_until_watched(ENGINE), *self.chat("engine"), die(of)), WAIT_FOR_CHILD, *ends]

    def first_inference_dies(self) -> Scene:
        """Be healthy, and lose the engine at the first real request."""
        of, gone = self.signal(FAULT_SIGNALS), self.dice.choice((500, "drop", "never"))
        deadly = {"first": [wait_until_watched(ENGINE), kill(ENGINE, of)], "then": gone}
        return self.serve(completions=(deadly,), status=self.dice.choice((0, 1)))

    def leader_dies(self) -> Scene:
        """End by a signal."""
        return [self.engine(), *self.chat("leader"), die(self.signal((*FAULT_SIGNALS, *STOPS)))]

    def coredump(self) -> Scene:
        """Write a core dump of the GPU, and then stand still or end."""
        lines = [write("stderr", COREDUMP), *[write("stderr", COREDUMP_GOES_ON)] * self.dice.randint(0, 3)]
        return [self.engine(), *lines, self.dice.choice((HOLD, leave(1), die("SIGABRT")))]

    def stuck(self) -> Scene:
        """Serve until requests are not answered any more."""
        answers = self.dice.choice(((200, 200, 200, 200, "never"), ("never",), (500,), ("drop",), ("odd",), (404,)))
        return self.serve(completions=answers)

    def shut_down_by_others(self) -> Scene:
        """End as after somebody else's SIGTERM."""
        return [self.engine(), write("stdout", "\n" + SHUTDOWN), leave(0)]

    def leave(self) -> Scene:
        """End without a word, perhaps with processes left behind."""
        return [self.engine(), *self.chat("leader"), leave(self.dice.choice((0, 1, 3, 120, 255)))]


KINDS: dict[str, tuple[int, Callable[[_Parts], Scene]]] = {
    "serves": (9, _Parts.serve),
    "fault-line": (4, lambda parts: ima_at_startup()),
    "engine-dies": (5, _Parts.engine_dies),
    "first-inference": (6, _Parts.first_inference_dies),
    "leader-dies": (3, _Parts.leader_dies),
    "leaves": (3, _Parts.leave),
    "stuck": (4, _Parts.stuck),
    "silent": (2, lambda parts: [parts.engine(), HOLD]),
    "deaf": (1, lambda parts: [parts.engine(), on_signal("SIGTERM", "SIGINT"), HOLD]),
    "coredump": (2, _Parts.coredump),
    "never-healthy": (1, lambda parts: parts.serve(health=(parts.dice.choice((503, "never", "drop")),))),
    "argparse": (1, lambda parts: argparse_error()),
    "missing-model": (1, lambda parts: fail(MISSING_MODEL)),
    "little-memory": (1, lambda parts: fail(TOO_LITTLE_MEMORY)),
    "refused-backend": (1, lambda parts: fail(REFUSED_BACKEND)),
    "port-in-use": (1, lambda parts: fail(PORT_IN_USE)),
    "shut-down-by-others": (1, _Parts.shut_down_by_others),
}
