"""The JSON Schema of profiles, from the structs that read them and the docstrings of their fields."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import msgspec

from safe_vllm.plan import profile

SCHEMA = Path(__file__).parents[2] / "profiles" / "schema.json"


def generated() -> str:
    """Return the schema as text."""
    schema = msgspec.json.schema(profile.Profile)
    described = _descriptions(Path(profile.__file__).read_text())
    for name, struct in schema["$defs"].items():
        for field, content in struct.get("properties", {}).items():
            struct["properties"][field] = _without_default(content) | {"description": described[name, field]}
    schema["$defs"]["Profile"]["anyOf"] = [{"required": ["extends"]}, {"required": ["description", "ladder"]}]
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "A hardware profile of safe-vllm"}
    return json.dumps(head | schema, indent=2) + "\n"


def _without_default(content: dict[str, Any]) -> dict[str, Any]:
    """Return a field without the default that stands for "not said", which an editor would offer to fill in."""
    return {key: value for key, value in content.items() if key != "default" or value not in (None, "", {}, [])}


def _descriptions(source: str) -> dict[tuple[str, str], str]:
    """Return the docstring of every field by class and field."""
    found = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            for field, text in zip(node.body, node.body[1:], strict=False):
                if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                    found[node.name, ast.unparse(field.target)] = str(ast.literal_eval(text.value))
    return found
