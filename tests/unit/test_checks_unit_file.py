"""What the check-up says about a systemd unit, and how a unit file is read."""

from __future__ import annotations

import itertools
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safe_vllm.checks.finding import Finding
from safe_vllm.checks.unit_command import start_of, stop_s
from safe_vllm.checks.unit_file import CHECKS, checked
from safe_vllm.checks.unit_spans import INFINITY, seconds
from safe_vllm.checks.unit_text import read, split

SHIPPED = Path(__file__).parents[2] / "deploy" / "systemd" / "safe-vllm@.service"
FINAL = "2 69 71 78 125 126 127"


def found(*changes: str, start: str | None = None) -> list[Finding]:
    """Return what is not fine about the shipped unit with lines in a drop-in."""
    lines = [*changes] if start is None else ["ExecStart=", f"ExecStart={start}", *changes]
    findings = checked([SHIPPED.read_text(), "\n".join(["[Service]", *lines])])
    assert all(finding.level == "ok" or (finding.why and finding.do) for finding in findings)
    assert all("\n" not in text for finding in findings for text in (finding.what, finding.why, finding.do))
    return [finding for finding in findings if finding.level != "ok"]


def told(*changes: str, start: str | None = None) -> list[tuple[str, str, str]]:
    """Return name, level and first words of it."""
    return [
        (finding.name.removeprefix("unit-"), finding.level, finding.what) for finding in found(*changes, start=start)
    ]


