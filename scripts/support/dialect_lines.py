"""Command lines as people write them for ``vllm serve``: spellings, shapes and files that a plan must understand."""

from __future__ import annotations

import shlex
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dialect_models import QUANTISED, write_model

Release = tuple[int, int]
BEGINNING: Release = (0, 0)


@dataclass(frozen=True)
class Line:
    """One command line: plain words, then words about safety settings, then plain words. Shell quoting."""

    asks: str = ""
    """What a rung may rewrite."""
    before: str = "{model}"
    """Words that no rung may touch. ``{model}`` is the model's directory, ``{config}`` the file with ``yaml``."""
    after: str = "--served-model-name tiny --max-num-seqs 8"
    model: str = "bf16"
    yaml: str = ""
    since: Release = BEGINNING
    """The first release whose vLLM takes it."""
    refused_by: str = ""
    """What vLLM says where it refuses the line as the operator wrote it; then there is nothing to be made safer."""
    needs_gpu: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)

    def words(self, place: Path) -> list[str]:
        """Return all words, the files of this line being in ``place``."""
        return [*self._split(self.before, place), *self._split(self.asks, place), *self._split(self.after, place)]

    def plain(self, place: Path) -> list[str]:
        """Return the words that every rung has, in this order."""
        return [*self._split(self.before, place), *self._split(self.after, place)]

    def write(self, place: Path) -> None:
        """Write the files that the words name."""
        write_model(place / "models" / self.model, self.model)
        if self.yaml:
            self._config(place).write_text(self._named(self.yaml, place), encoding="utf-8")

    def _config(self, place: Path) -> Path:
        return place / f"config-{zlib.crc32(self.yaml.encode())}.yaml"

    def _split(self, text: str, place: Path) -> list[str]:
        return shlex.split(self._named(text, place))

    def _named(self, text: str, place: Path) -> str:
        model = str(place / "models" / self.model)
        return text.replace("{model}", model).replace("{config}", str(self._config(place)))


AUTOTUNE = (0, 16)
BACKEND = (0, 17)
DRAFTER_BACKEND = (0, 19)
SPECULATIVE = '--speculative-config \'{"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_max": 3}\''
DRAFTER = SPECULATIVE.replace("}", ', "moe_backend": "flashinfer_trtllm"}')
IN_FILE = "{model} --config {config}"

