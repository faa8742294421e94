"""Kueue: its release, flavors of pools, cohorts, and a queue for each team.

Pods with a queue are held back until Kueue admits them; it then adds the flavor's node labels and
tolerations, so they run in the pool of the quota that they use. Kueue acts on namespaces of teams only: its
webhooks for pods, Deployments and Jobs select them by name, so nothing else in the cluster waits for it.

Priorities need no object of their own: Kueue takes the pods' PriorityClass (pkg/util/priority/priority.go).
CPU, memory, huge pages and adapters are not limited by teams; a node's room for them is the scheduler's.
"""

from __future__ import annotations

from infra import versions
from infra.model.base import labels
from infra.model.base.fields import short_digest
from infra.model.base.guard_names import KUEUE_API, KUEUE_RELEASE
from infra.model.base.namespaces import KUEUE
from infra.model.clusters import EmbeddedCluster
from infra.model.environment import Environment
from infra.model.placement import queue_limits
from infra.model.placement.queue_limits import Limit, Limits
from infra.model.pool import allocatable
from infra.model.pool.pool import Pool
from infra.model.workload.queues import Queues, Team
from infra.plan import gpu_operator, serving, sharing
from infra.plan.charts import ChartRelease, Values, plan_release
from infra.plan.manifest import Manifest, label_in, manifest, own_labels

REPLICAS = 2  # while none runs, no pod can be created in the namespaces of teams
IN_ORDER = {"strict": "StrictFIFO", "best_effort": "BestEffortFIFO"}
PREEMPTS = {"never": "Never", "lower_priority": "LowerPriority", "any": "Any"}
FRAMEWORKS = (
    *("batch/job", "deployment", "jobset.x-k8s.io/jobset", "kubeflow.org/mpijob", "kubeflow.org/pytorchjob"),
    *("leaderworkerset.x-k8s.io/leaderworkerset", "pod", "ray.io/raycluster", "ray.io/rayjob"),
    *("ray.io/rayservice", "statefulset", "trainer.kubeflow.org/trainjob"),
)
"""What may have a queue, also if it is not the stack's; Kueue leaves out kinds that the cluster lacks."""

CONCURRENCY = {
    **{"Job.batch": 5, "Pod": 5, "Workload.kueue.x-k8s.io": 10},
    **{"LocalQueue.kueue.x-k8s.io": 5, "ClusterQueue.kueue.x-k8s.io": 5},
}
"""Objects that are handled at the same time; the chart's values."""


def not_counted(env: Environment) -> tuple[str, ...]:
    """Prefixes of resources without quota; any other resource that no quota names is refused."""
    adapters = (labels.EFA, *((labels.RDMA_PREFIX,) if any(pool.rdma for pool in env.pools) else ()))
    return ("cpu", "memory", "ephemeral-storage", "hugepages-", *adapters)


def release(env: Environment) -> ChartRelease | None:
    """Kueue's release, CRDs included; None without queues, or if the cluster has it.

    The published chart on every kind of cluster. Offline and on the embedded cluster, the program's host
    replaces published charts by folders of this machine (GPUFORM_CHARTS), with the same values.
    """
    if env.queues is None or not env.installs("kueue"):
        return None
    chart, chart_values = f"{versions.KUEUE_REPOSITORY}/kueue", values(env, env.queues)
    return plan_release(env, chart, None, versions.KUEUE, (KUEUE, KUEUE_RELEASE), chart_values)


def values(env: Environment, queues: Queues) -> Values:
    """Replicas, the configuration and the published image: the chart itself names a staging registry."""
    replicas = 1 if isinstance(env.cluster, EmbeddedCluster) else REPLICAS
    image = {"repository": "registry.k8s.io/kueue/kueue", "tag": f"v{versions.KUEUE}"}
    image["pullPolicy"] = "IfNotPresent"
    return {
        "controllerManager": {
            "replicas": replicas,
            "podDisruptionBudget": {"enabled": replicas > 1},
            "manager": {"image": image},
            "tolerations": gpu_operator.system_tolerations(env),
        },
        "managerConfig": {"controllerManagerConfigYaml": sharing.to_yaml(configuration(env, queues))},
    }


def configuration(env: Environment, queues: Queues) -> Manifest:
    """Kueue's Configuration, limited to the teams' namespaces and to GPUs; the rest are its defaults.

    A pod in a team's namespace without a queue is left alone: with manageJobsWithoutQueueName, Kueue would
    stop jobs that ran before it was installed. The policy ``gpu-workload-queued`` finds those of the stack.
    """
    namespaces = sorted(space for team in queues.teams for space in team.namespaces)
    resources: Manifest = {"excludeResourcePrefixes": list(not_counted(env))}
    classes = sorted({name for pool in flavored_pools(env) for name in allocatable.claimable(pool)})
    if classes:
        resources["deviceClassMappings"] = [{"name": name, "deviceClassNames": [name]} for name in classes]
    config: Manifest = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "metrics": {"enableClusterQueueResources": True},
        "controller": {"groupKindConcurrency": dict(CONCURRENCY)},
        "waitForPodsReady": {"timeout": f"{_start_minutes(env)}m"},
        "managedJobsNamespaceSelector": _namespace_selector(namespaces),
        "integrations": {"frameworks": list(FRAMEWORKS)},
        "resources": resources,
    }
    if queues.fair_sharing:
        strategies = ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]
        config["fairSharing"] = {"preemptionStrategies": strategies}
    return config