def test_the_unit_that_we_ship_is_fine() -> None:
    findings = checked([SHIPPED.read_text()])
    assert {finding.level for finding in findings} == {"ok"}
    assert len(findings) >= 8


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (["Type=simple"], ("notify", "warning", "Type=simple")),
        (["Type="], ("notify", "warning", "Type=simple")),
        (["Type=forking"], ("notify", "problem", "Type=forking")),
        (["Type=oneshot"], ("notify", "problem", "Type=oneshot")),
        (["Type=notify-reload"], ("notify", "problem", "Type=notify-reload")),
        (["NotifyAccess=all"], ("notify", "note", "NotifyAccess=all")),
        (["TimeoutStartSec=5"], ("start", "warning", "TimeoutStartSec=5")),
        (["TimeoutSec=5", "TimeoutStopSec=90"], ("start", "warning", "TimeoutStartSec=5")),
        (["KillMode="], ("kill", "warning", "KillMode=control-group, the default")),
        (["KillMode=process"], ("kill", "problem", "KillMode=process")),
        (["KillMode=none"], ("kill", "problem", "KillMode=none")),
        (["KillSignal=SIGUSR1"], ("kill", "problem", "KillSignal=SIGUSR1")),
        (["SendSIGKILL=no"], ("kill", "warning", "SendSIGKILL=no")),
        (["TimeoutStopSec=60"], ("stop", "note", "TimeoutStopSec=60 is not above the 60 s that vLLM has to end")),
        (["Restart=no"], ("restart", "note", "Restart=no")),
        (["Restart=on-abort"], ("restart", "note", "Restart=on-abort")),
        (["Restart=always"], ("restart", "note", "Restart=always")),
        (["RestartPreventExitStatus="], ("restart", "warning", f"restarts after {', '.join(FINAL.split())}")),
        (["RestartPreventExitStatus=70"], ("restart", "note", "does not restart after 70")),
        (["RestartSec="], ("restart", "warning", "RestartSec=0.1")),
        (["WatchdogSec=0"], ("watchdog", "note", "there is no WatchdogSec")),
        (["WatchdogSec=5s"], ("watchdog", "warning", "WatchdogSec=5")),
        (["OOMPolicy="], ("sandbox", "note", "OOMPolicy=stop")),
        (["PrivateDevices=yes"], ("sandbox", "problem", "PrivateDevices=yes")),
        (["MemoryDenyWriteExecute=true"], ("sandbox", "problem", "MemoryDenyWriteExecute=yes")),
        (["PrivateNetwork=1"], ("sandbox", "problem", "PrivateNetwork=yes")),
        (["DevicePolicy=closed"], ("sandbox", "problem", "DevicePolicy=closed")),
        (["DeviceAllow=char-rtc r"], ("sandbox", "problem", "DevicePolicy=auto and DeviceAllow=char-rtc r")),
        (["ProtectClock=on"], ("sandbox", "warning", "ProtectClock=yes")),
        (["SystemCallFilter=@system-service"], ("sandbox", "note", "SystemCallFilter=@system-service")),
        (["ProcSubset=pid"], ("sandbox", "warning", "ProcSubset=pid")),
        (
            ["RestrictAddressFamilies=AF_UNIX AF_INET"],
            ("sandbox", "problem", "RestrictAddressFamilies without AF_NETLINK"),
        ),
        (["Environment=HF_HOME=/home/u/hf"], ("home", "problem", "ProtectHome=yes hides HF_HOME=/home/u/hf")),
        (["Environment=PATH=/opt/x:/root/v/bin"], ("home", "problem", "ProtectHome=yes hides PATH=/opt/x:/root/v/bin")),
        (["WorkingDirectory=~"], ("home", "problem", "ProtectHome=yes hides WorkingDirectory=~")),
        (
            ["ProtectHome=read-only", "Environment=HF_HOME=/home/u/hf"],
            ("home", "warning", "ProtectHome=read-only keeps HF_HOME=/home/u/hf from being written"),
        ),
        (["Environment="], ("home", "note", "ProtectHome=yes, and the unit moves no cache elsewhere")),
        (
            ["Environment=HF_HOME=/data/hf"],
            ("writable", "warning", "ProtectSystem=strict keeps HF_HOME=/data/hf from being written"),
        ),
        (["StateDirectory="], ("state", "warning", "there is no StateDirectory")),
        *(
            ([f"Environment=SAFE_VLLM_STATE_DIR={place}"], ("state", "warning", f"ProtectSystem=strict keeps {it}"))
            for place in ("/srv/x", "/var/lib/safe-vllm-2", "%S/other")
            for it in (f"the state directory {place} from being written",)
        ),
        (["LimitMEMLOCK=8M"], ("limits", "note", "LimitMEMLOCK=8M")),
        (["LimitMEMLOCK="], ("limits", "note", "LimitMEMLOCK=8M")),
        (["LimitNOFILE=1024:4096"], ("limits", "warning", "LimitNOFILE=4096")),
        (["TasksMax=500"], ("limits", "warning", "TasksMax=500")),
        (["LimitCORE=infinity"], ("limits", "note", "LimitCORE=infinity")),
        (["StandardOutput=null"], ("output", "warning", "StandardOutput=null")),
        (["StandardError=file:/log"], ("output", "warning", "StandardError=file:/log")),
        (["StandardOutput=journal+console"], ("output", "note", "StandardOutput=journal+console")),
        (["Environment=HF_TOKEN=verysecret"], ("secrets", "warning", "HF_TOKEN in the unit")),
        (["EnvironmentFile="], ("command", "problem", "MODEL_ARGS in ExecStart is set by nothing")),
        (["[Unit]", "StartLimitIntervalSec=0"], None),
        (["[Unit]", "StartLimitBurst=", "StartLimitIntervalSec=299"], None),
        (["Environment=SAFE_VLLM_OFF=1"], ("options", "warning", "SAFE_VLLM_OFF is set")),
        (
            ["Environment=SAFE_VLLM_STATUS_ADDRESS=9464"],
            ("options", "problem", "SAFE_VLLM_STATUS_ADDRESS is '9464', and safe-vllm does not start with that"),
        ),
        (
            ["Environment=SAFE_VLLM_STOP_TIMOUT=5"],
            ("options", "warning", "SAFE_VLLM_STOP_TIMOUT is no variable of ours"),
        ),
        (["KillMode=mixd"], ("lines", "warning", "systemd ignores the line with KillMode")),
        (["KillMode=mixed # good"], ("lines", "warning", "systemd ignores the line with KillMode")),
        (["Type=Notify"], ("lines", "warning", "systemd ignores the line with Type")),
        (["WatchdogSec=3 minuts"], ("lines", "warning", "systemd ignores the line with WatchdogSec")),
        (["TimeoutStopsec=5"], ("lines", "warning", "systemd ignores the line with TimeoutStopsec")),
        (["StartLimitIntervalSec=5"], ("lines", "warning", "systemd ignores the line with StartLimitIntervalSec")),
        (["[Install]", "KillMode=none"], ("lines", "warning", "systemd ignores the line with KillMode")),
        (["SuccessExitStatus=70 TEMPFAIL"], ("restart", "warning", "SuccessExitStatus has 70, 75")),
        (["ExecReload=/bin/kill -HUP $MAINPID"], ("kill", "warning", "ExecReload sends SIGHUP")),
        (["RuntimeMaxSec=1d"], ("restart", "warning", "RuntimeMaxSec=86400")),
        (["something else"], ("lines", "warning", "'something else' is no setting")),
    ],
)
def test_one_line_in_a_drop_in_is_found(changes: list[str], expected: tuple[str, str, str] | None) -> None:
    if expected is None:
        [(name, level, what)] = told(*changes)
        assert (name, level, "is never reached" in what) == ("restart", "note", True)
    else:
        assert told(*changes) == [expected]


