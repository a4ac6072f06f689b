"""What the installed vLLM takes is read from the text of its source, once."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from safe_vllm.machine import cache
from safe_vllm.machine.facts import Surface
from safe_vllm.machine.surface import read, surface

ENGINE = """
class EngineArgs:
    def add_cli_args(parser):
        # parser.add_argument("--long-gone", default=None)
        model_group.add_argument("--model", **model_kwargs["model"])
        parallel_group.add_argument(
            "--enable-expert-parallel",
            "-ep",
            **parallel_kwargs["enable_expert_parallel"],
        )
        kernel_group.add_argument("--moe-backend", **moe_backend_kwargs)
        kernel_group.add_argument(
            "--enable-flashinfer-autotune",
            **kernel_kwargs["enable_flashinfer_autotune"],
        )
        raise ValueError("--never-added needs --model.")
"""
KERNEL = '''
MoEBackend = Literal[
    "auto",
    # "retired",
    "triton",
    "flashinfer_trtllm",
]


@config
class KernelConfig:
    """Configuration for kernel selection and warmup behavior."""

    enable_flashinfer_autotune: bool = None
    """If True, run FlashInfer autotuning during kernel warmup."""
    moe_backend: MoEBackend = "auto"

    def compute_hash(self) -> str:
        factors: dict[str, str] = {}
'''
SPECULATIVE = """
class SpeculativeConfig:
    method: SpeculativeMethod | None = None
    moe_backend: MoEBackend | None = None

class Other:
    unrelated: int = 0
"""
LEVELS = """
OPTIMIZATION_LEVEL_00 = {
    "compilation_config": {
        "mode": CompilationMode.NONE,
    },
    "kernel_config": {
        "enable_flashinfer_autotune": False,
    },
}
OPTIMIZATION_LEVEL_01 = {
    "kernel_config": {
        "enable_flashinfer_autotune": True,
    },
}
"""
ENVS = """
if TYPE_CHECKING:
    VLLM_HOST_IP: str = ""

