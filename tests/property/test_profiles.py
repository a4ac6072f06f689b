"""Whatever a profile holds, it is understood, or told to be wrong in one line each; nothing else happens."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from safe_vllm.data.strict_yaml import dump, load_with_lines
from safe_vllm.errors import Trouble
from safe_vllm.machine.facts import ProfileFile
from safe_vllm.machine.profile_files import read_profiles
from safe_vllm.plan import profile as schema
from safe_vllm.plan.ladder import RUNG_NAMES
from safe_vllm.plan.profile import Profile
from safe_vllm.plan.profile_reading import content_of, parse, problems_of

STRUCTS = (schema.Profile, schema.Fits, schema.RungEntry, schema.DeviceLimits, schema.Policy, schema.Reason)
KEYS = sorted({name for struct in STRUCTS for name in struct.__struct_fields__})
WORDS = st.sampled_from(
    [*KEYS, *RUNG_NAMES, "b200", "auto", "safe", "10.0", ">=0.20", "https://x", "yes", "", "\0", "-x"]
)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), WORDS)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.one_of(WORDS, SCALARS.filter(bool)), inner, max_size=5)
    ),
    max_leaves=20,
)
YAML_LINE_BREAK = re.compile("\r\n|[\r\n\x85\u2028\u2029]")  # YAML 1.1, section 4.2: more than an editor counts
BASES = [None, *read_profiles(None, None, {})]
SOUND = [content_of(file) for file in BASES if file is not None]


@st.composite
def nearly(draw: st.DrawFn) -> Any:
    """A sound profile, in which something was replaced by anything."""
    content: Any = msgspec.json.decode(msgspec.json.encode(draw(st.sampled_from(SOUND))))
    part = content
    while isinstance(part, (dict, list)) and part:
        at = draw(st.sampled_from(sorted(part)) if isinstance(part, dict) else st.integers(0, len(part) - 1))
        if draw(st.booleans()):
            part[at] = draw(ANYTHING)
            break
        part = part[at]
    return content


@given(st.one_of(ANYTHING, nearly()), st.sampled_from(BASES))
def test_any_content_is_a_profile_or_has_problems(content: Any, base: ProfileFile | None) -> None:
    file = ProfileFile("x.yaml", content, base=base)
    found = problems_of(file)
    assert all(problem.startswith("x.yaml: ") and "\n" not in problem for problem in found)
    try:
        parsed = parse(file)
    except Trouble as trouble:
        assert trouble.message == found[0]
    else:
        assert found == ()
        assert isinstance(parsed, Profile)
        assert parsed.ladder[0].rung == "as-asked"


@given(nearly())
def test_a_problem_has_the_line_of_its_place(content: Any) -> None:
    text = dump(content)
    read, lines = load_with_lines(text, where="x.yaml")
    for problem in problems_of(ProfileFile("x.yaml", read, lines)):
        line = int(problem.split(":")[1])
        assert 1 <= line <= len(YAML_LINE_BREAK.findall(text))


@given(st.text(max_size=200))
def test_any_text_is_read_or_is_trouble(text: str) -> None:
    try:
        content, lines = load_with_lines(text, where="x.yaml")
    except Trouble as trouble:
        assert trouble.message.startswith("x.yaml")
    else:
        assert problems_of(ProfileFile("x.yaml", content, lines))
