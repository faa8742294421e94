"""The parts of a release that need neither helm nor a cluster."""

from __future__ import annotations

import pytest

from gpuform.plugins.handler import Change, PluginError
from gpuform.plugins.kubernetes import release_history as history
from gpuform.plugins.kubernetes.release_chart import checksum, locate
from gpuform.plugins.kubernetes.release_check import resource_names
from gpuform.plugins.kubernetes.release_diff import diff
from gpuform.plugins.kubernetes.release_helm import redact
from gpuform.plugins.kubernetes.release_history import Next, Revision
from gpuform.plugins.kubernetes.release_values import live_inputs, merged
from gpuform.plugins.properties import UNKNOWN, Secret

pytestmark = pytest.mark.unit

URN = "urn:pulumi:dev::test::kubernetes:helm.sh/v3:Release::operator"
MINE = history.owner(URN)
BASE = {"chart": "../charts/tiny", "name": "t", "namespace": "x", "checksum": "1", "timeout": 300}


def _chart(folder, ignore="", extra=None):
    (folder / "templates").mkdir(parents=True)
    (folder / "Chart.yaml").write_text("apiVersion: v2\nname: tiny\nversion: 0.1.0\n")
    (folder / "templates" / "cm.yaml").write_text("kind: ConfigMap\n")
    if ignore:
        (folder / ".helmignore").write_text(ignore)
    for name, text in (extra or {}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_a_chart_has_one_checksum_wherever_it_lies(tmp_path):
    here, there = _chart(tmp_path / "a" / "tiny"), _chart(tmp_path / "b" / "other-name")
    assert checksum(here) == checksum(there)


@pytest.mark.parametrize("name", ["templates/cm.yaml", "values.yaml", "crds/new.yaml", "Chart.yaml"])
def test_every_file_of_a_chart_counts(tmp_path, name):
    folder = _chart(tmp_path / "tiny")
    before = checksum(folder)
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("changed: true\n")
    assert checksum(folder) != before


def test_a_renamed_file_is_a_change(tmp_path):
    folder = _chart(tmp_path / "tiny")
    before = checksum(folder)
    (folder / "templates" / "cm.yaml").rename(folder / "templates" / "map.yaml")
    assert checksum(folder) != before


@pytest.mark.parametrize("name", ["notes.swp", "templates/deep.swp", ".git/HEAD", "docs/a/b.md"])
def test_what_helmignore_names_does_not_count(tmp_path, name):
    ignore = "# editors\n*.swp\n.git/\n/docs\n"
    plain = checksum(_chart(tmp_path / "a", ignore))
    assert checksum(_chart(tmp_path / "b", ignore, {name: "x"})) == plain


def test_a_relative_chart_counts_from_the_program(tmp_path):
    _chart(tmp_path / "charts" / "tiny")
    (tmp_path / "infra").mkdir()
    chart, path = locate({"chart": "../charts/tiny"}, tmp_path / "infra")
    assert path == tmp_path / "charts" / "tiny"
    assert chart.reference == str(path)


def test_a_path_without_a_chart_is_an_error_that_says_where(tmp_path):
    with pytest.raises(PluginError, match=r"chart \./nope: no chart lies at .*nope; name a folder"):
        locate({"chart": "./nope"}, tmp_path)


def test_a_name_with_a_repository_is_not_looked_for_here(tmp_path):
    _chart(tmp_path / "tiny")
    options = {"repo": "https://charts.example.invalid", "password": "hidden"}
    chart, path = locate({"chart": "tiny", "version": "1.2.3", "repositoryOpts": options}, tmp_path)
    assert path is None
    assert chart.flags() == ["--version", "1.2.3"]


@pytest.mark.parametrize(
    ("change", "expected", "replaces"),
    [
        ({}, {}, []),
        ({"chart": "/elsewhere/charts/tiny"}, {}, []),
        ({"resourceNames": {"ConfigMap/v1": ["t"]}}, {}, []),
        ({"checksum": "2"}, {"checksum": Change.UPDATE}, []),
        ({"version": "2.0.0"}, {"version": Change.ADD}, []),
        ({"name": "u"}, {"name": Change.UPDATE}, ["name"]),
        ({"namespace": UNKNOWN}, {"namespace": Change.UPDATE}, ["namespace"]),
        ({"values": {"a": {"b": 2}}}, {"values": Change.ADD}, []),
    ],
)
def test_changes_of_inputs(change, expected, replaces):
    result = diff(BASE, {**BASE, **change}, "deployed")
    assert result.changes == expected
    assert result.replaces == replaces


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({"a": 1}, {"a": 1}, {}),
        ({"a": 1}, {"a": True}, {"values.a": Change.UPDATE}),
        ({"a": {"b": 1}}, {"a": {"b": 2, "c": 3}}, {"values.a.b": Change.UPDATE, "values.a.c": Change.ADD}),
        ({"a": [1, 2]}, {"a": [1]}, {"values.a[1]": Change.DELETE}),
        ({"a": Secret("x")}, {"a": "x"}, {}),
        ({"a": Secret("x")}, {"a": Secret("y")}, {"values.a": Change.UPDATE}),
        ({"a": 1}, {"a": UNKNOWN}, {"values.a": Change.UPDATE}),
        ({}, {"nvidia.com/gpu": 1}, {'values["nvidia.com/gpu"]': Change.ADD}),
    ],
)
def test_changes_of_values_name_their_path(old, new, expected):
    assert diff({**BASE, "values": old}, {**BASE, "values": new}, "deployed").changes == expected