@pytest.mark.parametrize(
    "changes",
    [
        ["TimeoutStopSec=infinity"],
        ["TimeoutStopSec=0"],
        ["TimeoutStartSec=infinity"],
        ["TimeoutStopSec=1min 31s"],
        ["KillMode=control-group", "KillMode=mixed"],
        ["KillSignal=SIGINT"],
        ["KillSignal=2"],
        ["WatchdogSec=10"],
        ["RestartSec=10"],
        ["TimeoutStartSec=20"],
        ["TimeoutStartSec=0"],
        ["[Unit]", "StartLimitBurst=", "StartLimitIntervalSec=300"],
        ["LimitNOFILE=65535", "TasksMax=4096"],
        [
            "RestartPreventExitStatus=",
            "RestartPreventExitStatus=INVALIDARGUMENT UNAVAILABLE 71",
            "RestartPreventExitStatus=CONFIG 125 126 127",
        ],
        ["PrivateDevices=no"],
        ["StartLimitBurst=20", "X-Note=5", "StartLimitInterval=1d"],
        ["[X-Own]", "KillMode=none"],
        ["ProtectHome=Yes", "Type=notify", "SuccessExitStatus=0 SIGKILL", "RuntimeMaxSec=infinity"],
        ["ExecReload=/bin/true", "MemoryZSwapMax=1G", "RestartSomething=1"],
        ["PrivateDevices=yes", "PrivateDevices="],
        ["DevicePolicy=closed", "DeviceAllow=char-nvidia-frontend rw"],
        ["ProtectClock=yes", "DeviceAllow=/dev/nvidiactl rw"],
        ["RestrictAddressFamilies=~AF_PACKET"],
        ["ProtectHome=no", "Environment=HF_HOME=/home/u/hf", "ReadWritePaths=/home/u"],
        ["Environment=HF_HOME=/data/hf", "ReadWritePaths=-/data"],
        ["Environment=HF_HOME=/var/cache/safe-vllm/hf"],
        ["StateDirectory=", "Environment=SAFE_VLLM_STATE_DIR=/tmp/s"],
        ["Environment=SAFE_VLLM_STATE_DIR=/srv/x/%i", "ReadWritePaths=/srv/x"],
        ["Environment=SAFE_VLLM_STATE_DIR=/srv/x", "ProtectSystem=full"],
        ["Environment=SAFE_VLLM_STATE_DIR=%S/safe-vllm/%i"],
        ["Environment=SAFE_VLLM_STATE_DIR=%E/x"],
        ["StandardOutput=append:/log"],
        ["EnvironmentFile=", "Environment=MODEL_ARGS=tiny"],
        ["# PrivateDevices=yes", "; PrivateDevices=yes"],
    ],
)
def test_what_is_as_good_is_fine(changes: list[str]) -> None:
    assert told(*changes) == []


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("/opt/v/bin/safe-vllm serve m", None),
        ("-/opt/v/bin/safe-vllm --no-canary --stop-timeout 30 --pin=autotune serve m --port 1", None),
        ("/opt/v/bin/python -m safe_vllm serve m", None),
        ("/usr/bin/numactl --cpunodebind=0 /opt/v/bin/safe-vllm serve m", None),
        ("/usr/bin/env -u X A=b safe-vllm serve m", None),
        ("/bin/sh -c 'ulimit -c 0; exec safe-vllm serve m'", None),
        ("/bin/bash -c 'exec numactl -N 0 /opt/v/bin/safe-vllm serve m'", None),
        ("/bin/sh -c 'safe-vllm serve m'", "ExecStart runs a shell: "),
        ("/bin/bash -lc 'exec true; safe-vllm serve m'", "ExecStart runs a shell: "),
        ("/bin/bash -c 'exec safe-vllm plan m'", "ExecStart does not say `safe-vllm serve`: "),
        ("/opt/start.sh", "ExecStart does not run safe-vllm: "),
        ("/usr/bin/docker run vllm/vllm-openai safe-vllm serve m", "ExecStart runs docker: "),
        ("/usr/bin/sudo -u v safe-vllm serve m", "ExecStart runs sudo: "),
        ("/opt/v/bin/vllm serve m", "ExecStart does not run safe-vllm: "),
        ("/opt/v/bin/safe-vllm --output json plan m", "ExecStart does not say `safe-vllm serve`: "),
        ("/opt/v/bin/safe-vllm", "ExecStart does not say `safe-vllm serve`: "),
        ("/opt/v/bin/run -n safe_vllm serve m", "ExecStart does not run safe-vllm: "),
    ],
)
def test_what_is_started_is_seen_through(start: str, expected: str | None) -> None:
    findings = [(level, what) for name, level, what in told(start=start) if name == "command"]
    if expected is None:
        assert findings == []
    else:
        [(level, what)] = findings
        assert (level, what[: len(expected)]) == ("problem", expected)


