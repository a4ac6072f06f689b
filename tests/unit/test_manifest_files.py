"""How manifests are read, and what is said of a file that is none."""

from __future__ import annotations

from pathlib import Path

import pytest
from manifests import read

from safe_vllm.commands import doctor
from safe_vllm.errors import Status, Trouble
from safe_vllm.machine import manifest_files

ROOT = Path(__file__).parents[2]
POD = "kind: Pod\nmetadata: {name: p}\nspec:\n  containers: [{name: v, image: x, command: [safe-vllm, serve]}]\n"


def refused(path: Path) -> str:
    """Return why a file cannot be checked, in one line that ends with what to do."""
    with pytest.raises(Trouble) as caught:
        doctor.of_manifests([str(path)])
    assert caught.value.status == Status.USAGE
    assert caught.value.hint
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_several_documents_and_files_are_read_with_their_comments(tmp_path: Path) -> None:
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text("# a\n%YAML 1.2\n---\na: 1\n--- # next\nb: |\n  --- no end\n---\n# nothing\n---\n\n")
    second.write_text("\ufeffc: on\r\n...\r\n---\r\n- d\r\n")
    assert read(first, second) == [{"a": 1}, {"b": "--- no end\n"}, {"c": "on"}, ["d"]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a: 1\n---\nb: [\n", "manifest.yaml:4: "),
        (b"image: {{ .Values.image }}\n", "is a template"),
        (b"\0", "is no manifest"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_place(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "manifest.yaml"
    path.write_bytes(content)
    with pytest.raises(Trouble) as caught:
        read(path)
    assert message in caught.value.message


def test_a_place_far_into_a_file_is_told_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "many.yaml"
    path.write_text("---\na: 1\n" * 500 + "---\nb: [\n")
    with pytest.raises(Trouble, match=r"many\.yaml:1003: "):
        read(path)


def test_words_count_as_kubectl_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "pod.yaml"
    words = "[yes, No, on, OFF, y, 017, 1_000, 0o17, 0b11, 0x1F, 09, '017', 12:30, 2024-01-01, 1_0.5, nope]"
    path.write_text(f"kind: Pod\na: {words}\n---\nservices: {words}\n")
    pod, compose = read(path)
    told = [True, False, True, False, True, 15, 1000, 15, 3, 31, 9, "017", "12:30", "2024-01-01", "1_0.5", "nope"]
    assert pod["a"] == told
    assert [type(each) for each in pod["a"]][:5] == [bool] * 5
    assert compose["services"][:5] == ["yes", "No", "on", "OFF", "y"]


def test_words_that_are_no_text_for_kubectl_are_told(tmp_path: Path) -> None:
    path = tmp_path / "pod.yaml"
    options = "kind: ConfigMap\nmetadata: {name: o}\ndata: {SAFE_VLLM_OBSERVE_ONLY: yes}\n---\n"
    source = "envFrom: [{configMapRef: {name: o}}], env: [{name: A, value: on}, {name: B, value: 'on'}]"
    path.write_text(options + POD.replace("image: x", f"image: x, {source}"))
    [told] = [each for each in doctor.of_manifests([str(path)]) if each.name == "manifest-values"]
    assert told.what.endswith("no text: A, SAFE_VLLM_OBSERVE_ONLY of ConfigMap/o")


def test_standard_input_is_read_but_once() -> None:
    with pytest.raises(Trouble, match="can be read but once"):
        manifest_files.each(["-", "-"])


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    hint = (
        "name a manifest or a compose file, or - for what `helm template`, `kustomize build` or `docker compose config`"
    )
    with pytest.raises(Trouble, match=f"cannot be read: no such file or directory; {hint}"):
        read(tmp_path / "absent")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is empty: there is nothing to check"),
        ("# only this\n---\n", "is empty: there is nothing to check"),
        ("null\n", "it has neither a kind nor services"),
        ("hello\n", "it has neither a kind nor services"),
        ("[1, 2]\n", "it has neither a kind nor services"),
        ("replicas: 1\nimage: x\n", "it has neither a kind nor services"),
        ('{"a": 1}', "it has neither a kind nor services"),
        ("resources: [a.yaml]\n", "is a kustomization, not a manifest; give what `kustomize build"),
        (
            "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [a.yaml]\n",
            "is a kustomization, not a manifest",
        ),
        (
            "apiVersion: v2\nname: x\nversion: 1.0.0\n",
            "is the description of a Helm chart, not a manifest; give what `helm",
        ),
        ("kind: Pod\n{{- if .Values.x }}\nspec: {}\n{{- end }}\n", "is a template"),
        ("{{/* a comment */}}\nkind: Pod\n", "is a template"),
        ('kind: Pod\nspec:\n  image: "{{ .Values.image }}"\n', "is a template"),
        ('kind: Pod\nspec:\n  image: "{{ image }}"\n', "is a template"),
        (
            "[Unit]\nDescription=x\n[Service]\nExecStart=/x\n",
            "is a systemd unit, not a manifest; check it with: safe-vllm doctor",
        ),
        ("a: &a [*a]\n", "nested too deeply"),
        (
            "a: &a [1, 2]\nb: &b [*a, *a, *a]\n"
            + "".join(
                f"c{n}: &c{n} [*{p}, *{p}, *{p}, *{p}]\n" for n, p in enumerate(["b", *(f"c{n}" for n in range(7))])
            ),
            "too many values",
        ),
        ("a: !!python/object:os.system x\n", "could not determine a constructor"),
        ("? [1]\n: 2\n", "unhashable key"),
    ],
)
def test_what_cannot_be_checked_is_refused_and_never_called_fine(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "given.yaml"
    path.write_text(content)
    assert said in refused(path)


@pytest.mark.parametrize(
    "content",
    [
        (ROOT / "deploy" / "docker" / "Dockerfile").read_text(),
        '#!/bin/sh\nset -eu\necho "a: b"\n',
        '"""A module: this one."""\nimport os\n',
        '[project]\nname = "x"\n',
    ],
)
def test_of_a_file_that_is_no_yaml_it_is_told_what_was_expected(tmp_path: Path, content: str) -> None:
    (tmp_path / "given").write_text(content)
    assert "; it looks like no manifest: name a manifest or a compose file" in refused(tmp_path / "given")


@pytest.mark.parametrize("content", [POD + "a: [\n", "services:\n  a: [\n", '{"kind": "Pod",\n', POD + "---\nb: [\n"])
def test_a_manifest_with_a_slip_is_to_be_corrected_at_its_place(tmp_path: Path, content: str) -> None:
    (tmp_path / "given").write_text(content)
    assert refused(tmp_path / "given").endswith("; correct the YAML at that place")


def test_values_for_a_chart_are_told_how_to_be_rendered(tmp_path: Path) -> None:
    (tmp_path / "values-prod.yaml").write_text("image: x\n")
    assert "helm template CHART" in refused(tmp_path / "values-prod.yaml")


def test_a_directory_stands_for_the_manifests_in_it(tmp_path: Path) -> None:
    assert doctor.of_manifests([str(ROOT / "deploy" / "kubernetes")]) == doctor.of_manifests(
        [str(path) for path in sorted((ROOT / "deploy" / "kubernetes").glob("*.yaml"))]
    )
    (tmp_path / "README.md").write_text("kind: Pod")
    assert "is a directory without manifests" in refused(tmp_path)


@pytest.mark.parametrize(
    ("marker", "command"), [("Chart.yaml", "helm template"), ("kustomization.yaml", "kustomize build")]
)
def test_a_directory_that_is_to_be_rendered_first_is_told_with_the_command(
    tmp_path: Path, marker: str, command: str
) -> None:
    (tmp_path / marker).write_text("name: x\n")
    assert f"{command} {tmp_path} | safe-vllm doctor --manifest -" in refused(tmp_path)


def test_a_compose_file_is_checked_as_one() -> None:
    findings = doctor.of_manifests([str(ROOT / "deploy" / "docker" / "compose.yaml")])
    assert {each.name.partition("-")[0] for each in findings} == {"compose"}


def test_a_document_that_is_nothing_beside_others_is_told(tmp_path: Path) -> None:
    path = tmp_path / "mixed.yaml"
    path.write_text(f"{POD}---\nreplicas: 1\n")
    [told] = [each for each in doctor.of_manifests([str(path)]) if each.name == "manifest-file"]
    assert (told.level, told.what) == ("warning", f"{path}: document 2 was not looked at: it has no kind")


@pytest.mark.parametrize("kind", ["ConfigMap", "Secret", "PrometheusRule"])
def test_a_chat_template_or_an_alert_makes_no_template_of_a_manifest(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "manifest.yaml"
    path.write_text(
        f"kind: {kind}\nmetadata: {{name: m}}\ndata:\n  t: '{{{{ message.content }}}} {{{{ .Values.x }}}}'\n"
    )
    assert read(path)


def test_json_is_read_also_with_tabs(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_text('{\n\t"kind": "List",\n\t"items": [{"kind": "Service", "metadata": {"name": "s"}}]\n}\n')
    [told] = doctor.of_manifests([str(path)])
    assert (told.level, told.what, "no container in Service/s runs" in told.why) == (
        "problem",
        "nothing in it runs vLLM",
        True,
    )


def test_what_powershell_wrote_and_what_is_no_utf_8_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes("kind: Pod\r\n".encode("utf-16"))
    (tmp_path / "b.yaml").write_bytes(b"kind: Caf\xe9\n")
    assert read(tmp_path) == [{"kind": "Pod"}, {"kind": "Caf\ufffd"}]


def test_merge_keys_are_followed_and_numbers_kept_within_bounds(tmp_path: Path) -> None:
    path = tmp_path / "compose.yaml"
    path.write_text(
        f"x: &x {{a: 1, b: 2}}\ny: &y {{c: 3, a: 9}}\nz: {{<<: [*x, *y], b: 4, n: 0x{'f' * 5000}}}\n<<: null\n"
    )
    [held] = read(path)
    assert held["z"] == {"a": 1, "c": 3, "b": 4, "n": manifest_files.LARGEST}


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000])
def test_a_name_that_no_file_can_have_is_told(name: str) -> None:
    with pytest.raises(Trouble):
        read(Path(name))


def test_a_definition_of_a_kind_may_be_as_long_as_it_likes(tmp_path: Path) -> None:
    path = tmp_path / "crd.yaml"
    path.write_text(
        "apiVersion: v1\nkind: CustomResourceDefinition\nspec:\n" + "".join(f"  a{n}: 1\n" for n in range(25000))
    )
    assert read(path) == [{"kind": "CustomResourceDefinition"}]
