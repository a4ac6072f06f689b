"""Reports are written whole or not at all, within bounds, and found again."""

from __future__ import annotations

import json
import os
import resource
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from incident_cases import CASES
from safe_vllm.errors import Trouble
from safe_vllm.record.incident import Incident, LogLine
from safe_vllm.record.incident_making import incident_of
from safe_vllm.record.incidents import HALF, HALF_LIVES_S, MOST, Listed, find, listed, record, text_of

NOW = 1_790_000_000.0
STEPS = ("mkdir", "write", "fsync", "rename", "replace", "unlink", "rmdir")
"""The calls of the system that change something: a launcher may be killed before each."""


@pytest.fixture(scope="module")
def incident() -> Incident:
    return incident_of(CASES["illegal-memory-access-in-autotune"]())


def written(state: Path, incident: Incident, at: float = NOW, **bounds: int) -> Path:
    path, problem = record(state, incident, at, **bounds)
    assert problem is None
    assert path is not None
    return path


def names(state: Path) -> list[str]:
    return [one.name for one in listed(state)]


def sized(incident: Incident, size: int) -> Incident:
    """Return the report with so many bytes of output."""
    lines = tuple(LogLine(1000 + at, "x" * 1990) for at in range(size // 2000))
    return replace(incident, tail=lines)


def test_a_report_has_a_directory_of_its_own_for_this_user_alone(tmp_path: Path, incident: Incident) -> None:
    path = written(tmp_path / "state", incident)
    assert path == tmp_path / "state/incidents/20260921T141320Z-illegal-memory-access"
    assert {file.name for file in path.iterdir()} == {
        *("incident.md", "incident.json", "root-lines.txt", "log-tail.txt", "command.sh")
    }
    assert [stat.S_IMODE(place.stat().st_mode) for place in (path.parent.parent, path.parent, path)] == [0o700] * 3
    assert {stat.S_IMODE(file.stat().st_mode) for file in path.iterdir()} == {0o600}


def test_stacks_have_a_file_of_their_own(tmp_path: Path) -> None:
    path = written(tmp_path, incident_of(CASES["hang-at-start"]()))
    assert "VLLM::Worker_TP1 (pid 211)" in (path / "stacks.txt").read_text()
    assert "all_reduce" in (path / "stacks.txt").read_text()


def test_what_was_written_is_listed_the_newest_first(tmp_path: Path, incident: Incident) -> None:
    for at in (0, 3600, 60):
        written(tmp_path, replace(incident, attempt=int(at)), NOW + at)
    assert [(one.time, one.attempt) for one in listed(tmp_path)] == [
        ("2026-09-21T15:13:20Z", 3600),
        ("2026-09-21T14:14:20Z", 60),
        ("2026-09-21T14:13:20Z", 0),
    ]
    [first, *_] = listed(tmp_path)
    assert (first.fault, first.rung, first.launch) == ("illegal-memory-access", "as-asked", incident.launch)
    assert first.reason == incident.death.reason
    assert incident.death.reason in first.summary and "as-asked" in first.summary


def test_two_of_the_same_fault_in_the_same_second_have_two_names(tmp_path: Path, incident: Incident) -> None:
    paths = [written(tmp_path, replace(incident, attempt=at)) for at in range(3)]
    assert [path.name.partition("access")[2] for path in paths] == ["", ".2", ".3"]
    assert [one.attempt for one in listed(tmp_path)] == [2, 1, 0]


def test_one_is_found_by_its_name_or_an_unambiguous_beginning(tmp_path: Path, incident: Incident) -> None:
    first, second = written(tmp_path, incident), written(tmp_path, incident)
    third = written(tmp_path, incident, NOW + 86_400)

    def found(name: str) -> object:
        known = find(tmp_path, name)
        return known.path if isinstance(known, Listed) else known

    assert found(third.name) == found("20260922") == third
    assert found(first.name) == first  # although it is the beginning of another one, too
    assert found(second.name) == second
    assert found("20260921") == (first.name, second.name)
    assert found("2027") == found("../") == ()
    assert find(tmp_path / "nothing", "2026") == ()


def test_a_report_is_shown_as_it_was_written(tmp_path: Path, incident: Incident) -> None:
    written(tmp_path, incident)
    [one] = listed(tmp_path)
    assert text_of(one).startswith("# vLLM 0.23.0: illegal memory access")
    assert json.loads(text_of(one, "json"))["death"]["fault"] == "illegal-memory-access"
    (one.path / "incident.md").unlink()
    with pytest.raises(Trouble, match="it is gone"):
        text_of(one)
    (one.path / "incident.md").mkdir()
    with pytest.raises(Trouble, match="no regular file"):
        text_of(one)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda file: file.write_text("{}"), "another version"),
        (lambda file: file.write_text("[]"), "another version"),
        (lambda file: file.write_text('{"form": 2}'), "another version"),
        (lambda file: file.write_bytes(b"\xff"), "damaged"),
        (lambda file: file.write_text("[" * 100_000), "damaged"),
        (lambda file: file.unlink(), "it is gone"),
        (lambda file: (file.unlink(), file.mkdir()), "no regular file"),
        (lambda file: os.mkfifo(file.unlink() or file), "no regular file"),
    ],
)
def test_a_damaged_one_is_listed_as_such(
    tmp_path: Path, incident: Incident, damage: Callable[[Path], object], said: str
) -> None:
    damage(written(tmp_path, incident) / "incident.json")
    sound = written(tmp_path, incident, NOW + 1)
    first, second = listed(tmp_path)
    assert (first.name, first.problem) == (sound.name, None)
    assert second.problem is not None and said in second.problem and said in second.summary
    assert (second.fault, second.time) == ("illegal-memory-access", "2026-09-21T14:13:20Z")


