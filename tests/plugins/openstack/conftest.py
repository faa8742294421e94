"""A cloud on loopback, and a clouds.yaml that names it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from gpuform.plugins.openstack import making, resource, waiting
from tests.plugins.openstack.fake import Fake
from tests.plugins.openstack.serving import serving


@pytest.fixture
def no_openstack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Neither OS_ variables nor a cloud of the caller's own; returns the folder with the clouds.yaml.

    That one is empty and not absent: openstacksdk remembers the working directory of its import as another
    place to look, and that may be an earlier test's.
    """
    (tmp_path / "clouds.yaml").write_text("clouds: {}\n")
    for name in [name for name in os.environ if name.startswith("OS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(tmp_path / "clouds.yaml"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GPUFORM_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def fake(no_openstack: Path) -> Iterator[Fake]:
    """A cloud that clouds.yaml has as ``cern``, with one template of the operator's."""
    with serving() as made:
        entry = {
            "auth": {
                "auth_url": f"{made.address}/identity/v3",
                "username": "ana",
                "password": made.password,
                "project_name": "gpu",
                "user_domain_name": "Default",
                "project_domain_name": "Default",
            },
            "region_name": "cern",
        }
        (no_openstack / "clouds.yaml").write_text(yaml.safe_dump({"clouds": {"cern": entry}}))
        made.template()
        yield made


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks follow each other at once; each takes 0.02 s of a clock that does not run on a busy machine."""
    monkeypatch.setattr(waiting, "_FIRST_S", 0.01)
    monkeypatch.setattr(waiting, "_LONGEST_S", 0.02)
    monkeypatch.setattr(waiting, "time", SimpleNamespace(monotonic=itertools.count(0, 0.02).__next__))


@pytest.fixture
def impatient(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that nothing comes of is given up after 0.3 s: fifteen looks."""
    for module in (making, resource, waiting):
        monkeypatch.setattr(module, "BEGINS_S", 0.3)
