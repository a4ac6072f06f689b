"""What ``status`` tells, whatever lies in a state directory and whoever asks."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from safe_vllm.commands import diagnose
from safe_vllm.commands.forget import forget
from safe_vllm.commands.forget import told as told_of_forgetting
from safe_vllm.commands.status import places, report, told
from safe_vllm.errors import Status, Trouble
from safe_vllm.record.fingerprint import Fingerprint
from safe_vllm.record.incident import FORM
from safe_vllm.record.memory import Memory
from safe_vllm.record.run_file import RunFile

NOW = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
KEY = "0123456789abcdef"
FACTS: dict[str, Any] = {
    "v": 1,
    "state": "ready",
    "versions": {"vllm": "0.32.0"},
    "ladder": ["as-asked", "triton"],
    "rung": "triton",
    "profile": "b200",
    "launcher_pid": 7,
    "started_at": "2026-03-01T09:00:00.000Z",
    "updated_at": "2026-03-01T10:00:00.000Z",
    "recent": [{"attempt": 1, "rung": "as-asked", "fault": "hang", "phase": "serving", "seconds": 60.0}],
    "degraded": None,
}
INCIDENT = "20260301T091000Z-hang"
SURROGATE = "\ud800"


def both(state: Path) -> tuple[str, Any]:
    """Return what people and what programs get, which any terminal and any pipe can take."""
    found = places(str(state), {})
    text, data = told(found, "text", NOW), told(found, "json", NOW)
    for shown in (text, data):
        assert shown.encode() and "\x1b" not in shown
    return text, json.loads(data, parse_constant=no_json)["places"][0]


def no_json(word: str) -> None:
    """Refuse what Python writes and no other reader of JSON knows."""
    raise AssertionError(f"{word} is no JSON")


def file_in(state: Path, name: str, content: bytes | str) -> None:
    path = state / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.mark.parametrize(
    "change",
    [
        {"versions": "x"},
        {"versions": [1]},
        {"ladder": 5},
        {"ladder": {"a": 1}},
        {"ladder": [["a"], None]},
        {"recent": {"a": 1}},
        {"recent": ["x", 3, None]},
        {"recent": [{"seconds": float("nan")}]},
        {"recent": [{"seconds": float("inf")}]},
        {"recent": [{"seconds": 10**400}]},
        {"recent": [{"seconds": -(10**400)}]},
        {"degraded": "x"},
        {"degraded": {"costs": 5, "fixed_in": {"a": 1}}},
        {"profile": SURROGATE},
        {"profile": "m\udcff"},
        {"state": "ended", "reason": "\x1b[2J\x1b]0;pwn\x07\nnothing runs"},
        {"started_at": "9999-99"},
        {"started_at": {"a": 1}},
        {"started_at": "0001-01-01T00:00:00+14:00", "updated_at": "9999-12-31T23:59:59-14:00"},
        {"updated_at": "2026-11-30T00:00:00", "state": "ended"},
        {"v": "99", "state": []},
        {"alive": "no", SURROGATE: 1},
    ],
)
@pytest.mark.parametrize("is_alive", [True, False])
def test_any_content_of_a_run_is_told_as_far_as_it_can_be(
    tmp_path: Path, change: dict[str, Any], is_alive: bool
) -> None:
    file = RunFile(tmp_path, "7-a")
    if not is_alive:
        os.close(file._lock)  # type: ignore[arg-type]
    file_in(tmp_path, "run/7-a.json", json.dumps({**FACTS, **change}))
    text, place = both(tmp_path)
    assert ("not running" in text) is not is_alive
    assert len(text.splitlines()) < 12
    assert [(run["alive"], run["problem"]) for run in place["runs"]] == [(is_alive, None)]


ODD = '{"a": NaN, "b": [Infinity, -Infinity, 1e999, -1e999, 1.5]}'
PLAIN = {"a": None, "b": [None, None, None, None, 1.5]}


def test_programs_get_json_also_of_numbers_that_are_none(tmp_path: Path) -> None:
    file_in(tmp_path, "run/7-a.json", ODD)
    file_in(tmp_path, f"remembered/{KEY}.json", f'{{"v": 1, "fingerprint": "{KEY}", "about": {ODD}}}')
    _, place = both(tmp_path)
    assert place["runs"] == [{**PLAIN, "alive": False, "problem": None}]
    assert place["remembered"][0]["about"] == PLAIN
    forgotten = json.loads(told_of_forgetting(forget(str(tmp_path), []), "json"), parse_constant=no_json)
    assert forgotten["dropped"][0]["about"] == PLAIN


@pytest.mark.parametrize("is_alive", [True, False])
def test_what_a_newer_release_tells_of_a_launch_is_not_told_as_if_it_were_known(tmp_path: Path, is_alive: bool) -> None:
    file = RunFile(tmp_path, "7-a")
    if not is_alive:
        os.close(file._lock)  # type: ignore[arg-type]
    file_in(tmp_path, "run/7-a.json", json.dumps({**FACTS, "v": 99}))
    text, place = both(tmp_path)
    said = f"{tmp_path}/run/7-a.json: a newer safe-vllm wrote it (form 99, this one knows 1); ask that one"
    assert text == (f"a launch runs\n{said}" if is_alive else said)
    assert place["runs"] == [{"alive": is_alive, "problem": said}]


def test_letters_that_would_break_a_line_are_not_shown(tmp_path: Path) -> None:
    file_in(tmp_path, "run/7-a.json", json.dumps({**FACTS, "state": "ended", "reason": "a\x1b[2J\nb\ud800"}))
    text, _ = both(tmp_path)
    assert ": a?[2J b?" in text


@pytest.mark.parametrize(
    "content",
    [
        b'{"form":1,"attempt":true,"rung":5,"death":[]}',
        b'{"form":1,"death":{"reason":"\\ud800"},"attempt":1}',
        b'{"form":1,"death":{"reason":"\\u001b[2Jpwn"},"attempt":1}',
        b"\xff",
        b"[" * 100_000,
        b'{"form":1e400}',
        b'{"form":1,"attempt":' + b"9" * 5000 + b"}",
        b"\x1b[2J",
    ],
)
def test_any_content_of_a_report_is_listed_and_shown(tmp_path: Path, content: bytes) -> None:
    file_in(tmp_path, f"incidents/{INCIDENT}/incident.json", content)
    file_in(tmp_path, f"incidents/{INCIDENT}/incident.md", "# Größe\n\tx".encode() + b"\xff\x1b[2J\xed\xa0\x80")
    text, place = both(tmp_path)
    assert INCIDENT in text
    assert [one["name"] for one in place["incidents"]] == [INCIDENT]
    shown = report(str(tmp_path), "2026", "text", {})
    assert shown.startswith("# Größe\n\tx") and "\x1b" not in shown and shown.encode()
    assert "\x1b" not in report(str(tmp_path), "2026", "json", {})


def _surrogates(path: Path) -> None:
    about = {"model": SURROGATE, "gpus": {SURROGATE: 1}}
    broken = {"fault": SURROGATE, "suspect": "", "phase": "", "at": 1}
    content = {"v": 1, "fingerprint": KEY, "about": about, "rungs": {SURROGATE: {"broken": broken}}}
    path.write_text(json.dumps(content))


def _controls(path: Path) -> None:
    content = {"v": 1, "fingerprint": KEY, "about": {"model": "\x1b[2J", "software": [], "gpus": 3}, "rungs": {}}
    path.write_text(json.dumps(content))


def _deep(path: Path) -> None:
    path.write_text(f'{{"v": 1, "fingerprint": "{KEY}", "about": {{"a": {"[" * 900}{"]" * 900}}}, "rungs": {{}}}}')


MAKES: dict[str, Callable[[Path], object]] = {
    "a directory": Path.mkdir,
    "a pipe": os.mkfifo,
    "a link": lambda path: path.symlink_to("/etc/passwd"),
    "a loop": lambda path: path.symlink_to(path),
    "surrogates": _surrogates,
    "controls": _controls,
    "too deep": _deep,
    "an odd key": lambda path: path.write_text(f'{{"v": 1, "\\ud800": 2, "fingerprint": "{KEY}", "about": {{}}}}'),
    "not a number": lambda path: path.write_text(
        f'{{"v": 1, "fingerprint": "{KEY}", "about": {{}}, "rungs": {{"a": {{"held": {{"at": NaN}}}}}}}}'
    ),
}


@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES.keys())
@pytest.mark.parametrize("output", ["text", "json"])
def test_any_record_is_told_of_and_can_be_forgotten(
    tmp_path: Path, make: Callable[[Path], object], output: str
) -> None:
    (tmp_path / "remembered").mkdir()
    make(tmp_path / "remembered" / f"{KEY}.json")
    text, place = both(tmp_path)
    assert KEY in text
    assert [one["fingerprint"] for one in place["remembered"]] == [KEY]
    done = told_of_forgetting(forget(str(tmp_path), []), output)
    assert KEY in done and "\x1b" not in done and done.encode()
    assert told_of_forgetting(forget(str(tmp_path), []), "text").startswith("nothing is remembered")


def test_names_that_no_encoding_has_can_be_shown(tmp_path: Path) -> None:
    state = tmp_path / os.fsdecode(b"state-\xff")
    (state / "remembered").mkdir(parents=True)
    (state / "remembered" / os.fsdecode(b"\xff.json")).touch()
    text, _ = both(state)
    assert "state-?" in text
    assert told_of_forgetting(forget(str(state), []), "text").encode()


@pytest.mark.parametrize("folder", ["run", "remembered", "incidents"])
def test_what_cannot_be_looked_into_hides_nothing_else(tmp_path: Path, folder: str) -> None:
    RunFile(tmp_path, "7-a").write(FACTS)
    Memory(tmp_path, Fingerprint(KEY, {}), 14.0).note_held("triton", 1.0e9)
    file_in(tmp_path, f"incidents/{INCIDENT}/incident.json", b"{}")
    (tmp_path / folder).rename(tmp_path / "away")
    (tmp_path / folder).touch()
    text, place = both(tmp_path)
    assert f"{tmp_path}/{folder}: cannot be looked into: not a directory" in text
    assert place["closed"] == [f"{tmp_path}/{folder}: cannot be looked into: not a directory"]
    shown = {"run": "serving at rung triton", "remembered": f"{KEY}: ", "incidents": INCIDENT}
    assert {name for name, said in shown.items() if said in text} == shown.keys() - {folder}
    assert "nothing runs" not in text
    if folder == "incidents":
        with pytest.raises(Trouble, match="cannot be looked into: not a directory; run it as"):
            report(str(tmp_path), "2026", "text", {})


@pytest.fixture
def enterable() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o711)
        yield Path(place)


def said_to_another_user(state: Path) -> str:
    places(str(state), {})  # imports what the other may not be able to read
    answer, answer_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
            os.write(answer_end, told(places(str(state), {}), "text", NOW).encode())
        finally:
            os._exit(0)
    os.close(answer_end)
    with os.fdopen(answer) as file:
        said = file.read()
    os.waitpid(pid, 0)
    return said


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_root_is_shown_the_reports_of_a_services_user_and_no_terminal_obeys_them(tmp_path: Path) -> None:
    folder = tmp_path / "incidents" / INCIDENT
    content = {"form": FORM, "attempt": 1, "rung": "triton", "death": {"reason": "a\x1b[2J"}}
    file_in(tmp_path, f"incidents/{INCIDENT}/incident.json", json.dumps(content))
    file_in(tmp_path, f"incidents/{INCIDENT}/incident.md", "# a hang\x1b[2J")
    for path in (folder, *folder.iterdir()):
        os.chown(path, 65534, 65534)
    text, _ = both(tmp_path)
    assert f"{INCIDENT}  2026-03-01T09:10:00Z  attempt 1 at triton: a?[2J" in text
    assert report(str(tmp_path), "2026", "text", {}) == "# a hang?[2J"
    assert json.loads(report(str(tmp_path), "2026", "json", {})) == content


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/etc/passwd"), lambda path: path.mkdir()])
def test_what_is_no_file_in_the_place_of_a_report_is_not_shown(tmp_path: Path, make: Callable[[Path], None]) -> None:
    (tmp_path / "incidents" / INCIDENT).mkdir(parents=True)
    make(tmp_path / "incidents" / INCIDENT / "incident.md")
    with pytest.raises(Trouble, match="cannot be read: it is no regular file"):
        report(str(tmp_path), "2026", "text", {})


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_another_user_is_told_what_runs_and_which_folders_are_closed(enterable: Path, umask: int) -> None:
    state = enterable / "state"
    before = os.umask(umask)
    try:
        RunFile(state, "7-a").write(FACTS)
        Memory(state, Fingerprint(KEY, {}), 14.0).note_held("triton", 1.0e9)
        (state / "incidents").mkdir(mode=0o700)
    finally:
        os.umask(before)
    text = said_to_another_user(state)
    assert "serving at rung triton: a model, vLLM 0.32.0, profile b200, process 7" in text
    assert text.splitlines()[-2:] == [
        f"{state}/{folder}: cannot be looked into: permission denied" for folder in ("remembered", "incidents")
    ]
    state.chmod(0o700)
    assert said_to_another_user(state) == f"{state}: cannot be looked into: permission denied"


def why_not(state: Path, name: str) -> str:
    with pytest.raises(Trouble) as said:
        report(str(state), name, "text", {})
    assert said.value.status == Status.USAGE
    return str(said.value)


def test_a_report_that_there_is_not_is_answered_with_those_that_there_are(tmp_path: Path) -> None:
    file_in(tmp_path, f"incidents/{INCIDENT}/incident.json", b"{}")
    said = "there is no report called 'nope'; give the name of one, or how it begins: "
    assert why_not(tmp_path, "nope") == said + INCIDENT
    for number in range(11):
        file_in(tmp_path, f"incidents/20260302T0910{number:02}Z-hang/incident.json", b"{}")
    assert why_not(tmp_path, "nope").endswith("20260302T091001Z-hang, and 2 more")


def test_a_beginning_that_fits_several_reports_is_answered_with_these(tmp_path: Path) -> None:
    for name in (INCIDENT, "20260301T091500Z-hang", "20260401T091500Z-hang"):
        file_in(tmp_path, f"incidents/{name}/incident.json", b"{}")
    said = "more than one report begins with '202603'; give more of its name: "
    assert why_not(tmp_path, "202603") == f"{said}{INCIDENT}, 20260301T091500Z-hang"


def test_what_is_no_report_but_known_otherwise_is_called_what_it_is(tmp_path: Path) -> None:
    RunFile(tmp_path, "7-a").write(FACTS)
    Memory(tmp_path, Fingerprint(KEY, {}), 14.0).note_held("triton", 1.0e9)
    ending = f"; none was written yet in {tmp_path}; `safe-vllm status` alone tells what runs"
    assert why_not(tmp_path, "7-a") == f"there is no report called '7-a', that is a launch{ending}"
    fingerprint = "that is a fingerprint, for `safe-vllm forget`"
    assert why_not(tmp_path, KEY[:4]) == f"there is no report called '0123', {fingerprint}{ending}"
    assert why_not(tmp_path, "nope") == f"there is no report called 'nope'{ending}"


def test_where_there_is_no_state_directory_a_report_is_not_looked_for_in_vain(tmp_path: Path) -> None:
    hint = "give the --state-dir of the launch, where it had one"
    environment = {"XDG_STATE_HOME": f"{tmp_path}/xdg"}
    with pytest.raises(Trouble, match=f"no report called 'nope'; looked in .*{tmp_path}/xdg/safe-vllm; {hint}"):
        report(None, "nope", "text", environment)
    said = f"nothing runs, and nothing was kept, in {tmp_path}/system, {tmp_path}/xdg/safe-vllm; {hint}"
    assert told((), "text", NOW, environment, tmp_path / "system") == said


@pytest.mark.parametrize("state", [None, "other", "missing"])
@pytest.mark.parametrize("ending", ["", "/"])
def test_a_report_is_shown_from_its_path_whatever_the_state_directory(
    tmp_path: Path, state: str | None, ending: str
) -> None:
    file_in(tmp_path, f"mine/incidents/{INCIDENT}/incident.md", "# it")
    file_in(tmp_path, f"mine/incidents/{INCIDENT}/incident.json", "{}")
    (tmp_path / "other").mkdir()
    asked = None if state is None else f"{tmp_path}/{state}"
    path = f"{tmp_path}/mine/incidents/{INCIDENT}{ending}"
    assert report(asked, path, "text", {}) == "# it"
    assert report(asked, path, "json", {}) == "{}"


def test_a_path_that_leads_to_no_report_is_answered_as_a_name_is(tmp_path: Path) -> None:
    file_in(tmp_path, f"incidents/{INCIDENT}/incident.json", b"{}")
    for path in (f"{tmp_path}/incidents", f"{tmp_path}/gone/{INCIDENT}"):
        assert why_not(tmp_path, path) == (
            f"there is no report called '{path}'; give the name of one, or how it begins: {INCIDENT}"
        )


def test_a_report_is_no_log_to_diagnose_and_the_way_to_see_it_is_told(tmp_path: Path) -> None:
    file_in(tmp_path, f"my state/{INCIDENT}/incident.md", "# it")
    path = f"{tmp_path}/my state/{INCIDENT}"
    with pytest.raises(Trouble) as said:
        diagnose.of(path, None, lambda count: None)
    assert said.value.status == Status.USAGE
    assert str(said.value) == f"{path} is a report and no log; show it with `safe-vllm status '{path}'`"
    with pytest.raises(Trouble, match="is a directory; name a log file"):
        diagnose.of(str(tmp_path), None, lambda count: None)