@pytest.mark.parametrize(
    ("start", "stays"),
    [
        ("/usr/bin/timeout 3600 /opt/v/bin/safe-vllm serve m", "timeout"),
        ("/usr/local/bin/uv run --no-sync safe-vllm serve m", "uv"),
        ("/usr/bin/env A=1 conda run -n v safe-vllm serve m", "conda"),
    ],
)
def test_what_stays_between_systemd_and_safe_vllm_is_a_warning(start: str, stays: str) -> None:
    [(_, level, what)] = [each for each in told(start=start) if each[0] == "command"]
    assert (level, what.startswith(f"ExecStart runs {stays}: ")) == ("warning", True)


def test_a_line_that_is_passed_over_leaves_what_was_there_before_it() -> None:
    unit = read(["[Service]\nKillMode=mixed\nKillMode=mixd\n[Install]\nType=notify\n[X-Own]\nKillMode=none"])
    assert (unit.value("KillMode"), unit.value("Type")) == ("mixed", None)
    assert [name for name, _ in unit.refused] == ["KillMode", "Type"]


def test_why_a_command_supervises_nothing_depends_on_what_it_says() -> None:
    [plan] = [finding for finding in found(start="/x/safe-vllm plan m") if finding.name == "unit-command"]
    [nothing] = [finding for finding in found(start="/x/safe-vllm") if finding.name == "unit-command"]
    assert (plan.why, nothing.why) == ("only `serve` supervises", "nothing says what it is to do")


def test_what_is_wrong_with_the_restarts_is_not_called_fine_beside_it() -> None:
    for line in ("RestartPreventExitStatus=", "RestartPreventExitStatus=70"):
        findings = checked([SHIPPED.read_text(), f"[Service]\n{line}"])
        assert "ok" not in [finding.level for finding in findings if finding.name == "unit-restart"]


