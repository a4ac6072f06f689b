"""Guards around every test: it stays away from the operator's places, and no process outlives it."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import settings

from leftovers import Process, adopt_orphans, below, end_all

settings.register_profile("here", deadline=None)  # a busy machine is not a failure
settings.load_profile("here")

PLACES = ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR")


@pytest.fixture(scope="session")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return what the tests have for HOME and the like."""
    adopt_orphans()
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):  # ignored under nohup or in the background
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    root = tmp_path_factory.mktemp("places")
    for name in PLACES:
        (root / name).mkdir(mode=0o700)
    return {name: str(root / name) for name in PLACES} | {"NOTIFY_SOCKET": str(root / "no-manager-listens-here")}


@pytest.fixture(autouse=True)
def older_processes(places: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[frozenset[Process]]:
    """Keep a test away from the operator's places and settings; fail it when it leaves a process behind."""
    for name in [name for name in os.environ if name.startswith(("SAFE_VLLM_", "VLLM_"))]:
        monkeypatch.delenv(name)
    for name, place in places.items():
        monkeypatch.setenv(name, place)
    # what one test's launches learn is not for those of another
    state = tempfile.mkdtemp(dir=places["XDG_STATE_HOME"])
    monkeypatch.setenv("XDG_STATE_HOME", state)
    older = frozenset(below(os.getpid()))
    yield older
    if left := end_all(os.getpid(), older):
        pytest.fail("outlived the test: " + "; ".join(left), pytrace=False)
