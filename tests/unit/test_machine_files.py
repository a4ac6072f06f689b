"""CUDA libraries, vLLM's config file, profiles, and one look at a whole machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from safe_vllm.data.strict_yaml import load
from safe_vllm.errors import Trouble
from safe_vllm.machine.config_file import config_of
from safe_vllm.machine.facts import Installation, Machine, ModelShape
from safe_vllm.machine.gpus import NO_DRIVER
from safe_vllm.machine.libraries import cuda12_directories
from safe_vllm.machine.look import look
from safe_vllm.machine.profile_files import profile_files, read_profiles, shipped
from safe_vllm.plan.profile import parse

CUDA = "/usr/local/cuda"


def library(root: Path, directory: str, name: str = "libcudart.so.12") -> None:
    place = root / directory.lstrip("/")
    place.mkdir(parents=True)
    (place / name).touch()


def test_arm_servers_come_before_jetson_and_the_link_last(tmp_path: Path) -> None:
    for directory in ("lib64", "targets/aarch64-linux/lib", "targets/sbsa-linux/lib", "targets/x86_64-linux/lib"):
        library(tmp_path, f"{CUDA}/{directory}")
    assert cuda12_directories("aarch64", tmp_path) == (
        f"{CUDA}/targets/sbsa-linux/lib",
        f"{CUDA}/targets/aarch64-linux/lib",
        f"{CUDA}/lib64",
    )
    assert cuda12_directories("x86_64", tmp_path) == (f"{CUDA}/targets/x86_64-linux/lib", f"{CUDA}/lib64")
    assert cuda12_directories("riscv64", tmp_path) == (f"{CUDA}/lib64",)


def test_another_cuda_release_does_not_count(tmp_path: Path) -> None:
    library(tmp_path, f"{CUDA}/targets/sbsa-linux/lib", "libcudart.so.13")
    assert cuda12_directories("aarch64", tmp_path) == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("model: m\nenable-expert-parallel: true\n", {"model": "m", "enable-expert-parallel": True}),
        ("enable_eplb: yes\nheadless: off\n", {"enable_eplb": True, "headless": False}),
        ("kernel-config: {moe_backend: triton}\n", {"kernel-config": {"moe_backend": "triton"}}),
        ("a: 1\na: 2\n", {"a": 2}),
        ("kernel-config: {moe_backend: x, moe_backend: triton}\n", {"kernel-config": {"moe_backend": "triton"}}),
        ("- a list\n", None),
        ("[1]: 2\n", None),
        ("a: [\n", None),
        ("", None),
    ],
)
def test_vllms_config_file_is_read_or_left_to_vllm(tmp_path: Path, text: str, expected: object) -> None:
    path = tmp_path / "f.yaml"
    path.write_text(text)
    assert config_of(("m", "--config", str(path))) == expected


def test_only_the_two_word_form_names_a_config_file(tmp_path: Path) -> None:
    for name in ("f.yml", "f.json"):
        (tmp_path / name).write_text("a: 1\n")
    path = str(tmp_path / "f.yml")
    assert config_of(("--config", path)) == {"a": 1}
    assert config_of((f"--config={path}",)) is None
    assert config_of(("--config", path, "--config", path)) is None
    assert config_of(("--config", str(tmp_path / "f.json"))) is None
    assert config_of(("--config", str(tmp_path / "missing.yml"))) is None
    assert config_of(("m", "--config")) is None


def profile(directory: Path, name: str, text: str = "name: x\n") -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}.yaml"
    path.write_text(text)
    return path


def test_the_shipped_profiles_are_there() -> None:
    assert {path.stem for path in shipped().iterdir()} == {"b200", "cpu", "default", "gb200"}


def test_later_directories_win_by_name(tmp_path: Path) -> None:
    system, user, extra = tmp_path / "system", tmp_path / "config", tmp_path / "extra"
    files = {
        "a": profile(system, "a"),
        "b": profile(user / "safe-vllm" / "profiles", "b"),
        "c": profile(extra, "c"),
        "cpu": profile(system, "cpu"),
    }
    profile(system, "b")
    profile(user / "safe-vllm" / "profiles", "c")
    (extra / "README").touch()
    found = profile_files(str(extra), {"XDG_CONFIG_HOME": str(user)}, system=system)
    assert found == {**files, **{name: shipped() / f"{name}.yaml" for name in ("b200", "default", "gb200")}}


def test_the_users_directory_is_below_home_by_default(tmp_path: Path) -> None:
    path = profile(tmp_path / ".config" / "safe-vllm" / "profiles", "mine")
    assert profile_files(None, {"HOME": str(tmp_path)})["mine"] == path


def test_a_profile_is_asked_for_by_name_or_by_file(tmp_path: Path) -> None:
    path = profile(tmp_path, "mine", "name: mine\n")
    for asked, extra in (("mine", str(tmp_path)), (str(path), None)):
        (file,) = read_profiles(asked, extra, {})
        assert (file.path, file.content) == (str(path), {"name": "mine"})


def test_all_profiles_are_read_when_none_is_asked_for() -> None:
    assert len(read_profiles(None, None, {})) == 4


def test_profiles_that_cannot_be_read_are_trouble(tmp_path: Path) -> None:
    with pytest.raises(Trouble, match="no profile is called 'b20'; there are: b200, cpu"):
        read_profiles("b20", None, {})
    with pytest.raises(Trouble, match="not a directory; check --profile-dir"):
        read_profiles("cpu", str(tmp_path / "none"), {})
    with pytest.raises(Trouble, match=r"none\.yaml: cannot be read"):
        read_profiles(str(tmp_path / "none.yaml"), None, {})
    with pytest.raises(Trouble, match=r"twice\.yaml:2"):
        read_profiles(str(profile(tmp_path, "twice", "name: a\nname: b\n")), None, {})


def test_one_look_tells_everything(tmp_path: Path) -> None:
    library(tmp_path, f"{CUDA}/lib64")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "vllm").write_text("#!/bin/python3\n")
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text('{"num_attention_heads": 2}')
    found = look("/bin/vllm", (str(model),), {}, root=tmp_path, architecture="aarch64")
    assert found == Machine(
        "aarch64",
        gpu_note=NO_DRIVER,
        installation=Installation("/bin/python3"),
        cuda12_libraries=(f"{CUDA}/lib64",),
        model=ModelShape(2, 0),
    )


def test_the_example_in_the_manual_is_a_sound_profile() -> None:
    manual = Path(__file__).parents[2] / "docs" / "profiles.md"
    example = manual.read_text().partition("```yaml\n")[2].partition("```")[0]
    assert parse(load(example, where="manual"), "my-b200.yaml").moe_backend == "flashinfer_trtllm"
