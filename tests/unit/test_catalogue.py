"""What ``safe-vllm profiles`` tells."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from safe_vllm.commands import profiles as catalogue
from safe_vllm.data.strict_yaml import load
from safe_vllm.errors import Status, Trouble
from safe_vllm.machine.profile_files import shipped

NO_VLLM = ("no-such-vllm-command",)
MINE = "name: mine\nextends: cpu\ndescription: my own\n"


def written(directory: Path, name: str, text: str) -> str:
    path = directory / f"{name}.yaml"
    path.write_text(text)
    return str(path)


def test_the_list_tells_every_profile_also_a_broken_one_and_needs_no_vllm(tmp_path: Path) -> None:
    written(tmp_path, "mine", MINE)
    path = written(tmp_path, "broken", "name: broken\nladder: 5\n")
    listing = catalogue.listing(str(tmp_path), NO_VLLM)
    entries = {entry.name: entry for entry in listing.profiles}
    assert list(entries)[-2:] == ["broken", "mine"]
    assert (entries["mine"].description, entries["mine"].origin) == ("my own", "directory")
    assert entries["broken"].problems == (f"{path}:2: ladder: expected a list, got 5",)
    assert entries["gb200"].verified == ("triton",)
    assert listing.fits in entries


def test_the_list_marks_the_profile_for_this_machine(tmp_path: Path) -> None:
    path = written(tmp_path, "broken", "name: [\n")
    listing = catalogue.listing(str(tmp_path), NO_VLLM)
    lines = catalogue.listed(listing, "text").splitlines()
    assert [line.split()[1] for line in lines if line.startswith("* ")] == [listing.fits, "for"]
    assert f"  broken        directory  cannot be used: {path}:2:" in "\n".join(lines)
    told = json.loads(catalogue.listed(listing, "json"))
    assert (told["fits"], told["because"]) == (listing.fits, listing.because)
    assert {entry["name"] for entry in told["profiles"]} >= {"b200", "broken"}


def test_all_that_a_profile_says_is_shown_as_yaml_that_is_a_profile(tmp_path: Path) -> None:
    path = written(tmp_path, "mine", MINE)
    text = catalogue.shown("mine", str(tmp_path), "text")
    assert text.splitlines()[:2] == [f"# {path}", f"# extends {shipped() / 'cpu.yaml'}"]
    content = load(text, where="shown")
    assert isinstance(content, dict)
    assert (content["description"], content["cuda_lib_path"], "extends" in content) == ("my own", "unset", False)
    alone = written(tmp_path, "alone", text.replace("name: mine", "name: alone"))
    assert catalogue.check([alone], None) == (catalogue.Checked(alone, ()),)
    told = json.loads(catalogue.shown(path, None, "json"))
    assert (told["file"], told["extends"], told["profile"]) == (path, [str(shipped() / "cpu.yaml")], content)


def test_a_check_tells_what_is_wrong_with_each_file(tmp_path: Path) -> None:
    sound = written(tmp_path, "mine", MINE)
    wrong = written(tmp_path, "wrong", "name: wrong\nextends: mine\nfit: {}\nlimit: {}\n")
    gone = str(tmp_path / "gone.yaml")
    checked = catalogue.check([sound, wrong, gone], str(tmp_path))
    text = (
        f"{sound}: sound\n"
        f"{wrong}:3: fit: unknown key, did you mean 'fits'?\n"
        f"{wrong}:4: limit: unknown key, did you mean 'limits'?\n"
        f"{gone}: there is no such file; correct the path, or give a name; there are: "
    )
    assert catalogue.told(checked, "text").startswith(text)
    assert [len(each["problems"]) for each in json.loads(catalogue.told(checked, "json"))] == [0, 2, 1]


def test_a_check_takes_the_name_of_a_profile_too() -> None:
    [checked] = catalogue.check(["gb200"], None)
    assert (checked.file, checked.problems) == (str(shipped() / "gb200.yaml"), ())
    [unknown] = catalogue.check(["no-such-profile"], None)
    [problem] = unknown.problems
    assert problem.startswith("no profile is called 'no-such-profile'; there are: b200, ")


@pytest.mark.parametrize("text", ["name: mine\nextends: gb20\n", "name: mine\n", "name: [\n", None])
def test_a_check_ends_as_a_command_that_uses_the_profile(tmp_path: Path, text: str | None) -> None:
    path = str(tmp_path / "mine.yaml") if text is None else written(tmp_path, "mine", text)
    checked = catalogue.check([path], None)
    assert catalogue.status_of(checked) == (Status.USAGE if text is None else Status.CONFIGURATION)
    with pytest.raises(Trouble) as caught:
        catalogue.shown(path, None, "text")
    assert caught.value.status is catalogue.status_of(checked)


def test_of_several_a_mistake_in_a_file_counts_for_more_than_a_name_that_is_none(tmp_path: Path) -> None:
    wrong = written(tmp_path, "wrong", "name: wrong\n")
    ends = [catalogue.status_of(catalogue.check(names, None)) for names in (["cpu"], ["cpu", "x"], [wrong, "x"])]
    assert ends == [Status.STOPPED, Status.USAGE, Status.CONFIGURATION]
    assert [*json.loads(catalogue.told(catalogue.check([wrong], None), "json"))[0]] == ["file", "problems"]


def test_a_backend_that_no_vllm_has_is_told_with_the_nearest_one(tmp_path: Path) -> None:
    text = f"{MINE}moe_backend: flashinfer-trtllm\nladder:\n  - rung: triton\n    moe_backend: trition\n"
    [checked] = catalogue.check([written(tmp_path, "mine", text)], None)
    assert [problem.partition(": ")[2] for problem in checked.problems] == [
        "ladder.triton.moe_backend: no release of vLLM has the MoE backend trition; did you mean triton?"
    ]


def test_without_a_file_everything_that_is_found_is_checked(tmp_path: Path) -> None:
    path = written(tmp_path, "cpu", "name: other\n")
    checked = {each.file: each.problems for each in catalogue.check([], str(tmp_path))}
    assert path in checked
    assert str(shipped() / "cpu.yaml") not in checked
    assert [file for file, problems in checked.items() if problems] == [path]


@pytest.mark.parametrize("output", ["text", "json"])
def test_nothing_is_shown_of_a_profile_with_a_mistake(tmp_path: Path, output: str) -> None:
    path = written(tmp_path, "wrong", "name: wrong\n")
    with pytest.raises(Trouble, match=r"wrong\.yaml:1: the key 'description' is missing"):
        catalogue.shown(path, None, output)


@pytest.mark.parametrize("output", ["text", "json"])
def test_a_secret_in_a_profile_is_not_shown(tmp_path: Path, output: str) -> None:
    ladder = "ladder:\n  - rung: no-autotune\n    environment: {HF_TOKEN: k1k1}\n"
    path = written(tmp_path, "mine", MINE + "environment: {NGC_APIKEY: k1k1, NCCL_DEBUG: INFO}\n" + ladder)
    text = catalogue.shown(path, None, output)
    assert "k1k1" not in text
    assert "NCCL_DEBUG" in text and "INFO" in text and "***" in text
