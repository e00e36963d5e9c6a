"""The files in deploy/ are well-formed, agree with the command that they start, and ask for what tenure needs."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"
UNIT = DEPLOY / "systemd" / "tenure-run@.service"


def documents(name: str) -> dict[str, Any]:
    found = yaml.safe_load_all((DEPLOY / name).read_text())
    return {document["kind"]: document for document in found}


def check_command(words: list[str]) -> dict[str, Any]:
    """Parse them as the command itself would; what it makes of the options."""
    from tenure.cli.run import run

    assert words[:2] == ["tenure", "run"]
    assert words.count("--") == 1
    assert words[-1] != "--"
    context = click.Context(run, info_name="tenure run")
    given, _, _ = run.make_parser(context).parse_args(list(words[2:]))
    names = {option for parameter in run.params for option in (*parameter.opts, *parameter.secondary_opts)}
    used = [word.partition("=")[0] for word in words[2 : words.index("--")] if word.startswith("--")]
    assert used
    assert set(used) <= names, set(used) - names
    return dict(given)


def seconds(duration: str) -> float:
    assert re.fullmatch(r"\d+s", duration)
    return float(duration[:-1])


def test_every_file_is_named_in_a_table() -> None:
    tables = (DEPLOY / "README.md").read_text() + (DEPLOY / "iam" / "README.md").read_text()
    files = {path for path in DEPLOY.rglob("*") if path.is_file() and path.name != "README.md"}
    assert len(files) == 12
    assert {path.name for path in files if f"{path.name})" not in tables} == set()


def test_the_deployment_starts_what_there_is_and_gives_it_time_to_end() -> None:
    found = documents("kubernetes/tenure-run.yaml")
    assert set(found) == {"ServiceAccount", "Deployment", "PodDisruptionBudget"}
    spec = found["Deployment"]["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    given = check_command([*container["command"], *container["args"]])
    assert spec["replicas"] >= 2
    assert pod["serviceAccountName"] == found["ServiceAccount"]["metadata"]["name"]
    assert pod["terminationGracePeriodSeconds"] >= seconds(given["stop_within"]) + 10
    (mount,) = container["volumeMounts"]
    assert str(given["ready_file"]).startswith(mount["mountPath"])
    assert {each["name"] for each in container["env"]} >= {"TENURE_URL", "POD_NAME"}
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"] == labels == found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"]
    assert "readinessProbe" not in container, "an update would wait for the pods that stand by"


def test_the_service_for_the_leader_looks_for_the_ready_file() -> None:
    deployment = documents("kubernetes/tenure-run.yaml")["Deployment"]
    found = documents("kubernetes/leader-only-service.yaml")
    patch = found["Deployment"]
    assert found["Service"]["spec"]["selector"] == deployment["spec"]["selector"]["matchLabels"]
    assert patch["metadata"]["name"] == deployment["metadata"]["name"]
    (container,) = patch["spec"]["template"]["spec"]["containers"]
    (patched,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["name"] == patched["name"]
    assert f"--ready-file={container['readinessProbe']['exec']['command'][-1]}" in patched["args"]
    assert patch["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == "100%"


def test_the_unit() -> None:
    unit = configparser.ConfigParser(interpolation=None, strict=True)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(UNIT)
    service = unit["Service"]
    words = shlex.split(service["ExecStart"])
    given = check_command([Path(words[0]).name, *words[1:]])
    assert service["Type"] == "notify"
    assert service["KillMode"] == "mixed"
    assert service["Restart"] == "always"
    assert float(service["TimeoutStopSec"]) >= seconds(given["stop_within"]) + 10
    assert float(service["WatchdogSec"]) > seconds(given["lease"])
    assert str(given["ready_file"]).startswith(f"/run/{service['RuntimeDirectory']}/")
    assert words[words.index("--") + 1 :] == ["$TENURE_COMMAND"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not here; its rules are checked above")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    text = UNIT.read_text().replace("/opt/tenure/bin/tenure", sys.executable)
    (tmp_path / UNIT.name).write_text(text)
    unit = str(tmp_path / UNIT.name.replace("@", "@nightly"))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def actions(name: str) -> dict[str, set[str]]:
    """By resource, of a policy of S3."""
    policy = json.loads((DEPLOY / "iam" / name).read_text())
    assert policy["Version"] == "2012-10-17"
    found: dict[str, set[str]] = {}
    for statement in policy["Statement"]:
        assert statement["Effect"] == "Allow"
        named = statement["Action"]
        found.setdefault(statement["Resource"], set()).update([named] if isinstance(named, str) else named)
    return found


def test_policies_for_s3() -> None:
    objects, bucket = "arn:aws:s3:::BUCKET/PREFIX/*", "arn:aws:s3:::BUCKET"
    assert actions("s3.json") == {
        objects: {"s3:GetObject", "s3:PutObject", "s3:DeleteObject"},
        bucket: {"s3:ListBucket"},
    }
    assert actions("s3-read-only.json") == {objects: {"s3:GetObject"}, bucket: {"s3:ListBucket"}}
    (asked,) = actions("s3-doctor.json").values()
    assert len(asked) == 5
    assert all(action.startswith("s3:Get") for action in asked)


def test_roles_of_the_others() -> None:
    role, reading = (yaml.safe_load((DEPLOY / "iam" / name).read_text()) for name in ("gcs.yaml", "gcs-read-only.yaml"))
    needed = {f"storage.objects.{verb}" for verb in ("get", "create", "delete", "list")}
    assert set(role["includedPermissions"]) == needed
    assert set(reading["includedPermissions"]) == {"storage.objects.get", "storage.objects.list"}
    for name, verbs in (("azure.json", {"read", "write", "delete"}), ("azure-read-only.json", {"read"})):
        found = json.loads((DEPLOY / "iam" / name).read_text())
        assert {action.rpartition("/")[2] for action in found["DataActions"]} == verbs
        assert found["Actions"] == []
