"""Lines that differ in figures alone are read once, and nothing depends on that."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from safe_vllm.data.strict_yaml import read_data
from safe_vllm.verdict.lines import Record
from safe_vllm.verdict.scan import Scan
from safe_vllm.verdict.shapes import Shapes, Shown
from safe_vllm.verdict.signatures import Match, parse

SIGNATURES = parse(read_data("signatures.yaml"))
SHAPES = Shapes(SIGNATURES)
"""One for all examples, so that lines of one shape meet."""
FAULT = b"(Worker_TP1 pid=7) ERROR 07-19 08:20:16 [m.py:1007] torch.AcceleratorError: CUDA error: misaligned address\n"
FLOODS = (
    b"\n",
    b"\r\n",
    b"\r[AutoTuner]: Tuning fp4_gemm:  %2d%|##  | 3/67 [00:02<00:02, 13.1profile/s]",
    b"\rCapturing CUDA graphs (mixed prefill-decode, PIECEWISE):  %2d%|##  | 3/67 [00:02<00:02, 13.1it/s]",
    b"(Worker_TP0 pid=%d) WARNING 11-30 10:03:42 [x.py:1] Error number %d, nobody knows of what\n",
    b"(APIServer pid=%d) ERROR 11-30 10:03:42 [serving.py:109] Error in preprocessing prompt inputs of request %d\n",
    b'  File "/usr/lib/python3.12/dist-packages/transformers/x.py", line %d, in forward\n',
)


def shown(told: Shown) -> list[tuple[Match, str | None, bool]]:
    """Return what shows something, and what is asked of its record when nobody keeps the text."""
    return [(match, record.level, bool(record.request)) for record, match in told if match]


def answers(told: Shown) -> list[Record]:
    return [record for record, _ in told if record.is_calm or record.request]


@given(st.sampled_from(SIGNATURES.all), st.lists(st.integers(0, 9), min_size=1, max_size=12))
def test_a_line_shows_the_same_whether_or_not_its_like_was_read_before(signature: object, figures: list[int]) -> None:
    example: str = signature.example  # type: ignore[attr-defined]
    chosen = iter(figures * len(example))
    line = re.sub("[0-9]", lambda _: str(next(chosen)), example).encode()
    before = [SHAPES.read(other, SIGNATURES, lambda _: True) for other in (example.encode(), line)][-1]
    fresh = Shapes(SIGNATURES).read(line, SIGNATURES, lambda _: False)
    assert (shown(before), answers(before)) == (shown(fresh), answers(fresh))


def test_a_line_whose_text_is_wanted_is_read_itself() -> None:
    shapes = Shapes(SIGNATURES)
    first, second = (FAULT.replace(b"pid=7", b"pid=%d" % pid) for pid in (7, 8))
    shapes.read(first, SIGNATURES, lambda _: True)
    assert shapes.read(second, SIGNATURES, lambda _: False)[0][0].text == second.decode().rstrip()


def test_one_fault_in_a_flood_of_any_kind_is_found_in_its_place() -> None:
    for flood in FLOODS:
        pieces = b"".join(_filled(flood, at) for at in range(20_000))
        scan = Scan(SIGNATURES)
        data = pieces + b"\n" + FAULT + pieces
        for at in range(0, len(data), 65_521):
            scan.feed("stdout", data[at : at + 65_521], 0.0)
        found = [(e.number, e.text) for e in scan.evidence if e.signature == "cuda-misaligned-address"]
        assert found == [(pieces.count(b"\n") + 2, FAULT.decode().rstrip())], flood
        assert scan.lines == data.count(b"\n")


def _filled(form: bytes, number: int) -> bytes:
    return re.sub(rb"%\d?d", b"%d" % number, form)