def _start_minutes(env: Environment) -> int:
    """Longest time in which an admitted pod may be ready, with a new node, its operands and a model.

    Kueue stops what is not ready by then, and admits it again later; after 30 minutes by default
    (apis/config/v1beta2/defaults.go), when a node of an elastic pool may still be getting its driver.
    """
    has_elastic = any(pool.elastic for pool in flavored_pools(env))
    default = serving.IMAGE_MINUTES + serving.OPERANDS_MINUTES + serving.MODEL_MINUTES
    declared = [getattr(work, "start_minutes", None) or 0 for work in env.workloads if work.queue]
    return max(default + serving.NODE_MINUTES * has_elastic, *declared, 0)


def _namespace_selector(namespaces: list[str]) -> Manifest:
    return {"matchExpressions": [label_in(labels.NAMESPACE_NAME, namespaces)]}


def flavored_pools(env: Environment) -> list[Pool]:
    """Pools that a team's quota names; each is a flavor."""
    teams = env.queues.teams if env.queues else ()
    return [pool for pool in env.pools if any(pool.name in team.quota for team in teams)]


def manifests(env: Environment) -> tuple[Manifest, ...]:
    """Topologies, flavors, cohorts, and the queues of each namespace; the teams' queues come last."""
    if env.queues is None:
        return ()
    teams = env.queues.teams
    return (
        *(_topology(env, pool) for pool in flavored_pools(env) if _levels(env, pool)),
        *(_flavor(env, pool) for pool in flavored_pools(env)),
        *(
            _object(env, "Cohort", cohort.name, {"parentName": cohort.parent} if cohort.parent else {})
            for cohort in env.queues.cohorts
        ),
        *(
            _object(env, "LocalQueue", team.name, {"clusterQueue": team.name}, namespace)
            for team in teams
            for namespace in team.namespaces
        ),
        *(_queue(env, team, queue_limits.limits_of(env.pools, team)) for team in teams),
    )


def _object(env: Environment, kind: str, name: str, spec: Manifest, namespace: str | None = None) -> Manifest:
    metadata = {"name": name, "labels": own_labels(env), **({"namespace": namespace} if namespace else {})}
    return manifest(kind, metadata, KUEUE_API, spec=spec)


def _flavor(env: Environment, pool: Pool) -> Manifest:
    """Where admitted pods run: the pool's nodes, with tolerations of their taints."""
    spec: Manifest = {
        "nodeLabels": {labels.POOL: pool.name},
        "tolerations": sharing.pod_tolerations(env, [pool]),
    }
    if _levels(env, pool):
        spec["topologyName"] = flavor_name(env, pool)
    return _object(env, "ResourceFlavor", flavor_name(env, pool), spec)


def _levels(env: Environment, pool: Pool) -> tuple[str, ...]:
    """Levels of the pool's topology; empty without one."""
    levels = env.queues.topology.get(pool.name) if env.queues else None
    return () if levels is None else (*levels, labels.HOSTNAME)


def flavor_name(env: Environment, pool: Pool) -> str:
    """The pool's name; with a topology, a name that changes with the content.

    Kueue then lets neither the flavor nor its topology change, and keeps both while a queue names the flavor
    (CEL rules of their CRDs): another one is created, the queues are changed, and the old one is deleted.
    """
    levels = _levels(env, pool)
    content = sharing.to_yaml([list(levels), sharing.pod_tolerations(env, [pool])])
    return f"{pool.name}-{short_digest(content)}" if levels else pool.name


def _topology(env: Environment, pool: Pool) -> Manifest:
    """With nodes as the last level, Kueue admits a job only if each of its pods has a node with room."""
    levels = [{"nodeLabel": level} for level in _levels(env, pool)]
    return _object(env, "Topology", flavor_name(env, pool), {"levels": levels})


def _queue(env: Environment, team: Team, limits: Limits) -> Manifest:
    spec: Manifest = {
        "namespaceSelector": _namespace_selector(sorted(team.namespaces)),
        "queueingStrategy": IN_ORDER[team.order],
        "preemption": {
            "withinClusterQueue": PREEMPTS[team.preempt.within],
            "reclaimWithinCohort": PREEMPTS[team.preempt.reclaim],
        },
        "resourceGroups": [
            {
                "coveredResources": list(resources),
                "flavors": [
                    {
                        "name": flavor_name(env, env.pool(pool)),
                        "resources": [_quota(name, limits[pool].get(name)) for name in resources],
                    }
                    for pool in pools
                ],
            }
            for pools, resources in queue_limits.resource_groups(limits)
        ],
    }
    if team.cohort:
        spec["cohortName"] = team.cohort
    if team.weight is not None:
        spec["fairSharing"] = {"weight": str(team.weight)}
    return _object(env, "ClusterQueue", team.name, spec)


def _quota(name: str, limit: Limit | None) -> Manifest:
    """The quota of one resource of a flavor; 0 if the pool does not offer it."""
    quota: Manifest = {"name": name, "nominalQuota": str(limit.nominal if limit else 0)}
    if limit and limit.borrow is not None:
        quota["borrowingLimit"] = str(limit.borrow)
    if limit and limit.lend is not None:
        quota["lendingLimit"] = str(limit.lend)
    return quota
