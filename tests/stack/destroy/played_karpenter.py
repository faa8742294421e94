"""Karpenter's and the cloud controller's part of a destroy, played.

Real objects of the real CRDs, with the owners and finalizers that Karpenter gives them; a thread removes
each finalizer after its work, in Karpenter's order. Without the thread, the controller is dead.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from gpuform.kubernetes.cluster import Cluster
from gpuform.kubernetes.kinds import INGRESS, NODE, NODE_CLAIM, NODE_CLASS, NODE_POOL, SERVICE
from tests.conftest import Kubectl
from tests.fakes.moto import primary

LEASE = "karpenter-leader-election"
TERMINATION = "karpenter.sh/termination"
CLASS_TERMINATION = "karpenter.k8s.aws/termination"
BALANCER = "service.kubernetes.io/load-balancer-cleanup"
_EVERY_S = 0.1


@dataclass
class PlayedKarpenter:
    """Nodes of a pool, and their termination. ``ec2`` has their instances, if given."""

    kubeconfig: Path
    kubectl: Kubectl
    ec2: Any = None
    tags: Mapping[str, str] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)
    _made: int = 0

    def launch(self, pool: str, count: int, subnet: str = "") -> list[str]:
        """NodeClaims of a pool, their nodes and instances; the NodeClass gets its finalizer as well."""
        with Cluster(self.kubeconfig) as cluster:
            owner = cluster.find(NODE_POOL, "", pool)
            node_class = cluster.find(NODE_CLASS, "", pool)
            assert owner, f"no NodePool {pool}"
            assert node_class, f"no EC2NodeClass {pool}"
            if CLASS_TERMINATION not in node_class["metadata"].get("finalizers", ()):
                cluster.patch(NODE_CLASS, node_class, {"metadata": {"finalizers": [CLASS_TERMINATION]}})
        names = [f"{pool}-x{self._made + index}" for index in range(count)]
        self._made += count
        made = [one for name in names for one in (_claim(name, owner), _node(name, pool))]
        self.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(made))
        if self.ec2 is not None:
            self._instances(pool, names, subnet)
        return names

    def _instances(self, pool: str, names: list[str], subnet: str) -> None:
        tags = [
            {"Key": key, "Value": value}
            for key, value in {**self.tags, "karpenter.sh/nodepool": pool}.items()
        ]
        made = self.ec2.run_instances(
            ImageId="ami-12345678",
            MinCount=len(names),
            MaxCount=len(names),
            NetworkInterfaces=[primary(subnet)],
            TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
        )["Instances"]
        self.instances.update(zip(names, (one["InstanceId"] for one in made), strict=True))

    def lease(self) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": "karpenter-0_played", "leaseDurationSeconds": 15, "renewTime": now}
        lease = _object("coordination.k8s.io/v1", "Lease", LEASE, spec, namespace="kube-system")
        self.kubectl("apply", "-f", "-", input=yaml.safe_dump(lease))

    def release_lease(self) -> None:
        self.kubectl("delete", "lease", "-n", "kube-system", LEASE, "--ignore-not-found")

    @contextmanager
    def living(self) -> Iterator[None]:
        """The controllers work while the context lasts; as real ones, they retry after an error."""
        ends = threading.Event()
        failed: list[Exception] = []

        def work() -> None:
            with Cluster(self.kubeconfig) as cluster:
                while not ends.wait(_EVERY_S):
                    try:
                        self._round(cluster)
                        failed.clear()
                    except Exception as error:
                        failed[:] = [error]

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            ends.set()
            thread.join()
            assert not failed, failed

    def _round(self, cluster: Cluster) -> None:
        for node in cluster.list_objects(NODE, labelSelector="karpenter.sh/nodepool"):
            if _going(node):
                cluster.remove_finalizers(NODE, node, (TERMINATION,))
        nodes = {node["metadata"]["name"] for node in cluster.list_objects(NODE)}
        claims = cluster.list_objects(NODE_CLAIM)
        for claim in (one for one in claims if _going(one)):
            name = claim["metadata"]["name"]
            if name in nodes:
                cluster.delete(NODE, {"metadata": {"name": name, "uid": self._uid(cluster, name)}})
                continue
            if name in self.instances:
                self.ec2.terminate_instances(InstanceIds=[self.instances[name]])
            cluster.remove_finalizers(NODE_CLAIM, claim, (TERMINATION,))
        if not claims:
            for one in filter(_going, cluster.list_objects(NODE_CLASS)):
                cluster.remove_finalizers(NODE_CLASS, one, (CLASS_TERMINATION,))
        for kind in (SERVICE, INGRESS):
            for one in filter(_going, cluster.list_objects(kind)):
                cluster.remove_finalizers(kind, one, (BALANCER,))

    def _uid(self, cluster: Cluster, name: str) -> str:
        found = cluster.find(NODE, "", name)
        return str(found["metadata"]["uid"]) if found else ""


def _going(one: Mapping[str, Any]) -> bool:
    return "deletionTimestamp" in one["metadata"]


def _claim(name: str, pool: Mapping[str, Any]) -> dict[str, Any]:
    metadata = pool["metadata"]
    own = {"name": metadata["name"], "uid": metadata["uid"], "blockOwnerDeletion": True}
    owner = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", **own}
    label = "karpenter.sh/nodepool"
    requirement = {"key": label, "operator": "In", "values": [metadata["name"]]}
    ref = pool["spec"]["template"]["spec"]["nodeClassRef"]
    spec = {"nodeClassRef": ref, "requirements": [requirement]}
    claim = _object("karpenter.sh/v1", "NodeClaim", name, spec, labels={label: metadata["name"]})
    claim["metadata"] |= {"finalizers": [TERMINATION], "ownerReferences": [owner]}
    return claim


def _object(version: str, kind: str, name: str, spec: Any, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}


def _node(name: str, pool: str) -> dict[str, Any]:
    """Without a kubelet and kwok stages: nothing has to run on it."""
    labels = {"karpenter.sh/nodepool": pool}
    spec = {"unschedulable": True}
    return _object("v1", "Node", name, spec, finalizers=[TERMINATION], labels=labels)


def service(name: str, namespace: str = "default") -> dict[str, Any]:
    spec = {"type": "LoadBalancer", "ports": [{"port": 80}]}
    return _object("v1", "Service", name, spec, namespace=namespace, finalizers=[BALANCER])


def volume(name: str, namespace: str = "default") -> list[dict[str, Any]]:
    size, modes = {"storage": "1Gi"}, {"accessModes": ["ReadWriteOnce"]}
    asked = {**modes, "resources": {"requests": size}, "storageClassName": "", "volumeName": name}
    claim = _object("v1", "PersistentVolumeClaim", name, asked, namespace=namespace)
    disk = {"csi": {"driver": "ebs.csi.aws.com", "volumeHandle": f"vol-{name}"}, "capacity": size}
    bound = {"claimRef": {"namespace": namespace, "name": name}, "persistentVolumeReclaimPolicy": "Delete"}
    return [_object("v1", "PersistentVolume", name, {**modes, **disk, **bound}), claim]
