"""Profiles are found in their places and read, with what they extend."""

from __future__ import annotations

from pathlib import Path

import pytest

from safe_vllm.errors import Status, Trouble
from safe_vllm.machine.profile_files import Found, profile_files, read_profiles, shipped

SHIPPED = {"b200", "b300", "cpu", "default", "gb10", "gb200", "gb300", "gh200", "h100", "h200", "rtx-pro-6000"}


def profile(directory: Path, name: str, text: str = "name: x\n") -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}.yaml"
    path.write_text(text)
    return path


def trouble(asked: str | None, extra: Path, status: Status = Status.CONFIGURATION) -> str:
    with pytest.raises(Trouble) as caught:
        read_profiles(asked, str(extra), {})
    assert caught.value.status is status
    return str(caught.value)


def test_the_shipped_profiles_are_there() -> None:
    assert {path.stem for path in shipped().glob("*.yaml")} == SHIPPED


def test_of_one_name_the_later_directory_comes_last_and_its_name_too(tmp_path: Path) -> None:
    system, user, extra = tmp_path / "system", tmp_path / "config", tmp_path / "extra"
    cpu, b = profile(system, "cpu"), profile(system, "b")
    mine = profile(user / "safe-vllm" / "profiles", "b")
    given = profile(extra, "c")
    (extra / "README").touch()
    found = profile_files(str(extra), {"XDG_CONFIG_HOME": str(user)}, system=system)
    assert set(found) == {*SHIPPED, "b", "c"}
    assert list(found)[-3:] == ["cpu", "b", "c"]
    assert found["cpu"] == [Found(shipped() / "cpu.yaml", "shipped"), Found(cpu, "system")]
    assert found["b"] == [Found(b, "system"), Found(mine, "user")]
    assert found["c"] == [Found(given, "directory")]


def test_the_users_directory_is_below_home_by_default(tmp_path: Path) -> None:
    path = profile(tmp_path / ".config" / "safe-vllm" / "profiles", "mine")
    assert profile_files(None, {"HOME": str(tmp_path)})["mine"] == [Found(path, "user")]


def test_a_profile_is_asked_for_by_name_or_by_file(tmp_path: Path) -> None:
    path = profile(tmp_path, "mine", "name: mine\n")
    for asked, extra, origin in (("mine", str(tmp_path), "directory"), (str(path), None, "file")):
        (file,) = read_profiles(asked, extra, {})
        assert (file.path, file.content, file.origin) == (str(path), {"name": "mine"}, origin)
        assert file.lines == {(): 1, ("name",): 1}


def test_all_profiles_are_read_when_none_is_asked_for() -> None:
    assert len(read_profiles(None, None, {})) == len(SHIPPED)


def test_what_a_profile_extends_is_read_with_it(tmp_path: Path) -> None:
    profile(tmp_path, "upper", "name: upper\n")
    profile(tmp_path, "lower", "name: lower\nextends: upper\n")
    (file,) = read_profiles("lower", str(tmp_path), {})
    assert file.base is not None
    assert (file.base.content, file.base.base) == ({"name": "upper"}, None)


def test_a_profile_that_replaces_another_of_its_name_can_extend_it(tmp_path: Path) -> None:
    path = profile(tmp_path, "b200", "name: b200\nextends: b200\n")
    for asked, extra in (("b200", str(tmp_path)), (str(path), None)):
        (file,) = read_profiles(asked, extra, {})
        assert file.base is not None
        assert file.base.path == str(shipped() / "b200.yaml")


def test_a_profile_that_is_not_asked_for_may_be_broken(tmp_path: Path) -> None:
    profile(tmp_path, "other", "name: [\n")
    assert len(read_profiles("cpu", str(tmp_path), {})) == 1


def test_profiles_that_cannot_be_read_are_trouble(tmp_path: Path) -> None:
    there_are = "there are: b200, b300, cpu"
    assert trouble("b20", tmp_path, Status.USAGE).startswith(f"no profile is called 'b20'; {there_are}")
    assert trouble("cpu", tmp_path / "none", Status.USAGE).endswith("none: not a directory; check --profile-dir")
    (tmp_path / "file").touch()
    for name in ("none.yaml", "file/x"):
        gone = f"{tmp_path}/{name}: there is no such file; correct the path, or give a name; {there_are}"
        assert trouble(f"{tmp_path}/{name}", tmp_path, Status.USAGE).startswith(gone)
    (tmp_path / "away.yaml").symlink_to("nowhere")
    away = f"{tmp_path}/away.yaml: cannot be read: no such file or directory; correct the link"
    assert trouble(f"{tmp_path}/away.yaml", tmp_path) == away
    folder = "cannot be read: is a directory; name a file in it; --profile-dir takes a directory"
    assert trouble(f"{tmp_path}/", tmp_path) == f"{tmp_path}: {folder}"
    assert "twice.yaml:2" in trouble(str(profile(tmp_path, "twice", "name: a\nname: b\n")), tmp_path)
    assert "larger than a profile can be" in trouble("/dev/zero", tmp_path)
    path = tmp_path / "latin.yaml"
    path.write_bytes(b"name: \xff\n")
    assert trouble(str(path), tmp_path) == f"{path}: cannot be read: it is not UTF-8 text; save it as UTF-8"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", "a.yaml:2: extends: no profile is called 'nothing'; there are: a, b, b200"),
        ("a", "a.yaml:2: extends: no other profile is called 'a'; there are: a, b, b200"),
        ("b", "b.yaml:2: extends: a -> b -> a has no end; let one of them extend"),
    ],
)
def test_what_is_extended_must_be_there_and_come_to_an_end(tmp_path: Path, name: str, message: str) -> None:
    profile(tmp_path, "a", f"name: a\nextends: {name}\n")
    profile(tmp_path, "b", "name: b\nextends: a\n")
    assert trouble("a", tmp_path).startswith(f"{tmp_path}/{message}")
