"""Puts command lines to a vLLM, all of one kind of hardware in one process: importing vLLM takes long."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dialect_expect import Answer
from dialect_plan import GPUS, Hardware

HARNESS = Path(__file__).with_name("dialect_harness.py")
INHERITED = ("PATH", "HOME", "LANG")


@dataclass(frozen=True)
class Question:
    """One command line for vLLM: the words after ``serve``, and variables."""

    words: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()


def ask(
    python: Path, version: str, hardware: Hardware, questions: Sequence[Question], place: Path
) -> dict[Question, Answer]:
    """Return the answer to each question; what vLLM prints beside goes into a file in ``place``."""
    shown = ["--gpus", str(GPUS), "--gpu-name", hardware.gpu, "--capability", hardware.capability]
    command = [str(python), str(HARNESS), version, *([] if hardware.is_cpu else shown)]
    lines = [json.dumps({"words": each.words, "environment": dict(each.environment)}) for each in questions]
    log = place / f"vllm-{hardware.capability or 'cpu'}.log"
    with log.open("w") as file:
        done = subprocess.run(
            command,
            input="\n".join(lines),
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
            env=_environment(place),
            check=False,
        )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    if len(answers) != len(questions):
        tail = "".join(log.read_text(errors="replace").splitlines(keepends=True)[-15:])
        sys.exit(f"{tail}check-dialect: vLLM {version} ended with status {done.returncode} while it was asked")
    return dict(zip(questions, answers, strict=True))


def _environment(place: Path) -> dict[str, str]:
    return {
        **{name: os.environ[name] for name in INHERITED if name in os.environ},
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CACHE_ROOT": str(place / "cache"),  # what it learns with GPUs that are not there is for nobody else
    }
