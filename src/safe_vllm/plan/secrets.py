"""Keeping secrets out of everything that we print or write."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from safe_vllm.plan.flags import is_flag_like

HIDDEN = "***"
SECRET_FLAGS = ("--api-key", "--hf-token")
"""Flags of vLLM's that hold secrets. It takes beginnings of them too, and no other flag is the beginning of one."""
_ENDS = r"(?:[^\W_]*(?:api[_-]?keys?|passwords?|passwd|passphrase|secrets?|credentials?)|key|token|pwd|pass)"
"""How a name ends that stands for a secret; ``max_tokens`` and ``ssl_keyfile`` do not."""
_NAME = rf"(?:[\w.-]*[_.-])?{_ENDS}"
NAME = re.compile(_NAME, re.IGNORECASE)
KEY = re.compile(rf"{_NAME}|[^\W_]+token", re.IGNORECASE)
"""JSON has names in one word too: ``hfToken``."""
PAIR = re.compile(rf"({_NAME}=)[\s\S]+", re.IGNORECASE)
"""A word that is one as a whole may have anything in its value."""


@cache
def _in_text() -> tuple[tuple[re.Pattern[str], str], ...]:
    """Return secrets within a text: in addresses, pairs, JSON and headers, and tokens that look like what they are.

    The bounds of the first keep the time in proportion to the text. Compiling takes a while, and most launches show
    no words at all.
    """
    found = (
        # A password may have a slash in it; what follows a colon and is a number before a slash is a port.
        (r"(?<=://)(?:[^/\s\"']{1,2000}@|[^/\s\"':@]{0,2000}:(?!\d{1,5}(?:/|\s|$))[^\s\"']{0,2000}@)", f"{HIDDEN}@"),
        (rf"((?<![\w.-]){_NAME}\s?=\s?|(?<=[?&])(?:[\w.-]*-)?(?:signature|sig)=)[^&\s\"']+", rf"\g<1>{HIDDEN}"),
        (rf"""(["']{_NAME}["']\s*:\s*)(?:"(?:[^"\\]|\\.)*"|'[^']*'|\[[^]]*\]|[^\s,}}\]]+)""", rf'\g<1>"{HIDDEN}"'),
        (rf"((?<=[{{,\s]){_NAME}:\s*)[^\s,}}\"']+", rf"\g<1>{HIDDEN}"),
        (r"(\bauthorization[\"']?\s*[:=]\s*[\"']?)(?!bearer\b)(?:[a-z]+\s+)?[^\s\"',}]+", rf"\g<1>{HIDDEN}"),
        (rf"((?<!\w)--{_NAME}[\s=]+)[^\s\"']+", rf"\g<1>{HIDDEN}"),
        (r"(\bbearer\s+)[^\s\"',;}]+", rf"\g<1>{HIDDEN}"),
        (r"(?<![a-z0-9])(?:hf_[a-z0-9]{10,}|(?:sk|nvapi)-[\w-]{16,}|gh[a-z]_[a-z0-9]{16,})", HIDDEN),
    )
    return tuple((re.compile(pattern, re.IGNORECASE), instead) for pattern, instead in found)


def hide(words: Sequence[str]) -> tuple[str, ...]:
    """Return the words with the values of flags that hold secrets, and secrets within words, replaced."""
    return tuple(_hidden(words))


def hide_variable(name: str, value: str) -> str:
    """Return what may be shown of an environment variable's value."""
    return HIDDEN if NAME.fullmatch(name) else without_secrets(value)


def without_secrets(text: str) -> str:
    """Return a text without the secrets that can be told by what stands before them, or by how they look."""
    if text.lstrip()[:1] in ("{", "["):
        text = _without_secrets_in_json(text)
    for pattern, instead in _in_text():
        text = pattern.sub(instead, text)
    return text


def _hidden(words: Sequence[str]) -> Iterator[str]:
    is_secret, before = False, ""
    for word in words:
        is_value = not is_flag_like(word) or (is_secret and before.startswith("-") and not word.startswith("--"))
        if is_value:
            yield HIDDEN if is_secret or before.lower().endswith("bearer") else _whole(word)
        else:
            flag, equals, _ = word.partition("=")
            is_secret = _holds_secret(flag)
            yield f"{flag}={HIDDEN}" if is_secret and equals else _flagged(word)
        before = word


def _holds_secret(flag: str) -> bool:
    name = flag.replace("_", "-")
    is_beginning = len(name) > len("--") and any(secret.startswith(name) for secret in SECRET_FLAGS)
    return is_beginning or NAME.fullmatch(name.lstrip("-")) is not None


def _flagged(word: str) -> str:
    flag, equals, value = word.partition("=")
    return f"{without_secrets(flag)}={without_secrets(value)}" if equals else without_secrets(word)


def _whole(word: str) -> str:
    pair = PAIR.fullmatch(word)
    return f"{pair[1]}{HIDDEN}" if pair else without_secrets(word)


def _without_secrets_in_json(text: str) -> str:
    """Return JSON with the values of keys that name secrets replaced, whatever they are; as it was where none is."""
    try:
        value = json.loads(text)
        changed = _cleared(value)
        return text if changed == value else json.dumps(changed, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def _cleared(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: HIDDEN if KEY.fullmatch(key) else _cleared(inner) for key, inner in value.items()}
    return [_cleared(each) for each in value] if isinstance(value, list) else value
