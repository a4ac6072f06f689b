"""The commands in a script for a shell, as far as its words tell."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

SHELLS = ("sh", "bash", "dash", "ash", "zsh", "ksh")
CONTINUED = re.compile(r"\\\r?\n")
COMMENT = re.compile(r"^[ \t]*#.*$", re.MULTILINE)
SUBSTITUTED = re.compile(r"\$\(([^()]*)\)")
DESCRIPTOR = re.compile(r"(?:(?<=[\s;&|])|^)\d(?=[<>])", re.MULTILINE)
"""The number before a redirection, which is no word."""
BREAKS = "();<>|&\n"
KEYWORDS = ("then", "do", "else", "elif", "if", "while", "until", "!", "{", "time")
"""What a command may follow on."""
ASSIGNED = re.compile(r"\w+=", re.ASCII)
OF_SCRIPT = re.compile(r"-[a-z]*c")
"""The option of a shell after which its script comes."""
AT_ONCE = ("echo", "true", ":", "touch", "set")
SPAN = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)([smhd]?)")
SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
"""What ``sleep`` takes."""
OF_EXEC = re.compile(r"-[cl]+")

Words = tuple[str, ...]


def basename(word: str) -> str:
    """Return the name of a program without its directories."""
    return word.rpartition("/")[2]


def script_of(words: Sequence[str]) -> str | None:
    """Return the script that a shell is given as a word; ``None``: it is no shell, or has none."""
    if not words or basename(words[0]) not in SHELLS:
        return None
    at = next((place for place, word in enumerate(words) if OF_SCRIPT.fullmatch(word)), len(words)) + 1
    return words[at] if at < len(words) else None


def commands(script: str) -> tuple[Words, ...]:
    """Return the words of every command, each with the ``exec`` before it; of redirections nothing is left."""
    found: list[list[str]] = [[]]
    is_target = False
    for token in _tokens(script):
        if token.strip(BREAKS):
            if not is_target and (found[-1] or not (token in KEYWORDS or ASSIGNED.match(token))):
                found[-1].append(token)
            is_target = False
        elif token and not token.strip("<>&|") and ("<" in token or ">" in token):
            is_target = True
        elif token:
            found, is_target = [*found, []], False
        elif not is_target:
            found[-1].append(token)
    return tuple(tuple(words) for words in found if words)


def _tokens(script: str) -> Iterator[str]:
    plain = DESCRIPTOR.sub("", COMMENT.sub("", CONTINUED.sub(" ", script)))
    lexer = shlex.shlex(SUBSTITUTED.sub(_without_breaks, plain), posix=True, punctuation_chars=BREAKS)
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    try:
        yield from lexer
    except ValueError:  # a quote that is not closed: what stands before it is still worth a look
        return


def _without_breaks(use: re.Match[str]) -> str:
    """Return a substitution as a word: ``$(NAME)`` is one of the kubelet's that it does not know."""
    return f"${{{use[1]}}}" if re.fullmatch(r"\w+", use[1]) else "${…}"


def without_exec(command: Words) -> Words:
    """Return the words that ``exec`` is followed by, or all of them."""
    if not command or command[0] != "exec":
        return command
    at = 1
    while at < len(command) and (command[at] == "-a" or OF_EXEC.fullmatch(command[at])):
        at += 2 if command[at] == "-a" else 1
    return command[at:]


def pause_s(words: Sequence[str]) -> tuple[float, bool]:
    """Return how long a command sleeps, and whether that is all that it takes time for."""
    script = script_of(words)
    held = (tuple(words),) if script is None else tuple(map(without_exec, commands(script)))
    spans = [_slept_s(command) for command in held]
    return sum(each or 0.0 for each in spans), None not in spans


def _slept_s(command: Words) -> float | None:
    """Return how long one command takes; ``None``: nobody knows."""
    if not command or basename(command[0]) in AT_ONCE:
        return 0.0
    spans = [SPAN.fullmatch(word) for word in command[1:]]
    if basename(command[0]) != "sleep" or not spans or None in spans:
        return None
    return sum(float(span[1]) * SECONDS[span[2]] for span in spans if span)
