"""A GPUCluster with its finalizer, of NVIDIA's own CRD, on the real API server."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import yaml

from gpuform.checkout.errors import Failure
from gpuform.kubernetes.cluster import Cluster
from gpuform.stack.destroy import operator
from tests.conftest import Kubectl, Plane
from tests.external import reference

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]

FINALIZER = "nvidia.com/gpucluster"
MADE = {
    "apiVersion": "nvidia.com/v1alpha1",
    "kind": "GPUCluster",
    "metadata": {"name": "gpu-cluster", "finalizers": [FINALIZER]},
    "spec": {"draDriver": {}},
}


@pytest.fixture
def held(control_plane: Plane, kubectl: Kubectl) -> Iterator[Cluster]:
    crd = str(reference("crds/gpu-operator/nvidia.com_gpuclusters.yaml"))
    kubectl("apply", "--server-side", "-f", crd)
    kubectl("wait", "--for=condition=Established", "--timeout=60s", "-f", crd)
    kubectl("apply", "--server-side", "-f", "-", input=yaml.safe_dump(MADE))
    with Cluster(control_plane.kubeconfig) as cluster:
        yield cluster
        for one in cluster.list_objects(operator.GPU_CLUSTER):
            cluster.remove_finalizers(operator.GPU_CLUSTER, one, (FINALIZER,))
    kubectl("delete", "-f", crd, "--timeout=60s")


def test_it_is_named_then_waited_for_until_the_operator_has_finished(
    held: Cluster, control_plane: Plane, kubectl: Kubectl
) -> None:
    message: list[str] = []
    with pytest.raises(Failure, match="only the running operator can delete it"):
        operator.require_finished(held, 5, message.append)
    kubectl("delete", "gpuclusters.nvidia.com/gpu-cluster", "--wait=false")
    with pytest.raises(Failure, match=rf"gpu-cluster \(finalizer {FINALIZER}\) after 1 s"):
        operator.require_finished(held, 1, message.append)

    def finish() -> None:
        with Cluster(control_plane.kubeconfig) as mine:
            for one in mine.list_objects(operator.GPU_CLUSTER):
                mine.remove_finalizers(operator.GPU_CLUSTER, one, (FINALIZER,))

    played = threading.Timer(1, finish)
    played.start()
    operator.require_finished(held, 30, message.append)
    played.join()
    assert held.list_objects(operator.GPU_CLUSTER) == []
