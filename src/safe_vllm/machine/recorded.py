"""Machines written down as JSON, so that a plan can be made for a machine that is not at hand."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec

from safe_vllm.errors import Status, Trouble, did_you_mean, reason_of
from safe_vllm.machine.facts import Machine, ModelShape, WeightFormat
from safe_vllm.machine.model import described
from safe_vllm.machine.model_flags import asked
from safe_vllm.machine.packages import plain_version
from safe_vllm.machine.rooted import is_mute
from safe_vllm.machine.schemes import UNKNOWN
from safe_vllm.machine.weights import ONLINE

RECORDING = "`safe-vllm --output json doctor MODEL … > FILE`"
"""Writes down what ``--machine FILE`` takes."""
NAMELESS = "the record does not name its model (model_name): what it says of one is taken for the one that is asked for"
VERSION = 1
"""Of the form of these files."""
LARGEST = 10**9
"""No count and no number of MiB is above."""
CAPABILITY = re.compile(r"\d{1,3}\.\d{1,3}", re.ASCII)


def read(path: str) -> Machine:
    """Return the machine that a file describes. Raises Trouble with the place in it."""
    try:
        if not os.path.lexists(path):
            raise Trouble(f"{path}: there is no such file", hint=f"{RECORDING} records a machine", status=Status.USAGE)
        if is_mute(Path(path)):
            raise _trouble(f"{path}: cannot be read: it is a FIFO", "name a file of recorded facts")
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or a name with a NUL in it
        reason = "not UTF-8 text" if isinstance(error, UnicodeDecodeError) else reason_of(error)
        raise _trouble(f"{path}: cannot be read: {reason}", "name a file of recorded facts") from None
    return parse(text, path)


def read_with_model(
    path: str, words: Sequence[str], environment: Mapping[str, str], config: Mapping[str, object] | None = None
) -> Machine:
    """Return a recorded machine; a model that the file does not describe is looked for on this machine.

    A record that names no model is taken for one of the model that is asked for. ``--quantization`` counts for a
    recorded model too, where its weights are not quantised already.
    """
    machine, flags = read(path), asked(words, config)
    recorded = machine.model_name
    is_other = recorded is not None and flags.name is not None and not _is_same(recorded, flags.name)
    shape = machine.model
    if shape is None or is_other:
        name, model = described(flags, environment)
        note = _note(path, recorded, flags.name, model) if shape else None
        return replace(machine, model=model, model_name=name, model_note=note)
    if recorded and flags.names and not any(_is_same(recorded, name) for name in flags.names):
        said = f"{path} describes the model {recorded}; whether the command means that one cannot be told"
        machine = replace(machine, model_note=said)
    if recorded is None:
        machine = replace(machine, model_note=NAMELESS)
    weight_format, block_size = ONLINE.get(flags.quantization or "", UNKNOWN)
    if weight_format is None or shape.weight_format not in (None, "bf16"):
        return machine
    return replace(machine, model=replace(shape, weight_format=weight_format, block_size=block_size))


def _is_same(recorded: str, name: str) -> bool:
    return recorded.rstrip("/") == name.rstrip("/")


def _note(path: str, recorded: str | None, name: str | None, model: ModelShape | None) -> str:
    instead = "the config.json on this machine counts" if model else "nothing of it is recorded"
    return f"{path} describes the model {recorded}, not {name}: {instead}"


def parse(text: str, where: str) -> Machine:
    """Return the machine that ``text`` describes; ``where`` names it in errors."""
    try:
        content = json.loads(text, object_pairs_hook=_each_once)
    except json.JSONDecodeError as error:
        raise _trouble(f"{where}:{error.lineno}: not JSON: {error.msg.lower()}", "check the file") from None
    except KeyError as error:
        raise _trouble(f"{where}: the key {error.args[0]!r} is there twice", "keep one of them") from None
    except (ValueError, RecursionError):  # numbers of thousands of digits; thousands of levels
        raise _trouble(
            f"{where}: not a record of a machine: a number or a nesting without measure", "check the file"
        ) from None
    if not isinstance(content, dict):
        raise _trouble(f"{where}: expected an object", "name the facts by their keys, such as architecture")
    if isinstance(content.get("machine"), dict):  # what doctor or plan printed
        content = content["machine"]
    found = content.pop("version", VERSION)
    if found != VERSION:
        raise _trouble(f"{where}: version: expected {VERSION}, got {json.dumps(found)}", f'write "version": {VERSION}')
    _check_keys(content, Machine, where, "")
    try:
        json.dumps(content, ensure_ascii=False).encode(errors="surrogateescape")
        machine = msgspec.convert(content, Machine)
    except msgspec.ValidationError as error:
        raise _trouble(f"{where}: {_sentence(str(error))}", "correct the value") from None
    except (ValueError, RecursionError):  # JSON can write more letters than any encoding has
        raise _trouble(f"{where}: a value of it has letters that no encoding has", "correct the value") from None
    if wrong := next(_wrong(machine), None):
        raise _trouble(f"{where}: {wrong}", "correct the value")
    installed = machine.installation
    return replace(machine, model_note=None, installation=replace(installed, vllm=plain_version(installed.vllm)))


def _wrong(machine: Machine) -> Iterator[str]:
    """Yield the values that have the right type and are none all the same, each with its place."""
    if not machine.architecture.strip():
        yield "architecture: expected what `uname -m` prints, such as x86_64"
    for at, gpu in enumerate(machine.gpus):
        if gpu.memory_mib is not None and not 0 < gpu.memory_mib <= LARGEST:
            yield f"gpus[{at}].memory_mib: expected a number of MiB from 1 to {LARGEST}"
        if gpu.compute_capability is not None and not CAPABILITY.fullmatch(gpu.compute_capability):
            found = json.dumps(gpu.compute_capability[:20])
            yield f"gpus[{at}].compute_capability: expected major and minor, such as 10.0, got {found}"
    for field in fields(machine.model) if machine.model else ():
        value = getattr(machine.model, field.name)
        if type(value) is int and not 0 <= value <= LARGEST:
            yield f"model.{field.name}: expected a number from 0 to {LARGEST}"


def as_object(machine: Machine) -> dict[str, object]:
    """Return a machine as a JSON object, without what is as it is by default."""
    return {"version": VERSION, **_told(replace(machine, model_note=None))}


def _told(value: Any) -> Any:
    """Return a value with its dataclasses as mappings of what is not left at its default."""
    if is_dataclass(value):
        pairs = [(field, getattr(value, field.name)) for field in fields(value)]
        return {field.name: _told(inner) for field, inner in pairs if inner != field.default}
    if isinstance(value, frozenset):
        return sorted(value)
    return [_told(each) for each in value] if isinstance(value, tuple) else value


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise KeyError(key)
        found[key] = value
    return found


def _check_keys(content: Any, kind: Any, where: str, at: str) -> None:
    """Raise Trouble for a key that no fact has: msgspec would pass over it."""
    inner = _dataclass_in(kind)
    if isinstance(content, list):
        for index, each in enumerate(content):
            _check_keys(each, kind, where, f"{at}[{index}]")
    elif inner is not None and isinstance(content, dict):
        kinds = get_type_hints(inner)
        for key, value in content.items():
            if key not in kinds:
                raise _trouble(
                    f"{where}: {f'{at}: ' if at else ''}unknown key {key!r}{did_you_mean(key, tuple(kinds))}",
                    "correct it",
                )
            _check_keys(value, kinds[key], where, f"{at}.{key}" if at else key)


def _dataclass_in(kind: Any) -> Any:
    """Return the dataclass in a type such as ``tuple[Gpu, ...]`` or ``Surface | None``."""
    return next((each for each in (kind, *get_args(kind)) if isinstance(each, type) and is_dataclass(each)), None)


def _sentence(error: str) -> str:
    """Return msgspec's message as place and expectation."""
    text, _, path = error.partition(" - at ")
    if unknown := re.search(r"Invalid enum value '(.*)'", text):
        text = f"unknown value {unknown[1]!r}{did_you_mean(unknown[1], get_args(WeightFormat))}"
    at = path.strip("`").removeprefix("$").removeprefix(".")
    text = re.sub(
        r"`(array|object)( \| null)?`", lambda found: {"array": "a list", "object": "an object"}[found[1]], text
    )
    text = text[:1].lower() + text[1:]
    return f"{at}: {text}" if at else text


def _trouble(message: str, hint: str) -> Trouble:
    return Trouble(message, hint=hint, status=Status.USAGE)
