"""Asks the vLLM of this interpreter what it makes of command lines: JSON lines in, JSON lines out, in order.

A line in: ``{"words": [...], "environment": {...}}``, the words being those after ``vllm serve``.
A line out: ``{"values": {...}}`` or ``{"error": "...", "stage": "parser" | "configuration" | "kernels"}``.
vLLM's own parser reads the words, its own ``serve`` command checks them, and its own classes build the configuration;
just before anything would be started it ends.
"""

from __future__ import annotations

import argparse
import contextlib
import enum
import importlib
import io
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import dialect_gpus

SETTINGS = (
    "moe_backend",
    "enable_flashinfer_autotune",
    "kernel_config",
    "data_parallel_size",
    "tensor_parallel_size",
    "enable_expert_parallel",
    "subparser",
    "dispatch_function",
)
"""Where the parser keeps what rungs change, and what is no setting."""
KERNEL_SETTINGS = ("moe_backend", "enable_flashinfer_autotune")
FORMATS = {
    "None": "unquantized",
    "fp8": "fp8",
    "modelopt_fp4": "nvfp4",
    "mxfp4": "mxfp4",
    "gpt_oss_mxfp4": "mxfp4",
    "gptq": "int_wna16",
    "gptq_marlin": "int_wna16",
}
"""By vLLM's name of a quantisation: the module that knows its MoE backends."""


class Built(Exception):
    """Raised where vLLM would start: carries its configuration."""

    def __init__(self, configuration: Any) -> None:
        """Keep the configuration."""
        super().__init__()
        self.configuration = configuration


class Asked:
    """vLLM's ``serve`` command, ended before it starts anything."""

    def __init__(self) -> None:
        """Import vLLM and put the ends in place."""
        from vllm.entrypoints.cli import serve
        from vllm.model_executor.models import registry

        # In another process there would be no GPUs to see.
        registry._run_in_subprocess = lambda ask: ask()
        ends = ("run_headless", "run_multi_api_server", "run_dp_supervisor")
        for name in filter(lambda name: hasattr(serve, name), ends):
            setattr(serve, name, _build)
        serve.uvloop = argparse.Namespace(run=lambda _: None)
        serve.run_server = _build
        self.command = serve.ServeSubcommand()
        self.parser = self._parser()
        self.unsaid = vars(self.parser.parse_args(["serve"]))

    def _parser(self) -> Any:
        from vllm.utils.argparse_utils import FlexibleArgumentParser

        parser = FlexibleArgumentParser(description="vLLM CLI")
        commands = parser.add_subparsers(required=False, dest="subparser")
        self.command.subparser_init(commands).set_defaults(dispatch_function=self.command.cmd)
        return parser

    def _others(self, parsed: argparse.Namespace) -> dict[str, str]:
        """Return all that was said beside the settings that rungs change."""
        said = {name: value for name, value in vars(parsed).items() if value != self.unsaid.get(name)}
        if isinstance(draft := said.get("speculative_config"), dict):
            said["speculative_config"] = {key: value for key, value in draft.items() if key != "moe_backend"}
        return {name: repr(value) for name, value in said.items() if name not in SETTINGS}

    def answer(self, words: Sequence[str]) -> dict[str, object]:
        """Return what becomes of ``vllm serve WORDS``."""
        said, stage = io.StringIO(), "parser"
        sys.argv = ["vllm", "serve", *words]
        try:
            with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
                parsed = self.parser.parse_args(["serve", *words])
                others = self._others(parsed)
                stage = "configuration"
                self.command.validate(parsed)
                self.command.cmd(parsed)
        except SystemExit as end:
            sys.stderr.write(said.getvalue())
            said_last = said.getvalue().rpartition("error: ")[2].split()
            return {"stage": stage, "error": f"exit status {end.code}: {' '.join(said_last)}"}
        except Built as built:
            return _answer(built.configuration, others)
        except Exception as error:  # noqa: BLE001  whatever vLLM raises is the answer
            sys.stderr.write(said.getvalue())
            return {"stage": stage, "error": f"{type(error).__name__}: {error}"}
        return {"stage": stage, "error": "vLLM ended without building a configuration"}


