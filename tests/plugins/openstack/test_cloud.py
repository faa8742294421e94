"""Where credentials come from, and what is said when they do not, or when the cloud is too old."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpuform.errors import Failure, InputError
from gpuform.openstack.cloud import Refused, answers, connect
from tests.plugins.openstack.fake import Fake

pytestmark = pytest.mark.tools


def test_nothing_is_asked_before_a_client_is_used(fake: Fake) -> None:
    cloud = connect("cern")
    assert fake.requests == []
    assert [one.name for one in cloud.magnum.cluster_templates.list()] == ["kubernetes-1.30.2-2"]
    assert fake.logins == 1


def test_the_variables_of_an_openrc_file_do_as_well(
    fake: Fake, no_openstack: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (no_openstack / "clouds.yaml").write_text("clouds: {}\n")
    for name, value in {
        "OS_AUTH_URL": f"{fake.address}/identity/v3",
        "OS_USERNAME": "ana",
        "OS_PASSWORD": fake.password,
        "OS_PROJECT_NAME": "gpu",
        "OS_USER_DOMAIN_NAME": "Default",
        "OS_PROJECT_DOMAIN_NAME": "Default",
        "OS_REGION_NAME": "cern",
    }.items():
        monkeypatch.setenv(name, value)
    cloud = connect()
    assert (cloud.region, cloud.newest_api()) == ("cern", "1.14")


def test_an_application_credential_needs_no_type(fake: Fake, no_openstack: Path) -> None:
    auth = {
        "auth_url": f"{fake.address}/identity/v3",
        "application_credential_id": "app",
        "application_credential_secret": fake.password,
    }
    (no_openstack / "clouds.yaml").write_text("clouds: {}\n")
    assert connect(auth=auth).newest_api() == "1.14"
    asked = next(body for method, path, body in fake.requests if path.endswith("/auth/tokens"))
    assert asked["auth"]["identity"]["methods"] == ["application_credential"]


@pytest.mark.usefixtures("no_openstack")
@pytest.mark.parametrize(("cloud", "path"), [(None, "cluster.cloud"), ("cern", "cluster.cloud (cern)")])
def test_missing_credentials_name_both_places(cloud: str | None, path: str) -> None:
    with pytest.raises(InputError) as raised:
        connect(cloud)
    assert raised.value.path == path
    assert "clouds.yaml" in raised.value.remedy
    assert "OS_AUTH_URL" in raised.value.remedy
    assert "OS_APPLICATION_CREDENTIAL_ID" in raised.value.remedy


def test_a_password_that_is_missing_is_told_before_anything_is_asked(fake: Fake, no_openstack: Path) -> None:
    """keystoneauth would end in an exception of no kind at the first question."""
    auth = {"auth_url": f"{fake.address}/identity/v3", "username": "ana", "project_name": "gpu"}
    (no_openstack / "clouds.yaml").write_text(json.dumps({"clouds": {"cern": {"auth": auth}}}))
    with pytest.raises(InputError, match=r"cluster\.cloud \(cern\).*no password.*clouds\.yaml.*OS_PASSWORD"):
        connect("cern")


@pytest.mark.usefixtures("fake")
def test_an_unknown_entry_is_named() -> None:
    with pytest.raises(InputError, match=r"cluster\.cloud \(cren\).*cren.*clouds\.yaml"):
        connect("cren")


def test_refused_credentials_are_told_apart_from_missing_ones(fake: Fake) -> None:
    fake.password = "another"
    cloud = connect("cern")
    with pytest.raises(Failure, match="the credentials are refused") as raised, answers("list"):
        cloud.magnum.clusters.list()
    assert "openstack token issue" in raised.value.remedy


def test_a_magnum_that_is_too_old_is_told_with_both_versions(fake: Fake) -> None:
    fake.newest = "1.8"
    cloud = connect("cern")
    with pytest.raises(Failure, match=r"goes up to 1\.8, .* need 1\.10"):
        cloud.require_api()
    with pytest.raises(Failure, match=r"goes up to 1\.8, .* need 1\.10"), answers("list"):
        cloud.magnum.clusters.list()


@pytest.mark.parametrize("newest", ["1.10", "1.14"])
def test_a_magnum_of_our_version_or_later_will_do(fake: Fake, newest: str) -> None:
    fake.newest = newest
    assert connect("cern").require_api() == newest


def test_an_error_keeps_its_status_and_the_words_of_the_service(fake: Fake) -> None:
    cloud = connect("cern")
    with pytest.raises(Refused) as raised, answers("openstack coe cluster show none"):
        cloud.magnum.clusters.get("none")
    assert (raised.value.status, raised.value.said) == (404, "Cluster none could not be found.")
    assert str(raised.value).startswith("openstack coe cluster show none: HTTP 404: Cluster none")


def test_a_cloud_that_does_not_answer(fake: Fake) -> None:
    auth: dict[str, Any] = {"auth_url": "http://127.0.0.1:9/identity/v3"}
    with pytest.raises(Failure, match="no answer"), answers("list"):
        connect("cern", auth=auth).magnum.clusters.list()


@pytest.mark.usefixtures("fake")
def test_a_region_that_clouds_yaml_does_not_have() -> None:
    with pytest.raises(InputError, match=r"cluster\.region: other: .*Valid choices are cern"):
        connect("cern", "other")


def test_a_region_without_magnum(fake: Fake, no_openstack: Path) -> None:
    file = no_openstack / "clouds.yaml"
    file.write_text(file.read_text().replace("region_name: cern", "interface: public"))
    with pytest.raises(Failure, match="region not found") as raised, answers("list"):
        connect("cern", "other").magnum.clusters.list()
    assert "openstack catalog list" in raised.value.remedy
