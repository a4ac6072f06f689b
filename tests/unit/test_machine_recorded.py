"""Recorded machines are read strictly, written back as they were, and need nothing of this machine but a model."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from safe_vllm.errors import Trouble
from safe_vllm.machine.facts import CudaLibrary, Gpu, Installation, Machine, ModelShape, Surface
from safe_vllm.machine.recorded import NAMELESS, as_object, parse, read, read_with_model

FILES = Path(__file__).parents[1] / "golden" / "machines"
BARE = '{"version": 1, "architecture": "x86_64"'


def named(name: str) -> Machine:
    return read(str(FILES / f"{name}.json"))


@pytest.mark.parametrize("path", sorted(FILES.glob("*.json")), ids=lambda path: path.stem)
def test_a_recorded_machine_is_written_back_as_it_was(path: Path) -> None:
    assert json.dumps(as_object(read(str(path))), indent=2) + "\n" == path.read_text()


@pytest.mark.parametrize(
    ("name", "architecture", "gpu", "capability", "count"),
    [
        ("b200-1", "x86_64", "NVIDIA B200", "10.0", 1),
        ("b200-8", "x86_64", "NVIDIA B200", "10.0", 8),
        ("gb200-4-flashinfer-0.6.12", "aarch64", "NVIDIA GB200", "10.0", 4),
        ("gb200-4-flashinfer-0.6.16", "aarch64", "NVIDIA GB200", "10.0", 4),
        ("gb300-4", "aarch64", "NVIDIA GB300", "10.3", 4),
        ("b300-8", "x86_64", "NVIDIA B300 SXM6 AC", "10.3", 8),
        ("h100-8", "x86_64", "NVIDIA H100 80GB HBM3", "9.0", 8),
        ("h100-mig", "x86_64", "NVIDIA H100 80GB HBM3", "9.0", 1),
        ("h200-8", "x86_64", "NVIDIA H200", "9.0", 8),
        ("gh200-1", "aarch64", "NVIDIA GH200 480GB", "9.0", 1),
        ("rtx-pro-6000-2", "x86_64", "NVIDIA RTX PRO 6000 Blackwell Server Edition", "12.0", 2),
        ("gb10-1", "aarch64", "NVIDIA GB10", "12.1", 1),
        ("a100-8", "x86_64", "NVIDIA A100-SXM4-80GB", "8.0", 8),
        ("l40s-2", "x86_64", "NVIDIA L40S", "8.9", 2),
        ("jetson-thor", "aarch64", "NVIDIA Thor", "11.0", 1),
    ],
)
def test_the_recorded_gpus_are(name: str, architecture: str, gpu: str, capability: str, count: int) -> None:
    machine = named(name)
    assert (machine.architecture, len(machine.gpus)) == (architecture, count)
    assert {(each.name, each.compute_capability) for each in machine.gpus} == {(gpu, capability)}
    assert machine.driver is not None
    assert machine.has_driver


def test_the_recorded_machines_without_a_gpu_say_why() -> None:
    for name, has_driver in (("cpu-x86", False), ("cpu-aarch64", False), ("b200-hidden", True)):
        machine = named(name)
        assert (machine.gpus, machine.has_driver) == ((), has_driver)
        assert machine.gpu_note


def test_whatever_a_machine_has_comes_back() -> None:
    machine = Machine(
        "aarch64",
        (Gpu("a", "9.0", 1, is_slice=True), Gpu("b")),
        gpu_note="note",
        has_driver=True,
        driver="1",
        driver_cuda="13.0",
        visible_devices="",
        installation=Installation(
            "/p", "1", "2", "13.0", "3", "4", "5", "6", "7", Surface(frozenset("ba"), (), frozenset("c"), ("0",))
        ),
        cuda12_libraries=("/a",),
        cuda_libraries=(CudaLibrary("/a", ("b", "c")),),
        model=ModelShape(1, 2, 0, 3, "int8", 4, 5, is_guess=True),
    )
    text = json.dumps(as_object(machine))
    assert parse(text, "x") == machine
    assert json.loads(text)["installation"]["surface"]["flags"] == ["a", "b"]
    assert as_object(Machine("x")) == {"version": 1, "architecture": "x"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{\n,", "f.json:2: not JSON: expecting property name enclosed in double quotes; check the file"),
        ("[]", "f.json: expected an object; name the facts by their keys, such as architecture"),
        ('{"version": 2}', 'f.json: version: expected 1, got 2; write "version": 1'),
        ("{}", "f.json: object missing required field `architecture`; correct the value"),
        ('{"version": 1}', "f.json: object missing required field `architecture`; correct the value"),
        ('{"version": 1, "version": 1}', "f.json: the key 'version' is there twice; keep one of them"),
        (BARE + ', "gpuz": []}', "f.json: unknown key 'gpuz', did you mean 'gpus'?; correct it"),
        (
            BARE + ', "gpus": [{"name": "a"}, {"name": "a", "memory": 3}]}',
            "f.json: gpus[1]: unknown key 'memory', did you mean 'memory_mib'?; correct it",
        ),
        (
            BARE + ', "installation": {"surface": {"flag": []}}}',
            "f.json: installation.surface: unknown key 'flag', did you mean 'flags'?; correct it",
        ),
        (
            BARE + ', "model": {"hats": 3}}',
            "f.json: model: unknown key 'hats', expected one of: attention_heads, kv_heads, experts, "
            "moe_intermediate_size, weight_format, block_size, context_length, is_guess; correct it",
        ),
        (
            BARE + ', "gpus": [{"name": "a", "memory_mib": "3"}]}',
            "f.json: gpus[0].memory_mib: expected `int | null`, got `str`; correct the value",
        ),
        (BARE + ', "gpus": {}}', "f.json: gpus: expected a list, got an object; correct the value"),
        (BARE + ', "model": []}', "f.json: model: expected an object, got a list; correct the value"),
        *(
            (text, "f.json: a value of it has letters that no encoding has; correct the value")
            for text in (BARE.replace("x86_64", "x\\ud800") + "}", BARE + ', "model": {"weight_format": "\\ud800"}}')
        ),
        (
            BARE + ', "model": {"weight_format": "nvpf4"}}',
            "f.json: model.weight_format: unknown value 'nvpf4', did you mean 'nvfp4'?; correct the value",
        ),
        (
            '{"architecture": " "}',
            "f.json: architecture: expected what `uname -m` prints, such as x86_64; correct the value",
        ),
        *(
            (
                BARE + f', "gpus": [{{"name": "a"}}, {{"name": "a", "memory_mib": {memory}}}]}}',
                "f.json: gpus[1].memory_mib: expected a number of MiB from 1 to 1000000000; correct the value",
            )
            for memory in (-1, 0, 10**10, "1" + "0" * 400)
        ),
        *(
            (
                BARE + f', "gpus": [{{"name": "a", "compute_capability": "{capability}"}}]}}',
                "f.json: gpus[0].compute_capability: expected major and minor, such as 10.0, "
                f'got "{capability}"; correct the value',
            )
            for capability in ("abc", "", "10", "10.0a", "-1.0")
        ),
        (
            BARE + ', "model": {"kv_heads": -8}}',
            "f.json: model.kv_heads: expected a number from 0 to 1000000000; correct the value",
        ),
        (
            BARE + ', "gpus": [{"name": "a", "memory_mib": ' + "9" * 5000 + "}]}",
            "f.json: not a record of a machine: a number or a nesting without measure; check the file",
        ),
        (
            BARE + ', "model": ' + '{"a":' * 100_000,
            "f.json: not a record of a machine: a number or a nesting without measure; check the file",
        ),
    ],
)
def test_a_mistake_is_told_with_its_place_and_what_to_do(text: str, message: str) -> None:
    with pytest.raises(Trouble) as caught:
        parse(text, "f.json")
    assert str(caught.value) == message
    assert caught.value.status == 2


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(Trouble, match=r"none\.json: there is no such file; `safe-vllm --output json doctor"):
        read(str(tmp_path / "none.json"))
    (tmp_path / "odd.json").write_bytes(b"\xff")
    with pytest.raises(Trouble, match=r"odd\.json: cannot be read: not UTF-8 text; name a file"):
        read(str(tmp_path / "odd.json"))


def test_a_fifo_is_not_waited_for(tmp_path: Path, deadline: None) -> None:
    os.mkfifo(tmp_path / "fifo.json")
    with pytest.raises(Trouble, match=r"fifo\.json: cannot be read: it is a FIFO; name a file"):
        read(str(tmp_path / "fifo.json"))


@pytest.mark.parametrize(
    ("stated", "flag", "weight_format"),
    [
        ("bf16", "--quantization=fp8", "fp8"),
        ("bf16", "-q mxfp8", "mxfp8"),
        ("nvfp4", "--quantization fp8", "nvfp4"),
        ("bf16", "--quantization compressed-tensors", "bf16"),
        ("bf16", "", "bf16"),
    ],
)
def test_a_recorded_model_of_plain_weights_is_quantised_by_the_flag(
    tmp_path: Path, stated: str, flag: str, weight_format: str
) -> None:
    path = tmp_path / "f.json"
    path.write_text(BARE + f', "model": {{"experts": 8, "weight_format": "{stated}"}}}}')
    model = read_with_model(str(path), ("m", *flag.split()), {}).model
    assert model is not None
    assert (model.experts, model.weight_format) == (8, weight_format)


def test_a_version_that_is_written_like_a_tag_is_the_version() -> None:
    assert parse(BARE + ', "installation": {"vllm": "v0.23.0"}}', "f.json").installation.vllm == "0.23.0"


def test_a_model_that_is_not_recorded_is_looked_for_here(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"num_attention_heads": 6}')
    bare = tmp_path / "bare.json"
    bare.write_text(BARE + "}")
    found = read_with_model(str(bare), (str(tmp_path),), {})
    assert found.model is not None
    assert found.model.attention_heads == 6
    assert read_with_model(str(bare), (), {}) == Machine("x86_64")


def test_a_recorded_model_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"num_attention_heads": 6}')
    path = str(FILES / "b200-1.json")
    assert read_with_model(path, (str(tmp_path),), {}).model == read(path).model


def record(place: Path, **facts: object) -> str:
    path = place / "record.json"
    path.write_text(json.dumps({"architecture": "x86_64", "model": {"experts": 8}, **facts}))
    return str(path)


def test_a_recorded_model_stands_for_no_other_one(tmp_path: Path) -> None:
    path = record(tmp_path, model_name="org/a")
    same = read_with_model(path, ("org/a",), {})
    assert (same.model, same.model_name, same.model_note) == (ModelShape(experts=8), "org/a", None)
    other = read_with_model(path, ("org/b",), {"HF_HOME": str(tmp_path)})
    assert (other.model, other.model_name) == (None, "org/b")
    assert other.model_note == f"{path} describes the model org/a, not org/b: nothing of it is recorded"


def test_another_model_than_the_recorded_one_is_looked_for_here(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "config.json").write_text('{"num_attention_heads": 4}')
    other = read_with_model(record(tmp_path, model_name="org/a"), (str(tmp_path / "b"),), {})
    assert other.model is not None
    assert (other.model.attention_heads, other.model.experts) == (4, 0)
    assert other.model_note is not None
    assert other.model_note.endswith("the config.json on this machine counts")


def test_a_record_without_a_models_name_is_taken_for_the_model_that_is_asked_for_and_says_so(tmp_path: Path) -> None:
    found = read_with_model(record(tmp_path), ("org/b",), {})
    assert (found.model, found.model_note) == (ModelShape(experts=8), NAMELESS)


def test_a_command_that_hides_its_model_is_told_to_be_uncertain(tmp_path: Path) -> None:
    path = record(tmp_path, model_name="org/a")
    found = read_with_model(path, ("--port", "8000"), {})
    assert found.model == ModelShape(experts=8)
    assert found.model_note is not None
    assert read_with_model(path, ("--port", "8000", "org/a"), {}).model_note is None
    assert read_with_model(path, (), {}).model_note is None


def test_what_doctor_or_plan_printed_is_a_record(tmp_path: Path) -> None:
    machine = Machine("aarch64", model_name="org/a", model=ModelShape(experts=8), model_note="never kept")
    text = json.dumps({"ok": True, "findings": [], "machine": as_object(machine)})
    assert parse(text, "checkup.json") == Machine("aarch64", model_name="org/a", model=ModelShape(experts=8))
