"""A checkout whose path kwokctl cannot take: it would cut the path at the first blank."""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path

import pytest

from gpuform.embedded import alias
from gpuform.embedded.layout import Layout, Record
from gpuform.embedded.processes import KEEPER, MEMBERS, MONITOR, PROMETHEUS, SIMULATOR, scan
from gpuform.errors import InputError
from gpuform.paths import Paths
from tests.embedded.conftest import Own
from tests.monitor.site import NAMESPACE, ask, prometheus, rules
from tests.waiting import until


def layout_of(state: Path) -> Layout:
    return Layout(Paths(root=state, state=state, cache=state))


@pytest.fixture
def aliases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the links go, in place of /tmp/gpuform-<uid>."""
    folder = tmp_path / "links"
    monkeypatch.setattr(alias, "FOLDER", folder)
    return folder


@pytest.mark.unit
@pytest.mark.parametrize("name", ["plain", "with-dash_dot.1+2@3", "größe"])
def test_a_path_that_kwokctl_takes_is_told_as_it_is(tmp_path: Path, aliases: Path, name: str) -> None:
    layout = layout_of(tmp_path / name)
    assert layout.told(layout.workdir) == layout.workdir
    alias.ensure(layout.home)
    assert not aliases.exists()


@pytest.mark.unit
@pytest.mark.parametrize("name", ["sp ace", "tab\tbed", "no\N{NO-BREAK SPACE}break", "a,b", "a#b", "a%20b"])
def test_any_other_path_is_told_by_a_private_link_of_its_own(
    tmp_path: Path, aliases: Path, name: str
) -> None:
    layout, other = layout_of(tmp_path / name), layout_of(tmp_path / f"{name} 2")
    for one in (layout, other):
        one.home.mkdir(parents=True)
        alias.ensure(one.home)
    told = layout.told(layout.workdir)
    assert told.is_relative_to(aliases)
    assert told.resolve() == layout.workdir
    assert other.told(other.workdir).resolve() == other.workdir
    assert stat.S_IMODE(aliases.stat().st_mode) == 0o700
    alias.remove(layout.home)
    assert list(aliases.iterdir()) == [other.told(other.home)]
    alias.remove(other.home)
    assert not aliases.exists()


@pytest.mark.unit
def test_a_link_that_points_elsewhere_is_put_right(tmp_path: Path, aliases: Path) -> None:
    layout = layout_of(tmp_path / "sp ace")
    aliases.mkdir(mode=0o755)
    layout.told(layout.home).symlink_to(tmp_path)
    alias.ensure(layout.home)
    assert layout.told(layout.home).readlink() == layout.home
    assert stat.S_IMODE(aliases.stat().st_mode) == 0o700


@pytest.mark.unit
def test_a_folder_that_is_not_ours_is_refused(
    tmp_path: Path, aliases: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = layout_of(tmp_path / "sp ace")
    (tmp_path / "theirs").mkdir()
    aliases.symlink_to(tmp_path / "theirs")
    with pytest.raises(
        InputError, match=r"kwokctl cannot take this path, .* not a folder of this user alone"
    ):
        alias.ensure(layout.home)
    aliases.unlink()
    aliases.mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: aliases.stat().st_uid + 1)
    with pytest.raises(InputError, match="links: it is not a folder of this user alone; move the checkout"):
        alias.ensure(layout.home)
    assert list(aliases.iterdir()) == []


@pytest.mark.unit
def test_where_no_link_can_be_made_the_start_is_refused(
    tmp_path: Path, aliases: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(alias, "FOLDER", tmp_path / "file" / "links")
    with pytest.raises(InputError, match=r"links: Not a directory; move the checkout, or set GPUFORM_STATE"):
        alias.ensure(layout_of(tmp_path / "sp ace").home)


@pytest.fixture
def spaced(tmp_path: Path, toolchain) -> Own:
    """Not started yet, with a blank in the path of its state."""
    return Own(tmp_path / "sp ace" / "state", toolchain)


def measured(cluster: Own) -> None:
    """Prometheus finds its files below such a path, too."""
    cluster.plane.monitored()
    cluster.kubectl("create", "namespace", NAMESPACE)
    found = [
        prometheus(serviceAccountName="default", evaluationInterval="1s"),
        rules({"record": "a", "expr": "7"}),
    ]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": found})
    cluster.kubectl("apply", "-f", "-", input=text)
    port = Record.load(cluster.layout).ports[PROMETHEUS]
    until(lambda: list(ask(port, "a").values()) == [7], what=cluster.layout.log(MONITOR).read_text)


@pytest.mark.nightly
@pytest.mark.cluster
def test_a_control_plane_below_a_blank_starts_stays_and_goes(
    spaced: Own, aliases: Path, tmp_path: Path
) -> None:
    try:
        spaced.start(simulator=True)
        pids = spaced.pids()
        assert set(pids) == {*MEMBERS, SIMULATOR, KEEPER, MONITOR}
        status = spaced.plane.status()
        assert status.running
        assert status.ready
        spaced.kubectl("create", "configmap", "kept")
        spaced.start(simulator=True)
        assert spaced.said == []
        shutil.rmtree(aliases)  # as a sweep of /tmp does
        spaced.kill("kube-scheduler", "kwok")
        spaced.start(simulator=True)
        after = spaced.pids()
        changed = {name for name in pids if after[name] != pids[name]}
        # On a machine that is very busy the controller manager may have lost its lease, and ended, meanwhile.
        assert changed - {"kube-controller-manager"} == {"kube-scheduler", "kwok"}
        spaced.plane.stop()
        assert spaced.pids() == {}
        assert not aliases.exists()
        spaced.start(simulator=True)
        assert "configmap/kept" in spaced.kubectl("get", "configmap", "-o", "name")
        measured(spaced)
    finally:
        spaced.plane.stop(delete=True)
    assert scan(spaced.layout) == []
    assert list(tmp_path.iterdir()) == [tmp_path / "sp ace"]  # nothing at the first half of the path


@pytest.mark.nightly
@pytest.mark.cluster
def test_tools_below_a_blank_are_run_too(tmp_path: Path, toolchain) -> None:
    class Spaced:
        """The same tools, reached through a path with a blank."""

        def ensure(self, *names: str, progress) -> None:
            toolchain.ensure(*names, progress=progress)

        def path(self, name: str) -> Path:
            link = tmp_path / "my tools" / name
            link.parent.mkdir(exist_ok=True)
            if not link.is_symlink():
                link.symlink_to(toolchain.path(name))
            return link

    own = Own(tmp_path / "state", toolchain)
    plane = type(own.plane)(own.paths, Spaced())
    try:
        plane.start(simulator=False)
        assert set(own.pids()) == set(MEMBERS)
        own.kill("kwok")
        plane.start(simulator=False)
        assert set(own.pids()) == set(MEMBERS)
        for member in ("etcd", "kwok-controller"):
            assert "my tools" in str((own.layout.workdir / "bin" / member).readlink())
    finally:
        plane.stop(delete=True)
