"""k3s and RKE2 take the runtime by themselves, DGX OS keeps its driver, and what does not fit is refused.

tests/bed/distributions.py plays the distributions, which write the configuration as the real ones do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pytest

from gpuform.hosts import run
from gpuform.hosts.verify import verify
from infra import facts
from tests.ansible.conftest import BedFactory
from tests.bed import Bed, Host, distributions, stack

pytestmark = [pytest.mark.hosts, pytest.mark.nightly]

PRODUCT, DRIVER = "NVIDIA A100-SXM4-40GB", stack.DRIVER
POOL = {
    "name": "dgx",
    "hosts": ["gpu-1"],
    "gpu": {"models": ["A100-SXM4-40GB"], "count": 8},
    "sharing": {"kind": "mig", "layout": {"3g.20gb": 1, "2g.10gb": 2}},
}


class Site(NamedTuple):
    bed: Bed
    host: Host
    name: str
    service: str
    cluster: Mapping[str, Any]

    def listing(self, **cluster: Any) -> dict[str, Any]:
        return stack.listing(self.bed, [POOL], **{**self.cluster, **cluster})

    def run(self, **cluster: Any) -> tuple[str, tuple[str, ...]]:
        """Message of a failure, and the changes of site.yml."""
        result = run("site.yml", self.listing(**cluster)).hosts[self.host.name]
        return "" if result.ok else result.message, result.changes

    @property
    def started(self) -> str:
        return self.host.out(f"systemctl show -P ExecMainStartTimestampMonotonic {self.service}")


CASES = [
    pytest.param(("rke2", "rke2-agent", 3, "2.1"), id="rke2"),
    pytest.param(("k3s", "k3s", 2, "1.7"), id="k3s"),
]


@pytest.fixture(scope="module", params=CASES)
def site(bed: BedFactory, request: pytest.FixtureRequest) -> Iterator[Site]:
    """A host that has joined its cluster before anything of NVIDIA is on it."""
    name, service, version, containerd = request.param
    made = bed(1)
    (host,) = made.hosts
    host.play(PRODUCT, 8)
    made.furnish_repository()
    distributions.start(host, name, service, version)
    yield Site(made, host, name, service, {"distribution": name, "runtime_version": containerd})
    made.down()


def test_a_wrong_distribution_is_refused_before_any_change(site: Site) -> None:
    message, changes = site.run(distribution="kubeadm", runtime_version="1.7")
    assert (
        f"cluster.distribution (gpuform_distribution) is kubeadm, and the host runs {site.service}" in message
    )
    assert f"declare {site.name}, or remove" in message
    assert changes == ()


def test_a_system_without_packages_is_refused_also_without_python(site: Site) -> None:
    """As Flatcar, which has none."""
    site.host.run("mv /usr/bin/python3 /srv; sed -i s/^ID=debian/ID=flatcar/ /usr/lib/os-release")
    try:
        message, changes = site.run()
        assert "runs Flatcar, which has no packages that Ansible could install; let Flatcar's" in message
        assert "use cluster.kind: existing with gpu_operator: {driver: host, toolkit: host}" in message
        assert changes == ()
    finally:
        site.host.run("mv /srv/python3 /usr/bin; sed -i s/^ID=flatcar/ID=debian/ /usr/lib/os-release")


def test_the_distribution_takes_the_runtime_and_a_second_run_changes_nothing(site: Site) -> None:
    before, config = site.started, facts.DISTRIBUTIONS[site.name].config
    message, _ = site.run()
    assert message == ""
    assert site.started != before
    assert "/usr/bin/nvidia-container-runtime" in site.host.out(f"cat {config}")
    assert site.host.run("ls /etc/containerd /usr/bin/containerd", check=False).stdout == ""
    before = site.started
    assert site.run() == ("", ())
    assert site.started == before


def test_verify_agrees(site: Site) -> None:
    verdicts = verify(site.listing(), stack="lab").verdicts
    assert [one for one in verdicts if one.verdict == "FAIL"] == []
    passed = {one.check for one in verdicts if one.verdict == "PASS"}
    assert {"distribution", "units", "runtime", "cdi", "no_gpu_without_request"} <= passed
    path = facts.DISTRIBUTIONS[site.name].config
    site.host.run(f"""cp {path} /srv/kept; sed -i "/'nvidia'/,\\$d" {path}""")
    wrong = site.listing(distribution="kubeadm", runtime_version="1.7", toolkit={"mode": "runtime"})
    try:
        found = {one.check: one.fact for one in verify(wrong).verdicts if one.verdict == "FAIL"}
        assert found["distribution"] == f"{site.service} runs; kubeadm is declared"
        if site.name == "k3s":  # with CDI, no runtime is needed
            assert "has no runtime 'nvidia'" in str(verify(site.listing()).verdicts)
    finally:
        site.host.run(f"cp /srv/kept {path}")


def test_a_template_without_the_runtimes_is_refused(site: Site) -> None:
    row = facts.DISTRIBUTIONS[site.name]
    template = f"{row.config.rpartition('/')[0]}/config{'' if site.name == 'k3s' else '-v3'}.toml.tmpl"
    site.host.write(template, "version = 2\n")
    site.host.run(f"systemctl restart {site.service}")
    before = site.started
    try:
        message, _ = site.run()
        assert f"{template} leaves out the runtimes that {site.name} finds" in message
        assert 'begin it with {{ template "base" . }}, or remove it' in message
        assert site.started == before
    finally:
        site.host.run(f"rm {template}; systemctl restart {site.service}")


# Keys that NVIDIA's scripts read (NVIDIA/deepops, roles/nvidia-dgx-firmware); the values are made up.
DGX = 'DGX_NAME="DGX Server"\nDGX_PRETTY_NAME="NVIDIA DGX Server"\nDGX_SWBUILD_VERSION="6.1.0"\n'


def test_dgx_os_keeps_its_driver_and_firewall(site: Site) -> None:
    site.host.write("/etc/dgx-release", DGX)
    theirs = {"driver": {"source": "host", "version": DRIVER}, "firewall": "host"}
    try:
        message, changes = site.run()
        assert "runs DGX OS (DGX Server), which has a driver and a fabric manager of its own" in message
        assert "declare cluster.driver: {source: host, version: " in message
        assert changes == ()
        assert "declare cluster.firewall: host" in site.run(driver=theirs["driver"])[0]
        # As NVIDIA's installer leaves it: not held, not pinned, without our rules and our blacklist.
        ours = "/etc/apt/preferences.d/*gpuform* /etc/modprobe.d/zz-gpuform-nouveau.conf"
        site.host.run("apt-mark unhold $(apt-mark showhold | grep -v container) >/dev/null")
        site.host.run(f"systemctl disable --now gpuform-firewall; rm {ours}")
        files = "ls /etc/apt/preferences.d /etc/modprobe.d"
        snapshot = f"dpkg -l | sha256sum; apt-mark showhold; {files}; nft list ruleset"
        before = site.host.out(snapshot)
        assert site.run(**theirs) == ("", ())
        assert site.host.out(snapshot) == before
        verdicts = {one.check: one.verdict for one in verify(site.listing(**theirs)).verdicts}
        assert "FAIL" not in verdicts.values()
        assert (verdicts["fabricmanager"], verdicts["driver_packages"]) == ("PASS", "SKIP")
        other = {"source": "host", "version": "580.82.07"}
        message, changes = site.run(driver=other, firewall="host")
        assert f"driver {DRIVER} runs; declare the version that runs, this role changes" in message
    finally:
        site.host.run("rm /etc/dgx-release")
