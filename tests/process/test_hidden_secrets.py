"""P20: a secret of the launch is in nothing that we print or write, wherever vLLM printed it."""

from __future__ import annotations

from pathlib import Path

from launch import Stage
from scenes import ILLEGAL_ACCESS, WORKER_TRACEBACK, argparse_error, fail

KEY, TOKEN = "zebra-hunter-99887766", "lion-gatherer-11223344"


def test_p20_a_known_secret_in_a_root_line_is_in_no_event_no_line_of_ours_and_no_file(stage: Stage) -> None:
    died = WORKER_TRACEBACK.format(f"{ILLEGAL_ACCESS} near {KEY} of {TOKEN}")
    refused = f"ValueError: cannot use {KEY} and {TOKEN} here"
    words, variables = ["tiny", "--api-key", KEY], {"HF_TOKEN": TOKEN}
    run = stage.start(fail(died), fail(refused), argparse_error(), words=words, environment=variables)
    run.finish()
    [first, *_] = run.events("attempt-ended")
    assert "near *** of ***" in first["reason"] + str(first["evidence"])
    state = Path(run.environment["XDG_STATE_HOME"])
    files = [path for path in state.rglob("*") if path.is_file()]
    assert {"run", "incidents"} <= {part for path in files for part in path.relative_to(state).parts}
    told = {str(path): path.read_text("utf-8") for path in (*files, run.events_path)}
    told["our own lines"] = run.ours()
    assert not [name for name, text in told.items() if KEY in text or TOKEN in text]
