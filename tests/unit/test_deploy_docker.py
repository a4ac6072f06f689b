"""The Dockerfile and the compose file that we ship, and the commands that the documentation shows."""

from __future__ import annotations

import itertools
import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from safe_vllm.checks.manifest_pods import size
from safe_vllm.checks.unit_text import seconds
from safe_vllm.data.strict_yaml import load
from safe_vllm.plan.intent import Limits
from safe_vllm.plan.secrets import NAME

ROOT = Path(__file__).parents[2]
PLACE = ROOT / "deploy" / "docker"
TEXT = (PLACE / "Dockerfile").read_text()
DOCUMENTATION = (ROOT / "docs" / "containers.md").read_text()
STATE, CACHE = "/var/lib/safe-vllm", "/var/cache/safe-vllm"

Instruction = tuple[str, str]


def instructions(text: str) -> list[Instruction]:
    """Return the instructions of a Dockerfile with what follows each, continued lines as one."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    whole = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(name.upper(), rest.strip()) for name, _, rest in (line.partition(" ") for line in whole.splitlines())]


STEPS = instructions(TEXT)
LAST = STEPS[max(at for at, (name, _) in enumerate(STEPS) if name == "FROM") :]
"""The stage that becomes the image."""


def of(name: str, steps: list[Instruction] = LAST) -> list[str]:
    return [rest for each, rest in steps if each == name]


def variables(steps: list[Instruction] = LAST) -> dict[str, str]:
    pairs = (word.partition("=") for rest in of("ENV", steps) for word in shlex.split(rest))
    return {name: value for name, _, value in pairs}


@pytest.fixture
def service() -> dict[str, Any]:
    whole: Any = load((PLACE / "compose.yaml").read_text(), where="compose.yaml")
    (found,) = whole["services"].values()
    return dict(found)


def commands(text: str) -> list[list[str]]:
    """Return the words of each `docker run` in a document."""
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [shlex.split(line, comments=True) for line in lines if line.startswith("docker run")]


def test_p11_it_is_the_first_process_and_takes_the_words_that_vllms_image_takes() -> None:
    (entrypoint,) = of("ENTRYPOINT")
    assert json.loads(entrypoint) == ["safe-vllm", "serve"]
    assert of("CMD") == of("SHELL") == []
    assert of("STOPSIGNAL") == ["SIGTERM"]
    assert "--init" not in re.sub(r"#.*", "", TEXT)


def test_it_does_not_run_as_root_and_says_so_with_a_number() -> None:
    """Kubernetes cannot tell of a name whether it is root's."""
    user, group = of("USER")[-1].split(":")
    assert user.isdecimal()
    assert (int(user) > 0, group) == (True, "0")
    after = [name for name, _ in LAST[[name for name, _ in LAST].index("USER") :]]
    assert not {"RUN", "COPY", "ADD"} & set(after)
    assert any(f"getent passwd {user} ||" in rest for rest in of("RUN"))


def test_the_two_places_that_are_written_to_are_volumes_of_that_user() -> None:
    assert json.loads(of("VOLUME")[0]) == [STATE, CACHE]
    assert variables() == {"HOME": CACHE, "USER": "vllm", "SAFE_VLLM_STATE_DIR": STATE}
    user, group = of("USER")[-1].split(":")
    (made,) = [rest for rest in of("RUN") if rest.startswith("install -d")]
    assert made == f"install -d -o {user} -g {group} -m 0770 {STATE} {CACHE}"
    names = [name for name, _ in LAST]
    assert LAST.index(("RUN", made)) < names.index("VOLUME")  # what is made after it is lost


def test_both_stages_stand_on_the_same_image_of_vllm_at_a_version() -> None:
    arguments = dict(rest.split("=") for rest in of("ARG", STEPS))
    assert arguments["VLLM_IMAGE"] == "vllm/vllm-openai"
    assert re.fullmatch(r"v\d+\.\d+\.\d+", arguments["VLLM_TAG"])
    assert {rest.partition(" ")[0] for rest in of("FROM", STEPS)} == {"${VLLM_IMAGE}:${VLLM_TAG}"}


def test_no_step_holds_a_secret_or_fetches_from_an_address() -> None:
    named = {rest.partition("=")[0] for rest in of("ARG", STEPS)} | set(variables(STEPS))
    assert not any(NAME.fullmatch(name) for name in named)
    assert not re.search(r"https?://|git@|curl|wget", TEXT)
    assert of("ADD", STEPS) == []


def test_the_image_has_no_health_check_of_its_own_and_the_documentation_says_why() -> None:
    assert of("HEALTHCHECK") == ["NONE"]
    assert "## The health check\n\nThe image has none." in DOCUMENTATION


def test_versions_of_what_the_image_holds_are_compared() -> None:
    (install,) = [rest for rest in of("RUN") if "/wheels/" in rest]
    steps = [step.strip() for step in install.split("&&")]
    assert [step.split()[0] for step in steps[1:]] == ["uv", "uv", "test", "rm", "safe-vllm"]
    assert steps[0].endswith("uv pip freeze --system | sort >/tmp/before")
    assert not {"--upgrade", "-U", "--reinstall", "--force-reinstall"} & set(shlex.split(install))