SPELLINGS = (
    Line(),
    Line("--moe-backend flashinfer_trtllm", since=BACKEND),
    Line("--moe_backend flashinfer_trtllm", since=BACKEND),
    Line("--moe-backend=FLASHINFER_TRTLLM", since=BACKEND),
    Line("--moe-backend=flashinfer-cutlass", since=BACKEND),
    Line("--moe-back flashinfer_cutlass", since=BACKEND),
    Line("--moe-backend auto", since=BACKEND),
    Line("--moe-backend triton", since=BACKEND),
    Line("--moe-backend triton --moe-backend flashinfer_trtllm", since=BACKEND),
    Line("--moe-backend flashinfer_trtllm --moe_backend=auto", since=BACKEND),
    Line("--moe-backend marlin --no-enable-flashinfer-autotune", model="fp8", since=BACKEND),
    Line("--enable-flashinfer-autotune", since=AUTOTUNE),
    Line("--enable_flashinfer_autotune", since=AUTOTUNE),
    Line("--enable-flashinfer-auto", since=AUTOTUNE),
    Line("--no-enable-flashinfer-autotune", since=AUTOTUNE),
    Line("--no_enable_flashinfer_autotune", since=AUTOTUNE),
    Line("--no-enable-flashinfer-autotune --enable-flashinfer-autotune", since=AUTOTUNE),
    Line('--kernel-config \'{"moe_backend": "flashinfer_trtllm"}\'', since=BACKEND),
    Line('--kernel_config=\'{"moe_backend": "flashinfer_trtllm"}\'', since=BACKEND),
    Line("--kernel-config.moe_backend flashinfer_trtllm", since=BACKEND),
    Line("--kernel_config.moe_backend=flashinfer_trtllm", since=BACKEND),
    Line("--kernel-config '{\"enable_flashinfer_autotune\": true}'", since=AUTOTUNE),
    Line("--kernel-config '{\"enable_flashinfer_autotune\": null}'", since=AUTOTUNE),
    Line("--kernel-config.enable_flashinfer_autotune=True", since=AUTOTUNE),
    Line("--kernel-config.enable_flashinfer_autotune false", since=AUTOTUNE),
    Line("--kernel-config.enable_flashinfer_autotune=1 --kernel-config.moe_backend=flashinfer_trtllm", since=BACKEND),
    Line(
        '--kernel-config \'{"moe_backend": "flashinfer_trtllm"}\' --kernel-config.enable_flashinfer_autotune=True',
        since=BACKEND,
    ),
    Line(
        '--kernel-config.enable_flashinfer_autotune=True --kernel-config \'{"moe_backend": "flashinfer_trtllm"}\'',
        since=BACKEND,
    ),
    Line(
        '--kernel-config \'{"moe_backend": "triton"}\' --kernel-config \'{"enable_flashinfer_autotune": true}\'',
        since=BACKEND,
    ),
    Line('--moe-backend flashinfer_trtllm --kernel-config \'{"moe_backend": "marlin"}\'', since=BACKEND),
    Line('--kernel-config \'{"moe_backend": "flashinfer_trtllm"}\' --moe-backend auto', since=BACKEND),
    Line("--no-enable-flashinfer-autotune --kernel-config.moe_backend=flashinfer_trtllm", since=BACKEND),
    Line("-O0", since=AUTOTUNE),
    Line("-O 1", since=AUTOTUNE),
    Line("-O=3", since=AUTOTUNE),
    Line("--optimization-level 3", since=AUTOTUNE),
    Line("--moe-backend bogus", since=BACKEND, refused_by="invalid choice"),
    Line("--kernel-config.moe-backend=triton", refused_by="moe-backend"),
    Line(
        "--enable-flashinfer-autotune --kernel-config.enable_flashinfer_autotune=True",
        since=AUTOTUNE,
        refused_by="mutually exclusive",
    ),
)
PARALLEL = (
    Line("--enable-expert-parallel"),
    Line("-dp 2 -tp 2 -ep"),
    Line("-dp=2 -tp=2 -ep --moe-backend=flashinfer_trtllm", since=BACKEND),
    Line("--data-parallel-size=4"),
    Line("--data_parallel_size 2 --tensor_parallel_size=2 --enable_expert_parallel"),
    Line("--data-parallel-size 8 --enable-expert-parallel"),
    Line("--tensor-parallel-size 4 --enable-expert-par"),
    Line("--tens 2 -ep"),
    Line("-ep --no-enable-expert-parallel -tp 2"),
    Line("-dp 2 -dp 4 -ep"),
    Line("-dp 2 -dpl 2 -ep"),
    Line("-dp 2 --data-parallel-size-local 2 --data-parallel-hybrid-lb -ep"),
    Line("-dp 4 -dpl 2 -dpr 0 -ep"),
    Line("-dp 2 -ep --all2all-backend deepep_low_latency"),
    Line("-dp 2 -ep --all2all-backend=allgather_reducescatter"),
    Line("-dp 2 -tp 2 -ep --enable-eplb", needs_gpu=True),
    Line("-dp 2 -ep --enable-dbo --all2all-backend deepep_high_throughput"),
    Line("-dp 2 -ep --api-server-count 1"),
    Line("-dp 2 -ep -asc 2"),
    Line("-tp 2 -pp 2 -ep"),
    Line("-tp 8 -dcp 2 -ep"),
    Line("-dp 2 -ep --data-parallel-backend mp"),
    Line("-dp 4 -ep", model="six-heads"),
    Line("-dp 2 -ep", model="six-heads"),
    Line("-tp 4 -ep", model="narrow"),
    Line("-dp 2 -tp 2", model="dense"),
    Line("-dp 2 -ep", before="{model} -dpl 1 -dpr 1 -dpa 127.0.0.1 --headless"),
    Line("-dp 2 -ep", before="{model} --data-parallel-external-lb --data-parallel-rank 0", needs_gpu=True),
    Line("-tp 2 -pp 2 -ep", before="{model} --nnodes 2 --node-rank=0 --master-addr 127.0.0.1"),
    Line("-tp 2 -pp 2 -ep", before="{model} -n2 -r 1 --headless"),
    Line("-tp 2 -ep", environment={"VLLM_DP_SIZE": "2", "VLLM_DP_RANK": "0", "VLLM_DP_RANK_LOCAL": "0"}),
    Line("-tp 2 -ep -dpl 2", refused_by="data_parallel_size_local"),
)
FILES = (
    Line(before=IN_FILE, yaml="moe-backend: flashinfer_trtllm\n", since=BACKEND),
    Line(before=IN_FILE, yaml="moe_backend: flashinfer_trtllm\n", since=BACKEND),
    Line(before=IN_FILE, yaml="enable-flashinfer-autotune: true\n", since=AUTOTUNE),
    Line(before=IN_FILE, yaml="enable-flashinfer-autotune: false\n", since=AUTOTUNE),
    Line(before=IN_FILE, yaml="enable_flashinfer_autotune: false\n", since=AUTOTUNE),
    Line(before=IN_FILE, yaml="no-enable-flashinfer-autotune: true\n", since=AUTOTUNE),
    Line(before=IN_FILE, yaml="kernel-config:\n  moe_backend: flashinfer_trtllm\n", since=BACKEND),
    Line(before=IN_FILE, yaml="kernel_config:\n  enable_flashinfer_autotune: true\n", since=AUTOTUNE),
    Line(before=IN_FILE, yaml="kernel-config:\n  enable_flashinfer_autotune: false\n", since=AUTOTUNE),
    Line(
        before=IN_FILE,
        yaml="kernel-config:\n  moe_backend: flashinfer_trtllm\n  enable_flashinfer_autotune: true\n",
        since=BACKEND,
    ),
    Line(before=IN_FILE, yaml="kernel-config.moe_backend: flashinfer_trtllm\n", since=BACKEND),
    Line(before=IN_FILE, yaml="kernel_config.enable_flashinfer_autotune: 'True'\n", since=AUTOTUNE),
    Line(before=IN_FILE, yaml="kernel_config.enable_flashinfer_autotune: true\n", since=AUTOTUNE, refused_by="bool"),
    Line(
        "--kernel-config.enable_flashinfer_autotune=True",
        before=IN_FILE,
        yaml="kernel-config:\n  moe_backend: flashinfer_trtllm\n",
        since=BACKEND,
    ),
    Line(
        "--moe-backend auto", before=IN_FILE, yaml="kernel-config:\n  moe_backend: marlin\n", model="fp8", since=BACKEND
    ),
    Line("-dp 1", before=IN_FILE, yaml="data-parallel-size: 4\nenable-expert-parallel: true\n"),
    Line(before=IN_FILE, yaml="data_parallel_size: 2\ntensor-parallel-size: 2\nenable_expert_parallel: true\n"),
    Line(before=IN_FILE, yaml="dp: 2\nenable-expert-parallel: yes\n", refused_by="unrecognized|ambiguous"),
    Line(before=IN_FILE, yaml="data-parallel-size: 2\nenable-expert-parallel: on\nmax-num-seqs: 4\n"),
    Line(
        "-dp 2 -ep", before="--config {config}", yaml="model: {model}\nmoe-backend: flashinfer_trtllm\n", since=BACKEND
    ),
    Line("-dp 2 -ep", before="--config={config} --model {model}", yaml="moe-backend: flashinfer_trtllm\n"),
    Line(
        "-dp 2 -ep", before="{model}", after="--config {config}", yaml="moe-backend: flashinfer_trtllm\n", since=BACKEND
    ),
)
OTHERS = (
    Line("-dp 2 -ep", before="--model {model}"),
    Line("-dp 2 -ep", before="--load-format dummy", after="--api-key secret other --model={model}"),
    Line("-dp 2 -ep", before="", after="--api-key secret -- {model}"),
    Line("-tp 2 -ep", before="", after="--max-num-seqs 8 -- {model}"),
    Line("-dp 2 -ep", before="{model} --max-model-len=128 --trust-remote-code", after="--no-enable-prefix-caching"),
    Line("-dp 2 -ep", after='--hf-overrides \'{"a": {"b": -1}}\' --seed 3 --enforce-eager'),
    Line("-dp 2 -ep", after="--compilation-config.cudagraph_mode none -cc.mode=0", since=AUTOTUNE),
    Line("--moe-backend flashinfer_trtllm", after=SPECULATIVE, since=BACKEND),
    Line(DRAFTER, since=DRAFTER_BACKEND),
    Line("-dp 2 -ep " + DRAFTER.replace("-config ", "_config="), since=DRAFTER_BACKEND),
    Line(
        "--speculative-config.method ngram --speculative-config.num_speculative_tokens 2 "
        "--speculative-config.prompt_lookup_max=3 --speculative-config.moe_backend=flashinfer_trtllm",
        since=DRAFTER_BACKEND,
    ),
    Line("--moe-backend=flashinfer_cutlass", after="--max-num-batched-tokens 512", since=BACKEND),
    *(Line("-tp 2 -ep --moe-backend flashinfer_trtllm", model=name, since=BACKEND) for name in QUANTISED),
    *(Line("-dp 2 -ep", model=name) for name in QUANTISED),
)
LINES = (*SPELLINGS, *PARALLEL, *FILES, *OTHERS)