def test_another_chart_by_name_is_a_change_where_nothing_is_local():
    remote = {key: value for key, value in BASE.items() if key != "checksum"}
    assert diff(remote, {**remote, "chart": "other"}, "deployed").changes == {"chart": Change.UPDATE}


def test_a_release_that_failed_is_a_change():
    assert diff(BASE, BASE, "failed").changes == {"status": Change.UPDATE}


def test_values_of_files_lie_under_those_of_the_program(tmp_path):
    (tmp_path / "values.yaml").write_text("a: {b: 1, c: 1}\nd: 1\n")
    asset = {
        "4dabf18193072939515e22adb298388d": "c44067f5952c0a294b673a41bacd8c17",
        "path": str(tmp_path / "values.yaml"),
    }
    inputs = {"valueYamlFiles": [asset], "values": {"a": {"b": Secret(2)}, "e": None}}
    assert merged(inputs) == {"a": {"b": 2, "c": 1}, "d": 1}
    assert merged({**inputs, "allowNullValues": True})["e"] is None


def test_a_values_file_that_is_gone_is_named():
    asset = {"4dabf18193072939515e22adb298388d": "c44067f5952c0a294b673a41bacd8c17", "path": "gone.yaml"}
    with pytest.raises(PluginError, match=r"valueYamlFiles: gone\.yaml: FileNotFoundError"):
        merged({"valueYamlFiles": [asset]})


def test_drift_comes_back_as_values_and_stays_secret():
    old = {"values": {"password": Secret("canary")}}
    assert live_inputs(old, {"password": "canary"}) is old["values"]
    assert live_inputs(old, {"password": "other"}) == Secret({"password": "other"})
    assert live_inputs({"values": {"a": 1}}, {"a": 2}) == {"a": 2}


def test_secrets_are_taken_out_of_messages_the_longest_first():
    assert redact("got canary-long and canary", ["canary", "canary-long"]) == "got [secret] and [secret]"


def test_resource_names_are_grouped_as_the_official_provider_groups_them():
    manifest = (
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d, namespace: n}\n---\n"
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n---\n# nothing\n"
    )
    assert resource_names(manifest) == {"ConfigMap/v1": ["c"], "Deployment.apps/apps/v1": ["n/d"]}


def _history(*statuses, owner=MINE, made=True):
    return [Revision(n, status, owner, n if made else 0) for n, status in enumerate(statuses, 1)]


@pytest.mark.parametrize(
    ("revisions", "expected"),
    [
        ([], Next.INSTALL),
        (_history("pending-install"), Next.REINSTALL),
        (_history("failed"), Next.REINSTALL),
        (_history("uninstalling"), Next.REINSTALL),
        (_history("deployed"), Next.UPGRADE),
        (_history("deployed", "failed"), Next.UPGRADE),
        (_history("deployed", "pending-upgrade"), Next.REPAIR),
        (_history("superseded", "failed", "pending-rollback"), Next.REPAIR),
        (_history("deployed", owner=""), Next.FOREIGN),
        (_history("pending-install", owner="another"), Next.FOREIGN),
    ],
)
def test_what_create_does_with_what_is_there(revisions, expected):
    assert history.after_create(revisions, URN) is expected


@pytest.mark.parametrize(
    ("revisions", "expected"),
    [
        ([], Next.INSTALL),
        (_history("deployed"), Next.UPGRADE),
        (_history("failed"), Next.UPGRADE),
        (_history("deployed", "pending-upgrade"), Next.REPAIR),
        (_history("deployed", "pending-upgrade", made=False), Next.BUSY),
        (_history("pending-install"), Next.REINSTALL),
    ],
)
def test_what_update_does_with_what_is_there(revisions, expected):
    assert history.after_update(revisions) is expected


def test_the_revision_to_go_back_to_is_the_deployed_one():
    assert history.last_good(_history("superseded", "deployed", "failed")).number == 2
    assert history.last_good(_history("superseded", "superseded", "failed")).number == 2
    assert history.last_good(_history("failed")) is None


def test_labels_carry_owner_and_number():
    assert (
        history.labels(URN, _history("deployed", "failed")) == f"gpuform.io/urn={MINE},gpuform.io/revision=3"
    )
