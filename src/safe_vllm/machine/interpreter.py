"""The Python interpreter behind an installed script, and the directories it imports from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from string import Template

from safe_vllm.machine.rooted import below, exists, text_of

LAYOUTS = (
    "lib/python3.*/site-packages",
    "lib64/python3.*/site-packages",
    "lib/python3/dist-packages",
    "lib/python3.*/dist-packages",
    "local/lib/python3.*/dist-packages",
)
"""Where an installation prefix keeps its packages; the last three are Debian's."""

ASK_TIMEOUT_S = 5.0
LONGEST_WRAPPER = 8192
SHELLS = ("sh", "bash", "dash", "zsh", "ksh")
OPTIONS_WITH_VALUE = ("-u", "-C", "--unset", "--chdir")
"""Of ``env``."""


def script_of(words: Sequence[str], environment: Mapping[str, str], root: Path = Path("/")) -> str:
    """Return what a command runs in the end: ``env NAME=value vllm`` runs vLLM."""
    left, variables = list(words), dict(environment)
    while left and Path(left[0]).name == "env":
        left.pop(0)
        while left and (left[0].startswith("-") or "=" in left[0]):
            word = left.pop(0)
            name, is_set, value = word.partition("=")
            if word in OPTIONS_WITH_VALUE:
                del left[:1]
            elif is_set and not word.startswith("-"):
                variables[name] = value
    name = left[0] if left else words[0]
    return name if "/" in name else _on_path(name, variables, root) or words[0]


def behind(script: str, environment: Mapping[str, str], root: Path = Path("/")) -> str:
    """Return the script that a wrapper of a few lines of shell runs instead of itself; else the script."""
    text = text_of(below(root, script), LONGEST_WRAPPER) or ""
    first, _, rest = text.partition("\n")
    names = [Path(word).name for word in first.removeprefix("#!").split() if not word.startswith("-")]
    is_shell = next((name for name in names if name != "env"), "") in SHELLS
    if not first.startswith("#!") or not is_shell or _from_exec(rest, script):
        return script
    return next(filter(None, _started(rest, script, environment, root)), script)


def _started(text: str, script: str, environment: Mapping[str, str], root: Path) -> Iterator[str | None]:
    """Yield what the lines of a wrapper run, if it is vLLM or a Python, by its path."""
    import shlex  # only for wrappers

    search = environment
    for line in text.splitlines():
        try:
            words = [Template(word).safe_substitute(environment) for word in shlex.split(line, comments=True)]
        except ValueError:
            continue
        if len(words) > 1 and words[0] in ("source", ".") and words[1].endswith("/bin/activate"):
            search = {**environment, "PATH": words[1].removesuffix("/activate")}
        words = words[1:] if words[:1] == ["exec"] else words
        found = script_of(words, search, root) if words and words[0] in ("env", "vllm") else (words or [""])[0]
        is_meant = Path(found).name == "vllm" or Path(found).name.startswith("python")
        if is_meant and found.startswith("/") and found != script and exists(below(root, found)):
            yield found


def interpreter_of(script: str, environment: Mapping[str, str], root: Path = Path("/")) -> str | None:
    """Return the interpreter of a script made by pip or uv, or of Python itself; ``None`` for anything else."""
    if Path(script).name.startswith("python"):
        return script
    first, _, rest = (text_of(below(root, script), 4096) or "").partition("\n")
    words = first.removeprefix("#!").split()
    if not first.startswith("#!") or not words:
        return None
    name = Path(words[0]).name
    if name == "env":
        name = next((word for word in words[1:] if not word.startswith("-") and "=" not in word), "")
        words = [name if name.startswith("/") else _on_path(name, environment, root) or ""]
        name = Path(name).name
    if name in SHELLS:
        return _from_exec(rest, script)
    return words[0] if name.startswith("python") and words[0] else None


def package_directories(python: str, script: str, root: Path = Path("/")) -> tuple[Path, ...]:
    """Return the directories that ``python`` imports third-party packages from, by their usual layout."""
    prefix = Path(python).parent.parent
    prefixes = [prefix]
    settings = _venv_settings(prefix, root)
    if settings.get("include-system-site-packages") == "true" and "home" in settings:
        prefixes.append(Path(settings["home"]).parent)
    found = [path for each in prefixes for path in _laid_out(each, root)]
    if Path(script).parent != Path(python).parent:
        found = [*_laid_out(Path(script).parent.parent, root), *found]
    wanted = settings.get("version_info") or settings.get("version") or ""
    return tuple(sorted(dict.fromkeys(found), key=lambda path: not _is_for(path, python, wanted)))


def ask(python: str) -> tuple[Path, ...]:
    """Return what the interpreter itself says that it imports from. Takes as long as Python takes to start."""
    import subprocess  # rarely needed, and slow to import

    try:
        answer = subprocess.run(
            [python, "-c", "import sys; print(*sys.path[1:], sep='\\n')"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ASK_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return tuple(Path(line) for line in answer.stdout.splitlines() if line)


def _from_exec(rest: str, script: str) -> str | None:
    """Read the second line that pip and uv write where a path is too long for a shebang, or must stay relative."""
    line = rest.partition("\n")[0]
    beside = re.search(r"dirname.*?/['\"]?(python[\w.]*)", line)
    if beside:
        return str(Path(script).parent / beside[1])
    absolute = re.search(r"exec['\"]*\s+['\"]?(/[^'\"]*?python[\w.]*)['\"]?\s", line)
    return absolute[1] if absolute else None


def _on_path(name: str, environment: Mapping[str, str], root: Path) -> str | None:
    places = environment.get("PATH", "").split(":")
    return next((f"{place}/{name}" for place in places if place and exists(below(root, f"{place}/{name}"))), None)


def _venv_settings(prefix: Path, root: Path) -> Mapping[str, str]:
    lines = (text_of(below(root, prefix / "pyvenv.cfg")) or "").splitlines()
    pairs = (line.partition("=") for line in lines)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def _laid_out(prefix: Path, root: Path) -> Iterator[Path]:
    for layout in LAYOUTS:
        yield from sorted(below(root, prefix).glob(layout), reverse=True)


def _is_for(path: Path, python: str, version: str) -> bool:
    """Return whether a directory belongs to this Python version, as far as the names tell."""
    named = re.search(r"python(3\.\d+)", path.as_posix())
    own = re.search(r"3\.\d+", Path(python).name) or re.match(r"3\.\d+", version)
    return named is None or own is None or named[1] == own[0]