def test_one_that_was_truncated_at_any_byte_is_listed_or_told(tmp_path: Path, incident: Incident) -> None:
    file = written(tmp_path, incident) / "incident.json"
    whole = file.read_bytes()
    for size in range(0, len(whole) - 1, 13):
        file.write_bytes(whole[:size])
        [one] = listed(tmp_path)
        assert one.problem


def test_strange_fields_are_not_believed(tmp_path: Path, incident: Incident) -> None:
    file = written(tmp_path, incident) / "incident.json"
    file.write_text(json.dumps({"form": 1, "rung": 3, "attempt": "x", "death": [], "reason": None}))
    [one] = listed(tmp_path)
    assert (one.rung, one.attempt, one.reason, one.problem) == (None, None, None, None)


def test_there_are_never_more_than_fifty_and_the_oldest_goes(tmp_path: Path, incident: Incident) -> None:
    for at in range(MOST + 3):
        written(tmp_path, incident, NOW + 60 * at)
    assert len(names(tmp_path)) == MOST
    assert listed(tmp_path)[-1].time == "2026-09-21T14:16:20Z"


def test_they_have_never_more_than_so_many_bytes(tmp_path: Path, incident: Incident) -> None:
    for at in range(5):
        written(tmp_path, sized(incident, 100_000), NOW + 60 * at, most_bytes=300_000)
    assert [one.time[14:16] for one in listed(tmp_path)] == ["17", "16"]


def test_the_one_just_written_stays_though_it_is_too_large_or_the_clock_went_back(
    tmp_path: Path, incident: Incident
) -> None:
    written(tmp_path, incident)
    path = written(tmp_path, sized(incident, 20_000), NOW - 86_400, most=1, most_bytes=1000)
    assert names(tmp_path) == [path.name]


def test_what_is_not_ours_is_not_removed(tmp_path: Path, incident: Incident) -> None:
    folder = written(tmp_path, incident).parent
    with_more = folder / "20200101T000000Z-hang"
    with_more.mkdir()
    (with_more / "incident.md").touch()
    (with_more / "my-notes.txt").touch()
    (folder / "notes").mkdir()
    (folder / "20200102T000000Z-hang").write_text("a file")
    (folder / "20200103T000000Z-hang").symlink_to(tmp_path)
    written(tmp_path, incident, NOW + 1, most=1)
    kept = {path.name for path in folder.iterdir()}
    assert {with_more.name, "notes", "20200102T000000Z-hang", "20200103T000000Z-hang"} < kept
    assert {path.name for path in with_more.iterdir()} == {"incident.md", "my-notes.txt"}
    assert names(tmp_path) == ["20260921T141321Z-illegal-memory-access", with_more.name]


