"""Our own options as a file gives them: those that switch us off, that are refused, and that nobody reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from safe_vllm.checks.finding import Finding
from safe_vllm.checks.start_words import Start
from safe_vllm.plan import option_values
from safe_vllm.plan.intent import PREFIX, is_switched_on

OFF = f"{PREFIX}OFF"
ADDRESS = f"{PREFIX}STATUS_ADDRESS"
OPEN = ("$", "%")
"""What stands for something that is not in the file: variables, and specifiers of systemd."""


def options(name: str, start: Start, variables: Mapping[str, str]) -> Iterator[Finding]:
    """Look at the variables of ours, and the options before the subcommand."""
    if is_switched_on(variables.get(OFF, "")):
        why = "plain vLLM runs then: nobody steps down, and probes that ask at --status-address are not answered"
        yield Finding(name, "warning", f"{OFF} is set", why, f"take {OFF} out when the fault is found")
    for told, shown, expected in _refused(start, variables):
        what = f"{told} is {shown[:40]!r}, and safe-vllm does not start with that"
        yield Finding(name, "problem", what, f"expected {expected}", f"correct {told}, or leave it out")
    for strange, meant in option_values.misspelt(variables).items():
        what, why = f"{strange} is no variable of ours", "it has no effect"
        yield Finding(name, "warning", what, why, f"did you mean {meant}? else take it out")


def _refused(start: Start, variables: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield the name, the value and what was expected, for each option that is refused."""
    flags = {name: f"--{name.removeprefix(PREFIX).lower().replace('_', '-')}" for name in option_values.READERS}
    given = {name: value for name, flag in flags.items() if (value := start.option(flag, {})) is not None}
    for told, values in ((flags, given), ({name: name for name in variables}, variables)):
        known = {name: value for name, value in values.items() if not any(mark in value for mark in OPEN)}
        for name, expected in option_values.refused(known).items():
            yield told[name], known[name], expected


def is_refused_address(address: str) -> bool:
    """Return whether safe-vllm does not start with it, which ``options`` tells."""
    return not any(mark in address for mark in OPEN) and bool(option_values.refused({ADDRESS: address}))
