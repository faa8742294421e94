"""Commands in broken environments: each ends with a subject, a fact and a remedy, never with a traceback."""

from __future__ import annotations

import pwd
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from gpuform.checkout.errors import Failure
from gpuform.cli.main import app
from gpuform.clients.openstack.api import Api

pytestmark = pytest.mark.unit


def test_a_user_without_a_home_folder_is_told_to_set_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_entry(uid: int) -> Any:
        raise KeyError(uid)

    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", no_entry)
    result = CliRunner().invoke(app, ["images", "aws-dev"])
    assert result.exit_code == 2
    assert result.stderr.startswith("error: HOME: is not set, and user ")


def test_a_page_of_a_proxy_is_no_answer_of_openstack() -> None:
    def not_json() -> Any:
        raise ValueError("Expecting value")

    response = SimpleNamespace(status_code=200, json=not_json)
    nova = SimpleNamespace(request=lambda *args, **more: response)
    with pytest.raises(Failure, match=r"GET nova/flavors: is not a response from OpenStack: .* a proxy"):
        Api(SimpleNamespace(compute=nova)).get("nova", "/flavors")
