"""A Prometheus of others: whether it selects what the stack creates, and knows which pool a node belongs to.

prometheus-operator selects by labels of the objects and of their namespaces; without a namespace selector
only those of the Prometheus's own namespace (prometheus-operator, api/monitoring/v1, PrometheusSpec).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from gpuform.checkout.listing import abbreviate
from gpuform.clouds.existing.preflight.cluster import (
    LiveCluster,
    object_name,
)
from gpuform.kubernetes.controllers import containers, has_image
from gpuform.kubernetes.kinds import DEPLOYMENT, NAMESPACE, PROMETHEUS, SECRET, SERVICE, STATEFUL_SET
from gpuform.kubernetes.selectors import selects
from gpuform.stack.preflight.check import Check, Result
from infra.model.base import labels
from infra.model.environment import Environment
from infra.plan import sharing
from infra.plan.manifest import own_labels
from infra.plan.monitoring import NODE_LABELS, POD_LABELS, secret_namespaces
from infra.plan.prometheus_files import CONFIG_MAP

_STATE_METRICS, _ALLOWED = ("kube-state-metrics",), "--metric-labels-allowlist="
_SCRAPE = "prometheus.io/scrape"
Json = Mapping[str, Any]


def checks(env: Environment, by_hand: str) -> Iterator[Check]:
    if env.monitoring and (theirs := env.monitoring.prometheus):
        if theirs.credentials:
            name, keys = theirs.credentials
            by_name = f"{by_hand} get {SECRET.resource} -n {sharing.namespace(env)} {name}"
            yield Check("Secret of Prometheus", by_name, partial(judge_secret, name, keys))
        if space := theirs.config_namespace:
            pods = f"{by_hand} get {DEPLOYMENT.resource},{STATEFUL_SET.resource} -n {space} -o yaml"
            yield Check("Prometheus", pods, partial(judge_files, space))
            yield Check("pods in metrics", f"{by_hand} get {SERVICE.resource} -A -o yaml", judge_annotation)
        else:
            yield Check("Prometheus", f"{by_hand} get {PROMETHEUS.resource} -A -o yaml", judge_selection)
        sets = f"{by_hand} get {DEPLOYMENT.resource} -A -o yaml"
        yield Check("labels of nodes in metrics", sets, judge_state_metrics)


def judge_secret(name: str, keys: tuple[str, ...], cluster: LiveCluster) -> Result:
    """SKIP without it: the first update makes its namespaces, and what needs it waits."""
    spaces = secret_namespaces(cluster.env)
    found = {space: (cluster.find(SECRET, space, name) or {}).get("data") or {} for space in spaces}
    if lacking := [space for space in spaces if set(keys) - set(found[space])]:
        fact = f"{name} with {' and '.join(keys)} is not in {', '.join(lacking)}, so queries from there fail"
        return Result("SKIP", fact, "create it, once the namespaces are there")
    return Result("PASS", f"{name} is in {', '.join(spaces)}")


def judge_files(namespace: str, cluster: LiveCluster) -> Result:
    """Its owner mounts the ConfigMap once the first update has made it."""
    if cluster.find(NAMESPACE, "", namespace) is None:
        return Result("FAIL", f"namespace {namespace} is not there", "name that of Prometheus's own pods")
    found = [item for kind in (DEPLOYMENT, STATEFUL_SET) for item in cluster.list_objects(kind)]
    names = [
        object_name(item) for item in found if item["metadata"]["namespace"] == namespace and _mounts(item)
    ]
    if names:
        return Result("PASS", f"{abbreviate(names)} mounts ConfigMap {CONFIG_MAP}")
    fact = (
        f"nothing in namespace {namespace} mounts ConfigMap {CONFIG_MAP}, so nothing reads rules and targets"
    )
    return Result("SKIP", fact, "mount it after the update: docs/howto/monitoring.md")


def _mounts(controller: Json) -> bool:
    volumes = controller["spec"]["template"]["spec"].get("volumes") or ()
    return any((volume.get("configMap") or {}).get("name") == CONFIG_MAP for volume in volumes)


def judge_annotation(cluster: LiveCluster) -> Result:
    """The chart ``prometheus`` gives series without a node, as of pods that wait, the target's node."""
    for item in cluster.list_objects(SERVICE):
        tags, notes = (item["metadata"].get(key) or {} for key in ("labels", "annotations"))
        if tags.get(labels.APP_NAME) in _STATE_METRICS and notes.get(_SCRAPE) == "true":
            fact = (
                f"{object_name(item)} is scraped by its annotation too, so each request of a pod counts twice"
            )
            return Result("FAIL", fact, "set kube-state-metrics.prometheusScrape: false in its chart")
    return Result("PASS", "kube-state-metrics is scraped by the stack's configuration alone")


