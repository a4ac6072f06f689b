"""The demo after everything is installed: lets real vLLM die, watches what safe-vllm makes of it, prints the story."""

from __future__ import annotations

import shlex
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

SUPPORT = Path(__file__).parent
sys.path[:0] = [str(SUPPORT.parents[1] / "tests")]

import real_launch  # noqa: E402  needs the path above
import tiny_model  # noqa: E402
from real_launch import EXPERT_PARALLEL, NotAsTold, RealLaunch, cpu_environment  # noqa: E402

QUIET_S = 15.0
"""So long nothing may be seen to happen before a person is told that all is well."""


@dataclass(frozen=True)
class Story:
    """What should happen."""

    name: str
    title: str
    phase: str
    """Where attempt 1 dies, by SIGSEGV."""
    serves_at: str
    """The rung that holds."""
    words: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)


NATURAL = Story(
    "natural",
    "real vLLM with expert parallelism on the CPU, nothing injected: a worker should die at the first inference",
    phase="first-inference",
    serves_at="no-expert-parallel",
    words=EXPERT_PARALLEL,
)
STAND_IN = Story(
    "stand-in",
    "real vLLM, and an injected SIGSEGV at the first inference while expert parallelism is on",
    phase="first-inference",
    serves_at="no-expert-parallel",
    words=EXPERT_PARALLEL,
    environment=real_launch.fault(at="inference", how="segv", when="expert-parallel"),
)
AUTOTUNE = Story(
    "autotune",
    "real vLLM, and an injected SIGSEGV where FlashInfer tunes its kernels, while autotune is on",
    phase="autotune",
    serves_at="no-autotune",
    environment=real_launch.fault(at="startup", how="segv", when="autotune"),
)


class Survived(Exception):
    """Attempt 1 served: this machine does not show the fault."""


def say(text: str = "") -> None:
    """Tell the person who is watching."""
    print(f"demo: {text}" if text else "", flush=True)


class Narrator:
    """Shows safe-vllm's own lines as they come, and a sign of life where there are none."""

    def __init__(self) -> None:
        """Begin with nothing shown."""
        self.shown = 0
        self.started_at = self.spoke_at = time.monotonic()

    def __call__(self, launch: RealLaunch) -> None:
        """Show what is new."""
        lines, now = launch.ours().splitlines(), time.monotonic()
        for line in lines[self.shown :]:
            print(f"  {now - self.started_at:4.0f} s | {line}", flush=True)
        if len(lines) > self.shown:
            self.shown, self.spoke_at = len(lines), now
        elif now - self.spoke_at > QUIET_S:
            self.spoke_at = now
            print(f"  {now - self.started_at:4.0f} s | … vLLM is at work", flush=True)


def play(story: Story, safe_vllm: Path, vllm: Path, model: Path, place: Path) -> None:
    """Run one story from its start to its end. Raises NotAsTold, or Survived."""
    say(f"{story.title}.")
    with real_launch.launched(
        safe_vllm,
        vllm,
        model,
        place / story.name,
        story.words,
        # of its own, so that what one demo learns is not remembered by the next
        environment={**story.environment, "SAFE_VLLM_STATE_DIR": str(place / "state")},
        meanwhile=Narrator(),
    ) as launch:
        variables = " ".join(
            f"{name}={shlex.quote(value)}" for name, value in {**cpu_environment(), **story.environment}.items()
        )
        say(f"$ {variables} {shlex.join(launch.command)}")
        say(f"all output is in {launch.place}; one start of vLLM takes about half a minute")
        ready = launch.wait_until_ready()
        answer = launch.complete()
        if ready["attempt"] == 1:
            launch.stop()
            raise NotAsTold("the injected fault did not happen: attempt 1 serves") if story.environment else Survived
        say(f"a completion was answered: {answer!r}")
        status = launch.stop()
        left = launch.survivors()
    print_timeline(launch)
    check(story, launch, status, left)


def print_timeline(launch: RealLaunch) -> None:
    """Print one line for each attempt."""
    print(f"\n{'attempt':>7}  {'rung':<20}{'seconds':>7}  verdict")
    ready = {event["attempt"]: event for event in launch.events("ready")}
    for ended in launch.events("attempt-ended"):
        verdict = f"{ended['fault']}, phase {ended['phase']} → {ended['action']}"
        if ended["attempt"] in ready:
            verdict = f"ready after {ready[ended['attempt']]['after_s']:.0f} s; then {ended['reason']}"
        print(f"{ended['attempt']:>7}  {ended['rung']:<20}{ended['seconds']:>7.0f}  {verdict}")
    print(flush=True)


def check(story: Story, launch: RealLaunch, status: int, left: list[str]) -> None:
    """Compare what happened with what should have. Raises NotAsTold with everything that was different."""
    first, ready = launch.events("attempt-ended")[0], launch.events("ready")
    # Older kernels do not tell how a grandchild ended; then its own last words must do.
    words = [line["text"] for line in first["evidence"]]
    is_segv = any(end["status"] == -signal.SIGSEGV for end in first["ended"]) or any("Segfault" in w for w in words)
    facts = {
        "attempt 1 ran as asked": first["rung"] == "as-asked",
        "a process of attempt 1 died by SIGSEGV": first["fault"] == "engine-signal" and is_segv,
        f"it died in the phase {story.phase}": first["phase"] == story.phase,
        "it was never announced ready": [event["attempt"] for event in ready] == [len(launch.rungs())],
        f"the server that was announced ready ran at {story.serves_at}": ready[-1]["rung"] == story.serves_at,
        "SIGTERM ended it with status 0": status == 0,
        "no process remains": not left,
    }
    for fact, holds in facts.items():
        print(f"  {'yes' if holds else 'NO ':<3}  {fact}", flush=True)
    if wrong := [fact for fact, holds in facts.items() if not holds]:
        raise NotAsTold("not so: " + "; ".join(wrong))


def main() -> int:
    """Play the story that was asked for; return the exit status."""
    safe_vllm, vllm, directory, *names = sys.argv[1:]
    paths = (Path(safe_vllm), Path(vllm), Path(directory) / "tiny-model")
    tiny_model.write_model(paths[2])
    (Path(directory) / "runs").mkdir(exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix=time.strftime("%Y%m%d-%H%M%S-"), dir=Path(directory) / "runs"))
    try:
        try:
            play(AUTOTUNE if names == ["autotune"] else NATURAL, *paths, place)
        except Survived:
            say("this CPU does not show the natural fault (other kernels are in use here): attempt 1 serves.")
            play(STAND_IN, *paths, place)
    except NotAsTold as trouble:
        say(f"FAILED: {trouble}; see {place}")
        return 1
    except KeyboardInterrupt:
        say("interrupted; everything was ended")
        return 130
    say("done: the fault happened, and the server came back by itself")
    return 0


if __name__ == "__main__":
    sys.exit(main())
