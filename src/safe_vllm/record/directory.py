"""Where what happened is kept: the directory that a launch writes to, and those that readers look into."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from safe_vllm.errors import Trouble, reason_of

NAME = "safe-vllm"
OF_THE_SYSTEM = Path("/var/lib") / NAME
"""Where systemd puts ``StateDirectory=safe-vllm`` of a system service."""
ELSEWHERE = "give the --state-dir of the launch, where it had one"
"""What to do where no state directory was found."""
MODE = 0o711
"""Others may enter, to read in ``run`` what runs; all else in it is for its owner alone."""


@dataclass(frozen=True)
class StateDirectory:
    """Where a launch writes."""

    path: Path | None
    """``None``: nowhere."""
    problem: str | None = None
    """What the operator should know: why it is nowhere, or why nothing new will come there."""


def to_write(asked: str | None, environment: Mapping[str, str], *, creates: bool = True) -> StateDirectory:
    """Return where a launch keeps what happened, and make that directory, or look whether it could be made.

    Whoever owns it can put code in the place of caches, so another user's is refused unless it was ``asked`` for.
    """
    try:
        path = _chosen(asked, environment)
    except OSError as error:  # the working directory is gone, from which a relative one counts
        return StateDirectory(None, f"{asked}: cannot be made: {reason_of(error)}; nothing is remembered, {_ELSEWHERE}")
    if path is None:
        hint = "give --state-dir, or set STATE_DIRECTORY, XDG_STATE_HOME or HOME"
        return StateDirectory(None, f"there is no place to remember what breaks and what holds; {hint}")
    try:
        make(path) if creates else _could_make(path)
        owner = None if asked else _stranger(path)
    except OSError as error:
        return StateDirectory(None, f"{path}: cannot be made: {reason_of(error)}; nothing is remembered, {_ELSEWHERE}")
    if owner is not None:
        said = f"{path}: it belongs to another user ({owner}), so nothing is remembered"
        return StateDirectory(None, f"{said}; give it as --state-dir if that is meant, or another one")
    if os.access(path, os.F_OK) and not os.access(path, os.W_OK | os.X_OK):
        return StateDirectory(path, f"{path}: cannot be written, so nothing new is remembered; {_ELSEWHERE}")
    return StateDirectory(path)


def _could_make(path: Path) -> None:
    """Raise the OSError that ``make`` would raise, as far as one can tell."""
    there = next(each for each in (path, *path.parents) if os.path.lexists(each))
    is_made, reason = there == path, None
    if not os.path.isdir(there):  # noqa: PTH112  a Path complains where it may not look
        reason = errno.EEXIST if is_made else errno.ENOTDIR
    elif not is_made and not os.access(there, os.W_OK | os.X_OK):
        reason = errno.EROFS if os.statvfs(there).f_flag & os.ST_RDONLY else errno.EACCES
    if reason is not None:
        raise OSError(reason, os.strerror(reason))


def make(path: Path, mode: int = MODE) -> None:
    """Make a directory with this mode, whatever the umask, unless it is there. Raises OSError."""
    try:
        try:
            path.mkdir(mode)
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.mkdir(mode)
    except OSError:  # which one it is where there is a directory differs between file systems
        if not path.is_dir():
            raise
    else:
        path.chmod(mode)


def to_read(asked: str | None, environment: Mapping[str, str], system: Path = OF_THE_SYSTEM) -> tuple[Path, ...]:
    """Return the directories that exist of those in which launches may have left something, the likeliest first.

    One that was ``asked`` for is the only one. Raises Trouble where it is missing.
    """
    found = tuple(place for place in places(asked, environment, system) if _is_directory(place))
    if asked and not found:
        raise Trouble(f"{asked}: there is no such directory", hint="give the --state-dir of the launch")
    return found


def places(asked: str | None, environment: Mapping[str, str], system: Path = OF_THE_SYSTEM) -> tuple[Path, ...]:
    """Return the directories in which launches may have left something, whether they exist or not."""
    if not asked:
        return tuple(dict.fromkeys((*_of_systemd(environment), system, *_of_user(environment))))
    try:
        return (Path(asked).absolute(),)
    except OSError:  # as above: nothing can be there
        return (Path(asked),)


_ELSEWHERE = "give another --state-dir"


def _stranger(path: Path) -> int | None:
    """Return the user whose directory it is, unless that is this one or root. Raises OSError."""
    try:
        owner = path.stat().st_uid
    except FileNotFoundError:
        return None
    return None if owner in (os.geteuid(), 0) else owner


def _chosen(asked: str | None, environment: Mapping[str, str]) -> Path | None:
    if asked:
        return Path(asked).absolute()  # vLLM is told of places in it, and may run elsewhere
    return next(iter((*_of_systemd(environment), *_of_user(environment))), None)


def _of_systemd(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the first directory that systemd made for the unit; relative paths are none of systemd's."""
    first = environment.get("STATE_DIRECTORY", "").partition(":")[0]
    return (Path(first),) if first.startswith("/") else ()


def _of_user(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the user's own; a relative ``XDG_STATE_HOME`` does not count, as its rules say."""
    state, home = environment.get("XDG_STATE_HOME", ""), environment.get("HOME", "")
    if state.startswith("/"):
        return (Path(state) / NAME,)
    return (Path(home) / ".local/state" / NAME,) if home.startswith("/") else ()


def _is_directory(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # it may not be looked at: nothing in it is for us
        return False
