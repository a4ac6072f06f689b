"""What ``forget`` drops, and what it says about that."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from safe_vllm.cli.forget import forget as command
from safe_vllm.commands.forget import forget, raise_for_failures, told
from safe_vllm.commands.status import places
from safe_vllm.errors import Status, Trouble
from safe_vllm.record import files
from safe_vllm.record.fingerprint import Fingerprint
from safe_vllm.record.memory import Memory

NOW = 1_800_000_000.0
FIRST, SECOND = "0123456789abcdef", "fedcba9876543210"
ABOUT = {"model": "Qwen/Qwen3-30B-A3B", "software": {"vllm": "0.23.0"}, "gpus": {"NVIDIA GB200": 4}}


def remember(directory: Path, key: str = FIRST, about: Any = ABOUT) -> Memory:
    mine = Memory(directory, Fingerprint(key, about), 14.0)
    assert mine.note_broken("as-asked", "illegal-memory-access", "moe", "autotune", NOW) == ()
    assert mine.note_held("no-autotune", NOW) == ()
    return mine


def files_in(directory: Path) -> set[str]:
    return {path.name for path in (directory / "remembered").iterdir()} - {files.LOCK}


def test_everything_is_dropped_and_told_one_line_each(tmp_path: Path) -> None:
    remember(tmp_path)
    remember(tmp_path, SECOND, {})
    done = forget(str(tmp_path), [])
    rungs = "as-asked broke (once): illegal-memory-access; no-autotune held (once)"
    assert told(done, "text").splitlines() == [
        f"forgot {FIRST}: Qwen/Qwen3-30B-A3B, vLLM 0.23.0, 4 x NVIDIA GB200: {rungs}",
        f"forgot {SECOND}: nothing is known of it: {rungs}",
    ]
    assert files_in(tmp_path) == set()
    raise_for_failures(done)


@pytest.mark.parametrize("wanted", [FIRST, FIRST[:6]])
def test_one_fingerprint_or_its_beginning_is_dropped_and_the_others_stay(tmp_path: Path, wanted: str) -> None:
    remember(tmp_path)
    remember(tmp_path, SECOND)
    assert told(forget(str(tmp_path), [wanted]), "text").startswith(f"forgot {FIRST}: ")
    assert files_in(tmp_path) == {f"{SECOND}.json"}


def test_an_unknown_fingerprint_is_a_mistake_and_nothing_is_dropped(tmp_path: Path) -> None:
    remember(tmp_path)
    with pytest.raises(
        Trouble, match=f"nothing is remembered under '0123456789abcdee', did you mean '{FIRST}'"
    ) as said:
        forget(str(tmp_path), [FIRST, "0123456789abcdee"])
    assert said.value.status == Status.USAGE
    for nonsense in ("", "../x"):
        with pytest.raises(Trouble):
            forget(str(tmp_path), [nonsense])
    assert files_in(tmp_path) == {f"{FIRST}.json"}
    (tmp_path / "empty").mkdir()
    with pytest.raises(Trouble, match="there is none at all"):
        forget(str(tmp_path / "empty"), [FIRST])


def test_nothing_remembered_is_said_and_no_error(tmp_path: Path) -> None:
    assert told(forget(str(tmp_path), []), "text") == f"nothing is remembered in {tmp_path}"
    done = forget(None, [], {"XDG_STATE_HOME": f"{tmp_path}/xdg"}, tmp_path / "system")
    where = f"{tmp_path}/system, {tmp_path}/xdg/safe-vllm"
    said = f"nothing is remembered in {where}; give the --state-dir of the launch, where it had one"
    assert (done.places, told(done, "text")) == ((), said)


@pytest.mark.parametrize("wanted", [[], [FIRST]])
def test_a_state_directory_that_was_asked_for_and_is_not_there_is_an_error_as_it_is_of_status(
    tmp_path: Path, wanted: list[str]
) -> None:
    missing = f"{tmp_path}/missing"
    for ask in (lambda: forget(missing, wanted), lambda: places(missing)):
        with pytest.raises(Trouble) as said:
            ask()
        assert said.value.status == Status.CONFIGURATION
        assert str(said.value) == f"{missing}: there is no such directory; give the --state-dir of the launch"


def test_what_is_no_record_is_put_aside_with_its_bytes(tmp_path: Path) -> None:
    path = remember(tmp_path).directory / "remembered" / f"{FIRST}.json"  # type: ignore[operator]
    path.write_bytes(b'{"v": 2}')
    done = forget(str(tmp_path), [])
    aside = f"{FIRST}.json.aside-1"
    assert told(done, "text").startswith(f"put aside {path} as {aside}: a newer safe-vllm wrote it")
    assert files_in(tmp_path) == {aside}
    assert (path.parent / aside).read_bytes() == b'{"v": 2}'
    assert told(forget(str(tmp_path), []), "text").startswith("nothing is remembered")


def test_a_record_in_each_place_that_readers_look_into_is_dropped(tmp_path: Path) -> None:
    places = tmp_path / "unit", tmp_path / "system", tmp_path / "xdg" / "safe-vllm"
    for place, key in zip(places, (FIRST, SECOND, "0" * 16), strict=True):
        remember(place, key)
    environment = {"STATE_DIRECTORY": f"{tmp_path}/unit", "XDG_STATE_HOME": f"{tmp_path}/xdg"}
    done = forget(None, [], environment, tmp_path / "system")
    assert [each.kept.key for each in done.dropped] == [FIRST, SECOND, "0" * 16]


def test_a_place_that_may_not_be_looked_into_is_told_and_fatal_only_where_it_was_asked_for(tmp_path: Path) -> None:
    remember(tmp_path / "xdg" / "safe-vllm")
    (tmp_path / "system").mkdir()
    (tmp_path / "system" / "remembered").touch()  # to root nothing else is closed
    done = forget(None, [], {"XDG_STATE_HOME": f"{tmp_path}/xdg"}, tmp_path / "system")
    dropped, closed = told(done, "text").splitlines()
    assert dropped.startswith(f"forgot {FIRST}: ")
    assert closed == f"{tmp_path}/system: cannot be looked into: not a directory"
    with pytest.raises(Trouble, match="cannot be looked into: not a directory; run it as"):
        forget(f"{tmp_path}/system", [])


@pytest.mark.parametrize("wanted", [[], [FIRST], [FIRST, SECOND]])
def test_what_is_not_found_is_not_called_unknown_while_a_place_may_not_be_looked_into(
    tmp_path: Path, wanted: list[str]
) -> None:
    if len(wanted) > 1:
        remember(tmp_path / "xdg" / "safe-vllm")
    (tmp_path / "system").mkdir()
    (tmp_path / "system" / "remembered").touch()
    with pytest.raises(Trouble, match="system: cannot be looked into: not a directory; run it as the user"):
        forget(None, wanted, {"XDG_STATE_HOME": f"{tmp_path}/xdg"}, tmp_path / "system")
    assert len(wanted) < 2 or files_in(tmp_path / "xdg" / "safe-vllm") == {f"{FIRST}.json"}


def test_programs_get_an_object(tmp_path: Path) -> None:
    remember(tmp_path)
    remember(tmp_path, SECOND).directory.joinpath("remembered", f"{SECOND}.json").write_bytes(b"")  # type: ignore[union-attr]
    found = json.loads(told(forget(str(tmp_path), []), "json"))
    assert found["places"] == [str(tmp_path)]
    assert [(each["fingerprint"], each["about"]) for each in found["dropped"]] == [(FIRST, ABOUT)]
    assert [(each["aside"], each["reason"]) for each in found["put_aside"]] == [
        (f"{tmp_path}/remembered/{SECOND}.json.aside-1", "it is damaged")
    ]
    assert found["failed"] == found["closed"] == []


def test_a_record_that_cannot_be_dropped_is_an_error_that_names_it(tmp_path: Path) -> None:
    mine = remember(tmp_path)
    lock = tmp_path / "remembered" / files.LOCK
    lock.unlink()
    lock.mkdir()
    done = forget(str(tmp_path), [])
    assert told(done, "text").startswith("nothing")
    with pytest.raises(Trouble, match=rf"{FIRST}.json: cannot be dropped: is a directory; run it as"):
        raise_for_failures(done)
    assert mine.recall(NOW).remembered.held


def test_letters_that_would_break_a_line_are_not_shown(tmp_path: Path) -> None:
    remember(tmp_path, about={"model": "a\n\x1b[31mb", "gpus": [], "software": 3})
    (line,) = told(forget(str(tmp_path), []), "text").splitlines()
    assert "a ?[31mb: " in line


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may drop what another user owns")
def test_root_may_drop_what_another_user_remembers(tmp_path: Path) -> None:
    remember(tmp_path)
    os.chown(tmp_path / "remembered" / f"{FIRST}.json", 65534, 65534)
    assert told(forget(str(tmp_path), []), "text").startswith(f"forgot {FIRST}: ")
    assert files_in(tmp_path) == set()


def test_the_command_prints_what_it_dropped(tmp_path: Path) -> None:
    remember(tmp_path)
    options = {"state_dir": str(tmp_path), "output": "text"}
    result = CliRunner().invoke(command, [FIRST[:4]], obj=options, standalone_mode=False)
    assert (result.return_value, result.exception) == (0, None)
    assert result.output.startswith(f"forgot {FIRST}: ")
    assert files_in(tmp_path) == set()
