"""Environment variables: those that nobody reads, those that will vanish, and those that change how a launch ends."""

from __future__ import annotations

from collections.abc import Iterator

from safe_vllm.checks.case import Case
from safe_vllm.checks.finding import Finding
from safe_vllm.errors import nearest
from safe_vllm.plan.intent import is_switched_on

PREFIXES = ("VLLM_", "FLASHINFER_", "TRTLLM_")
OFF = ("", "0", "false", "no", "off")
QUIET = ("WARNING", "WARN", "ERROR", "CRITICAL", "FATAL")
VALIDATION = "--fail-on-environ-validation"


def unread(case: Case) -> Iterator[Finding]:
    """Look for variables that the installed versions do not read."""
    links = set(service_links(case))
    names = sorted(name for name in case.environment if name.startswith(PREFIXES) and name not in links)
    found = [(name, because) for name in names if (because := _unread(name, case))]
    for name, because in found:
        is_fatal = name.startswith("VLLM_") and VALIDATION in case.words
        why = f"not read by the installed version: {because}"
        yield Finding("variables", "problem" if is_fatal else "warning", f"{name} is set", why, _instead(name, case))
    if not found:
        told = f"{len(names)} of vLLM's and FlashInfer's are set" if names else "none of vLLM's or FlashInfer's is set"
        yield Finding("variables", "ok", told)


def vanishing(case: Case) -> Iterator[Finding]:
    """Look for variables that later releases do not read any more."""
    for name in sorted(name for name in case.environment if name.startswith(PREFIXES)):
        entry = case.dialect.table.variable(name)
        if entry and entry.until and case.dialect.reads(name, case.machine.installation.flashinfer):
            what = f"{name} is set, and vLLM {entry.until} is the last that reads it"
            why = "after an upgrade it has no effect, and vLLM only warns"
            yield Finding("variables", "note", what, why, _instead(name, case))


def _unread(name: str, case: Case) -> str | None:
    installed, entry = case.machine.installation, case.dialect.table.variable(name)
    is_of_no_version = entry is not None and entry.by == "nobody"
    if installed.vllm is None and not is_of_no_version:
        return None  # what is not known to be installed reads nothing and everything
    if case.dialect.reads(name, installed.flashinfer) is not False:
        return None
    return case.dialect.unread(name, installed.flashinfer)


def _instead(name: str, case: Case) -> str:
    """Return what has the effect, or what was probably meant."""
    known = [knob.use for knob in case.knobs if name in knob.instead_of and knob.works(case.dialect)]
    if known:
        return f"use {', or '.join(known)}"
    if name.startswith("VLLM_") and (near := nearest(name, sorted(case.dialect.variables), least=0.8)):
        return f"did you mean {near}? else unset it"
    return "unset it"


def service_links(case: Case) -> tuple[str, ...]:
    """Return the variables that Kubernetes made of a service called ``vllm`` or ``vllm-something``."""
    hosts = [name for name in case.environment if name.startswith("VLLM_") and name.endswith("_SERVICE_HOST")]
    stems = [name.removesuffix("_SERVICE_HOST") for name in hosts]
    stems += ["VLLM"] if case.environment.get("VLLM_PORT", "").startswith(("tcp://", "udp://")) else []
    ours = ("_SERVICE_", "_PORT")
    return tuple(
        name for name in case.environment if any(name.startswith(f"{stem}{end}") for stem in stems for end in ours)
    )


def links(case: Case) -> Iterator[Finding]:
    """Look for what Kubernetes adds to the environment for a service whose name begins with vllm.

    https://docs.vllm.ai/en/stable/configuration/env_vars/
    """
    found = sorted(service_links(case))
    if not found:
        return
    do = "rename the service, or set enableServiceLinks: false in the pod"
    if "://" in case.environment.get("VLLM_PORT", ""):
        why = "vLLM takes VLLM_PORT for its own and ends with: VLLM_PORT appears to be a URI"
        yield Finding("service-links", "problem", "VLLM_PORT comes from a Kubernetes service", why, do)
    else:
        what = f"a Kubernetes service sets {found[0]}" + (f" and {len(found) - 1} more" if len(found) > 1 else "")
        is_fatal = VALIDATION in case.words
        why = f"vLLM {'ends' if is_fatal else 'warns'} because it does not know them"
        yield Finding("service-links", "problem" if is_fatal else "note", what, why, do)


def switches(case: Case) -> Iterator[Finding]:
    """Look for variables that change what a fault looks like, or whether we see it."""
    if is_switched_on(case.environment.get("SAFE_VLLM_OFF", "")):
        why = "safe-vllm serve becomes plain vLLM: no rung, no restart"
        yield Finding("switches", "warning", "SAFE_VLLM_OFF is set", why, "unset SAFE_VLLM_OFF")
    if _is_on(case, "VLLM_KEEP_ALIVE_ON_ENGINE_DEATH"):
        why = "the server stays when its engine dies, and answers 503 to everything"
        yield Finding("switches", "warning", "VLLM_KEEP_ALIVE_ON_ENGINE_DEATH is set", why, "unset it")
    if _is_on(case, "CUDA_ENABLE_COREDUMP_ON_EXCEPTION"):
        why = "a faulting kernel then aborts its process, also where autotune would have skipped it"
        do = "unset it unless a fault is being hunted; CUDA_COREDUMP_GENERATION_FLAGS keeps the files small"
        yield Finding("switches", "warning", "CUDA_ENABLE_COREDUMP_ON_EXCEPTION is set", why, do)
    level = case.environment.get("VLLM_LOGGING_LEVEL", "").upper()
    if level in QUIET or case.environment.get("VLLM_CONFIGURE_LOGGING") == "0":
        what = f"vLLM logs little (VLLM_LOGGING_LEVEL={level})" if level in QUIET else "VLLM_CONFIGURE_LOGGING is 0"
        why = "the lines that name the backend and the phase are missing, so a verdict knows less"
        yield Finding("switches", "note", what, why, "unset it")


def _is_on(case: Case, name: str) -> bool:
    return case.environment.get(name, "").lower() not in OFF
