"""Whatever the environment and the command are, the check-up ends with findings and not with an error."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safe_vllm.checks.finding import Finding
from safe_vllm.commands import doctor
from safe_vllm.errors import Trouble
from safe_vllm.machine.recorded import parse
from safe_vllm.plan.intent import Intent

NAMES = """HOME PATH PYTHONPATH CUDA_VISIBLE_DEVICES NVIDIA_VISIBLE_DEVICES NVIDIA_DRIVER_CAPABILITIES CUDA_LIB_PATH
LD_LIBRARY_PATH HF_HOME HF_HUB_CACHE XDG_CACHE_HOME XDG_STATE_HOME XDG_CONFIG_HOME VLLM_CACHE_ROOT VLLM_PORT TMPDIR
VLLM_SERVICE_HOST VLLM_LOGGING_LEVEL VLLM_X FLASHINFER_WORKSPACE_BASE FLASHINFER_X TRTLLM_MOE_MAX_WORKSPACE container
KUBERNETES_SERVICE_HOST SAFE_VLLM_OFF VLLM_DP_SIZE VLLM_USE_FLASHINFER_MOE_FP16 TRITON_CACHE_DIR""".split()
ODD = [
    "x" * 5000,
    "",
    "/",
    "/nowhere/at/all",
    "~",
    "::",
    ":/proc:",
    "0,0",
    "-1",
    "tcp://1:2",
    "é",
    "\t",
    "1e9",
    "/proc/1/x",
]
VALUES = st.one_of(
    st.sampled_from(ODD), st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=8)
)
WORDS = """m --port 8000 99999 x --host :: 0.0.0.0 -tp 2 -dp -ep --config /nowhere.yaml --headless --uds --
--moe-backend triton --kernel-config {} --nnodes --fail-on-environ-validation --model""".split()


@contextmanager
def environment_of(variables: dict[str, str]) -> Iterator[None]:
    """Let these variables alone be the environment for a while; nothing is kept on disk."""
    kept = dict(os.environ)
    os.environ.clear()
    os.environ.update({"SAFE_VLLM_NO_CACHE": "1", **variables})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(kept)


@settings(max_examples=100)
@given(st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=6), st.lists(st.one_of(st.sampled_from(WORDS), VALUES)))
def test_no_environment_and_no_command_end_a_check_up(environment: dict[str, str], words: list[str]) -> None:
    with environment_of(environment):
        case = doctor.examined(Intent(tuple(words), vllm=("no-such-vllm",)))
    findings = doctor.checked(case)
    assert all(finding.what and (finding.level == "ok" or (finding.why and finding.do)) for finding in findings)
    assert "problem" in {finding.level for finding in findings if finding.name == "vllm"}
    told = json.loads(doctor.told(findings, case.machine, "json"))
    assert parse(json.dumps(told["machine"]), "told").architecture == case.machine.architecture


MACHINES = sorted((Path(__file__).parents[1] / "golden" / "machines").glob("*.json"))


@pytest.mark.parametrize("path", MACHINES, ids=lambda path: path.stem)
def test_a_recorded_machine_is_checked_without_a_look_at_this_one(path: Path) -> None:
    with environment_of({"CUDA_VISIBLE_DEVICES": "-1"}):
        case = doctor.examined(Intent(("m", "-tp", "1"), machine=str(path)))
    names = {finding.name for finding in doctor.checked(case)}
    assert {"architecture", "gpus", "vllm", "profile"} <= names
    assert not names & {"port", "disk", "limits", "visible-devices", "shared-memory"}


DEPLOY = Path(__file__).parents[2] / "deploy"
BITS = [
    *b"\xff null ~ [] {} !!float !!bool -1e999 .inf &a *a true 1e3 60 infinity 99999999999d".split(),
    *b"$( ${ {{ | > ? % = \\ \xc2\x85".split(),
    *(b"!!float .nan", b"!!bool x", b"!!timestamp x", b"!!set {a}", b"0x" + b"f" * 5000, b"9" * 400, b"&a [*a]"),
    *(
        b"<<: *a",
        b"\n---\n",
        b"- ",
        b": ",
        b'"',
        b"'",
        b"[Service]\n",
        b"ExecStart=\n",
        b"\xe2\x80\xa8",
        b"\0",
        b"\x1b[2J",
    ),
    *("\u00b2".encode(), b"", b"{{ .Values.x }}", b"exec safe-vllm", b"sh -c '", b"a\n\tb"),
]
Check = Callable[[Sequence[str]], tuple[Finding, ...]]


@st.composite
def damaged(draw: st.DrawFn, text: bytes) -> bytes:
    """Return a file in which values, lines and pieces of lines were replaced by something odd."""
    lines = text.split(b"\n")
    for _ in range(draw(st.integers(1, 3))):
        at, bit = draw(st.integers(0, len(lines) - 1)), draw(st.sampled_from(BITS))
        name, mark, _ = lines[at].partition(b": " if b": " in lines[at] else b"=")
        cut = draw(st.integers(0, len(lines[at])))
        indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
        lines[at] = draw(st.sampled_from([name + mark + bit, indent + bit, lines[at][:cut] + bit + lines[at][cut:]]))
    return b"\n".join(lines)


@pytest.mark.parametrize(
    ("name", "check"),
    [
        ("kubernetes/deployment.yaml", doctor.of_manifests),
        ("docker/compose.yaml", doctor.of_manifests),
        ("systemd/safe-vllm@.service", doctor.of_units),
    ],
)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_whatever_is_wrong_with_a_file_is_told_and_is_never_the_end(
    name: str, check: Check, data: st.DataObject
) -> None:
    content = data.draw(damaged((DEPLOY / name).read_bytes()) | st.binary(max_size=40))
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "given"
        path.write_bytes(content)
        try:
            findings = check([str(path)])
        except Trouble as trouble:
            assert trouble.hint
            return
    assert all(each.what and (each.level == "ok" or (each.why and each.do)) for each in findings)
    lines = doctor.told_of_files(findings, "text").splitlines()
    assert len(lines) == 1 + sum(1 if each.level == "ok" else 3 for each in findings)
    assert len(json.loads(doctor.told_of_files(findings, "json"))["findings"]) == len(findings) > 0
