"""Whether a log ends with the exception that ended the server itself: nothing else tells that it is over."""

from __future__ import annotations

import re
from collections.abc import Iterator

from safe_vllm.verdict.lines import Record, clean, parse

_MAIN = "APIServer"
_BEGINS = "Traceback (most recent call last):"
_EXCEPTION = re.compile(r"(?:[\w.]+\.)?\w*(?:Error|Exception|Interrupt)(?::|$)")
_MOST_LINES = 400


def is_uncaught(tail: bytes) -> bool:
    """Return whether ``tail`` ends with a traceback of the main program that nobody logged: such a one has no level."""
    has_exception = False
    for record in _of_main(tail):
        if record.level not in (None, "WARNING"):
            return False
        if record.message.endswith(_BEGINS):
            return has_exception
        has_exception = has_exception or bool(_EXCEPTION.match(record.message))
    return False


def _of_main(tail: bytes) -> Iterator[Record]:
    """Yield what the main program said, the last first."""
    for line in reversed(re.split(rb"[\r\n]+", tail)[-_MOST_LINES:]):
        record = parse(clean(line))
        if record.process is None or record.process.startswith(_MAIN):
            yield record
