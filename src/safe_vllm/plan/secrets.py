"""Keeping secrets out of everything that we print or write."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any

from safe_vllm.plan.flags import is_flag_like

Mark = Callable[[str], str]
"""What is shown in place of a secret. It returns what is a mark already as it is: a text may be cleared twice."""

HIDDEN = "***"
PLACES = ("PWD", "OLDPWD")
"""Variables that every shell sets: directories, whatever they sound like."""
SECRET_FLAGS = ("--api-key", "--hf-token")
"""Flags of vLLM's that hold secrets. It takes beginnings of them too, and no other flag is the beginning of one."""
_ENDS = r"(?:[^\W_]*(?:api[_-]?keys?|passwords?|passwd|passphrase|secrets?|credentials?)|key|token|pwd|pass)"
"""How a name ends that stands for a secret; ``max_tokens`` and ``ssl_keyfile`` do not."""
_NAME = rf"(?:[\w.-]*[_.-])?{_ENDS}"
NAME = re.compile(_NAME, re.IGNORECASE)
KEY = re.compile(rf"{_NAME}|[^\W_]+token", re.IGNORECASE)
"""JSON has names in one word too: ``hfToken``."""
PAIR = re.compile(rf"({_NAME}=)([\s\S]+)", re.IGNORECASE)
"""A word that is one as a whole may have anything in its value."""


MARKED = re.compile(r"\*{3}(?:[0-9a-f]{4})?(?:[\"', ]+\*{3}(?:[0-9a-f]{4})?)*")
"""What stands for one secret, or for a list of them."""
_QUOTES = "\"'[]"
"""A secret is the same one with and without them, and alone in a list."""


def plain(secret: str) -> str:
    """Return the same mark for every secret."""
    return secret if MARKED.fullmatch(secret) else HIDDEN


@cache
def _in_text() -> tuple[tuple[re.Pattern[str], str], ...]:
    """Return secrets within a text, in addresses, pairs, JSON and headers, and tokens that look like what they are.

    Each pattern stands with the form of what replaces the secret, which is the named group, and its quotes. The bounds
    of the first keep the time in proportion to the text. Compiling takes a while, and most launches show no words at
    all.
    """
    found = (
        # A password may have a slash in it; what follows a colon and is a number before a slash is a port.
        (
            r"(?<=://)(?:(?P<s>[^/\s\"':@]{0,2000}:(?!\d{1,5}(?:/|\s|$))[^\s\"']{0,2000})@|(?P<t>[^/\s\"']{1,2000})@)",
            "{}@",
        ),
        (rf"(?:(?<![\w.-]){_NAME}\s?=\s?|(?<=[?&])(?:[\w.-]*-)?(?:signature|sig)=)(?P<s>[^&\s\"']+)", "{}"),
        # a string that was cut off has no end
        (
            rf"""["']{_NAME}["']\s*:\s*(?P<s>"(?:[^"\\]|\\.)*(?:"|\Z)|'[^']*(?:'|\Z)|\[[^]]*\]|[^\s,}}\]]+)""",
            '"{}"',
        ),
        (rf"(?<=[{{,\s]){_NAME}:\s*(?P<s>[^\s,}}\"']+)", "{}"),
        (r"\bauthorization[\"']?\s*[:=]\s*[\"']?(?!bearer\b)(?P<s>(?:[a-z]+\s+)?[^\s\"',}]+)", "{}"),
        (rf"(?<!\w)--{_NAME}[\s=]+(?P<s>[^\s\"']+)", "{}"),
        (r"\bbearer\s+(?P<s>[^\s\"',;}]+)", "{}"),
        (r"(?<![a-z0-9])(?P<s>hf_[a-z0-9]{10,}|(?:sk|nvapi)-[\w-]{16,}|gh[a-z]_[a-z0-9]{16,})", "{}"),
    )
    return tuple((re.compile(pattern, re.IGNORECASE), form) for pattern, form in found)


def hide(words: Sequence[str], mark: Mark = plain) -> tuple[str, ...]:
    """Return the words with the values of flags that hold secrets, and secrets within words, replaced."""
    return tuple(_hidden(words, mark))


def hide_variable(name: str, value: str, mark: Mark = plain) -> str:
    """Return what may be shown of an environment variable's value."""
    is_secret = name not in PLACES and NAME.fullmatch(name)
    return mark(value) if is_secret else without_secrets(value, mark)


def without_secrets(text: str, mark: Mark = plain) -> str:
    """Return a text without the secrets that can be told by what stands before them, or by how they look."""
    if text.lstrip()[:1] in ("{", "["):
        text = _without_secrets_in_json(text, mark)
    for pattern, form in _in_text():
        text = pattern.sub(partial(_replaced, form=form, mark=mark), text)
    return text


def _replaced(found: re.Match[str], form: str, mark: Mark) -> str:
    group = found.lastgroup or "s"
    before = found[0][: found.start(group) - found.start()]
    return before + form.format(mark(found[group].strip(_QUOTES)))


def _hidden(words: Sequence[str], mark: Mark) -> Iterator[str]:
    is_secret, before = False, ""
    for word in words:
        is_value = not is_flag_like(word) or (is_secret and before.startswith("-") and not word.startswith("--"))
        if is_value:
            yield mark(word) if is_secret or before.lower().endswith("bearer") else _whole(word, mark)
        else:
            flag, equals, value = word.partition("=")
            is_secret = _holds_secret(flag)
            yield f"{flag}={mark(value)}" if is_secret and equals else _flagged(word, mark)
        before = word


def _holds_secret(flag: str) -> bool:
    name = flag.replace("_", "-")
    is_beginning = len(name) > len("--") and any(secret.startswith(name) for secret in SECRET_FLAGS)
    return is_beginning or NAME.fullmatch(name.lstrip("-")) is not None


def _flagged(word: str, mark: Mark) -> str:
    flag, equals, value = word.partition("=")
    return f"{without_secrets(flag, mark)}={without_secrets(value, mark)}" if equals else without_secrets(word, mark)


def _whole(word: str, mark: Mark) -> str:
    pair = PAIR.fullmatch(word)
    return f"{pair[1]}{mark(pair[2])}" if pair else without_secrets(word, mark)


def _without_secrets_in_json(text: str, mark: Mark) -> str:
    """Return JSON with the values of keys that name secrets replaced, whatever they are; as it was where none is."""
    try:
        value = json.loads(text)
        changed = _cleared(value, mark)
        return text if changed == value else json.dumps(changed, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def _cleared(value: Any, mark: Mark) -> Any:
    if isinstance(value, dict):
        return {
            key: _marked(inner, mark) if KEY.fullmatch(key) else _cleared(inner, mark) for key, inner in value.items()
        }
    return [_cleared(each, mark) for each in value] if isinstance(value, list) else value


def _marked(value: Any, mark: Mark) -> str:
    marks = [mark(text) for text in _texts(value)]
    return marks[0] if len(marks) == 1 else mark(json.dumps(value, ensure_ascii=False))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)
