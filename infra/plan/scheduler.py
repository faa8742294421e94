"""The second scheduler, which packs GPU nodes one after another: configuration, rights, pods.

EKS does not allow its scheduler to be configured, and that of a shared cluster should not be changed for one
tenant, so pods that request GPUs name this one. Two schedulers do not know each other's decisions until pods
are bound; they do not conflict, because the GPU taint keeps all other pods off these nodes.

On the embedded control plane the scheduler is a process beside it, with the same configuration and account;
there is no Deployment.
"""

from __future__ import annotations

from infra import versions
from infra.model.aws.cluster import AwsCluster
from infra.model.base import labels
from infra.model.base.namespaces import SCHEDULER
from infra.model.clusters import EmbeddedCluster
from infra.model.environment import Environment
from infra.model.openstack.cluster import OpenstackCluster
from infra.model.pool import allocatable
from infra.plan import sharing
from infra.plan.manifest import CONFINED, Manifest, manifest, rbac_rule
from infra.plan.program import Program

CONFIG = "config.yaml"
FOLDER = "/etc/gpuform"
PORT = 10259  # kube-scheduler's default
REPLICAS = 2  # one active, one standby: losing a node must not stop the scheduling of its pods
GPU_WEIGHT = 100
"""Of 102: CPU and memory decide only between nodes with equally allocated GPUs, and for pods with claimed
GPUs, which this version's scheduler does not score."""


def configuration(env: Environment) -> Manifest:
    """KubeSchedulerConfiguration with one profile.

    MostAllocated scores a GPU resource only if the pod requests it, so each may have full weight. What works
    against packing and that no pod has requested is off: balance of CPU and memory, image locality, default
    spreading. What pods ask for themselves (affinity, topology spread, taints to avoid) keeps its weight,
    which is more than that of packing.
    """
    resources = [{"name": name, "weight": GPU_WEIGHT} for name in gpu_resources(env)]
    resources += [{"name": name, "weight": 1} for name in ("cpu", "memory")]
    fit = {"scoringStrategy": {"type": "MostAllocated", "resources": resources}}
    spread = {"defaultConstraints": [], "defaultingType": "List"}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        # The default is 50 requests per second, and each pod takes one.
        "clientConnection": {"qps": 200, "burst": 400},
        "leaderElection": {"leaderElect": True, "resourceName": SCHEDULER, "resourceNamespace": SCHEDULER},
        # By default some nodes of a large cluster are not scored, perhaps the fullest.
        "percentageOfNodesToScore": 100,
        "profiles": [
            {
                "schedulerName": SCHEDULER,
                "plugins": {
                    "score": {
                        "disabled": [{"name": "NodeResourcesBalancedAllocation"}, {"name": "ImageLocality"}]
                    }
                },
                "pluginConfig": [
                    {"name": "NodeResourcesFit", "args": fit},
                    {"name": "PodTopologySpread", "args": spread},
                ],
            }
        ],
    }


def gpu_resources(env: Environment) -> tuple[str, ...]:
    """Every extended resource that a pool offers, sorted."""
    return tuple(sorted({name for pool in env.pools for name in allocatable.gpu_resources(pool)}))


def manifests(env: Environment) -> tuple[Manifest, ...]:
    """The scheduler's objects, in creation order; empty if the environment does not pack pods."""
    if not env.uses_packer:
        return ()
    program = Program(env, SCHEDULER, SCHEDULER)
    config = program.config_map({CONFIG: sharing.to_yaml(configuration(env))})
    name = config["metadata"]["name"]
    config["metadata"] = program.metadata(name, SCHEDULER)
    manifests = (program.account(), *_bindings(program), config)
    if isinstance(env.cluster, EmbeddedCluster):
        return manifests
    return (*manifests, program.deployment(REPLICAS, _pod(program, name)), _disruption_budget(program))


def version(env: Environment) -> str:
    """The scheduler's version; its minor version is the cluster's."""
    assert env.scheduling is not None
    if isinstance(env.cluster, AwsCluster | OpenstackCluster) and env.scheduling.version is None:
        return versions.KUBE_SCHEDULER[env.cluster.version]
    return env.scheduling.version or versions.KUBERNETES


def _bindings(program: Program) -> tuple[Manifest, ...]:
    """The rights of the cluster's own scheduler, DRA included if the cluster has it, and a lease of its own.

    That scheduler's role names only its own lease; the API server checks access to the metrics.
    """
    lease = rbac_rule("coordination.k8s.io", "leases", "create", "get", "list", "patch", "update", "watch")
    return (
        program.binding(f"{SCHEDULER}-scheduler", role="system:kube-scheduler"),
        program.binding(f"{SCHEDULER}-volumes", role="system:volume-scheduler"),
        program.binding(
            f"{SCHEDULER}-authentication", "kube-system", role="extension-apiserver-authentication-reader"
        ),
        *program.role_and_binding(f"{SCHEDULER}-lease", [lease], SCHEDULER),
    )


def _disruption_budget(program: Program) -> Manifest:
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": {labels.APP_NAME: SCHEDULER}}}
    return manifest("PodDisruptionBudget", program.metadata(), "policy/v1", spec=spec)


def _pod(program: Program, config_map: str) -> Manifest:
    """Placed by the cluster's scheduler: it cannot place itself."""
    spread = {
        "labelSelector": {"matchLabels": {labels.APP_NAME: SCHEDULER}},
        "maxSkew": 1,
        "topologyKey": labels.HOSTNAME,
        "whenUnsatisfiable": "ScheduleAnyway",
    }
    volume = {"name": "config", "configMap": {"name": config_map}}
    return program.pod(_container(program.env), volume, topologySpreadConstraints=[spread])


def _container(env: Environment) -> Manifest:
    return {
        "name": SCHEDULER,
        "image": env.image(f"{versions.KUBE_SCHEDULER_IMAGE}:v{version(env)}"),
        "command": ["kube-scheduler", f"--config={FOLDER}/{CONFIG}"],
        "livenessProbe": {**_probe("/livez"), "initialDelaySeconds": 15},
        "readinessProbe": _probe("/readyz"),
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": CONFINED,
        "volumeMounts": [{"name": "config", "mountPath": FOLDER, "readOnly": True}],
    }


def _probe(path: str) -> Manifest:
    return {"httpGet": {"path": path, "port": PORT, "scheme": "HTTPS"}}
