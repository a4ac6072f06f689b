"""The check after everything is installed: plans, asks vLLM, compares, prints."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import dialect_vllm
from dialect_ask import Question, ask
from dialect_expect import Answer, is_in_order, mismatches
from dialect_lines import LINES, Line
from dialect_plan import Hardware, Planned, every_kind, record, rungs

WIDTHS = (7, 9, 7, 7, 7)


@dataclass(frozen=True)
class Case:
    """One command line, planned for one profile."""

    hardware: Hardware
    line: Line
    place: Path
    ladder: tuple[Planned, ...]

    @property
    def as_written(self) -> Question:
        """Return the operator's own words as a question."""
        return Question(tuple(self.line.words(self.place)), tuple(self.line.environment.items()))

    def question(self, rung: Planned) -> Question:
        """Return a rung as a question."""
        return Question(rung.words, tuple({**self.line.environment, **rung.environment}.items()))

    def told(self, rung: str, words: Sequence[str], trouble: str) -> str:
        """Return one mismatch in full."""
        file = f"\n    --config: {self.line.yaml!r}" if self.line.yaml else ""
        operator = shlex.join(self.as_written.words)
        text = f"{rung}: {trouble}\n    operator: {operator}{file}\n    rung:     {shlex.join(words)}"
        return text.replace(str(self.place), "")


@dataclass
class Report:
    """What came of it."""

    lines: int = 0
    refused: int = 0
    """Lines that this release does not take as they were written, as expected."""
    rungs: int = 0
    right: int = 0
    wrong: dict[str, list[str]] = field(default_factory=dict)
    """Each mismatch, and the profiles that have it."""

    def add(self, case: Case, rung: str, words: Sequence[str], trouble: str) -> None:
        """Note a mismatch. Profiles often agree, so it is shown once."""
        self.wrong.setdefault(case.told(rung, words, trouble), []).append(case.hardware.profile)

    @property
    def mismatches(self) -> int:
        """Return how many there are, counted for every profile."""
        return sum(len(profiles) for profiles in self.wrong.values())


def check(vllm: Path, version: str, lines: Sequence[Line], kinds: Sequence[Hardware], place: Path) -> Report:
    """Plan every line for every kind of hardware, and see what this vLLM makes of every rung."""
    for line in lines:
        line.write(place)
    cases = [case for kind in kinds for case in _cases(vllm, lines, kind, place)]
    report = Report()
    for capability in dict.fromkeys(kind.capability for kind in kinds):
        alike = [case for case in cases if case.hardware.capability == capability]
        questions = list(dict.fromkeys(each for case in alike for each in _questions(case)))
        answers = ask(vllm.with_name("python"), version, alike[0].hardware, questions, place)
        for case in alike:
            _judge(case, version, answers, report)
    return report


def _cases(vllm: Path, lines: Sequence[Line], hardware: Hardware, place: Path) -> Iterator[Case]:
    machine = record(hardware, vllm, place)
    for line in lines:
        if not (line.needs_gpu and hardware.is_cpu):
            ladder = rungs(line.words(place), hardware, machine, vllm, line.environment)
            yield Case(hardware, line, place, ladder)


def _questions(case: Case) -> list[Question]:
    return [case.as_written, *(case.question(rung) for rung in case.ladder)]


def _judge(case: Case, version: str, answers: Mapping[Question, Answer], report: Report) -> None:
    asked = answers[case.as_written]
    report.lines += 1
    if trouble := _of_table(case.line, version, asked.get("error")):
        report.add(case, "as written", case.as_written.words, trouble)
    if "error" in asked:
        report.refused += not trouble
        return
    for rung in case.ladder:
        found = list(_of_rung(case, rung, asked, answers[case.question(rung)]))
        report.rungs += 1
        report.right += not found
        for each in found:
            report.add(case, rung.name, rung.words, each)


def _of_rung(case: Case, rung: Planned, asked: Answer, answer: Answer) -> Iterator[str]:
    names = [each.name for each in case.ladder]
    yield from mismatches(rung.name, names, asked, answer, rung.environment, case.hardware.is_cpu)
    if any(case.question(each) == case.question(rung) for each in case.ladder[: names.index(rung.name)]):
        yield "the same command as a rung above"
    if not is_in_order(case.line.plain(case.place), rung.words):
        yield "the operator's own words are not all there, in order"


def _of_table(line: Line, version: str, error: str | None) -> str | None:
    """Return what is wrong with the table of lines: it says which release takes what."""
    major, minor = (int(part) for part in version.split(".")[:2])
    if (major, minor) < line.since:
        return None
    if error and not (line.refused_by and re.search(line.refused_by, error)):
        return f"refused before anything was changed: {error}"
    return f"taken, and {line.refused_by!r} was expected" if line.refused_by and not error else None


def told(report: Report, version: str) -> str:
    """Return one row of the table, and every mismatch in full below it."""
    counts = (report.lines, report.refused, report.rungs, report.right, report.mismatches)
    row = f"{version:<10}" + "".join(f"{count:>{width}}" for count, width in zip(counts, WIDTHS, strict=True))
    return "\n".join([row, *(f"  {', '.join(profiles)}: {text}" for text, profiles in report.wrong.items())])


def main() -> int:
    """Read the command line, check, print the table; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], prog="check-dialect")
    parser.add_argument("versions", nargs="+", metavar="VERSION", help="such as 0.28.0")
    parser.add_argument("--cache", type=Path, required=True, help="a directory for the installed versions")
    parser.add_argument("--base", type=Path, required=True, help="the environment of vLLM's CPU build")
    words = parser.parse_args()
    vllm_of = {version: dialect_vllm.make(words.cache, version, words.base) for version in words.versions}
    headings = ("lines", "refused", "rungs", "right", "wrong")
    print(
        f"{'vLLM':<10}" + "".join(f"{name:>{width}}" for name, width in zip(headings, WIDTHS, strict=True)), flush=True
    )
    mismatched = 0
    for version, vllm in vllm_of.items():
        with tempfile.TemporaryDirectory() as place:
            report = check(vllm, version, LINES, every_kind(), Path(place))
        print(told(report, version), flush=True)
        mismatched += report.mismatches
    return 1 if mismatched else 0


if __name__ == "__main__":
    sys.exit(main())
