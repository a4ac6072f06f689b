"""Tells apart what was given to be checked: Kubernetes objects, compose files, and what is neither."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from safe_vllm.checks import compose, manifest
from safe_vllm.checks.compose_services import is_compose
from safe_vllm.checks.finding import Finding
from safe_vllm.checks.manifest_sources import part
from safe_vllm.errors import Status, Trouble

HINT = "give a Kubernetes manifest or a compose file"
RENDERED = "give what `{}` prints: pipe it into `safe-vllm doctor --manifest -`"
KUSTOMIZE, HELM = "kustomize build DIRECTORY", "helm template CHART"
OF_KUSTOMIZE = ("resources", "bases", "patches", "patchesStrategicMerge", "components", "configMapGenerator")
OF_A_CHART = ("apiVersion", "name", "version")

Given = tuple[str, Sequence[object]]
"""The name of a file, and its documents."""


def checked(files: Sequence[Given]) -> tuple[Finding, ...]:
    """Return what is found in files; raises Trouble for one in which there is nothing that could be checked."""
    for where, documents in files:
        _refuse_what_is_neither(where, documents)
    objects = [each for _, documents in files for each in documents if is_object(each)]
    return (
        *(finding for where, documents in files for finding in _strays(where, documents)),
        *(found for where, each in _composed(files) for found in compose.checked(where, each)),
        *(manifest.checked(objects) if objects else ()),
    )


def is_object(document: object) -> bool:
    """Return whether a document is an object of Kubernetes, of whatever kind."""
    return isinstance(document, Mapping) and isinstance(document.get("kind"), str) and not _is_kustomization(document)


def _composed(files: Sequence[Given]) -> Iterator[tuple[str, Mapping[str, object]]]:
    for where, documents in files:
        yield from ((where, each) for each in documents if isinstance(each, Mapping) and is_compose(each))


def _strays(where: str, documents: Sequence[object]) -> Iterator[Finding]:
    """Tell of documents that are nothing, in a file that has something else too."""
    lost = [str(at) for at, each in enumerate(documents, 1) if not is_object(each) and not is_compose(each)]
    if lost:
        what = f"{where}: document {', '.join(lost)} was not looked at: it has no kind"
        yield Finding("manifest-file", "warning", what, "kubectl refuses it", "add its kind, or take it out")


def _refuse_what_is_neither(where: str, documents: Sequence[object]) -> None:
    if any(is_object(each) or is_compose(each) for each in documents):
        return
    if not documents:
        raise Trouble(f"{where} is empty: there is nothing to check", hint=HINT, status=Status.USAGE)
    hint, what = HINT, "neither a Kubernetes manifest nor a compose file: it has neither a kind nor services"
    first = documents[0]
    if _is_kustomization(first):
        hint, what = RENDERED.format(KUSTOMIZE), "a kustomization, not a manifest"
    elif isinstance(first, Mapping) and all(name in first for name in OF_A_CHART):
        hint, what = RENDERED.format(HELM), "the description of a Helm chart, not a manifest"
    elif where.rpartition("/")[2].startswith("values"):
        hint = RENDERED.format(HELM)
    raise Trouble(f"{where} is {what}", hint=hint, status=Status.USAGE)


def _is_kustomization(document: object) -> bool:
    if isinstance(document, Mapping) and "kind" in document:
        return str(part(document, "apiVersion")).startswith("kustomize.config.k8s.io/")
    return isinstance(document, Mapping) and any(isinstance(document.get(name), list) for name in OF_KUSTOMIZE)