@pytest.mark.parametrize("number", ["9" * 400, "9" * 5000, "\u00b2", "-1", "x", ""])
def test_a_number_that_is_none_or_too_large_does_not_end_the_check(number: str) -> None:
    names = ("StartLimitBurst", "LimitNOFILE", "TasksMax", "TimeoutStopSec", "WatchdogSec")
    assert all(level != "problem" for _, level, _ in told(*(f"{name}={number}" for name in names)))


def test_a_unit_without_a_command_or_with_two_is_refused() -> None:
    assert told("ExecStart=") == [("command", "problem", "there is no ExecStart")]
    assert ("command", "problem", "there are several ExecStart") in told("ExecStart=/opt/v/bin/safe-vllm serve m")


@pytest.mark.parametrize("secret", ["--api-key verysecret", "--api-key=verysecret", "--hf-token verysecret"])
def test_keys_are_found_and_never_shown(secret: str) -> None:
    findings = found("Environment=VLLM_API_KEY=verysecret", start=f"/opt/v/bin/safe-vllm serve m {secret}")
    assert [finding.name for finding in findings] == ["unit-secrets"]
    texts = [SHIPPED.read_text(), f"[Service]\nExecStart=\nExecStart=/bin/sh -c 'safe-vllm serve m {secret}'"]
    assert not any("verysecret" in str(finding) for finding in [*findings, *checked(texts)])


@pytest.mark.parametrize(
    ("lines", "start", "expected"),
    [
        ([], "/x/safe-vllm serve m", 60),
        ([], "/x/safe-vllm --stop-timeout 200 serve m", 200),
        ([], "/x/safe-vllm --stop-timeout=200 serve m --stop-timeout 5", 200),
        ([], "/x/safe-vllm serve m --shutdown-timeout 300", 315),
        ([], "/x/safe-vllm serve m --shutdown_timeout=10", 60),
        (["Environment=SAFE_VLLM_STOP_TIMEOUT=120"], "/x/safe-vllm serve m", 120),
        (["Environment=SAFE_VLLM_STOP_TIMEOUT=120"], "/x/safe-vllm --stop-timeout 10 serve m", 10),
        ([], "/bin/sh -c 'exec /x/safe-vllm --stop-timeout 200 serve m'", 200),
    ],
)
def test_the_time_to_stop_is_read_from_the_unit(lines: list[str], start: str, expected: float) -> None:
    assert stop_s(read(["\n".join(["[Service]", f"ExecStart={start}", *lines])])) == expected


def test_without_notify_a_short_time_to_stop_counts() -> None:
    assert ("stop", "warning") in [(name, level) for name, level, _ in told("Type=exec", "TimeoutStopSec=30")]
    assert ("stop", "note") in [(name, level) for name, level, _ in told("TimeoutStopSec=30")]


def test_a_growing_pause_counts_for_the_limit_of_starts() -> None:
    grows = [*("RestartSteps=5", "RestartMaxDelaySec=15min")]
    assert told(*grows) == []
    assert len(told(*grows, "[Unit]", "StartLimitIntervalSec=1h")) == 1


def test_a_dynamic_user_hides_homes_and_everything_else() -> None:
    lines = ["ProtectHome=", "ProtectSystem=", "DynamicUser=yes"]
    assert [name for name, _, _ in told(*lines, "Environment=HF_HOME=/home/u/hf")] == ["home"]
    assert [name for name, _, _ in told(*lines, "Environment=HF_HOME=/data/hf")] == ["writable"]
    assert told(*lines[:2], "Environment=HF_HOME=/data/hf") == []


def test_a_state_directory_on_the_command_line_counts_and_one_that_is_hidden_is_told_once() -> None:
    [(name, level, what)] = told(start="/usr/bin/env safe-vllm --state-dir=/srv/x serve $MODEL_ARGS")
    assert (name, level, "the state directory /srv/x" in what) == ("state", "warning", True)
    [(name, _, what)] = told("Environment=SAFE_VLLM_STATE_DIR=/home/u/x")
    assert (name, what) == ("home", "ProtectHome=yes hides SAFE_VLLM_STATE_DIR=/home/u/x")
    [(name, *_)] = told("Environment=SAFE_VLLM_STATE_DIR=/home/u/x", "ProtectHome=no")
    assert name == "state"


