"""Whatever an operator and a rung set, the means for Ray are only ever added to, and only with Ray."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from safe_vllm import known
from safe_vllm.plan.flags import read
from safe_vllm.plan.ladder import Rung
from safe_vllm.plan.ray import means_of, reaching

ASKS = "VLLM_RAY_EXTRA_ENV_VARS_TO_COPY"
PREFIXES = "VLLM_RAY_EXTRA_ENV_VAR_PREFIXES_TO_COPY"
NAMES = ("A", "AB", "CUDA_LIB_PATH", "FLASHINFER_X", "NCCL_DEBUG", "VLLM_CACHE_ROOT", "LOCAL_RANK", "HF_TOKEN")
lists = st.lists(st.sampled_from([*NAMES, "", " ", " A "]), max_size=5).map(",".join)
operators = st.dictionaries(st.sampled_from(NAMES), st.just("theirs"), max_size=3).flatmap(
    lambda found: st.fixed_dictionaries({}, optional={ASKS: lists, PREFIXES: lists}).map(lambda more: found | more)
)
variables = st.dictionaries(st.sampled_from(NAMES), st.just("ours"), max_size=5)
versions = st.integers(11, 34).map(lambda minor: f"0.{minor}.0")
backends = st.sampled_from(
    ["", "-dpb ray", "-dpb mp", "--distributed-executor-backend ray", "--distributed-executor-backend mp -dpb ray"]
)


@given(operators, variables, versions, backends)
def test_what_is_asked_for_is_handed_over_and_what_was_asked_for_stays(
    environment: dict[str, str], ours: dict[str, str], version: str, backend: str
) -> None:
    dialect, rung = known.dialects().of(version), Rung("as-asked", ("m", *backend.split()), tuple(ours.items()))
    after = reaching(rung, environment, dialect)
    now = dict(after.environment)
    value = now.pop(ASKS, None)
    assert (now, replace(after, environment=rung.environment)) == (ours, rung)
    assert reaching(after, environment, dialect) == after
    if value is not None:
        theirs = environment.get(ASKS, "").rstrip(", ")
        assert value.startswith(theirs)
        assert set(value[len(theirs) :].strip(",").split(",")) <= set(ours)
    in_all = {**environment, **dict(after.environment)}
    means = means_of(read(rung.words), in_all, dialect)
    assert value is None or means is not None
    if means and int(version.split(".")[1]) >= 17:
        assert all(means.carries(name, in_all) for name in ours if name not in dialect.table.ray.own)
