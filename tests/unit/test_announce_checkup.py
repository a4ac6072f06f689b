"""How a check-up is told: one line for what is fine, three for the rest."""

from __future__ import annotations

from safe_vllm.announce.checkup import as_lines, as_object
from safe_vllm.checks.finding import Finding, size

FINE = Finding("gpus", "ok", "2 x NVIDIA B200")
NOTE = Finding("kernel", "note", "Linux 6.8", "some endings are missed", "nothing")
WARNING = Finding("memory", "warning", "4.0 GiB", "it is little", "add some")
PROBLEM = Finding("port", "problem", "*:8000 is taken", "vLLM ends", "choose another")


def test_what_is_fine_takes_one_line_and_the_rest_three() -> None:
    assert as_lines([FINE, WARNING]) == [
        "ok       gpus: 2 x NVIDIA B200",
        "warning  memory: 4.0 GiB",
        "           why: it is little",
        "           do: add some",
        "1 warning",
    ]


def test_the_last_line_counts_the_worst_first() -> None:
    assert as_lines([NOTE, PROBLEM, FINE, WARNING, NOTE])[-1] == "1 problem, 1 warning, 2 notes"
    assert as_lines([FINE])[-1] == "everything is fine"


def test_notes_do_not_make_a_check_up_fail() -> None:
    assert as_object([FINE, NOTE], {})["ok"] is True
    for finding in (WARNING, PROBLEM):
        assert as_object([FINE, finding], {})["ok"] is False
    told = as_object([NOTE], {"architecture": "x86_64"})
    assert told["findings"] == [
        {"name": "kernel", "level": "note", "what": NOTE.what, "why": NOTE.why, "do": "nothing"}
    ]
    assert told["machine"] == {"architecture": "x86_64"}


def test_sizes_are_told_in_the_unit_that_fits() -> None:
    assert (size(64 << 20), size(1 << 30), size(1 << 31)) == ("64 MiB", "1.0 GiB", "2.0 GiB")


def test_a_script_or_an_escape_in_a_message_does_not_break_its_line() -> None:
    odd = Finding("unit-command", "problem", "runs sh -c 'a\n\tb\u2028c\x1b[2J'", "a\r\nb", "c")
    assert as_lines([odd])[:2] == ["problem  unit-command: runs sh -c 'a  b c?[2J'", "           why: a  b"]
