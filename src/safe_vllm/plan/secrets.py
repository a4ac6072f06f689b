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
_STRONG = r"[^\W_]*(?:api[_-]?keys?|passwords?|passwd|passphrase|secrets?|credentials?)"
_TOKEN = "".join(rf"(?<!{of}_)" for of in "bos eos pad unk sep cls mask image video audio per next".split()) + "token"
"""``eos_token`` is part of a language."""
_ENDS = rf"(?:{_STRONG}|(?<!cache_)key|{_TOKEN}|pwd|pass)"
"""How a name ends that stands for a secret; ``max_tokens`` and ``ssl_keyfile`` do not."""
_NAME = rf"(?:[\w.-]*[_.-])?{_ENDS}"
_FULL_NAME = rf"(?:[\w.-]*[_.-]{_ENDS}|{_STRONG})"
"""One that is more than ``key`` or ``token``, which stand before much else."""
_COOKIE = "(?:set-)?cookie"
_HARMLESS = r"(?!(?:None|null|true|false|<\w+>|\d{1,3}|\d{1,9}\.\d+)(?:[\s,;)}\]&`\"']|\Z))"
"""What is no secret, whatever it is called."""
_OPENINGS = ('"', "'", '\\"', "\\'")
_QUOTED = (
    r"""(?:\\"[^"\\]+(?:\\"|\Z)|\\'[^'\\]+(?:\\'|\Z)|"(?:[^"\\]|\\[\s\S]?)+(?:"|\Z)|'(?:[^'\\]|\\[\s\S]?)+(?:'|\Z))"""
)
"""A string that was cut off has no end."""
_VALUE = rf"(?P<s>{_QUOTED}|[^\s,}}\"']+)"
NAME = re.compile(_NAME, re.IGNORECASE)
KEY = re.compile(rf"{_NAME}|[^\W_]+token|{_COOKIE}", re.IGNORECASE)
"""JSON has names in one word too: ``hfToken``."""
PAIR = re.compile(rf"({_NAME}=)([\s\S]+)", re.IGNORECASE)
"""A word that is one as a whole may have anything in its value."""


MARKED = re.compile(r"\*{3}(?:[0-9a-f]{4})?(?:[\"', ]+\*{3}(?:[0-9a-f]{4})?)*")
"""What stands for one secret, or for a list of them."""
_QUOTES = "\"'[]\\"
"""A secret is the same one with and without them, and alone in a list."""


def plain(secret: str) -> str:
    """Return the same mark for every secret."""
    return secret if MARKED.fullmatch(secret) else HIDDEN


_IN_TEXT = (
    # A password may have a slash in it; what follows a colon and is a number before a slash is a port.
    (
        r"(?<=://)(?:(?P<s>[^/\s\"':@]{0,2000}:(?!\d{1,5}(?:/|\s|$))[^\s\"']{0,2000})@|(?P<t>[^/\s\"']{1,2000})@)",
        "{}",
    ),
    (
        rf"(?:(?<![\w.-]){_NAME}\s?=\s?{_HARMLESS}|(?<=[?&])(?:[\w.-]*-)?(?:signature|sig)=)"
        rf"(?P<s>{_QUOTED}|[^&\s\"']+)",
        "{}",
    ),
    (
        rf"""["'](?:{_NAME}|{_COOKIE})["']\s*:\s*(?P<s>{_QUOTED}|\[[^]]{{0,10000}}\]|\{{[^{{}}]{{0,10000}}\}}|[^\s,}}\]]+)""",
        '"{}"',
    ),
    # what names and values of headers look like to a server
    (rf"""[(\[]b?["'](?:{_FULL_NAME}|{_COOKIE}|authorization)["'],\s*b?(?P<s>{_QUOTED})""", "{}"),
    (rf"(?<![\w.\"'/@-]){_FULL_NAME}:\s*(?!:){_HARMLESS}{_VALUE}", "{}"),
    (
        rf"(?<![\w.\"'/@-])(?:key|{_TOKEN}|pwd|pass):\s*"
        r"(?=[a-z+/=~_-]{0,40}\d)(?P<s>[\w+/=~-]{8,})(?![\w.:])",
        "{}",
    ),
    (
        rf"(?<=\"){_COOKIE}:\s*(?P<s>[^\"\r\n]+)|(?<='){_COOKIE}:\s*(?P<t>[^'\r\n]+)"
        rf"|(?<![\w\"'-]){_COOKIE}:\s*(?P<u>[^\r\n]+)",
        "{}",
    ),
    (r"\bauthorization[\"']?\s*[:=]\s*[\"']?(?!bearer\b)(?P<s>(?:[a-z]+\s+)?[^\s\"',}]+)", "{}"),
    # not from within a row of hyphens: each of its places would be held against all that follow
    (rf"(?<![\w.-])--{_NAME}[\s=]+(?P<s>{_QUOTED}|[^\s\"']+)", "{}"),
    (r"\bbearer\s+(?P<s>[^\s\"',;}]+)", "{}"),
    (r"(?<![a-z0-9])(?P<s>hf_[a-z0-9]{10,}|(?:sk|nvapi)-[\w-]{16,}|gh[a-z]_[a-z0-9]{16,})", "{}"),
    (
        r"(?<![\w-])(?P<s>glpat-[\w-]{16,}|github_pat_\w{16,}|xox[a-z]-[\w-]{10,}"
        r"|eyj[\w-]{8,}\.[\w-]{4,}\.[\w-]*)",
        "{}",
    ),
)
"""Secrets within a text, in addresses, pairs, JSON and headers, and tokens that look like what they are.

Each pattern stands with the form of what replaces the secret, which is the named group. The bounds of the first keep
the time in proportion to the text.
"""


@cache
def _in_text() -> tuple[tuple[re.Pattern[str], str], ...]:
    """Return these patterns, compiled: that takes a while, and most launches show no words at all."""
    return tuple((re.compile(pattern, re.IGNORECASE), form) for pattern, form in _IN_TEXT)


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
    before, secret = found[0][: found.start(group) - found.start()], found[group]
    quote = "" if form != "{}" else next((opening for opening in _OPENINGS if secret.startswith(opening)), "")
    return (
        before + quote + form.format(mark(secret.strip(_QUOTES))) + quote + found[0][found.end(group) - found.start() :]
    )


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
