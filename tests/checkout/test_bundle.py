"""What a wheel has beside the package: all that git tracks, but for what only a checkout needs."""

from __future__ import annotations

import re
import tomllib
from fnmatch import fnmatch

import pytest

from tests.docs.pages import ROOT, files

pytestmark = pytest.mark.unit
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
BUNDLED = PROJECT["gpuform"]["bundled"]
OF_A_CHECKOUT = (
    r"\.(?!github/(actions|workflows)/)|bench/|docs/(?!examples/|runbooks/)|examples/|gpuform/|tests/|[A-Z]+(\.md)?$|(Docker|Make)file$"
    r"|Pulumi(Plugin)?\.yaml$|(requirements\.lock|pyproject\.toml)$|setup\.py$"
)
"""Paths that are not bundled: no command reads them outside of a checkout."""


def test_each_file_is_bundled_or_is_of_a_checkout_alone() -> None:
    for path in files():
        bundled = any(path == name or path.startswith(f"{name}/") for name in BUNDLED)
        assert bundled != bool(re.match(OF_A_CHECKOUT, path)), path
    assert all((ROOT / name).exists() for name in BUNDLED)


def test_the_data_of_the_package_is_declared() -> None:
    declared = {
        f"{package.replace('.', '/')}/{pattern}"
        for package, patterns in PROJECT["setuptools"]["package-data"].items()
        for pattern in patterns
    }
    data = [path for path in files() if path.startswith("gpuform/") and not path.endswith(".py")]
    assert not [path for path in data if not any(fnmatch(path, pattern) for pattern in declared)]
