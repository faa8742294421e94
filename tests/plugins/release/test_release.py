"""Releases on a real API server with the real helm."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from gpuform.plugins.handler import Change, InitFailed, PluginError
from gpuform.plugins.properties import UNKNOWN, Secret

pytestmark = pytest.mark.cluster


def test_install_no_change_upgrade_uninstall(releases):
    outputs = releases.create(values={"text": "one"})
    assert releases.text() == "one"
    assert outputs["status"] == {
        "appVersion": "1.0",
        "chart": "tiny",
        "name": "t",
        "namespace": releases.namespace,
        "revision": 1,
        "status": "deployed",
        "version": "0.1.0",
    }
    assert outputs["resourceNames"] == {"ConfigMap/v1": ["t-cm"]}
    assert releases.diff(values={"text": "one"}) == {}
    assert releases.diff(values={"text": "two"}) == {"values.text": Change.UPDATE}
    releases.update(values={"text": "two"})
    assert releases.text() == "two"
    releases.update()
    assert releases.text() == "default"  # no values are the chart's own, not the last ones
    assert [status for _, status in releases.revisions()] == ["superseded", "superseded", "deployed"]
    for _ in range(2):  # gone already is fine
        releases.ask("delete", releases.id, releases.inputs, releases.outputs)
    assert releases.revisions() == []
    assert releases.ask("read", releases.id, releases.inputs, releases.outputs) is None


@pytest.mark.nightly
def test_a_changed_file_of_the_chart_is_a_change_and_its_place_is_none(releases, tmp_path):
    releases.create()
    moved = releases.chart.rename(tmp_path / "moved")
    assert releases.diff(chart=str(moved)) == {}
    (moved / "templates" / "cm.yaml").write_text(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: t-cm}\ndata: {text: new}\n"
    )
    assert releases.diff(chart=str(moved)) == {"checksum": Change.UPDATE}
    releases.update(chart=str(moved))
    assert releases.text() == "new"


def test_an_upgrade_that_fails_is_rolled_back_and_says_what_is_not_ready(releases):
    releases.create(values={"text": "good"}, atomic=True)
    wanted = (
        r"upgrade failed, rolled back to revision 1: UPGRADE FAILED: .*Deployment t-stuck: 0 of 1 replicas"
    )
    with pytest.raises(PluginError, match=wanted) as failure:
        releases.update(values={"text": "bad", "stuck": True}, atomic=True)
    assert "pod t-stuck-" in str(failure.value)
    assert releases.text() == "good"
    assert releases.revisions()[-1] == (3, "deployed")
    assert releases.kubectl("get", "deployment", "-n", releases.namespace, "-o", "name") == ""
    releases.update(values={"text": "better"}, atomic=True)
    assert releases.text() == "better"


@pytest.mark.nightly
def test_an_upgrade_that_is_not_atomic_stays_and_is_kept_by_the_engine(releases):
    releases.create(values={"text": "good"})
    with pytest.raises(InitFailed, match="was upgraded, but did not become ready") as failure:
        releases.update(values={"text": "bad", "stuck": True})
    assert failure.value.properties["status"]["status"] == "failed"
    releases.update(values={"text": "good"})
    assert releases.revisions()[-1] == (3, "deployed")


@pytest.mark.nightly
def test_an_install_that_fails_stays_unless_it_is_atomic(releases):
    with pytest.raises(InitFailed, match="Deployment t-stuck: 0 of 1 replicas") as failure:
        releases.create(values={"stuck": True})
    assert failure.value.id == releases.id
    assert failure.value.properties["status"]["status"] == "failed"
    releases.ask("delete", releases.id, {"timeout": 10}, {})
    with pytest.raises(PluginError, match="not installed, and removed again"):
        releases.create(values={"stuck": True}, atomic=True)
    assert releases.revisions() == []


@pytest.mark.nightly
def test_a_release_of_somebody_else_is_refused_with_the_way_to_import_it(releases):
    helm, home = os.environ["GPUFORM_HELM"], releases.chart.parent / "config"
    home.write_text(releases.kubeconfig)
    where = ["-n", releases.namespace, "--kubeconfig", str(home)]
    subprocess.run([helm, "install", "t", str(releases.chart), *where], check=True, capture_output=True)
    wanted = rf"{releases.id} exists already \(revision 1, deployed\).*pulumi import kubernetes:helm\.sh/v3"
    with pytest.raises(PluginError, match=wanted):
        releases.create()
    assert releases.revisions() == [(1, "deployed")]
    found = releases.ask("read", releases.id, {}, {})
    assert found.inputs == {
        "chart": "tiny",
        "version": "0.1.0",
        "name": "t",
        "namespace": releases.namespace,
    }


def test_drift_is_read_and_shown(releases):
    releases.create(values={"text": "ours"})
    place = ["-n", releases.namespace, "--kubeconfig", str(releases.chart.parent / "config")]
    Path(place[-1]).write_text(releases.kubeconfig)
    command = [
        os.environ["GPUFORM_HELM"],
        "upgrade",
        "t",
        str(releases.chart),
        "--set",
        "text=theirs",
        *place,
    ]
    subprocess.run(command, check=True, capture_output=True)
    found = releases.ask("read", releases.id, releases.inputs, releases.outputs)
    assert found.inputs["values"] == {"text": "theirs"}
    assert found.properties["status"]["revision"] == 2
    releases.inputs, releases.outputs = found.inputs, found.properties
    assert releases.diff(values={"text": "ours"}) == {"values.text": Change.UPDATE}


@pytest.mark.nightly
def test_read_without_drift_changes_nothing(releases):
    releases.create(values={"text": Secret("canary")})
    found = releases.ask("read", releases.id, releases.inputs, releases.outputs)
    assert found.inputs == releases.inputs
    assert found.properties == releases.outputs


def test_a_secret_value_is_in_no_file_no_argument_and_no_message(releases, tmp_path, monkeypatch):
    """helm is replaced by a script that notes its arguments and environment, then runs the real one."""
    notes, wrapper = tmp_path / "notes", tmp_path / "helm"
    wrapper.write_text(
        f'#!/bin/sh\nprintf "%s " "$@" >>{notes}\nenv >>{notes}\nexec {os.environ["GPUFORM_HELM"]} "$@"\n'
    )
    wrapper.chmod(0o755)
    monkeypatch.setenv("GPUFORM_HELM", str(wrapper))
    outputs = releases.create(values={"text": Secret("canary-4711")}, atomic=True)
    assert releases.text() == "canary-4711"
    assert outputs["values"] == {"text": Secret("canary-4711")}
    assert isinstance(outputs["__inputs"], Secret)
    bad = {"text": Secret("canary-4711"), "stuck": True}
    with pytest.raises(PluginError) as failure:
        releases.update(values=bad, atomic=True)
    shown = [str(failure.value), notes.read_text(), *releases.log.lines]
    files = [item for item in (tmp_path / "state").rglob("*") if item.is_file()]
    assert "canary" not in "".join([*shown, *(item.read_text(errors="replace") for item in files)])
    assert "install t" in notes.read_text()
    assert list((tmp_path / "state" / "helm" / "runs").iterdir()) == []


@pytest.mark.nightly
def test_a_preview_needs_no_cluster(releases):
    releases.kubeconfig = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:1", releases.kubeconfig)
    inputs = releases.checked(values={"text": UNKNOWN})
    assert "resourceNames" not in inputs
    id, outputs = releases.ask("create", inputs, preview=True)
    assert (id, outputs["status"]) == ("", UNKNOWN)
    with pytest.raises(PluginError, match="unreachable"):
        releases.create()


@pytest.mark.nightly
def test_what_helm_says_against_a_chart_is_a_failure_of_check(releases):
    (releases.chart / "templates" / "bad.yaml").write_text("{{ .Values.nothing.here }}\n")
    answer = releases.ask("check", {}, {"chart": str(releases.chart), "name": "t"})
    assert answer.failures[0][0] == "chart"
    assert "nil pointer evaluating interface {}.here" in answer.failures[0][1]
    assert releases.ask("check", {}, {"name": "t"}).failures[0][0] == "chart"


@pytest.mark.nightly
def test_a_name_is_made_up_once(releases):
    first = releases.ask("check", {}, {"chart": str(releases.chart)}, random_seed=b"1").inputs
    assert re.fullmatch(r"t-[0-9a-f]{8}", first["name"])
    again = releases.ask("check", first, {"chart": str(releases.chart)}, random_seed=b"2").inputs
    assert again["name"] == first["name"]
    assert again["timeout"] == 300


@pytest.mark.nightly
def test_state_can_be_written_as_json(releases):
    outputs = releases.create(values={"text": "plain", "count": 3})
    del outputs["__inputs"]
    assert json.loads(json.dumps(outputs))["values"]["count"] == 3