def judge_selection(cluster: LiveCluster) -> Result:
    found = list(cluster.list_objects(PROMETHEUS))
    monitoring = cluster.env.monitoring
    assert monitoring is not None
    if not found:
        fact = "none of prometheus-operator is there, so nothing reads monitors and rules"
        is_elsewhere = monitoring.prometheus is not None and monitoring.prometheus.url is not None
        fix = "make sure that an agent reads them and that the CRDs of prometheus-operator are there"
        return Result("SKIP" if is_elsewhere else "FAIL", fact, fix)
    refusals = {object_name(item): _refusal(cluster.env, item) for item in found}
    if chosen := [name for name, refusal in refusals.items() if not refusal]:
        return Result("PASS", f"{abbreviate(chosen)} selects the monitors and rules of the stack")
    name, refusal = next(iter(refusals.items()))
    return Result("FAIL", f"{name} {refusal}", "correct monitoring.prometheus.labels, or its selectors")


def _refusal(env: Environment, item: Json) -> str:
    """Why a Prometheus does not select the stack's objects; empty if it does."""
    assert env.monitoring is not None
    tags, namespace, spec = env.monitoring.selected_by, sharing.namespace(env), item.get("spec") or {}
    of_namespace = {**own_labels(env), labels.NAMESPACE_NAME: namespace}
    for kind in ("rule", "serviceMonitor"):
        selector, spaces = spec.get(f"{kind}Selector"), spec.get(f"{kind}NamespaceSelector")
        if not selects(selector, tags):
            return f"selects by {kind}Selector {selector or 'nothing'}, and not the labels {dict(tags)}"
        if spaces is None and item["metadata"].get("namespace") != namespace:
            return f"has no {kind}NamespaceSelector, and so selects nothing in namespace {namespace}"
        if spaces is not None and not selects(spaces, of_namespace):
            return f"does not select namespace {namespace} by {kind}NamespaceSelector {spaces}"
    return ""


def judge_state_metrics(cluster: LiveCluster) -> Result:
    """The rules know a node's pool from the metric kube_node_labels, which has only allowed labels."""
    found = [item for item in cluster.list_objects(DEPLOYMENT) if has_image(item, _STATE_METRICS)]
    if not found:
        fact = "no Deployment of kube-state-metrics is there, and the rules need its metrics"
        return Result("SKIP", fact, "check that another program exports them")
    arguments = [
        str(text).removeprefix(_ALLOWED)
        for item in found
        for container in containers(item)
        for text in container.get("args") or ()
        if str(text).startswith(_ALLOWED)
    ]
    needed = {"nodes": NODE_LABELS} | ({"pods": POD_LABELS} if cluster.env.queues else {})
    for kind, names in needed.items():
        allowed = ",".join(text.partition(f"{kind}=[")[2].partition("]")[0] for text in arguments).split(",")
        missing = [label for label in names if label not in allowed]
        if missing and "*" not in allowed:
            fact = f"{object_name(found[0])} exports no label {missing[0]} of {kind}, which the rules need"
            whole = ",".join(f"{key}=[{','.join(values)}]" for key, values in needed.items())
            return Result("FAIL", fact, f"add {_ALLOWED}{whole} to its arguments")
    return Result("PASS", f"{object_name(found[0])} exports the labels of nodes")