@pytest.mark.parametrize("step", of("RUN", STEPS))
def test_every_command_is_one_that_a_shell_understands(step: str) -> None:
    words = re.sub(r"^(--\S+\s+)*", "", step)
    assert subprocess.run(["sh", "-n", "-c", words], capture_output=True).stderr == b""


def test_what_the_wheel_is_made_of_is_copied_and_not_ignored() -> None:
    copied = {word for rest in of("COPY", STEPS) for word in shlex.split(rest)[:-1]}
    project = (ROOT / "pyproject.toml").read_text()
    (readme,) = re.findall(r'^readme = "(.+)"', project, re.MULTILINE)
    (packages,) = re.findall(r'^packages = \["(\w+)/', project, re.MULTILINE)
    (forced,) = re.findall(r'force-include\]\n(\w+) = "', project)
    (license_file,) = re.findall(r'^license-files = \["(\w+)"\]', project, re.MULTILINE)
    needed = {"pyproject.toml", readme, license_file, packages, forced}
    assert copied == needed
    ignored = (PLACE / "Dockerfile.dockerignore").read_text().splitlines()
    assert ignored.index("*") < min(map(ignored.index, (f"!{name}" for name in needed)))
    assert all((ROOT / name).exists() for name in needed)


def test_compose_gives_enough_time_to_stop(service: dict[str, Any]) -> None:
    deadline = float(service["environment"]["SAFE_VLLM_STOP_TIMEOUT"])
    assert deadline == Limits().stop_timeout_s
    assert (seconds(service["stop_grace_period"]) or 0) >= deadline + 15


def test_in_compose_only_the_volumes_and_tmp_can_be_written(service: dict[str, Any]) -> None:
    assert service["read_only"] is True
    assert [each.partition(":")[2] for each in service["volumes"]] == [STATE, CACHE]
    (temporary,) = service["tmpfs"]
    assert temporary.startswith("/tmp:")
    assert "exec" in temporary.partition(":")[2].split(",")
    assert service["user"] == of("USER")[-1]
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert not {"privileged", "init", "cap_add", "entrypoint", "pid"} & set(service)


def test_compose_has_gpus_and_shared_memory(service: dict[str, Any]) -> None:
    (gpus,) = service["deploy"]["resources"]["reservations"]["devices"]
    assert gpus["capabilities"] == ["gpu"]
    assert f"--tensor-parallel-size={gpus['count']}" in service["command"]
    assert int(service["shm_size"].removesuffix("gb")) >= 1


def test_compose_waits_for_a_real_completion_and_tells_nobody_else(service: dict[str, Any]) -> None:
    port = service["environment"]["SAFE_VLLM_STATUS_ADDRESS"].partition(":")[2]
    check = service["healthcheck"]
    assert f"http://127.0.0.1:{port}/readyz" in check["test"][-1]
    assert (seconds(check["start_period"]) or 0) >= 3030  # a whole ladder
    assert [each for each in service["ports"] if each.endswith(f":{port}")] == [f"127.0.0.1:{port}:{port}"]


def test_compose_gives_up_some_day_and_holds_no_key(service: dict[str, Any]) -> None:
    assert re.fullmatch(r"on-failure:\d+", service["restart"])
    assert [value for name, value in service["environment"].items() if NAME.fullmatch(name)] == [None]


def test_compose_and_the_documentation_build_the_same_image(service: dict[str, Any]) -> None:
    tag = dict(rest.split("=") for rest in of("ARG", STEPS))["VLLM_TAG"]
    assert service["build"]["args"]["VLLM_TAG"] == tag
    assert (PLACE / service["build"]["context"]).resolve() == ROOT
    assert (ROOT / service["build"]["dockerfile"]).is_file()
    assert service["image"] == f"safe-vllm:{tag}"
    assert f"docker build -f deploy/docker/Dockerfile --build-arg VLLM_TAG={tag} -t safe-vllm:{tag} ." in DOCUMENTATION


@pytest.mark.parametrize("words", [each for each in commands(DOCUMENTATION) if "--gpus" in each])
def test_every_command_of_the_documentation_that_serves_gives_what_it_needs(words: list[str]) -> None:
    given = dict(itertools.pairwise(words))
    assert int(given["--stop-timeout"]) > Limits().stop_timeout_s
    assert (size(given["--shm-size"].replace("g", "Gi")) or 0) >= 1 << 30
    image = next(at for at, word in enumerate(words) if re.fullmatch(r"[\w-]+:v\d+\.\d+\.\d+", word))
    says_serve = words[image + 1] == "serve"
    assert says_serve == (given.get("--entrypoint") == "safe-vllm")
    assert f"state:{STATE}" in words


def test_there_are_commands_with_and_without_an_entrypoint_of_their_own() -> None:
    found = [each for each in commands(DOCUMENTATION) if "--gpus" in each]
    assert [("--entrypoint" in each) for each in found] == [False, True]


def test_every_file_is_told_of_in_the_documentation_or_belongs_to_one_that_is() -> None:
    names = {path.name for path in PLACE.iterdir()} - {"Dockerfile.dockerignore"}
    assert names == {"Dockerfile", "compose.yaml"}
    assert all(f"deploy/docker/{name}" in DOCUMENTATION for name in names)
