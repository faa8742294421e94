"""A clouds.yaml that is wrong is told with its path, and not as a cloud that was not found."""

from __future__ import annotations

from pathlib import Path

import pytest
from openstack.config import loader

from gpuform.errors import InputError
from gpuform.openstack.cloud import connect

pytestmark = pytest.mark.unit
AUTH = "{auth_url: 'https://keystone.example.org/v3', username: ana, password: p, project_name: gpu}"


@pytest.fixture(autouse=True)
def no_other_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """openstacksdk goes on to the next file, and remembers the folder of its import: an earlier test's."""
    monkeypatch.setattr(loader, "CONFIG_FILES", [])
    monkeypatch.setattr(loader, "SECURE_FILES", [])


def refused(file: Path, cloud: str | None = "cern") -> InputError:
    with pytest.raises(InputError) as raised:
        connect(cloud)
    assert raised.value.path.startswith(str(file))
    assert raised.value.remedy
    return raised.value


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("clouds:\n  cern: {auth: [\n  x: :\n", 3, "is not YAML: "),
        ("clouds:\n\tcern: 1\n", 2, "cannot start any token"),
        ("clouds:\n  cern:\n    auth:\n      password: *s3cret\n", 4, "an alias or a tag of no meaning"),
        ("clouds:\n  cern:\n    auth:\n      password: !s3cret\n", 4, "an alias or a tag of no meaning"),
        ("clouds:\n  cern:\n    auth:\n      password: !s3cret!x\n", 4, "a tag of no meaning"),
    ],
)
def test_broken_yaml_is_told_with_its_line_and_without_its_secrets(
    no_openstack: Path, text: str, line: int, said: str
) -> None:
    file = no_openstack / "clouds.yaml"
    file.write_text(text)
    error = refused(file)
    assert error.path == f"{file}:{line}"
    assert said in error.fact
    assert "s3cret" not in str(error)


def test_broken_json_is_told_with_its_line(no_openstack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = no_openstack / "clouds.json"
    file.write_text('{"clouds":\n {"cern": }}')
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(file))
    assert refused(file).path == f"{file}:2"


def test_what_is_no_text_is_told(no_openstack: Path) -> None:
    file = no_openstack / "clouds.yaml"
    file.write_bytes(b"\xff\xfeclouds")
    assert "UTF-8" in refused(file).fact


def test_what_cannot_be_read_is_told(no_openstack: Path) -> None:
    file = no_openstack / "clouds.yaml"
    file.unlink()
    file.mkdir()
    assert "cannot be read: Is a directory" in refused(file).fact


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("clouds: {cern: null}", "clouds.cern is empty, not a mapping"),
        ("clouds: {cern: hello}", "clouds.cern is a single value, not a mapping"),
        ("clouds: {cern: {auth: null}}", "clouds.cern.auth is empty, not a mapping"),
        ("clouds: {cern: {auth: [a]}}", "clouds.cern.auth is a list, not a mapping"),
        ("clouds:", "clouds is empty, not a mapping of names to clouds"),
        ("clouds: [cern]", "clouds is a list, not a mapping of names to clouds"),
        ("- cern", "is a list, not a mapping"),
    ],
)
def test_an_entry_that_is_no_mapping_is_told(no_openstack: Path, text: str, fact: str) -> None:
    file = no_openstack / "clouds.yaml"
    file.write_text(text)
    assert refused(file).fact == fact


def test_the_only_entry_is_the_one_that_is_meant(no_openstack: Path) -> None:
    file = no_openstack / "clouds.yaml"
    file.write_text("clouds: {cern: null}")
    assert refused(file, None).fact.startswith("clouds.cern is empty")


def test_a_broken_file_of_passwords_is_told(no_openstack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (no_openstack / "clouds.yaml").write_text(
        f"clouds: {{cern: {{auth: {AUTH.replace('password: p, ', '')}}}}}"
    )
    secure = no_openstack / "secure.yaml"
    secure.write_text("clouds: {cern: {auth: {password: ]}}}")
    monkeypatch.setenv("OS_CLIENT_SECURE_FILE", str(secure))
    assert refused(secure).path == f"{secure}:1"


def test_a_broken_file_is_not_to_blame_for_the_variables(
    no_openstack: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (no_openstack / "clouds.yaml").write_text("clouds: [")
    monkeypatch.setenv("OS_AUTH_URL", "https://keystone.example.org/v3")
    monkeypatch.setenv("OS_USERNAME", "ana")
    with pytest.raises(InputError, match=r"^cluster\.cloud: .*no password"):
        connect()


@pytest.mark.parametrize(
    ("wrong", "fact"),
    [
        ("keystone.example.org:5000/v3", "it has no https:// before the host"),
        ("https:///v3", "is no address of an identity service"),
        ("http://[::1/v3", "is no address of an identity service"),
    ],
)
def test_an_auth_url_that_is_no_address_is_told(
    no_openstack: Path, monkeypatch: pytest.MonkeyPatch, wrong: str, fact: str
) -> None:
    file = no_openstack / "clouds.yaml"
    file.write_text(f"clouds: {{cern: {{auth: {AUTH.replace('https://keystone.example.org/v3', wrong)}}}}}")
    error = refused(file)
    assert error.path == f"{file}: clouds.cern.auth.auth_url"
    assert repr(wrong) in error.fact
    assert fact in error.fact
    with pytest.raises(InputError, match=r"^auth_url: "):
        connect("cern", auth={"auth_url": wrong})
    for name, value in {"AUTH_URL": wrong, "USERNAME": "ana", "PASSWORD": "p"}.items():
        monkeypatch.setenv(f"OS_{name}", value)
    file.write_text("clouds: {}")
    with pytest.raises(InputError, match=r"^OS_AUTH_URL: "):
        connect()
