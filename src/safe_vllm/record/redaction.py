"""Keeping secrets out of everything that we print or write."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

HIDDEN = "***"
_SECRET_FLAG = re.compile(r"^--?[\w.-]*(?:key|token|secret|password)$", re.IGNORECASE)
_IN_URL = re.compile(r"(?<=://)[^/@\s]+@")


def hide(words: Sequence[str]) -> tuple[str, ...]:
    """Return the words with the values of flags that hold secrets, and credentials in URLs, replaced."""
    return tuple(_hidden(words))


def _hidden(words: Sequence[str]) -> Iterator[str]:
    is_secret = False
    for word in words:
        if not word.startswith("-"):
            yield HIDDEN if is_secret else _IN_URL.sub(f"{HIDDEN}@", word)
            continue
        is_secret = _is_secret(word)
        yield f"{word.split('=', 1)[0]}={HIDDEN}" if is_secret and "=" in word else _IN_URL.sub(f"{HIDDEN}@", word)


def _is_secret(word: str) -> bool:
    flag = word.split("=", 1)[0].replace("_", "-")
    return bool(_SECRET_FLAG.match(flag))
