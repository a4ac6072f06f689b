"""No line of output keeps us busy: each is looked through in a time that grows no faster than the line."""

from __future__ import annotations

import subprocess
import sys

import pytest

LENGTH = 100_000
WITHIN_S = 60
"""For all lines of one kind, which take a few seconds. One that takes the square of its length takes minutes."""
LOOK = """
import sys
from safe_vllm import known
from safe_vllm.attempt.tail import Tail
from safe_vllm.plan.veil import veil_of
from safe_vllm.verdict.scan import Scan

veil = veil_of(b"salt", ["m", "--api-key", "K" * 40], {"A_TOKEN": "ab" * 2000, "B_TOKEN": "z" * 4000})
signatures = known.signatures()
for part in sys.stdin.buffer.read().decode().split(chr(0)):
    line = part * (int(sys.argv[1]) // len(part))
    worker = "(Worker pid=1) ERROR 11-30 08:40:48 [a.py:1] coredump:  #1"
    for before in ("", "prompt: '", '"key": ', worker, "CUDA error: "):
        tail, scan = Tail(), Scan(signatures)
        for end in ("", "]", "!"):
            data = f"{before}{line}{end}\\rx\\n".encode(errors="surrogateescape")
            tail.feed("stderr", data)
            scan.feed("stderr", data, 0.0)
        lines = tail.last_lines()
    for shown in lines[-1:]:
        veil.text(shown.text)
    veil.text(f"prompt: '{line}")
    print(ascii(part))
"""
KINDS = {
    "hyphens": ("-", "--", "a-", "--a", "-- --", "--key "),
    "digits": ("1", "9%|", "1%|9", "1 [00:00", "1:", "0x1", "11-30 "),
    "quotes": ("'", '"', "\\", '\\"', "'key':'", '"key":[', '"key":{', "key='", "key=\"'"),
    "spaces": (" ", "a ", "\t", " _", "key = "),
    "brackets": ("(", "[", "]", "{", "}", "(Worker pid=", "[00:00", "/s]x", "<"),
    "words": ("a", "_", "a_", "a.", "key", "api_", "Xid (", "VLLM::Worker", "CUDA error: ", "Error: "),
    "addresses": ("/", ":", "://", "://a:", "@", "?sig=", "eyJaaaaaaaa-", "eyJaaaaaaaa.", "cookie:", "xoxb-a"),
    "signs": ("=", "&", "*", "***, ", "…", "━", "━━━ ", "\x1b[", "\x1b[1;", "\x1b]", "\r", "é", "\ufffd"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_line_does_not_keep_us_busy(kind: str) -> None:
    words, parts = [sys.executable, "-c", LOOK, str(LENGTH)], KINDS[kind]
    done = subprocess.run(words, input="\0".join(parts).encode(), capture_output=True, timeout=WITHIN_S, check=False)
    assert done.stdout.decode().split("\n") == [*map(ascii, parts), ""], done.stderr.decode()
