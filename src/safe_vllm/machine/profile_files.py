"""Finds profiles and reads them, with what they extend. What they mean is ``plan.profile``'s business."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from safe_vllm.errors import Status, Trouble, reason_of
from safe_vllm.machine.facts import ProfileFile
from safe_vllm.machine.rooted import is_directory, is_mute

PACKAGE = Path(__file__).parent.parent
SYSTEM = "/etc/safe-vllm/profiles"
ENDINGS = (".yaml", ".yml")
SIZE_LIMIT = 1 << 20
"""Bytes. Whatever is larger was not meant to be a profile."""

HINTS: Mapping[type[OSError], str] = {
    IsADirectoryError: "name a file in it; --profile-dir takes a directory",
    PermissionError: "let the user who runs safe-vllm read it",
    FileNotFoundError: "correct the link",
}
"""What to do where a file cannot be read. One that is not there at all was not found before it is opened."""


@dataclass(frozen=True)
class Found:
    """A file that may be a profile."""

    path: Path
    origin: str
    """``shipped``, ``system``, ``user``, ``directory`` (given) or ``file`` (given)."""


Shelf = Mapping[str, Sequence[Found]]
"""All files by name; of those with one name the last counts, and it may extend the one before."""


def read_profiles(
    asked: str | None, extra: str | None, environment: Mapping[str, str], *, system: Path = Path(SYSTEM)
) -> tuple[ProfileFile, ...]:
    """Return every profile, or only the one that was ``asked`` for by name or by file.

    Of two with one name the later directory wins: shipped, the system's, the user's, ``extra``.
    """
    shelf = profile_files(extra, environment, system=system)
    if asked is None:
        return tuple(read(found[-1], shelf) for found in shelf.values())
    return (read(named(asked, shelf), shelf),)


def named(asked: str, shelf: Shelf) -> Found:
    """Return the profile of this name, or the file of this path. Raises Trouble where there is none."""
    if not asked.endswith(ENDINGS) and "/" not in asked:
        if asked not in shelf:
            raise Trouble(f"no profile is called {asked!r}", hint=_there_are(shelf), status=Status.USAGE)
        return shelf[asked][-1]
    try:
        os.lstat(asked)
    except (FileNotFoundError, NotADirectoryError):
        hint = f"correct the path, or give a name; {_there_are(shelf)}"
        raise Trouble(f"{asked}: there is no such file", hint=hint, status=Status.USAGE) from None
    except OSError:
        pass  # reading it will tell why
    return Found(Path(asked), "file")


def profile_files(extra: str | None, environment: Mapping[str, str], *, system: Path = Path(SYSTEM)) -> Shelf:
    """Return the files of all profiles by name, the one that counts last."""
    if extra is not None and not is_directory(Path(extra)):
        raise Trouble(f"{extra}: not a directory", hint="check --profile-dir", status=Status.USAGE)
    places = [(shipped(), "shipped"), (system, "system"), *((place, "user") for place in _of_user(environment))]
    shelf: dict[str, list[Found]] = {}
    for place, origin in [*places, *([(Path(extra), "directory")] if extra else [])]:
        for path in sorted(place.glob("*")) if is_directory(place) else ():
            if path.suffix in ENDINGS:
                shelf[path.stem] = [*shelf.pop(path.stem, []), Found(path, origin)]  # found last, chosen last
    return shelf


def shipped() -> Path:
    """Return the directory of our own profiles: in the package, or in the source tree of an editable install."""
    packaged = PACKAGE / "profiles"
    return packaged if packaged.is_dir() else PACKAGE.parent.parent / "profiles"


def read(found: Found, shelf: Shelf, extending: tuple[Path, ...] = ()) -> ProfileFile:
    """Return a file with everything that it extends. ``extending`` are those that led here."""
    from safe_vllm.data.strict_yaml import load_with_lines

    content, lines = load_with_lines(_text(found.path), where=str(found.path))
    name = content.get("extends") if isinstance(content, dict) else None
    if not isinstance(name, str):  # also where it is nonsense, which is for others to say
        return ProfileFile(str(found.path), content, lines, found.origin)
    where = f"{found.path}:{lines[('extends',)]}: extends"
    chain = (*extending, found.path)
    above = _extended(name, found, shelf, where)
    if above.path in chain:
        circle = " -> ".join(path.stem for path in (*chain, above.path))
        raise Trouble(f"{where}: {circle} has no end", hint="let one of them extend none of the others")
    return ProfileFile(str(found.path), content, lines, found.origin, read(above, shelf, chain))


def _extended(name: str, found: Found, shelf: Shelf, where: str) -> Found:
    """Return the profile of this name; for a file of that name itself, the one that it replaces."""
    paths = [each.path for each in shelf.get(name, ())]
    before = shelf.get(name, ())[: paths.index(found.path)] if found.path in paths else shelf.get(name, ())
    if not before:
        raise Trouble(f"{where}: no {'other ' if paths else ''}profile is called {name!r}", hint=_there_are(shelf))
    return before[-1]


def _there_are(shelf: Shelf) -> str:
    return f"there are: {', '.join(sorted(shelf))}"


def _of_user(environment: Mapping[str, str]) -> list[Path]:
    config = environment.get("XDG_CONFIG_HOME") or f"{environment.get('HOME', '')}/.config"
    return [Path(config, "safe-vllm", "profiles")] if config.startswith("/") else []


def _text(path: Path) -> str:
    try:
        if is_mute(path):
            raise Trouble(f"{path}: cannot be read: it is a FIFO", hint="a profile is a regular file")
        with path.open("rb") as file:
            content = file.read(SIZE_LIMIT + 1)
        if len(content) > SIZE_LIMIT:
            raise Trouble(f"{path}: larger than a profile can be", hint="check the path")
        return content.decode("utf-8")
    except OSError as error:
        hint = next((hint for kind, hint in HINTS.items() if isinstance(error, kind)), "check the path")
        raise Trouble(f"{path}: cannot be read: {reason_of(error)}", hint=hint) from None
    except UnicodeDecodeError:
        raise Trouble(f"{path}: cannot be read: it is not UTF-8 text", hint="save it as UTF-8") from None
