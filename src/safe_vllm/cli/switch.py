"""The emergency switch ``SAFE_VLLM_OFF``: whether it is on, and what is said of a value that it does not know."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping

from safe_vllm.plan.intent import PREFIX, is_switched_on

NAME = f"{PREFIX}OFF"
NOT_ON = ("", "0", "false", "f", "no", "n")
"""What leaves it off without a word. Not ``off``: whoever writes that may well mean us."""
SHOWN = 40
"""Characters of a value that are shown."""


def is_off(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether we are to get out of the way."""
    return is_switched_on(environment.get(NAME, ""))


def told(environment: Mapping[str, str], *, as_json: bool) -> Iterator[str]:
    """Yield one line where the switch has a value that neither turns it on nor leaves it off."""
    value = environment.get(NAME, "").strip()
    if is_switched_on(value) or value.lower() in NOT_ON:
        return
    if as_json:
        yield json.dumps({"event": "value-not-known", "v": 1, "variable": NAME, "value": value[:SHOWN], "meant": "1"})
    else:
        yield f"{NAME} is {value[:SHOWN]!r}, which is not known, so it has no effect; {NAME}=1 runs plain vLLM"
