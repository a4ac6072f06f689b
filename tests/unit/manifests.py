"""The Kubernetes manifests that we ship, as the tests look at them."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

from safe_vllm.machine import manifest_files

ROOT = Path(__file__).parents[2]
PLACE = ROOT / "deploy" / "kubernetes"
NAMES = tuple(sorted(path.name for path in PLACE.glob("*.yaml")))
WORKLOADS = ("deployment.yaml", "statefulset.yaml")
Document = dict[str, Any]


def read(*paths: Path) -> list[Any]:
    """Return what files hold, one document after the other."""
    return [document for _, held in manifest_files.each([str(path) for path in paths]) for document in held]


DOCUMENTS: dict[str, list[Any]] = {name: read(PLACE / name) for name in NAMES}


def documents(name: str) -> list[Any]:
    """Return a copy of what a file holds, to be changed."""
    return deepcopy(DOCUMENTS[name])


def workload(name: str) -> tuple[Document, Document, Document]:
    """Return a copy of a Deployment or StatefulSet, with the pod in it, and the pod's container."""
    (found,) = documents(name)
    pod = found["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    return found, pod, container


def options() -> dict[str, str]:
    """Return the variables of the ConfigMap."""
    (found,) = documents("configmap.yaml")
    return dict(found["data"])
