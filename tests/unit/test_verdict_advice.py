"""Advice is chosen by what is known, most specific first, and a table with a slip in it is refused."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from safe_vllm.data.strict_yaml import read_data
from safe_vllm.errors import Trouble
from safe_vllm.verdict.advice import MOST_SHOWN, Advice, advised
from safe_vllm.verdict.advice_table import parse
from safe_vllm.verdict.evidence import FAULTS, SUSPECTS, Evidence, Setup, Verdict
from safe_vllm.verdict.signatures import parse as parse_signatures

TABLE = parse(read_data("advice.yaml"))
LINK = "https://example.org/1"


def verdict(
    fault: str = "illegal-memory-access",
    suspect: str = "moe",
    phase: str = "serving",
    backend: str | None = None,
    **setup: str | None,
) -> Verdict:
    return Verdict(fault, "retry-safer", phase, "it broke", suspect, backend, setup=Setup(**setup))


def shown(entry: Advice, ended: Verdict) -> str | None:
    advice = advised(ended, (entry,)).advice
    return advice[0] if advice else None


# ---- conditions


@pytest.mark.parametrize(
    ("entry", "is_shown"),
    [
        (Advice("x", faults=("illegal-memory-access", "hang")), True),
        (Advice("x", faults=("hang",)), False),
        (Advice("x", suspects=("moe",)), True),
        (Advice("x", suspects=("gemm",)), False),
        (Advice("x", phases=("serving",)), True),
        (Advice("x", phases=("init",)), False),
        (Advice("x", suspects=("moe",), phases=("init",)), False),
    ],
)
def test_fault_suspect_and_phase_are_always_known(entry: Advice, is_shown: bool) -> None:
    assert (shown(entry, verdict()) is not None) is is_shown


@pytest.mark.parametrize(
    ("backend", "text"),
    [
        ("FLASHINFER_TRTLLM", "x"),
        ("FlashInfer TRTLLM", "x"),
        ("FLASHINFER_TRTLLM_MXFP4_MXFP8", "x"),
        ("FLASHINFER_CUTLASS", None),
        (None, "where FLASHINFER_TRTLLM is in use: x"),
    ],
)
def test_a_backend_is_known_however_it_is_spelled(backend: str | None, text: str | None) -> None:
    assert shown(Advice("x", backends=("FLASHINFER_TRTLLM",)), verdict(backend=backend)) == text


@pytest.mark.parametrize(
    ("gpu", "text"),
    [
        ("NVIDIA B200", "x"),
        ("NVIDIA GB200", None),
        ("NVIDIA B200 SXM", "x"),
        (None, "on B200: x"),
    ],
)
def test_a_gpu_is_known_by_a_whole_word(gpu: str | None, text: str | None) -> None:
    assert shown(Advice("x", gpus=("B200",)), verdict(gpu=gpu)) == text


@pytest.mark.parametrize(
    ("entry", "known", "words"),
    [
        (Advice("x", architectures=("aarch64",)), {"architecture": "aarch64"}, "on aarch64"),
        (
            Advice("x", compute_capabilities=("10.0", "10.3")),
            {"compute_capability": "10.3"},
            "on GPUs of compute capability 10.0 or 10.3",
        ),
    ],
)
def test_other_hardware_makes_advice_needless(entry: Advice, known: dict[str, str], words: str) -> None:
    assert shown(entry, verdict(**known)) == "x"
    assert shown(entry, verdict(**dict.fromkeys(known, "another"))) is None
    assert shown(entry, verdict()) == f"{words}: x"


@pytest.mark.parametrize(
    ("version", "is_shown"),
    [
        ("0.26.0", True),
        ("0.26.0+cpu", True),
        ("0.22.1rc1.dev255+g4dcd10eb0", True),
        ("0.26.1.dev3", True),
        ("0.27.0", False),
        ("0.27.0+cu129", False),
        ("0.27.0rc1", False),
        ("0.32.0+cpu", False),
        ("0.15.1", False),
    ],
)
def test_versions_of_any_build_are_compared(version: str, is_shown: bool) -> None:
    assert (shown(Advice("x", vllm=">=0.16,<0.27"), verdict(vllm=version)) == "x") is is_shown


@pytest.mark.parametrize("version", [None, "dev", ""])
def test_a_version_that_is_not_known_is_left_to_the_reader(version: str | None) -> None:
    entry = Advice("x", flashinfer="<0.6.16")
    assert shown(entry, verdict(flashinfer=version)) == "with FlashInfer before 0.6.16: x"


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ("<0.27", "before 0.27"),
        ("<0.6.16,>=0.6.8", "0.6.8 or later and before 0.6.16"),
        ("==0.6.5", "0.6.5"),
        ("<= 0.6.6", "up to 0.6.6"),
        (">0.6,!=0.6.5", "later than 0.6 and other than 0.6.5"),
    ],
)
def test_versions_are_put_in_words(wanted: str, words: str) -> None:
    assert shown(Advice("x", vllm=wanted), verdict()) == f"with vLLM {words}: x"


def test_what_is_fixed_is_not_shown_and_what_fixes_it_is_named() -> None:
    entry = Advice("x", LINK, suspects=("moe",), fixed_in=(("vllm", "0.27"), ("flashinfer", "0.6.16")))
    words = "x; fixed in vLLM 0.27 and FlashInfer 0.6.16"
    assert shown(entry, verdict()) == words
    assert shown(entry, verdict(vllm="0.26.0")) == words
    assert shown(entry, verdict(vllm="0.27.1")) is None
    assert shown(entry, verdict(vllm="0.26.0", flashinfer="0.6.16.post3")) is None


# ---- order and links


def test_the_most_specific_comes_first_and_what_is_unsure_last() -> None:
    table = (
        Advice("unsure", suspects=("moe",), flashinfer="<1"),
        Advice("plain", suspects=("moe",)),
        Advice("specific", suspects=("moe",), vllm="<1"),
    )
    ended = advised(verdict(vllm="0.32.0"), table)
    assert ended.advice == ("specific", "plain", "with FlashInfer before 1: unsure")


def test_only_a_few_are_shown_and_each_has_its_link() -> None:
    table = tuple(Advice(f"no. {n}", f"https://example.org/{n // 2}", suspects=("moe",)) for n in range(9))
    ended = advised(verdict(), table)
    assert ended.advice == tuple(f"no. {n}" for n in range(MOST_SHOWN))
    assert ended.links == tuple(f"https://example.org/{n // 2}" for n in range(MOST_SHOWN))


def test_nothing_else_of_the_verdict_changes() -> None:
    assert advised(verdict(), ()) == verdict()


# ---- the table that ships


def test_what_the_cause_shows_may_be_a_condition() -> None:
    entry = Advice("x", signatures=("vllm-missing",))
    line = Evidence(1, "sh: vllm: not found", "root", "vllm-missing", "toolchain")
    assert shown(entry, replace(verdict(), evidence=(line,))) == "x"
    assert shown(entry, replace(verdict(), evidence=(replace(line, signature="toolchain"),))) is None


def test_signatures_that_advice_names_exist() -> None:
    known = {signature.name for signature in parse_signatures(read_data("signatures.yaml")).all}
    assert {name for entry in TABLE for name in entry.signatures} <= known


def test_there_is_advice_on_every_fault_and_suspect() -> None:
    faults = {fault for entry in TABLE for fault in entry.faults}
    suspects = {suspect for entry in TABLE for suspect in entry.suspects}
    assert FAULTS - {"none", "stopped", "unknown"} <= faults
    assert SUSPECTS - {"none"} <= suspects


@pytest.mark.parametrize("entry", TABLE, ids=lambda entry: entry.text)
def test_a_text_is_one_plain_sentence(entry: Advice) -> None:
    first = entry.text.split()[0]
    assert first.islower() or "=" in first
    assert not entry.text.endswith((".", ";", ":"))
    assert ". " not in entry.text.replace("no. ", "")


@pytest.mark.parametrize("entry", TABLE, ids=lambda entry: entry.text)
def test_a_text_that_begins_with_a_setting_says_what_it_sets(entry: Advice) -> None:
    first = entry.text.split()[0]
    assert bool(entry.sets) or not (first.startswith("--") or "=" in first)
    assert all(re.fullmatch(r"--[a-z0-9-]+( \w+)?|[A-Z][A-Z0-9_]+=\S+", setting) for setting in entry.sets)


def test_a_crash_in_the_tuner_gets_what_helped_against_that_very_crash() -> None:
    known = {"vllm": "0.23.0", "flashinfer": "0.6.12", "gpu": "NVIDIA B200", "compute_capability": "10.0"}
    advice = advised(verdict(suspect="autotune", backend="FLASHINFER_TRTLLM", **known), TABLE).advice
    assert len(advice) == MOST_SHOWN
    for setting in ("--no-enable-flashinfer-autotune", "--moe-backend triton", "vLLM 0.27"):
        assert any(setting in text for text in advice)
    assert not any("with " in text.split(":")[0] for text in advice)


def test_a_release_that_is_not_installed_is_not_blamed() -> None:
    def advice(version: str) -> tuple[str, ...]:
        return advised(verdict(suspect="autotune", flashinfer=version), TABLE).advice

    assert any("this one crashes" in text for text in advice("0.6.5"))
    assert not any("this one crashes" in text for text in advice("0.6.12"))


@pytest.mark.parametrize(
    ("ended", "setting"),
    [
        (verdict("shm", "unknown", "init"), "--shm-size"),
        (verdict("illegal-memory-access", "attention", backend="FLASHINFER", vllm="0.26.0"), "TRITON_ATTN"),
        (verdict("illegal-memory-access", "all-to-all", backend="DeepEPHTAll2All", vllm="0.26"), "--all2all-backend"),
        (verdict("illegal-memory-access", "all-reduce"), "--disable-custom-all-reduce"),
        (verdict("illegal-memory-access", "speculation"), "--no-async-scheduling"),
        (verdict("hang", "parallel", "init"), "NCCL_P2P_DISABLE=1"),
        (verdict("gpu-oom", "unknown", "capture"), "--max-cudagraph-capture-size"),
    ],
)  # fmt: skip
def test_the_first_advice_names_the_setting(ended: Verdict, setting: str) -> None:
    assert setting in advised(ended, TABLE).advice[0]


# ---- reading the table

ENTRY: dict[str, object] = {"text": "try this", "faults": ["hang"]}


def test_an_entry_is_read() -> None:
    (entry,) = parse({"advice": [{**ENTRY, "link": LINK, "vllm": "<0.27", "fixed_in": {"vllm": "0.27"}}]})
    assert entry == Advice("try this", LINK, faults=("hang",), vllm="<0.27", fixed_in=(("vllm", "0.27"),))


def test_what_shows_that_it_is_followed_comes_with_the_advice() -> None:
    shows = {"sets": ["try", "this"], "leaves_out": "is", "needs_tuning": True, "makes": "gpu"}
    [told] = advised(verdict(), parse({"advice": [{**ENTRY, **shows, "faults": ["illegal-memory-access"]}]})).advised
    assert (told.sets, told.leaves_out, told.needs_tuning, told.makes) == (("try", "this"), "is", True, "gpu")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"text": 3}, r"advice\[1\].text: expected a string"),
        ({"text": "this helped others"}, "needs a link"),
        ({"fixed_in": {"vllm": "0.27"}}, "needs a link"),
        ({"link": "http://example.org"}, "starts with https"),
        ({"faults": ["broken"]}, r"advice\[1\].faults: broken is not one of .*hang"),
        ({"suspects": ["me"]}, "me is not one of"),
        ({"phases": ["later"]}, "later is not one of"),
        ({"faults": "hang"}, "expected a list of strings"),
        ({"gpus": []}, "expected a list of strings"),
        ({"compute_capabilities": [10.0]}, "expected a list of strings"),
        ({"xids": ["79"]}, "expected a list of numbers"),
        ({"xids": []}, "expected a list of numbers"),
        ({"xids": [True]}, "expected a list of numbers"),
        ({"vllm": "0.27"}, "expected versions such as"),
        ({"flashinfer": "<new"}, "expected versions such as"),
        ({"fixed_in": "0.27"}, "expected a mapping of vllm or flashinfer"),
        ({"fixed_in": {"torch": "2.9"}}, "expected a mapping of vllm or flashinfer"),
        ({"fixed_in": {"vllm": 0.27}}, "expected a version in quotes"),
        ({"sets": ["--flag"]}, "the text does not name --flag"),
        ({"leaves_out": "--flag"}, "the text does not name --flag"),
        ({"sets": "this"}, "expected a list of strings"),
        ({"needs_tuning": False}, "expected true"),
        ({"makes": "noise"}, "noise is not one of process, gpu, stacks"),
        ({"colour": "red"}, r"advice\[1\].colour: unknown key"),
    ],
)
def test_a_wrong_entry_is_refused_by_its_place(change: dict[str, object], message: str) -> None:
    with pytest.raises(Trouble, match=message):
        parse({"advice": [{**ENTRY, **change}]})


@pytest.mark.parametrize(
    "content",
    [
        None,
        [],
        {},
        {"advice": {}},
        {"advice": ["text"]},
        {"advice": [], "more": []},
        {"advice": [{"faults": ["hang"]}]},
        {"advice": [{"text": "always"}]},
        {"advice": [{"text": "always", "sets": ["always"], "needs_tuning": True, "makes": "gpu"}]},
        {"advice": [ENTRY, ENTRY]},
    ],
)
def test_what_is_no_table_of_advice_is_refused(content: object) -> None:
    with pytest.raises(Trouble, match="advice"):
        parse(content)
