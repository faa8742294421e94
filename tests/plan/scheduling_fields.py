from __future__ import annotations

from typing import Any

from tests.components.aws_stacks import small

_IMAGE = "tensorflow/tensorflow:2.12.0-gpu"
START: dict[str, Any] = {
    "name": "e",
    "cluster": {"kind": "existing", "kubeconfig": "/k"},
    "pools": [{"name": "t4", "machine": "g2.5xlarge", "selector": {"a": "b"}}],
    "scheduling": {"packer": True, "version": "1.34.4"},
    "priorities": {"high": 1000, "low": 10},
    "namespaces": [{"name": "team", "quota": {"t4": 4}}],
    "workloads": [{"name": "pod", "kind": "pod", "pool": "t4", "image": _IMAGE, "priority": "low"}],
}
ELASTIC: dict[str, Any] = small(
    {"name": "t4", "machine": "g4dn.xlarge", "elastic": {"max": {"cpu": 40}}, "spare": 1}
)
_TEAM = {"name": "one", "namespaces": ["one"], "cohort": "lab", "quota": {"t4": 4}}
QUEUES: dict[str, Any] = {
    **{key: START[key] for key in ("name", "cluster", "pools")},
    "queues": {
        "fair_sharing": True,
        "cohorts": [{"name": "lab"}, {"name": "all"}],
        "teams": [
            {**_TEAM, "borrow": {"t4": 1}, "lend": {"t4": 1}, "preempt": {"within": "lower_priority"}},
            {"name": "two", "namespaces": ["two"], "quota": {"t4": 4}},
        ],
    },
    "workloads": [
        {"name": "pod", "namespace": "one", "kind": "pod", "pool": "t4", "image": _IMAGE, "queue": "one"}
    ],
}
_HOME = {"size": "1Gi", "storage_class": "fast"}
NOTEBOOK: dict[str, Any] = {
    **{key: START[key] for key in ("name", "cluster", "pools")},
    "workloads": [
        {"name": "n", "kind": "notebook", "editor": "vscode", "user": "a", "home": _HOME,
         "cull": {"idle_minutes": 60}, "image": "r.example/a:1"}
    ],
}  # fmt: skip
_RACK = "example.com/rack"
GANG: dict[str, Any] = {
    **QUEUES,
    "queues": {
        "topology": {"t4": [_RACK]},
        "teams": [{"name": "two", "namespaces": ["two"], "quota": {"t4": 4}}],
    },
    "workloads": [
        {
            **{
                "name": "job",
                "namespace": "two",
                "kind": "job",
                "pool": "t4",
                "image": _IMAGE,
                "queue": "two",
            },
            **{"gang": True, "topology": {"required": _RACK}},
        }
    ],
}
_HOST = "kubernetes.io/hostname"
UNUSED: dict[str, Any] = {**QUEUES, "workloads": []}

ROWS: dict[tuple[str, str], tuple[dict[str, Any], str, Any]] = {
    ("Environment", "scheduling"): (START, "scheduling", {}),
    ("Environment", "priorities"): (START, "priorities/high", 2000),
    ("Environment", "namespaces"): (START, "namespaces", []),
    ("Scheduling", "packer"): ({**START, "scheduling": {}}, "scheduling", START["scheduling"]),
    ("Scheduling", "version"): (START, "scheduling/version", "1.33.1"),
    ("Namespace", "name"): (START, "namespaces/0/name", "other"),
    ("Namespace", "quota"): (START, "namespaces/0/quota/t4", 3),
    ("PodWorkload", "priority"): (START, "workloads/0/priority", "high"),
    ("Environment", "queues"): (UNUSED, "queues", None),
    ("Queues", "fair_sharing"): (QUEUES, "queues/fair_sharing", False),
    ("Queues", "cohorts"): (QUEUES, "queues/cohorts", []),
    ("Queues", "teams"): (QUEUES, "queues/teams/1/name", "three"),
    ("Queues", "topology"): (GANG, "queues/topology/t4", ["topology.kubernetes.io/zone", _RACK]),
    ("JobWorkload", "gang"): (GANG, "workloads/0", {**GANG["workloads"][0], "gang": False, "topology": None}),
    ("JobWorkload", "topology"): (GANG, "workloads/0/topology", None),
    ("Placement", "required"): (GANG, "workloads/0/topology", {"required": _HOST}),
    ("Placement", "preferred"): (GANG, "workloads/0/topology", {"preferred": _RACK}),
    ("Cohort", "name"): (QUEUES, "queues/cohorts/1/name", "every"),
    ("Cohort", "parent"): (QUEUES, "queues/cohorts/0/parent", "all"),
    ("Team", "name"): (UNUSED, "queues/teams/0/name", "other"),
    ("Team", "namespaces"): (UNUSED, "queues/teams/0/namespaces/0", "other"),
    ("Team", "cohort"): (QUEUES, "queues/teams/0/cohort", "all"),
    ("Team", "quota"): (QUEUES, "queues/teams/0/quota/t4", 3),
    ("Team", "borrow"): (QUEUES, "queues/teams/0/borrow/t4", 2),
    ("Team", "lend"): (QUEUES, "queues/teams/0/lend/t4", 2),
    ("Team", "order"): (QUEUES, "queues/teams/0/order", "strict"),
    ("Team", "preempt"): (QUEUES, "queues/teams/0/preempt", {}),
    ("Team", "weight"): (QUEUES, "queues/teams/0/weight", 2),
    ("Preempt", "within"): (QUEUES, "queues/teams/0/preempt/within", "never"),
    ("Preempt", "reclaim"): (QUEUES, "queues/teams/0/preempt/reclaim", "any"),
    ("PodWorkload", "queue"): (QUEUES, "workloads/0/queue", None),
    ("NotebookWorkload", "editor"): (NOTEBOOK, "workloads/0/editor", "jupyterlab"),
    ("NotebookWorkload", "user"): (NOTEBOOK, "workloads/0/user", "b"),
    ("NotebookWorkload", "secret"): (NOTEBOOK, "workloads/0/secret", "s"),
    ("NotebookWorkload", "home"): (NOTEBOOK, "workloads/0/home/size", "2Gi"),
    ("NotebookWorkload", "cull"): (NOTEBOOK, "workloads/0/cull", None),
    ("Home", "size"): (NOTEBOOK, "workloads/0/home/size", "2Gi"),
    ("Home", "storage_class"): (NOTEBOOK, "workloads/0/home/storage_class", "slow"),
    ("Cull", "idle_minutes"): (NOTEBOOK, "workloads/0/cull/idle_minutes", 61),
    ("Pool", "spare"): (ELASTIC, "pools/0/spare", 2),
}
