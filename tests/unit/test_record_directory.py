"""Where what happened is kept, and where readers look for it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from safe_vllm.errors import Trouble
from safe_vllm.record.directory import to_read, to_write


@pytest.mark.parametrize(
    ("asked", "environment", "chosen"),
    [
        ("{0}/asked", {"STATE_DIRECTORY": "{0}/unit", "HOME": "{0}/home"}, "asked"),
        (None, {"STATE_DIRECTORY": "{0}/unit", "XDG_STATE_HOME": "{0}/xdg", "HOME": "{0}/home"}, "unit"),
        (None, {"STATE_DIRECTORY": "{0}/first:{0}/second"}, "first"),
        (None, {"STATE_DIRECTORY": "relative", "XDG_STATE_HOME": "{0}/xdg"}, "xdg/safe-vllm"),
        (None, {"STATE_DIRECTORY": "", "XDG_STATE_HOME": "{0}/xdg", "HOME": "{0}/home"}, "xdg/safe-vllm"),
        (None, {"XDG_STATE_HOME": "relative", "HOME": "{0}/home"}, "home/.local/state/safe-vllm"),
    ],
)
def test_the_nearest_word_on_the_directory_counts(
    tmp_path: Path, asked: str | None, environment: dict[str, str], chosen: str
) -> None:
    given = {name: value.format(tmp_path) for name, value in environment.items()}
    found = to_write(asked.format(tmp_path) if asked else None, given)
    assert (found.path, found.problem) == (tmp_path / chosen, None)
    assert (tmp_path / chosen).stat().st_mode & 0o777 == 0o711


def test_a_relative_directory_stays_the_same_wherever_vllm_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert to_write("state", {}).path == tmp_path / "state"
    assert to_read("state", {}) == (tmp_path / "state",)


def test_a_relative_directory_where_the_working_directory_is_gone_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    found = to_write("state", {})
    assert found.path is None
    assert found.problem and found.problem.startswith("state: cannot be made: no such file or directory;")
    with pytest.raises(Trouble, match="there is no such directory"):
        to_read("state", {})


@pytest.mark.parametrize("environment", [{}, {"HOME": ""}, {"HOME": "relative"}])
def test_without_a_home_nothing_is_remembered_and_the_operator_is_told_what_to_do(environment: dict[str, str]) -> None:
    found = to_write(None, environment)
    assert found.path is None
    assert found.problem and "--state-dir" in found.problem and "\n" not in found.problem


def test_a_directory_that_cannot_be_made_is_a_sentence_and_not_replaced_by_another(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = to_write(str(tmp_path / "file" / "state"), {"HOME": str(tmp_path)})
    assert found.path is None
    assert found.problem and found.problem.startswith(f"{tmp_path}/file/state: cannot be made: not a directory;")
    taken = to_write(str(tmp_path / "file"), {"HOME": str(tmp_path)})
    assert taken.path is None and taken.problem and "file exists" in taken.problem


def test_the_permissions_of_a_directory_that_is_there_are_the_operators(tmp_path: Path) -> None:
    (tmp_path / "unit").mkdir(mode=0o755)
    assert to_write(None, {"STATE_DIRECTORY": str(tmp_path / "unit")}).problem is None
    assert (tmp_path / "unit").stat().st_mode & 0o777 == 0o755


def test_who_only_plans_makes_no_directory(tmp_path: Path) -> None:
    assert to_write(str(tmp_path / "state"), {}, creates=False).path == tmp_path / "state"
    assert list(tmp_path.iterdir()) == []


def test_readers_look_into_all_places_that_exist_and_into_the_asked_one_alone(tmp_path: Path) -> None:
    system, user, unit = tmp_path / "system", tmp_path / "xdg" / "safe-vllm", tmp_path / "unit"
    environment = {"STATE_DIRECTORY": f"{unit}:{tmp_path}", "XDG_STATE_HOME": str(tmp_path / "xdg")}
    assert to_read(None, environment, system) == ()
    for place in (system, user, unit):
        place.mkdir(parents=True)
    assert to_read(None, environment, system) == (unit, system, user)
    assert to_read(None, {**environment, "STATE_DIRECTORY": str(user)}, system) == (user, system)
    assert to_read(str(system), environment, system) == (system,)
    with pytest.raises(Trouble, match=f"{tmp_path}/missing: there is no such directory; give the --state-dir"):
        to_read(str(tmp_path / "missing"), environment, system)


def test_others_may_enter_the_directory_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        assert to_write(str(tmp_path / "state"), {}).problem is None
    finally:
        os.umask(before)
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o711


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
@pytest.mark.parametrize("creates", [True, False])
def test_a_directory_of_another_user_is_refused_unless_it_was_asked_for(tmp_path: Path, creates: bool) -> None:
    theirs = tmp_path / "safe-vllm"
    theirs.mkdir()
    os.chown(theirs, 65534, 65534)
    found = to_write(None, {"XDG_STATE_HOME": str(tmp_path)}, creates=creates)
    assert found.path is None
    assert found.problem and "it belongs to another user (65534), so nothing is remembered" in found.problem
    assert "--state-dir" in found.problem
    assert to_write(None, {"STATE_DIRECTORY": str(theirs)}, creates=creates).path is None
    assert to_write(str(theirs), {}, creates=creates).path == theirs
