"""Clusters of own hosts."""

from gpuform.clouds.cloud import Cloud
from gpuform.clouds.hosts.destroy import HostsTeardown
from gpuform.clouds.hosts.drift import HostsDrift
from gpuform.clouds.hosts.preview import HostsPreview
from gpuform.stack.preflight import nothing_to_check

HOSTS = Cloud(
    preflight=nothing_to_check(
        "own hosts are checked over ssh, by another command", "gpuform hosts check {stack}"
    ),
    teardown=HostsTeardown,
    preview=HostsPreview(),
    drift=HostsDrift(),
)
