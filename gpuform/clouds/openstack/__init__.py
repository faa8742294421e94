"""Magnum clusters."""

from gpuform.clouds.cloud import Cloud
from gpuform.clouds.openstack.changes import OpenstackDrift, OpenstackPreview, refusals
from gpuform.clouds.openstack.destroy import MagnumTeardown
from gpuform.clouds.openstack.preflight import checks
from gpuform.clouds.openstack.preflight.project import is_in_state
from gpuform.clouds.openstack.recover import MagnumRecovery
from gpuform.stack.cluster_access import ClusterAccess
from gpuform.stack.preflight import Preflight

OPENSTACK = Cloud(
    preflight=Preflight(checks, refusals=refusals),
    teardown=MagnumTeardown,
    recovery=MagnumRecovery(),
    preview=OpenstackPreview(),
    drift=OpenstackDrift(),
    access=ClusterAccess(True, is_in_state),
)