def test_sections_repeat_comments_are_left_out_and_lines_go_on() -> None:
    unit = read(
        [
            "# a comment\n[Service]\n ExecStart = /x/safe-vllm serve \\\n  # between\n ; and\n  m \\\n--port 1\n"
            "Environment=A=1 'B=two words'\n[Unit]\nDescription=d\\\\\n[Service]\nEnvironment=C=3",
            '\ufeff[Service]\r\nEnvironment="D=4" A=5\r\n',
        ]
    )
    assert start_of(unit).words == ("m", "--port", "1")
    assert unit.variables() == {"A": "5", "B": "two words", "C": "3", "D": "4"}
    assert unit.value("Description") == "d\\\\"
    assert unit.strays == ()


def test_an_empty_value_takes_back_those_before_it() -> None:
    unit = read(["[Service]\nEnvironment=A=1\nEnvironment=\nEnvironment=B=2 C\nType=notify", "[Service]\nType="])
    assert unit.variables() == {"B": "2"}
    assert unit.value("Type") is None


def test_specifiers_and_variables_stay_as_they_are() -> None:
    assert split("/usr/bin/env %i $A ${B} '$C d' \"e\"") == ("/usr/bin/env", "%i", "$A", "${B}", "$C d", "e")
    assert split("it's broken") == ("it's", "broken")


def test_what_stands_before_any_section_is_stray() -> None:
    assert read(["Type=notify\n[Service]\n=x\nalone"]).strays == ("Type=notify", "=x", "alone")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90", 90),
        ("1min 30s", 90),
        ("1m30", 90),
        ("2h", 7200),
        ("1d", 86_400),
        ("500ms", 0.5),
        ("1.5min", 90),
        ("infinity", INFINITY),
        ("", None),
        ("soon", None),
        ("5 parsecs", None),
        ("5s!", None),
    ],
)
def test_spans_of_time_are_read_as_systemd_reads_them(text: str, expected: float | None) -> None:
    assert seconds(text) == expected


NAMES = sorted(
    {"ExecStart", "Type", "Environment", "KillMode", "TimeoutStopSec", "DeviceAllow", "ProtectHome", "RestartSec"}
    | {"StartLimitBurst", "RestartPreventExitStatus", "StandardOutput", "LimitNOFILE", "StateDirectory"}
)
VALUES = st.text(string.printable, max_size=30) | st.sampled_from(
    ["", "yes", "%h/x", "/bin/sh -c", "safe-vllm", "\\", "'"]
)


@given(st.lists(st.tuples(st.sampled_from([*NAMES, "[Service]", "#", ""]), VALUES), max_size=12))
def test_whatever_a_unit_says_the_checks_come_to_an_end(parts: list[tuple[str, str]]) -> None:
    text = "[Service]\n" + "\n".join(f"{name}={value}" for name, value in parts)
    assert all(finding.what for finding in checked([text]))


def test_every_check_has_something_to_say_about_some_unit() -> None:
    """A check that nothing here makes speak would be one that no test can break."""
    bare = read(
        [
            "[Service]\nstray\nTimeoutStartSec=1\nType=notify\nExecStart=$X\nEnvironment=A_KEY=1 HF_HOME=/d\n"
            "Environment=SAFE_VLLM_OFF=1\nSuccessExitStatus=70\nExecReload=/bin/kill -HUP 1\nRuntimeMaxSec=1\n"
            "KillMode=x\n"
        ]
    )
    more = read(
        [
            "[Service]\nProtectHome=yes\nProtectSystem=strict\nStandardOutput=null\nPrivateDevices=1\nEnvironment=HF_HOME=/d"
        ]
    )
    assert all(any(itertools.chain(check(bare), check(more))) for check in CHECKS)
