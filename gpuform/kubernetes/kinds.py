"""Kinds of Kubernetes objects, and their API paths."""

from __future__ import annotations

from dataclasses import dataclass

from infra.model.base.guard_names import KUEUE_API


@dataclass(frozen=True)
class Kind:
    """A Kubernetes kind and its API path."""

    name: str
    group: str
    plural: str

    @property
    def resource(self) -> str:
        """The name by which kubectl knows it, as ``daemonsets.apps``."""
        group = self.group.split("/")[2] if self.group.startswith("/apis/") else ""
        return f"{self.plural}.{group}" if group else self.plural

    def path(self, namespace: str = "", name: str = "") -> str:
        within = f"/namespaces/{namespace}" if namespace else ""
        return f"{self.group}{within}/{self.plural}" + (f"/{name}" if name else "")


_CORE, _KARPENTER = "/api/v1", "/apis/karpenter.sh/v1"
POD = Kind("Pod", _CORE, "pods")
NODE = Kind("Node", _CORE, "nodes")
NAMESPACE = Kind("Namespace", _CORE, "namespaces")
SERVICE = Kind("Service", _CORE, "services")
EVENT = Kind("Event", _CORE, "events")
SECRET = Kind("Secret", _CORE, "secrets")
CONFIG_MAP = Kind("ConfigMap", _CORE, "configmaps")
LIMIT_RANGE = Kind("LimitRange", _CORE, "limitranges")
RESOURCE_QUOTA = Kind("ResourceQuota", _CORE, "resourcequotas")
CLAIM = Kind("PersistentVolumeClaim", _CORE, "persistentvolumeclaims")
VOLUME = Kind("PersistentVolume", _CORE, "persistentvolumes")
INGRESS = Kind("Ingress", "/apis/networking.k8s.io/v1", "ingresses")
DEPLOYMENT = Kind("Deployment", "/apis/apps/v1", "deployments")
DAEMON_SET = Kind("DaemonSet", "/apis/apps/v1", "daemonsets")
STATEFUL_SET = Kind("StatefulSet", "/apis/apps/v1", "statefulsets")
JOB = Kind("Job", "/apis/batch/v1", "jobs")
CLAIM_TEMPLATE = Kind("ResourceClaimTemplate", "/apis/resource.k8s.io/v1", "resourceclaimtemplates")
RESOURCE_SLICE = Kind("ResourceSlice", "/apis/resource.k8s.io/v1", "resourceslices")
RESOURCE_CLAIM = Kind("ResourceClaim", "/apis/resource.k8s.io/v1", "resourceclaims")
BUDGET = Kind("PodDisruptionBudget", "/apis/policy/v1", "poddisruptionbudgets")
INFERENCE = Kind("InferenceService", "/apis/serving.kserve.io/v1beta1", "inferenceservices")
CLUSTER_POLICY = Kind("ClusterPolicy", "/apis/nvidia.com/v1", "clusterpolicies")
PROMETHEUS = Kind("Prometheus", "/apis/monitoring.coreos.com/v1", "prometheuses")
LEASE = Kind("Lease", "/apis/coordination.k8s.io/v1", "leases")
CLUSTER_QUEUE = Kind("ClusterQueue", f"/apis/{KUEUE_API}", "clusterqueues")
RESOURCE_FLAVOR = Kind("ResourceFlavor", f"/apis/{KUEUE_API}", "resourceflavors")
QUEUED = Kind("Workload", f"/apis/{KUEUE_API}", "workloads")
NODE_POOL = Kind("NodePool", _KARPENTER, "nodepools")
NODE_CLAIM = Kind("NodeClaim", _KARPENTER, "nodeclaims")
NODE_OVERLAY = Kind("NodeOverlay", "/apis/karpenter.sh/v1alpha1", "nodeoverlays")
NODE_CLASS = Kind("EC2NodeClass", "/apis/karpenter.k8s.aws/v1", "ec2nodeclasses")
WORKLOADS = {kind.name: kind for kind in (POD, DEPLOYMENT, STATEFUL_SET, JOB, INFERENCE, CLAIM_TEMPLATE)}
