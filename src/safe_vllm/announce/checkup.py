"""What ``doctor`` says: for people, and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from safe_vllm.checks.finding import Finding
from safe_vllm.printable import on_one_line

COUNTED = ("problem", "warning", "note")
WIDTH = max(map(len, COUNTED))


def as_lines(findings: Sequence[Finding]) -> list[str]:
    """Return one line for what is fine, three for the rest, and how many of each there are."""
    return [*(line for finding in findings for line in _lines(finding)), _summary(findings)]


def as_object(findings: Sequence[Finding], machine: object) -> dict[str, object]:
    """Return the check-up as one JSON object; ``machine`` holds the recorded facts."""
    is_fine = not any(finding.counts for finding in findings)
    return {"ok": is_fine, "findings": [asdict(finding) for finding in findings], "machine": machine}


def _lines(finding: Finding) -> list[str]:
    lines = [f"{finding.level:<{WIDTH}}  {finding.name}: {finding.what}"]
    told = [("why", finding.why), ("do", finding.do)] if finding.level != "ok" else []
    return [on_one_line(line) for line in lines + [f"{'':<{WIDTH}}    {name}: {text}" for name, text in told]]


def _summary(findings: Sequence[Finding]) -> str:
    counts = {level: sum(finding.level == level for finding in findings) for level in COUNTED}
    told = [f"{count} {level}{'s' if count > 1 else ''}" for level, count in counts.items() if count]
    return ", ".join(told) if told else "everything is fine"
