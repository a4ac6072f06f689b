"""Hides the secrets of one launch wherever they stand: also in output that names them without saying what they are."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import quote

from safe_vllm.plan.secrets import HIDDEN, MARKED, Mark, hide, hide_variable, plain, without_secrets

SHORTEST = 6
"""Shorter secrets are hidden only where something tells that they are secrets: they could be a part of any word."""
CUT_AT = 2000
"""A text that long may have been cut in the middle of a secret."""
CUT_MARK = "…"
"""What our own lines put where they cut."""
MOST_CUTS = 4
SHORTEST_END = 3
"""So many characters of a secret at the end of such a text are taken for what the cut has left of it."""


def salted(salt: bytes) -> Mark:
    """Return marks that differ where the secrets do: ``***`` and four digits of a digest.

    The salt is random and never written, so that nobody can try secrets until the digits fit.
    """
    from hashlib import blake2b  # only once something has failed

    def mark(secret: str) -> str:
        if not secret or MARKED.fullmatch(secret):
            return secret or HIDDEN
        return HIDDEN + blake2b(secret.encode(errors="backslashreplace"), key=salt, digest_size=2).hexdigest()

    return mark


@dataclass(frozen=True)
class Veil:
    """What is shown of texts of one launch. Whatever it has shown once stays as it is."""

    mark: Mark
    known: tuple[str, ...] = ()
    """Secrets that the launch is known to have."""

    def text(self, text: str) -> str:
        """Return what may be shown of any text."""
        if self._forms:
            text = self._pattern.sub(lambda found: self._forms[found[0]], text)
        return without_secrets(self._without_cut_secrets(text), self.mark)

    def words(self, words: Sequence[str]) -> tuple[str, ...]:
        """Return what may be shown of a command."""
        return tuple(self.text(word) for word in hide(words, self.mark))

    def variable(self, name: str, value: str) -> str:
        """Return what may be shown of an environment variable's value."""
        return self.text(hide_variable(name, value, self.mark))

    @cached_property
    def _forms(self) -> dict[str, str]:
        """What may stand in a text for a secret, and its mark; the longest first, since one may hold another."""
        forms = {form: self.mark(secret) for secret in self.known for form in _forms(secret)}
        return {form: forms[form] for form in sorted(forms, key=len, reverse=True)}

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile("|".join(map(re.escape, self._forms)))

    def _without_cut_secrets(self, text: str) -> str:
        *cut, rest = text.rsplit(CUT_MARK, MOST_CUTS)
        rest = self._without_end(rest) if len(text) >= CUT_AT else rest
        return CUT_MARK.join((*map(self._without_end, cut), rest))

    def _without_end(self, text: str) -> str:
        for form, mark in self._forms.items():
            start = max(0, len(text) - len(form) + 1)
            while (start := text.find(form[:SHORTEST_END], start)) >= 0:
                if form.startswith(text[start:]):
                    return text[:start] + mark
                start += 1
        return text


def veil_of(
    salt: bytes, words: Sequence[str], environment: Mapping[str, str], config: Mapping[str, object] | None = None
) -> Veil:
    """Return what hides the secrets of a command, its environment and its configuration file, each by its own mark."""
    return Veil(salted(salt), _secrets(words, environment.items(), config))


def plain_veil(
    words: Sequence[str], variables: Iterable[tuple[str, str]], config: Mapping[str, object] | None = None
) -> Veil:
    """Return what hides the secrets of commands, variables and a configuration file, all by one mark."""
    return Veil(plain, _secrets(words, variables, config))


def _secrets(
    words: Sequence[str], variables: Iterable[tuple[str, str]], config: Mapping[str, object] | None
) -> tuple[str, ...]:
    found: dict[str, None] = {}

    def note(secret: str) -> str:
        found.update(dict.fromkeys([secret] if MARKED.fullmatch(secret) is None else []))
        return HIDDEN

    hide(words, note)
    for name, value in variables:
        hide_variable(name, value, note)
    without_secrets(json.dumps(config or {}, default=str, ensure_ascii=False), note)
    return tuple(found)


def _forms(secret: str) -> Iterator[str]:
    """Yield the ways to write a secret and its parts: as they are, within quotes of JSON or Python, in an address."""
    for part in dict.fromkeys(_parts(secret)):
        encoded = part.encode(errors="replace")
        forms = (
            part,
            json.dumps(part)[1:-1],
            json.dumps(part, ensure_ascii=False)[1:-1],
            repr(part)[1:-1],
            quote(encoded),
            quote(encoded, safe=""),
            base64.b64encode(encoded).decode(),
        )
        yield from forms if len(part) >= SHORTEST else ()


def _parts(secret: str) -> Iterator[str]:
    """Yield a secret, each line of it, the password of a user, and each of those in a list."""
    yield from (secret, secret.strip(), *map(str.strip, secret.splitlines()))
    yield secret.partition(":")[2]
    yield from re.split(r"""["'],\s*["']""", secret)
