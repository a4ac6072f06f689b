"""Small files that are whole at any moment."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from safe_vllm.record import files
from safe_vllm.record.files import Unfit, locked, read, set_aside, sweep, write


def test_a_file_is_written_whole_for_its_owner_alone_and_nothing_is_left_beside(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write(path, b"old")
    write(path, b"new")
    assert path.read_bytes() == b"new" == read(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_keeps_the_old_file_and_leaves_nothing_beside(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.mkdir()
    (path / "inner").touch()
    with pytest.raises(OSError):
        write(path, b"new")
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_file_is_none_and_an_empty_one_is_empty(tmp_path: Path) -> None:
    assert read(tmp_path / "a") is None
    (tmp_path / "a").touch()
    assert read(tmp_path / "a") == b""


def test_what_is_no_regular_file_of_a_sensible_size_is_unfit_and_nobody_waits_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "directory").mkdir()
    (tmp_path / "link").symlink_to("/etc/hostname")
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(1 << 40)
    for path in tmp_path.iterdir():
        with pytest.raises(Unfit):
            read(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_what_another_user_owns_is_not_believed_but_may_be_shown(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"theirs")
    os.chown(tmp_path / "a", 65534, 65534)
    with pytest.raises(PermissionError, match="another user"):
        read(tmp_path / "a")
    assert read(tmp_path / "a", of_anyone=True) == b"theirs"


def test_what_was_set_aside_is_never_overwritten_and_the_oldest_goes_when_there_are_too_many(tmp_path: Path) -> None:
    path, most = tmp_path / "a.json", files.MAX_ASIDE
    names = []
    for number in range(most + 3):
        path.write_bytes(b"%d" % number)
        names.append(set_aside(path).name)
    left = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    assert left == {names[number]: b"%d" % number for number in range(3, most + 3)}
    assert len(set(names)) == most + 3


def test_the_number_set_aside_is_that_of_a_directory_not_of_a_name(tmp_path: Path) -> None:
    for number in range(files.MAX_ASIDE + 5):
        (tmp_path / f"{number}.json").touch()
        set_aside(tmp_path / f"{number}.json")
    assert len(list(tmp_path.iterdir())) == files.MAX_ASIDE


def test_strange_names_beside_do_not_confuse_the_numbers(tmp_path: Path) -> None:
    for name in ("a.json.aside-", "a.json.aside-x", "a.json.aside-٣", f"a.json.aside-{'9' * 5000}"[:255]):
        (tmp_path / name).touch()
    (tmp_path / "a.json").write_bytes(b"bytes")
    aside = set_aside(tmp_path / "a.json")
    assert aside.read_bytes() == b"bytes"
    assert len(list(tmp_path.iterdir())) == 5


def test_leftovers_of_killed_writers_are_swept_and_nothing_else(tmp_path: Path) -> None:
    for name in (".a.json.0123.new", "a.json", ".lock", "a.json.aside-1", "x.new"):
        (tmp_path / name).touch()
    sweep(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"a.json", ".lock", "a.json.aside-1", "x.new"}


def test_a_lock_that_another_has_is_waited_for_a_while_and_then_an_error(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(TimeoutError), locked(tmp_path, wait_s=0.05):
        raise AssertionError("two have the lock")
    with locked(tmp_path, wait_s=0):
        pass


def test_a_lock_is_given_back_when_it_went_wrong(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), locked(tmp_path):
        _ = 1 / 0
    with locked(tmp_path, wait_s=0):
        pass


def test_vllm_does_not_inherit_the_lock(tmp_path: Path) -> None:
    with locked(tmp_path):
        held = [link for link in Path("/proc/self/fd").iterdir() if _leads_to(link, tmp_path / files.LOCK)]
        assert held
        assert not any(os.get_inheritable(int(link.name)) for link in held)


def _leads_to(link: Path, path: Path) -> bool:
    try:
        return link.readlink() == path
    except OSError:
        return False
