"""Keeping secrets out of everything that we print or write."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from safe_vllm.plan.flags import is_flag_like

HIDDEN = "***"
SECRET_FLAGS = ("--api-key", "--hf-token")
"""Flags of vLLM's that hold secrets. It takes beginnings of them too, and no other flag is the beginning of one."""
_ENDINGS = "key|token|secret|password"
_SECRET_FLAG = re.compile(rf"--?[\w.-]*(?:{_ENDINGS})", re.IGNORECASE)
_SECRET_VARIABLE = re.compile(rf"(?:\w*_)?(?:{_ENDINGS})", re.IGNORECASE)
_IN_URL = re.compile(r"(?<=://)[^/\s\"']+@")
_IN_QUERY = re.compile(rf"(?<=[?&])((?:[\w.-]*[_-])?(?:{_ENDINGS}|signature|sig)=)[^&\s\"']+", re.IGNORECASE)
_IN_JSON = re.compile(
    rf"""(["'](?:\w*[_-])?(?:{_ENDINGS})["']\s*:\s*)(?:"(?:[^"\\]|\\.)*"|'[^']*'|\[[^]]*\]|[^\s,}}\]]+)""",
    re.IGNORECASE,
)


def hide(words: Sequence[str]) -> tuple[str, ...]:
    """Return the words with the values of flags that hold secrets, and credentials in URLs, replaced."""
    return tuple(_hidden(words))


def hide_variable(name: str, value: str) -> str:
    """Return what may be shown of an environment variable's value."""
    return HIDDEN if _SECRET_VARIABLE.fullmatch(name) else without_secrets(value)


def _hidden(words: Sequence[str]) -> Iterator[str]:
    is_secret = False
    for word in words:
        if not is_flag_like(word):
            yield HIDDEN if is_secret else without_secrets(word)
            continue
        flag, equals, _ = word.partition("=")
        is_secret = _holds_secret(flag)
        yield f"{flag}={HIDDEN}" if is_secret and equals else without_secrets(word)


def _holds_secret(flag: str) -> bool:
    name = flag.replace("_", "-")
    is_beginning = len(name) > len("--") and any(secret.startswith(name) for secret in SECRET_FLAGS)
    return is_beginning or _SECRET_FLAG.fullmatch(name) is not None


def without_secrets(text: str) -> str:
    """Return a text without credentials in URLs and without the values of JSON keys that name secrets."""
    text = _IN_URL.sub(f"{HIDDEN}@", text)
    text = _IN_QUERY.sub(rf"\g<1>{HIDDEN}", text)
    return _IN_JSON.sub(rf'\g<1>"{HIDDEN}"', text)
