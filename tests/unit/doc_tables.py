"""Tables of our documents, as tests read them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def rows(document: str, first_column: str) -> list[list[str]]:
    """Return the rows of the table whose first column has that name, cell by cell, without the marks of code."""
    lines = (DOCS / document).read_text().splitlines()
    [start] = [
        number
        for number, (line, below) in enumerate(pairwise(lines))
        if line.startswith(f"| {first_column} |") and below.startswith("|---")
    ]
    found = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def plain(cell: str) -> str:
    """Return a cell without the marks of code."""
    return cell.replace("`", "")
