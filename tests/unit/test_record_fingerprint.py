"""What a memory is of: the same for every spelling of the same settings, and another wherever kernels may differ."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from safe_vllm.machine.facts import Gpu, Installation, Machine
from safe_vllm.plan.grammar import FLAGS
from safe_vllm.plan.profile import Policy, Profile, RungEntry
from safe_vllm.plan.shape_flags import ELSEWHERE
from safe_vllm.plan.shape_table import MORE
from safe_vllm.record.fingerprint import Fingerprint, fingerprint, model_named

MODEL = "Qwen/Qwen3-30B-A3B"
INSTALLED = Installation(
    vllm="0.23.0", torch="2.11.0", torch_cuda="13.0", flashinfer="0.6.12", flashinfer_cubin="0.6.12"
)
B200 = Gpu("NVIDIA B200", "10.0", 183359)
MACHINE = Machine("x86_64", (B200, B200), driver="580.95.05", installation=INSTALLED)
PROFILE = Profile("b200", ladder=(RungEntry("as-asked"), RungEntry("no-autotune", environment={"A": "1"})))


def of(
    *words: str,
    config: Mapping[str, object] | None = None,
    environment: Mapping[str, str] | None = None,
    machine: Machine = MACHINE,
    profile: Profile = PROFILE,
    pins: frozenset[str] = frozenset(),
    model_at: str | None = None,
) -> Fingerprint:
    return fingerprint(words or (MODEL,), config, environment or {}, machine, profile, ("0",), pins, model_at)


@pytest.mark.parametrize(
    "spellings",
    [
        [
            ("-dp", "2"),
            ("--data-parallel-size=2",),
            ("--data_parallel_size", "2"),
            ("-dp=2",),
            ("-dp", "4", "-dp", "2"),
        ],
        [("--moe-backend", "TRITON"), ("--moe=triton",), ("--kernel-config", '{"moe_backend": "triton"}')],
        [("--kernel-config.moe_backend=triton",), ("--kernel-config.moe_backend", "triton")],
        [("--no-enable-flashinfer-autotune",), ("--kernel-config.enable_flashinfer_autotune=false",)],
        [("--kernel-config", '{"b": 1, "a": {"c": 2}}'), ("--kernel-config.a.c=2", "--kernel-config.b", "1")],
        [
            ("--speculative-config", '{"method":"mtp","num_speculative_tokens":2}'),
            ("-sc.method", "mtp", "--spec-tok=2"),
        ],
        [("--spec-method", "mtp", "--spec-tokens", "2"), ("-sc", '{"num_speculative_tokens": 2, "method": "mtp"}')],
        [("-cc.mode=3",), ("--compilation-config", '{"mode": 3}'), ("-cc", '{"mode":3}')],
        [("--attention-config.backend=FLASHINFER",), ("-ac", '{"backend": "FLASHINFER"}')],
        [("--dtype", "bfloat16"), ("--dtype=bfloat16",), ("--dt", "bfloat16")],
        [("--gpu-memory-utilization", "0.90"), ("--gpu_memory_utilization=0.9",)],
        [("--cudagraph-capture-sizes", "1", "2"), ("--cudagraph_capture_sizes", "01", "2")],
        [("--enforce-eager",), ("--enforce_eager",), ("--enf",), ("--no-enforce-eager", "--enforce-eager")],
        [
            (),
            ("-dp", "1"),
            ("-tp=1",),
            ("--dtype", "auto"),
            ("--moe-backend", "auto"),
            ("-O2",),
            ("--no-enforce-eager",),
        ],
        [("-q", "fp8"), ("--quantization=fp8",)],
        [("--revision", "abc"), ("--rev=abc",)],
        [("-ep",), ("--enable-expert-parallel",), ("--enable-ex",)],
    ],
)
def test_every_spelling_of_the_same_settings_has_the_same_fingerprint(spellings: list[tuple[str, ...]]) -> None:
    keys = {of(MODEL, *words).key for words in spellings}
    assert len(keys) == 1
    assert (keys == {of(MODEL).key}) is (() in spellings)


def test_settings_count_the_same_from_the_config_file() -> None:
    config: dict[str, object] = {
        "model": MODEL,
        "data-parallel-size": 2,
        "dtype": "bfloat16",
        "gpu-memory-utilization": 0.9,
        "enforce-eager": True,
        "cudagraph-capture-sizes": [1, 2],
        "compilation-config": {"mode": 3},
        "port": 8000,
    }
    words = "--dtype bfloat16 --gpu-mem .9 -dp 2 --enforce-eager --cudagraph-capture-sizes 1 2 -cc.mode 3".split()
    words[words.index(".9")] = "0.9"
    assert of("--config", "c.yaml", config=config).key == of(MODEL, *words).key
    assert of(MODEL, "--dtype", "half", config={"dtype": "bfloat16"}).key == of(MODEL, "--dtype=half").key


def test_the_model_is_the_same_whether_it_stands_first_or_behind_its_flag() -> None:
    assert len({of(MODEL).key, of("--model", MODEL).key, of(f"--model={MODEL}").key, of(f"{MODEL}/").key}) == 1
    behind = replace(MACHINE, model_name=MODEL)
    assert of("--trust-remote-code", MODEL, machine=behind).key == of(MODEL).key
    assert of("--trust-remote-code", MODEL).key == of(MODEL).key


def test_a_model_on_this_machine_is_told_by_where_it_really_is() -> None:
    assert of("./model", model_at="/a/model").key == of("/a/model", model_at="/a/model").key == of("/a/model").key
    assert of("./model", model_at="/a/model").key != of("./model", model_at="/b/model").key
    assert of("./model", model_at="/a/model").about["model"] == "/a/model"
    assert model_named(("./model",), None, MACHINE) == "./model"
    assert model_named(("--foo", "x/y"), None, replace(MACHINE, model_name="behind")) == "behind"


@pytest.mark.parametrize(
    "words",
    [
        ("-dp", "2"),
        ("-tp", "2"),
        ("-ep",),
        ("--moe-backend", "triton"),
        ("--no-enable-flashinfer-autotune",),
        ("--enable-flashinfer-autotune",),
        ("-O0",),
        ("--kernel-config.other=1",),
        ("-sc.method=mtp",),
        ("--max-num-batched-tokens", "4096"),
        ("--max-model-len", "4096"),
        ("--quantization", "fp8"),
        ("--revision", "abc"),
        ("--dtype", "half"),
        ("--kv-cache-dtype", "fp8"),
        ("--attention-backend", "FLASH_ATTN"),
        ("--enforce-eager",),
        ("--disable-custom-all-reduce",),
        ("--no-enable-prefix-caching",),
        ("--gpu-memory-utilization", "0.8"),
        ("-cc.mode=3",),
        ("--compilation-config", "3"),
        ("--hf-overrides", '{"a": 1}'),
        ("--all2all-backend", "deepep_low_latency"),
        ("--mamba-backend", "flashinfer"),
        ("--gdn-prefill-backend", "triton"),
        ("--dcp-comm-backend", "a2a"),
        ("--dbo-decode-token-threshold", "64"),
        ("--no-disable-hybrid-kv-cache-manager",),
        ("--kv-cache-dtype-skip-layers", "0", "1"),
        ("--offload-group-size", "8"),
        ("--lora-dtype", "bfloat16"),
        ("--quantization-config", '{"a": 1}'),
        ("--mm-encoder-attn-backend", "FLASH_ATTN"),
        ("--limit-mm-per-prompt", '{"image": 0}'),
        ("--kv-transfer-config", '{"kv_connector": "NixlConnector"}'),
        ("--worker-cls", "a.B"),
        ("--runner", "pooling"),
    ],
)
def test_another_setting_that_decides_what_runs_has_another_fingerprint(words: tuple[str, ...]) -> None:
    assert of(MODEL, *words).key != of(MODEL).key


@pytest.mark.parametrize(
    "words",
    [
        ("--api-key", "secret"),
        ("--api-key", "secret", "secret2"),
        ("--host", "0.0.0.0"),
        ("--port=8001",),
        ("--uds", "/run/socket"),
        ("--served-model-name", "a", "b"),
        ("--uvicorn-log-level", "debug"),
        ("--ssl-keyfile", "key.pem"),
        ("--root-path", "/v2"),
        ("--shutdown-timeout", "30"),
        ("--data-parallel-rank", "1"),
        ("--node-rank", "1"),
        ("--data-parallel-address", "10.0.0.1"),
        ("--data-parallel-rpc-port", "13345"),
        ("--api-server-count", "4"),
        ("--chat-template", "t.jinja"),
        ("--enable-log-requests",),
        ("--download-dir", "/models"),
        ("-cc.cache_dir=/fast",),
        ("--mamba-backend", "triton"),
        ("--dbo-prefill-token-threshold=512",),
        ("--kv-transfer-config", '{"kv_ip": "10.0.0.1", "kv_rank": 1}'),
        ("--", "-dp", "2", "--dtype", "half"),
    ],
)
def test_keys_hosts_ports_names_and_log_levels_change_nothing(words: tuple[str, ...]) -> None:
    assert of(MODEL, *words) == of(MODEL)


@pytest.mark.parametrize(
    "change",
    [
        {"vllm": "0.24.0"},
        {"flashinfer": "0.6.13"},
        {"flashinfer_cubin": None},
        {"torch": "2.12.0"},
        {"torch_cuda": "12.8"},
    ],
)
def test_other_software_has_another_fingerprint(change: dict[str, Any]) -> None:
    assert of(machine=replace(MACHINE, installation=replace(INSTALLED, **change))).key != of().key


@pytest.mark.parametrize(
    "change",
    [
        {"driver": "590.1"},
        {"architecture": "aarch64"},
        {"gpus": (B200,)},
        {"gpus": (B200, replace(B200, name="NVIDIA GB200"))},
        {"gpus": (B200, replace(B200, is_slice=True))},
        {"gpus": ()},
    ],
)
def test_other_hardware_has_another_fingerprint(change: dict[str, Any]) -> None:
    assert of(machine=replace(MACHINE, **change)).key != of().key


@pytest.mark.parametrize(
    "change",
    [
        {"model_name": "another"},
        {"visible_devices": "2,3"},
        {"cuda12_libraries": ("/usr/lib",)},
        {"installation": replace(INSTALLED, python="/other/bin/python")},
        {"gpu_note": "slow"},
    ],
)
def test_where_things_are_on_the_machine_changes_nothing(change: dict[str, Any]) -> None:
    assert of(machine=replace(MACHINE, **change)) == of()


@pytest.mark.parametrize(
    ("variable", "counts"),
    [
        ("VLLM_USE_DEEP_GEMM", True),
        ("VLLM_FLASHINFER_AUTOTUNE_SKIP_OPS", True),
        ("VLLM_ALL2ALL_BACKEND", True),
        ("VLLM_DP_SIZE", True),
        ("FLASHINFER_DISABLE_MOE_AUTOTUNE", True),
        ("NCCL_P2P_DISABLE", True),
        ("CUDA_LAUNCH_BLOCKING", True),
        ("VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR", False),
        ("VLLM_KV_CACHE_LAYOUT", True),
        ("VLLM_DISABLE_COMPILE_CACHE", True),
        ("VLLM_SPARSE_INDEXER_MAX_LOGITS_MB", True),
        ("VLLM_BATCH_INVARIANT", True),
        ("VLLM_FLASH_ATTN_VERSION", True),
        ("VLLM_MARLIN_USE_ATOMIC_ADD", True),
        ("VLLM_NCCL_SO_PATH", True),
        ("VLLM_SKIP_DEEP_GEMM_WARMUP", True),
        ("VLLM_ROCM_USE_AITER", True),
        ("VLLM_OF_A_LATER_RELEASE", True),
        ("TORCHINDUCTOR_MAX_AUTOTUNE", True),
        ("NCCL_NVLS_CHUNKSIZE", True),
        ("NVIDIA_TF32_OVERRIDE", True),
        ("TORCHINDUCTOR_CACHE_DIR", False),
        ("DG_JIT_CACHE_DIR", False),
        ("FLASHINFER_CUBIN_DIR", False),
        ("VLLM_SERVICE_HOST", False),
        ("VLLM_ROUTER_SERVICE_PORT_HTTP", False),
        ("VLLM_PORT_8000_TCP_ADDR", False),
        ("VLLM_IMAGE_FETCH_TIMEOUT", False),
        ("VLLM_TORCH_PROFILER_DIR", False),
        ("VLLM_LOG_STATS_INTERVAL", False),
        ("VLLM_DP_MASTER_IP", False),
        ("VLLM_CACHE_ROOT", False),
        ("VLLM_LOGGING_LEVEL", False),
        ("VLLM_DP_RANK", False),
        ("VLLM_API_KEY", False),
        ("VLLM_HOST_IP", False),
        ("VLLM_PORT", False),
        ("FLASHINFER_LOGLEVEL", False),
        ("FLASHINFER_WORKSPACE_BASE", False),
        ("NCCL_DEBUG", False),
        ("NCCL_SOCKET_IFNAME", False),
        ("CUDA_VISIBLE_DEVICES", False),
        ("HF_TOKEN", False),
        ("HOME", False),
    ],
)
def test_variables_count_where_they_choose_kernels(variable: str, counts: bool) -> None:
    assert (of(environment={variable: "1"}).key != of().key) is counts
    assert (of(environment={variable: "1"}).about.get("variables") is not None) is counts


@pytest.mark.parametrize(
    ("change", "counts"),
    [
        ({"name": "other"}, True),
        ({"moe_backend": "triton"}, True),
        ({"environment": {"B": "1"}}, True),
        ({"cuda_lib_path": "unset"}, True),
        ({"ladder": PROFILE.ladder[:1]}, True),
        ({"ladder": (PROFILE.ladder[0], RungEntry("no-autotune", environment={"A": "2"}))}, True),
        ({"description": "words"}, False),
        ({"because": "words", "links": ("https://example.org",)}, False),
        ({"policy": Policy(max_attempts=3)}, False),
        ({"ladder": (RungEntry("as-asked", note="words", status="verified"), PROFILE.ladder[1])}, False),
    ],
)
def test_of_a_profile_what_it_sets_counts_and_what_it_says_does_not(change: dict[str, Any], counts: bool) -> None:
    assert (of(profile=msgspec.structs.replace(PROFILE, **change)).key != of().key) is counts


def test_pins_make_other_rungs_and_so_another_fingerprint() -> None:
    pinned = of(pins=frozenset({"autotune", "caches"}))
    assert pinned.key != of().key
    assert pinned.about["pins"] == ["autotune", "caches"]


def test_every_flag_of_the_grammar_is_known_to_count_or_not_to_count() -> None:
    assert FLAGS.keys() >= ELSEWHERE
    assert not MORE.keys() & FLAGS.keys()
    assert sorted(FLAGS.keys() - ELSEWHERE) == sorted(
        """
        --all2all-backend --compilation-config --data-parallel-backend --data-parallel-external-lb
        --data-parallel-hybrid-lb --data-parallel-multi-port-external-lb --data-parallel-size
        --data-parallel-size-local --decode-context-parallel-size --distributed-executor-backend
        --enable-chunked-prefill --enable-dbo --enable-elastic-ep --enable-eplb --enable-expert-parallel
        --enable-flashinfer-autotune --enable-lora --kernel-config --max-model-len --max-num-batched-tokens
        --max-num-seqs --moe-backend --nnodes --optimization-level --pipeline-parallel-size
        --prefill-context-parallel-size --quantization --spec-method --speculative-config --tensor-parallel-size
        """.split()
    )


def test_the_beginnings_of_flags_are_beginnings_and_lead_to_one_flag_each() -> None:
    for flag in MORE.values():
        assert flag.name.startswith(flag.shortest)
        assert not [name for name in (*MORE, *FLAGS) if name.startswith(flag.shortest) and name != flag.name] or (
            flag.shortest == flag.name
        )


def test_what_a_fingerprint_is_of_can_be_read_by_people() -> None:
    about = of(MODEL, "-dp", "2", environment={"VLLM_USE_DEEP_GEMM": "0"}).about
    assert about["model"] == MODEL
    assert about["gpus"] == {"NVIDIA B200": 2}
    assert about["software"]["driver"] == "580.95.05"
    assert about["settings"] == {"--data-parallel-size": "2"}
    assert about["variables"] == {"VLLM_USE_DEEP_GEMM": "0"}
    assert json.loads(json.dumps(about)) == about


def test_no_secret_is_in_what_is_kept() -> None:
    secret = "Xq7ZsecretZ7qX"
    found = fingerprint(
        (
            f"s3://me:{secret}@bucket/model",
            f'--hf-overrides={{"api_key": "{secret}"}}',
            "-sc",
            f'{{"method": "mtp", "hf_token": "{secret}"}}',
            f"--kernel-config.password={secret}",
            "--revision",
            f"https://me:{secret}@host/x",
            "--dtype",
            f"token={secret}",
        ),
        {"attention-config": {"my_key": secret}},
        {"VLLM_USE_SECRET": secret, "FLASHINFER_API_KEY": secret, "VLLM_USE_X": f"https://me:{secret}@host"},
        MACHINE,
        PROFILE,
        ("0",),
    )
    assert secret not in json.dumps(found.about)
    assert len(found.about["settings"]) == 6


@pytest.mark.parametrize(
    "words",
    [
        ("--kernel-config", "{"),
        ("--kernel-config", "[1]"),
        ("--kernel-config.a.b=1", "--kernel-config.a=1"),
        ("--kernel-config.a=1", "--kernel-config.a.b=1"),
        ("--speculative-config", "null"),
        ("--speculative-config", "mtp", "--spec-tokens", "2"),
        ("--spec-tokens",),
        ("--dtype",),
        ("--dtype=",),
        ("--hf-overrides", "[" * 100_000),
        ("--gpu-memory-utilization", "9" * 5000),
        ("-tp", "²"),
        ("--cudagraph-capture-sizes",),
        ("--revision", "\udcff"),
        ("",),
        ("--",),
    ],
)
def test_nonsense_that_vllm_will_refuse_has_a_fingerprint_all_the_same(words: tuple[str, ...]) -> None:
    assert len(of(MODEL, *words).key) == 16
    assert len(of(*words).key) == 16
