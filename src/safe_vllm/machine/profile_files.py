"""Finds profiles and reads them. What they mean is ``plan.profile``'s business."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from safe_vllm.errors import Status, Trouble
from safe_vllm.machine.facts import ProfileFile

PACKAGE = Path(__file__).parent.parent
SYSTEM = "/etc/safe-vllm/profiles"
ENDINGS = (".yaml", ".yml")


def read_profiles(
    asked: str | None, extra: str | None, environment: Mapping[str, str], *, system: Path = Path(SYSTEM)
) -> tuple[ProfileFile, ...]:
    """Return every profile, or only the one that was ``asked`` for by name or by file.

    Of two with one name the later directory wins: shipped, the system's, the user's, ``extra``.
    """
    if asked is not None and (asked.endswith(ENDINGS) or "/" in asked):
        return (_read(Path(asked)),)
    files = profile_files(extra, environment, system=system)
    if asked is None:
        return tuple(_read(path) for path in files.values())
    if asked not in files:
        hint = f"there are: {', '.join(sorted(files))}"
        raise Trouble(f"no profile is called {asked!r}", hint=hint, status=Status.USAGE)
    return (_read(files[asked]),)


def profile_files(
    extra: str | None, environment: Mapping[str, str], *, system: Path = Path(SYSTEM)
) -> Mapping[str, Path]:
    """Return the files of all profiles by name."""
    if extra is not None and not Path(extra).is_dir():
        raise Trouble(f"{extra}: not a directory", hint="check --profile-dir")
    places = [shipped(), system, *_of_user(environment), *([Path(extra)] if extra else [])]
    found = (path for place in places if place.is_dir() for path in sorted(place.iterdir()) if path.suffix in ENDINGS)
    return {path.stem: path for path in found}


def shipped() -> Path:
    """Return the directory of our own profiles: in the package, or in the source tree of an editable install."""
    packaged = PACKAGE / "profiles"
    return packaged if packaged.is_dir() else PACKAGE.parent.parent / "profiles"


def _of_user(environment: Mapping[str, str]) -> list[Path]:
    config = environment.get("XDG_CONFIG_HOME") or f"{environment.get('HOME', '')}/.config"
    return [Path(config, "safe-vllm", "profiles")] if config.startswith("/") else []


def _read(path: Path) -> ProfileFile:
    from safe_vllm.data.strict_yaml import load

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Trouble(f"{path}: cannot be read: {error}") from None
    return ProfileFile(str(path), load(text, where=str(path)))
