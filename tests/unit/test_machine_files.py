"""vLLM's config file, and one look at a whole machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from safe_vllm.machine import rooted
from safe_vllm.machine.config_file import config_of, trouble_of
from safe_vllm.machine.facts import CudaLibrary, Installation, Machine, ModelShape
from safe_vllm.machine.gpus import NO_DRIVER
from safe_vllm.machine.look import look


def write(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


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


@pytest.mark.parametrize(
    ("text", "reason"),
    [(None, "does not exist"), ("- a list\n", "holds no settings"), ("a: [\n", ":2: "), ("a: 1\n", None), ("", None)],
)
def test_it_is_said_why_a_config_file_is_not_read(tmp_path: Path, text: str | None, reason: str | None) -> None:
    path = tmp_path / "f.yaml"
    if text is not None:
        path.write_text(text)
    found = trouble_of(("m", "--config", str(path)))
    assert found is None if reason is None else found is not None and found.startswith(str(path)) and reason in found


def test_what_is_too_much_in_a_config_file_is_said_to_be_that(tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text("a: [" + "1, " * 20_001 + "1]\n")
    assert "too many values" in str(trouble_of(("m", "--config", str(tmp_path / "f.yaml"))))
    assert trouble_of(("m", "--port", "1")) is None
    assert trouble_of(("--config", "a.yaml", "--config", "b.yaml")) == "--config is there more than once"
    assert trouble_of(("--config", "a.json")) == "a.json is no .yaml file"


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


def test_one_look_tells_everything(tmp_path: Path) -> None:
    packages = tmp_path / "opt/lib/python3.12/site-packages"
    write(tmp_path / "usr/local/cuda/lib64/libcudart.so.12")
    write(packages / "nvidia/cuda_runtime/lib/libcudart.so.12")
    write(tmp_path / "opt/bin/vllm", "#!/opt/bin/python3\n")
    write(packages / "vllm/__init__.py")
    write(packages / "vllm/_version.py", "__version__ = '0.32.0'\n")
    write(packages / "vllm/envs.py", 'environment_variables = {\n    "VLLM_A": 1,\n}\n')
    write(tmp_path / "model/config.json", '{"num_attention_heads": 2, "max_position_embeddings": 64}')
    environment = {"CUDA_VISIBLE_DEVICES": "0"}
    found = look("/opt/bin/vllm", (str(tmp_path / "model"),), environment, root=tmp_path, architecture="aarch64")
    surface = found.installation.surface
    assert surface is not None
    assert surface.variables == {"VLLM_A"}
    assert found == Machine(
        "aarch64",
        gpu_note=NO_DRIVER,
        visible_devices="0",
        installation=Installation("/opt/bin/python3", "0.32.0", surface=surface),
        cuda12_libraries=("/usr/local/cuda/lib64",),
        cuda_libraries=(
            CudaLibrary("/usr/local/cuda/lib64", ("libcudart.so.12",)),
            CudaLibrary("/opt/lib/python3.12/site-packages/nvidia/cuda_runtime/lib", ("libcudart.so.12",)),
        ),
        model=ModelShape(2, 2, 0, weight_format="bf16", context_length=64),
        model_name=str(tmp_path / "model"),
    )


def test_where_vllm_is_not_found_the_rest_is_told(tmp_path: Path) -> None:
    found = look(None, (), {}, root=tmp_path, architecture="x86_64")
    assert found == Machine("x86_64", gpu_note=NO_DRIVER)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look everywhere")
def test_what_may_not_be_looked_at_is_not_there(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir(mode=0)
    assert (
        not rooted.exists(hidden / "x") and not rooted.is_file(hidden / "x") and not rooted.is_directory(hidden / "x")
    )


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b"])
def test_a_name_that_no_file_can_have_is_no_file(name: str) -> None:
    path = Path(name)
    assert not any(ask(path) for ask in (rooted.exists, rooted.is_file, rooted.is_directory))
    assert rooted.text_of(path) is None
    assert look("/nowhere/vllm", (name, "--config", f"{name}.yaml"), {"HF_HOME": name}).model is None
