"""What a script for a shell runs, whether that is vLLM or safe-vllm, and what stays in between."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safe_vllm.checks.shell import commands, pause_s
from safe_vllm.checks.start_words import runs_ours, runs_theirs, start_of_words


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("a b; c && d | e & f", [("a", "b"), ("c",), ("d",), ("e",), ("f",)]),
        ("exec a \\\n  --b 1 \\\n  --c\nd", [("exec", "a", "--b", "1", "--c"), ("d",)]),
        ("exec \\\n  a", [("exec", "a")]),
        ("a --t 'b;c' \"d&e\" ''", [("a", "--t", "b;c", "d&e", "")]),
        ("a --x='{\"n\": 1}'", [("a", '--x={"n": 1}')]),
        ("# it's a comment\n a", [("a",)]),
        ("a >log 2>&1 </dev/null b 8 > x", [("a", "b", "8")]),
        (
            "if [ -n $X ]; then\n  A=1 exec a\nelse exec b\nfi",
            [("[", "-n", "$X", "]"), ("exec", "a"), ("exec", "b"), ("fi",)],
        ),
        ("while ! a; do sleep 1; done", [("a",), ("sleep", "1"), ("done",)]),
        ("a --n=$(NAME) --m $(cat f | head -1) b", [("a", "--n=${NAME}", "--m", "${…}", "b")]),
        ("a 'not closed", [("a",)]),
        ("", []),
    ],
)
def test_a_script_is_taken_apart_as_a_shell_does(script: str, expected: list[tuple[str, ...]]) -> None:
    assert list(commands(script)) == expected


SERVE = ("vllm", "serve", "m")


@pytest.mark.parametrize(
    "words",
    [
        SERVE,
        ("/opt/v/bin/vllm", "serve", "m"),
        ("python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "m"),
        ("python3", "-m", "vllm", "serve", "m"),
        ("numactl", "-N", "0", *SERVE),
        ("/wait-for-it.sh", "db:5432", "--", *SERVE),
        ("bash", "-c", "pip install x && exec vllm serve m"),
        ("bash", "-lc", "until curl http://vllm:8000/health; do sleep 1; done\nvllm \\\n serve m"),
        ("sh", "-c", "pip install safe-vllm; vllm serve m | tee log"),
    ],
)
def test_a_server_of_vllms_is_seen(words: tuple[str, ...]) -> None:
    assert runs_theirs(words)
    assert not runs_ours(words)


@pytest.mark.parametrize(
    "words",
    [
        ("--host", "0.0.0.0", "--k8s-namespace", "vllm", "--routing-logic", "roundrobin"),
        ("wget", "vllm:8000"),
        ("sh", "-c", "until curl -sf http://vllm:8000/health; do sleep 5; done"),
        ("--model", "openai/qwen", "--api_base", "http://vllm:8000/v1"),
        ("/wait-for-it.sh", "vllm:8000", "--", "nginx"),
        ("--client-id=vllm",),
        ("vllm", "bench", "serve"),
        ("python3", "-m", "vllm.entrypoints.openai.run_batch"),
        ("ray", "start", "--block"),
        ("pip", "install", "safe-vllm"),
        ("sh", "-c", "tar cf /x /var/lib/safe-vllm"),
        ("bash", "-c", "echo safe-vllm"),
        (),
    ],
)
def test_what_only_speaks_of_vllm_is_no_server(words: tuple[str, ...]) -> None:
    assert not runs_theirs(words)
    assert not runs_ours(words)


@pytest.mark.parametrize(
    ("words", "stays"),
    [
        (("safe-vllm", "serve"), ""),
        (("/opt/v/bin/python3.12", "-m", "safe_vllm", "serve"), ""),
        (("env", "-u", "X", "A=1", "nice", "-n", "5", "safe-vllm", "serve"), ""),
        (("numactl", "-N", "0", "python", "-m", "safe_vllm", "serve"), ""),
        (("timeout", "3600", "safe-vllm", "serve"), "timeout"),
        (("/usr/local/bin/uv", "run", "safe-vllm", "serve"), "uv"),
        (("uv", "run", "python", "-m", "safe_vllm", "serve"), "uv"),
        (("env", "A=1", "conda", "run", "safe-vllm", "serve"), "conda"),
        (("/opt/own-wrapper", "safe-vllm", "serve"), "own-wrapper"),
        (("bash", "-c", "exec timeout 9 safe-vllm serve"), "timeout"),
        (("tini", "--", "safe-vllm", "serve"), "tini"),
    ],
)
def test_what_stays_in_between_is_named(words: tuple[str, ...], stays: str) -> None:
    start = start_of_words(words)
    assert (start.is_ours, start.subcommand, start.stays) == (True, "serve", stays)


@pytest.mark.parametrize("indent", ["", "  ", "\t"])
def test_options_behind_a_continued_line_count(indent: str) -> None:
    lines = ("set -e", "exec safe-vllm --stop-timeout 100 \\", "serve m \\", "--shutdown-timeout 300 \\", "--port 1")
    script = f"\n{indent}".join(lines)
    start = start_of_words(("/bin/bash", "-euo", "pipefail", "-c", script))
    assert (start.subcommand, start.words) == ("serve", ("m", "--shutdown-timeout", "300", "--port", "1"))
    assert start.stop_s({}) == 315


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["sleep", "60"], (60, True)),
        (["/bin/sleep", "1m", "5s"], (65, True)),
        (["sh", "-c", "sleep 10; echo bye; sleep 0.5"], (10.5, True)),
        (["sh", "-c", "nginx -s quit; sleep 5"], (5, False)),
        (["/drain.sh"], (0, False)),
        (["sleep", "$TIME"], (0, False)),
        ([], (0, True)),
    ],
)
def test_how_long_a_hook_sleeps_is_read(words: list[str], expected: tuple[float, bool]) -> None:
    assert pause_s(words) == expected


@given(st.text("ab ;&|<>()'\"\\\n#$-=09{}", max_size=40))
def test_whatever_stands_in_a_script_it_is_taken_apart(script: str) -> None:
    assert all(commands(script))
    pause_s(["sh", "-c", script])
    start_of_words(["sh", "-c", script])
