from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.openstack import FakeCloud, serve


@pytest.fixture
def cloud() -> Iterator[FakeCloud]:
    with serve(FakeCloud()) as found:
        yield found


@pytest.fixture(autouse=True)
def no_other_cloud(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """openstacksdk also searches the working directory of its import: perhaps an earlier test's folder."""
    (tmp_path / "clouds.yaml").write_text("clouds: {}\n")
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(tmp_path / "clouds.yaml"))