environment_variables: dict[str, Callable[[], Any]] = {
    # "VLLM_RETIRED": lambda: None,
    "VLLM_HOST_IP": lambda: os.getenv("VLLM_HOST_IP", ""),
    "CUDA_HOME": lambda: os.environ.get("CUDA_HOME", None),
    "VLLM_CHOICE": env_with_choices(
        "VLLM_CHOICE", "a", ["a", "b"]
    ),
}
"""
FRONT_END = '''
class BaseFrontendArgs:
    """Base."""
    lora_modules: list[str] | None = None

class FrontendArgs(BaseFrontendArgs):
    host: str | None = None
    ssl_keyfile: str | None = None

    def add_cli_args(cls, parser):
        local_name: str = ""

def make_arg_parser(
    parser: FlexibleArgumentParser,
) -> FlexibleArgumentParser:
    parser.add_argument("--headless", action="store_true")
'''
FILES = {
    "engine/arg_utils.py": ENGINE,
    "config/kernel.py": KERNEL,
    "config/speculative.py": SPECULATIVE,
    "config/vllm.py": LEVELS,
    "envs.py": ENVS,
    "entrypoints/common/cli_args.py": FRONT_END,
}
ENGINE_FLAGS = {"--model", "--enable-expert-parallel", "-ep", "--moe-backend", "--enable-flashinfer-autotune"}
KERNEL_KEYS = {"--kernel-config.moe_backend", "--kernel-config.enable_flashinfer_autotune"}
DRAFTER_KEYS = {"--speculative-config.method", "--speculative-config.moe_backend"}
FRONT_END_FLAGS = {"--lora-modules", "--host", "--ssl-keyfile", "--headless"}
ALL_FLAGS = frozenset({*ENGINE_FLAGS, *KERNEL_KEYS, *DRAFTER_KEYS, *FRONT_END_FLAGS})
WHOLE = Surface(
    flags=ALL_FLAGS,
    moe_backends=("auto", "triton", "flashinfer_trtllm"),
    variables=frozenset({"VLLM_HOST_IP", "VLLM_CHOICE"}),
    levels_without_autotune=("0",),
)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    home = tmp_path / "site-packages" / "vllm"
    for name, text in FILES.items():
        write(home / name, text)
    return home


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_all_parts_are_read(package: Path) -> None:
    assert read(package) == WHOLE


@pytest.mark.parametrize("place", ["openai/cli_args.py", "launchers/cli_args.py", "serve/api_server/cli_args.py"])
def test_the_flags_of_the_server_are_found_wherever_they_moved(package: Path, place: str) -> None:
    (package / "entrypoints/common/cli_args.py").unlink()
    write(package / "entrypoints" / place, FRONT_END)
    assert read(package) == WHOLE


def test_flags_of_the_server_that_are_no_longer_fields_are_not_half_read(package: Path) -> None:
    write(package / "entrypoints/common/cli_args.py", FRONT_END.replace("FrontendArgs", "ServerOptions"))
    assert read(package).flags == ALL_FLAGS - FRONT_END_FLAGS


@pytest.mark.parametrize(
    ("name", "lost"),
    [
        ("config/vllm.py", replace(WHOLE, levels_without_autotune=None)),
        ("envs.py", replace(WHOLE, variables=None)),
        ("config/kernel.py", replace(WHOLE, moe_backends=None, flags=ALL_FLAGS - KERNEL_KEYS)),
        ("config/speculative.py", replace(WHOLE, flags=ALL_FLAGS - DRAFTER_KEYS)),
        ("engine/arg_utils.py", replace(WHOLE, flags=None)),
    ],
)
def test_a_part_that_is_not_there_is_not_known(package: Path, name: str, lost: Surface) -> None:
    (package / name).unlink()
    assert read(package) == lost


@pytest.mark.parametrize(
    ("name", "old", "new", "part"),
    [
        ("config/kernel.py", '"triton",', "*MORE_BACKENDS,", "moe_backends"),
        ("config/kernel.py", "MoEBackend = Literal[", "Backend = Choice[", "moe_backends"),
        (
            "config/vllm.py",
            '"enable_flashinfer_autotune": False',
            '"enable_flashinfer_autotune": is_wanted',
            "levels_without_autotune",
        ),
        ("config/vllm.py", "enable_flashinfer_autotune", "autotune", "levels_without_autotune"),
        ("envs.py", '"VLLM_', '"OTHER_', "variables"),
    ],
)
def test_a_part_that_is_written_in_another_way_is_not_guessed(
    package: Path, name: str, old: str, new: str, part: str
) -> None:
    write(package / name, FILES[name].replace(old, new))
    assert read(package) == replace(WHOLE, **{part: None})


def test_what_an_old_release_never_had_is_known_to_be_absent(package: Path) -> None:
    write(package / "engine/arg_utils.py", 'model_group.add_argument("--model", **model_kwargs["model"])\n')
    (package / "config/kernel.py").unlink()
    (package / "config/vllm.py").unlink()
    seen = read(package)
    assert (seen.moe_backends, seen.levels_without_autotune) == ((), ())


def home(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path / "home")}


def kept_in(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "home/.cache/safe-vllm").glob("*"))


def rewrite_unnoticed(path: Path, old: str, new: str) -> None:
    """Change a file and keep its size and time: only a second reading would notice."""
    before = path.stat()
    path.write_text(path.read_text().replace(old, new))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_what_was_read_is_not_read_again(package: Path, tmp_path: Path) -> None:
    assert surface(package, home(tmp_path)) == WHOLE
    rewrite_unnoticed(package / "envs.py", "VLLM_CHOICE", "VLLM_CHANCE")
    assert surface(package, home(tmp_path)) == WHOLE


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_changed_is_read_again(package: Path, tmp_path: Path, name: str) -> None:
    assert surface(package, home(tmp_path)) == WHOLE
    rewrite_unnoticed(package / "envs.py", "VLLM_CHOICE", "VLLM_CHANCE")
    os.utime(package / name, ns=(1, 1))
    assert surface(package, home(tmp_path)) == replace(WHOLE, variables=frozenset({"VLLM_HOST_IP", "VLLM_CHANCE"}))


def test_two_installations_are_kept_apart(package: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / "vllm"
    write(other / "engine/arg_utils.py", ENGINE)
    assert surface(package, home(tmp_path)) == WHOLE
    seen = surface(other, home(tmp_path))
    assert seen is not None
    assert seen.flags == ENGINE_FLAGS
    assert surface(package, home(tmp_path)) == WHOLE
    assert len(kept_in(tmp_path)) == 2


def test_what_is_kept_is_for_this_user_alone_and_leaves_nothing_beside(package: Path, tmp_path: Path) -> None:
    surface(package, home(tmp_path))
    (file,) = kept_in(tmp_path)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"reader":1}', b"\xff\xfe", b'{"a":' + b"[" * 100_000])
def test_a_damaged_file_is_ignored_and_replaced(package: Path, tmp_path: Path, content: bytes) -> None:
    surface(package, home(tmp_path))
    (file,) = kept_in(tmp_path)
    whole = file.read_bytes()
    file.write_bytes(content)
    assert surface(package, home(tmp_path)) == WHOLE
    assert file.read_bytes() == whole


def test_what_another_version_of_the_reader_kept_is_ignored(package: Path, tmp_path: Path) -> None:
    surface(package, home(tmp_path))
    (file,) = kept_in(tmp_path)
    file.write_bytes(file.read_bytes().replace(b'"reader":1', b'"reader":0').replace(b"VLLM_CHOICE", b"VLLM_CHANCE"))
    assert surface(package, home(tmp_path)) == WHOLE


@pytest.mark.parametrize(
    "environment",
    [{}, {"HOME": ""}, {"HOME": "relative"}, {"XDG_CACHE_HOME": "relative"}, {"HOME": "/dev/null"}],
)
def test_without_a_place_to_keep_it_everything_works(package: Path, environment: dict[str, str]) -> None:
    assert surface(package, environment) == WHOLE


def test_nothing_is_kept_where_that_is_not_wanted(package: Path, tmp_path: Path) -> None:
    assert surface(package, {**home(tmp_path), cache.OFF: "1"}) == WHOLE
    assert kept_in(tmp_path) == []


def test_the_cache_is_where_xdg_wants_it(package: Path, tmp_path: Path) -> None:
    surface(package, {**home(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "elsewhere")})
    assert len(list((tmp_path / "elsewhere/safe-vllm").iterdir())) == 1
    assert kept_in(tmp_path) == []


def test_without_a_source_there_is_nothing_to_say(tmp_path: Path) -> None:
    assert surface(None, home(tmp_path)) is None
    assert surface(tmp_path / "nowhere", home(tmp_path)) is None
    assert kept_in(tmp_path) == []


def test_a_file_that_cannot_take_its_name_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "name").mkdir()
    cache.keep(tmp_path, "name", b"content")
    assert [path.name for path in tmp_path.iterdir()] == ["name"]
    assert cache.kept(tmp_path, "name") is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_somebody_else_is_not_believed(tmp_path: Path) -> None:
    cache.keep(tmp_path, "name", b"content")
    assert cache.kept(tmp_path, "name") == b"content"
    os.chown(tmp_path / "name", 65534, 65534)
    assert cache.kept(tmp_path, "name") is None