def test_halves_of_killed_launchers_go_and_those_of_live_ones_stay(tmp_path: Path, incident: Incident) -> None:
    folder = written(tmp_path, incident).parent
    old, young = folder / f".20260101T000000Z.aa{HALF}", folder / f".20260101T000000Z.bb{HALF}"
    for half, at in ((old, NOW - HALF_LIVES_S - 1), (young, NOW)):
        half.mkdir()
        (half / "incident.md").touch()
        os.utime(half, (at, at))
    written(tmp_path, incident, NOW + 1)
    assert young.exists() and not old.exists()


def test_a_place_that_cannot_be_written_is_a_sentence_and_no_more(tmp_path: Path, incident: Incident) -> None:
    (tmp_path / "state").write_text("a file")
    path, problem = record(tmp_path / "state", incident, NOW)
    assert path is None
    assert problem is not None and "file exists" in problem and "--state-dir" in problem
    with pytest.raises(OSError):
        listed(tmp_path / "state")
    assert listed(tmp_path / "nothing") == ()


def in_child(act: Callable[[], object]) -> int:
    """Do something in another process; return how that ended, a signal as its negative number."""
    pid = os.fork()
    if pid == 0:
        try:
            act()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_on_a_full_disk_there_is_a_sentence_and_nothing_half(tmp_path: Path, incident: Incident) -> None:
    def act() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, resource.RLIM_INFINITY))
        path, problem = record(tmp_path, incident, NOW)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        (tmp_path / "said").write_text(f"{path}: {problem}")

    assert in_child(act) == 0
    assert "file too large" in (tmp_path / "said").read_text()
    assert list((tmp_path / "incidents").iterdir()) == []


def killed_at(step: int, act: Callable[[], object]) -> bool:
    """Do something in a process that is killed before its ``step``-th call; return whether it came so far."""
    left = iter(range(step, -1, -1))

    def watch(_frame: object, event: str, called: object) -> None:
        if event == "c_call" and getattr(called, "__name__", "") in STEPS and next(left) == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def watched() -> None:
        sys.setprofile(watch)
        act()
        sys.setprofile(None)

    return in_child(watched) == -signal.SIGKILL


def steps(
    act_in: Callable[[Path], object], tmp_path: Path, begin: Callable[[Path], object] = lambda state: None
) -> Iterator[Path]:
    """Yield a state directory for each call at which a launcher may be killed, after it was."""
    for step in range(1000):
        state = tmp_path / str(step)
        state.mkdir()
        begin(state)
        if not killed_at(step, partial(act_in, state)):
            assert step > 10
            return
        yield state


def test_a_launcher_may_be_killed_at_any_step_of_writing(tmp_path: Path, incident: Incident) -> None:
    small = replace(incident, around=(), tail=incident.tail[-1:])

    def act(state: Path) -> None:
        record(state, small, NOW)

    for state in steps(act, tmp_path):
        assert [one.problem for one in listed(state)] in ([], [None])
        later = time.time() + 2 * HALF_LIVES_S
        assert written(state, small, later) == listed(state)[0].path
        assert not list((state / "incidents").glob(".*"))
        assert all("illegal-memory-access" in text_of(one) for one in listed(state))


def test_a_launcher_may_be_killed_at_any_step_of_removing(tmp_path: Path, incident: Incident) -> None:
    small = replace(incident, around=(), tail=())

    def begin(state: Path) -> None:
        record(state, small, NOW)

    def act(state: Path) -> None:
        record(state, small, NOW + 1, most=1)

    for state in steps(act, tmp_path, begin):
        newest = written(state, small, NOW + 2)
        assert listed(state)[0].path == newest
        assert len(names(state)) <= 3
        for one in listed(state):
            assert one.problem is None or "gone" in one.problem
