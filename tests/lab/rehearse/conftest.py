"""A separate control plane for tests in which Karpenter buys: it leaves nodes and finalizers behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

from gpuform.checkout.paths import Paths
from infra.model.base.prices import PriceList
from infra.model.environment import Environment
from lab.plane import ControlPlane
from lab.rehearse.cloud.server import Cloud
from lab.rehearse.cluster import Cluster
from lab.rehearse.karpenter import karpenter_supervisor
from lab.rehearse.program import Gate
from lab.toolchain import Toolchain
from tests.conftest import Plane
from tests.lab.rehearse.market_site import KarpenterCluster


@pytest.fixture(scope="module")
def market(
    tmp_path_factory: pytest.TempPathFactory, toolchain: Toolchain
) -> Iterator[Callable[[Environment], KarpenterCluster]]:
    """Makes the site of an environment: plane, played AWS, the real Karpenter, the real gate."""
    folder = tmp_path_factory.mktemp("market")
    here = Paths.here()
    paths = Paths(root=here.root, state=folder / "state", cache=here.cache)
    plane = ControlPlane(paths, toolchain)
    with ExitStack() as stack:
        stack.callback(plane.stop, delete=True)
        plane.start()

        def open_for(env: Environment) -> KarpenterCluster:
            cluster = stack.enter_context(closing(Cluster(paths.kubeconfig, toolchain.path("kubectl"))))
            cloud = stack.enter_context(Cloud(env, PriceList(), cluster, join_s=1.0))
            site = KarpenterCluster(Plane(paths, toolchain, plane), env, cloud)
            site.install_platform(folder)
            stack.enter_context(
                karpenter_supervisor(paths, toolchain, cloud.variables, folder / "karpenter.log")
            )
            stack.enter_context(Gate(paths.kubeconfig, folder).supervisor())
            return site

        yield open_for