def _build(parsed: argparse.Namespace) -> None:
    """Build the configuration as vLLM does where it is about to start."""
    import vllm
    from vllm.usage.usage_lib import UsageContext

    # A server of its own has not been counted yet; several are told to the engine before.
    arguments = vllm.AsyncEngineArgs.from_cli_args(parsed)
    count = parsed.api_server_count or 1
    if count > 1 and hasattr(arguments, "_api_process_count"):
        arguments._api_process_count, arguments._api_process_rank = count, -1
    context = UsageContext.OPENAI_API_SERVER
    raise Built(arguments.create_engine_config(usage_context=context, headless=bool(parsed.headless)))


def _answer(built: Any, others: dict[str, str]) -> dict[str, object]:
    values = _values(built)
    quantization, backend = values["quantization"], values["moe_backend"]
    refusal = _refusal(str(backend), FORMATS.get(str(quantization), ""))
    if refusal:
        return {"stage": "kernels", "error": refusal}
    return {"values": values, "others": others}


def _refusal(backend: str, weight_format: str) -> str | None:
    """Return why vLLM has no such MoE backend for such weights; ``None`` where it has, or does not say."""
    try:
        oracle = importlib.import_module(f"vllm.model_executor.layers.fused_moe.oracle.{weight_format}")
    except ImportError:
        return None
    name = weight_format.removeprefix("int_")
    mapped = getattr(oracle, f"map_{name}_backend", None)
    try:
        if mapped and backend not in ("auto", "None"):
            mapped(backend)
    except ValueError as error:
        return str(error)
    return None


def _values(built: Any) -> dict[str, object]:
    """Return the settings that rungs change, as the built configuration has them."""
    parallel, kernel = built.parallel_config, getattr(built, "kernel_config", None)
    draft = getattr(built, "speculative_config", None)
    return {
        "model": built.model_config.model,
        "moe_backend": getattr(kernel, "moe_backend", None),
        "draft_moe_backend": getattr(draft, "moe_backend", None),
        "autotune": getattr(kernel, "enable_flashinfer_autotune", None),
        "data_parallel": parallel.data_parallel_size,
        "tensor_parallel": parallel.tensor_parallel_size,
        "expert_parallel": parallel.enable_expert_parallel,
        "level": _plain(getattr(built, "optimization_level", None)),
        "kernel_config": {name: repr(value) for name, value in _fields(kernel) if name not in KERNEL_SETTINGS},
        "max_num_batched_tokens": built.scheduler_config.max_num_batched_tokens,
        "quantization": built.model_config.quantization,
    }


def _fields(kernel: object) -> list[tuple[str, object]]:
    return sorted(vars(kernel).items()) if kernel is not None else []


def _plain(value: object) -> object:
    return value.value if isinstance(value, enum.Enum) else value


@contextlib.contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Have these variables set for a while."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def main() -> None:
    """Read the command line, import vLLM once, answer line by line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("version", help="vLLM's version, as its release is called")
    parser.add_argument("--gpus", type=int, default=0, help="so many GPUs are shown; 0: vLLM runs on the CPU")
    parser.add_argument("--gpu-name", default="NVIDIA B200")
    parser.add_argument("--capability", default="10.0")
    words = parser.parse_args()
    # What vLLM prints is for people; standard output is for the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    dialect_gpus.call_itself(words.version if words.gpus else f"{words.version}+cpu")
    dialect_gpus.leave_out_kernels()
    dialect_gpus.have_memory()
    if words.gpus:
        major, minor = words.capability.split(".")
        dialect_gpus.show(words.gpus, words.gpu_name, (int(major), int(minor)))
    asked = Asked()
    for line in sys.stdin:
        question = json.loads(line)
        with environment(question.get("environment", {})):
            answers.write(json.dumps(asked.answer(question["words"])) + "\n")
            answers.flush()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
