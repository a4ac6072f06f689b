"""What ``doctor --unit`` says of a file that is no service's unit, and how units are read."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from safe_vllm.commands import doctor
from safe_vllm.errors import Status, Trouble
from safe_vllm.machine import unit_files

SHIPPED = Path(__file__).parents[2] / "deploy" / "systemd" / "safe-vllm@.service"


def refused(path: Path) -> str:
    """Return why a file cannot be checked, in one line that ends with what to do."""
    with pytest.raises(Trouble) as caught:
        doctor.of_units([str(path)])
    assert caught.value.status == Status.USAGE
    assert caught.value.hint
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (
            "a.yaml",
            "apiVersion: v1\nkind: Pod\n",
            "is no systemd unit: it has no [Service]; check a manifest with: safe-vllm",
        ),
        ("a.yaml", "services:\n  a: {}\n", "check a manifest with: safe-vllm doctor --manifest"),
        ("a.env", "# x\nHF_HOME=/x\nexport A=1\n", "it looks like an environment file"),
        ("a.txt", "hello\nworld\n", "is no systemd unit: it has no [Service]; name a unit file"),
        (
            "a.timer",
            "[Timer]\nOnCalendar=daily\n[Install]\nWantedBy=x\n",
            "is a timer unit, which starts another one; name that one: a.service",
        ),
        ("a.timer", "[Timer]\nUnit=b.service\n", "name that one: b.service"),
        (
            "a.socket",
            "[Socket]\nListenStream=80\nService=c.service\n",
            "is a socket unit, which starts another one; name that one: c.service",
        ),
        ("a.mount", "[Mount]\nWhat=/dev/x\n", "is a mount unit, not a service"),
        ("a.container", "[Unit]\n[Container]\nImage=x\n", "is a quadlet, not a unit"),
    ],
)
def test_what_is_no_unit_of_a_service_is_refused(tmp_path: Path, name: str, content: str, said: str) -> None:
    (tmp_path / name).write_text(content)
    assert said in refused(tmp_path / name)


@pytest.mark.parametrize(
    "content", ["", "# all of it is a comment\n", "[Unit]\nDescription=x\n", "[Service]\nType=simple\n"]
)
def test_of_a_unit_without_a_command_that_alone_is_told(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.service").write_text(content)
    [told] = doctor.of_units([str(tmp_path / "a.service")])
    assert (told.level, told.what) == ("problem", "there is no ExecStart")
    assert "systemctl cat NAME" in told.do


def test_of_a_unit_that_has_nothing_to_do_with_vllm_nothing_else_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.service").write_text("[Service]\nExecStart=/usr/sbin/nginx -g x\n")
    [told] = doctor.of_units([str(tmp_path / "a.service")])
    assert (told.level, told.what) == ("problem", "ExecStart does not run safe-vllm: /usr/sbin/nginx -g x")
    assert told.why == "nothing in the unit speaks of vLLM, so nothing else of it was checked"
    (tmp_path / "a.service").write_text("[Service]\nExecStart=/opt/vllm/bin/vllm serve m\n")
    assert len(doctor.of_units([str(tmp_path / "a.service")])) > 4


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        ("one\n", "'one' is no setting"),
        ("one\ntwo\n", "'one' and 1 other line are no settings"),
        ("one\ntwo\nthree\n", "'one' and 2 other lines are no settings"),
    ],
)
def test_lines_that_are_no_settings_are_told_once(tmp_path: Path, lines: str, what: str) -> None:
    (tmp_path / "a.service").write_text(SHIPPED.read_text() + lines)
    told = [each for each in doctor.of_units([str(tmp_path / "a.service")]) if each.name == "unit-lines"]
    assert [each.what for each in told] == [what]


def test_a_directory_of_drop_ins_is_told_with_its_unit(tmp_path: Path) -> None:
    (tmp_path / "x.service.d").mkdir()
    assert "systemctl cat x.service | safe-vllm doctor --unit -" in refused(tmp_path / "x.service.d")
    shutil.copy(SHIPPED, tmp_path / "x.service")
    assert refused(tmp_path / "x.service.d").endswith(f"its drop-ins are read with it: {tmp_path}/x.service")
    for place in (tmp_path, Path("/"), Path("..")):
        assert "is a directory; name a unit file" in refused(place)


def test_a_unit_that_is_not_here_may_be_behind_systemctl_or_in_a_template(tmp_path: Path) -> None:
    instance = tmp_path / "safe-vllm@qwen.service"
    assert "systemctl cat safe-vllm@qwen.service | safe-vllm doctor --unit -" in refused(instance)
    shutil.copy(SHIPPED, tmp_path / SHIPPED.name)
    assert f"an instance has no file of its own: name {tmp_path}/safe-vllm@.service" in refused(instance)


def test_a_masked_unit_a_loop_of_links_and_an_odd_name_are_told(tmp_path: Path) -> None:
    (tmp_path / "m.service").symlink_to(os.devnull)
    assert "is masked" in refused(tmp_path / "m.service")
    (tmp_path / "a.service").symlink_to(tmp_path / "b.service")
    (tmp_path / "b.service").symlink_to(tmp_path / "a.service")
    assert refused(tmp_path / "a.service")
    for name in ("a\0b", "x" * 5000):
        assert refused(Path(name))


def test_bytes_that_are_no_text_do_not_end_the_check(tmp_path: Path) -> None:
    (tmp_path / "a.service").write_bytes(SHIPPED.read_bytes() + b"[Unit]\nDescription=caf\xe9\n")
    assert doctor.of_units([str(tmp_path / "a.service")]) == doctor.of_units([str(SHIPPED)])


def test_each_whole_unit_is_told_with_its_name_and_its_own_drop_ins(tmp_path: Path) -> None:
    names = [str(tmp_path / name) for name in ("a.service", "a.conf", "b.service", "b.conf")]
    for name, content in zip(
        names,
        (
            SHIPPED.read_text(),
            "[Service]\nKillMode=none\n",
            SHIPPED.read_text(),
            "[Service]\nExecStart=/usr/bin/env safe-vllm serve $MODEL_ARGS\n",
        ),
        strict=True,
    ):
        Path(name).write_text(content)
    told = [each.what for each in doctor.of_units(names) if each.level != "ok"]
    assert told == [f"{names[0]}: KillMode=none", f"{names[2]}: there are several ExecStart"]
    [fine] = [each.what for each in doctor.of_units(names[:3]) if each.level != "ok"]
    assert fine == f"{names[0]}: KillMode=none"


def test_drop_ins_belong_to_the_one_unit_whatever_their_order_and_names(tmp_path: Path) -> None:
    unit, conf, other = (str(tmp_path / name) for name in ("a.service", "a.conf", "override"))
    Path(unit).write_text(SHIPPED.read_text())
    Path(conf).write_text("[Service]\nKillSignal=SIGKILL\n")
    Path(other).write_text("[Service]\nExecStart=\nExecStart=/opt/vllm/bin/vllm serve m\n")
    for names in ([unit, conf, other], [conf, unit, other]):
        told = [each.what for each in doctor.of_units(names) if each.level == "problem"]
        assert told == ["ExecStart does not run safe-vllm: /opt/vllm/bin/vllm serve m", "KillSignal=SIGKILL"]


def test_standard_input_is_read_but_once() -> None:
    with pytest.raises(Trouble, match="can be read but once"):
        unit_files.each(["-", "-"])
