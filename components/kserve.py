"""KServe, which serves models, and cert-manager, which it needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi

from components.manifest import helm_release, register
from infra.plan import kserve
from infra.plan.charts import ChartRelease

TIMEOUT_S = 300


@dataclass(frozen=True, kw_only=True)
class KServeArgs:
    """In the order of installation: cert-manager, KServe's CRDs, its controller."""

    releases: Sequence[ChartRelease]


class KServe(pulumi.ComponentResource):
    """Releases of cert-manager (unless the cluster has one), KServe's CRDs and KServe, each after the last.

    The InferenceServices belong to the workloads. They are deleted before KServe, which removes their
    finalizer; its CRDs go with their release, cert-manager's stay.
    """

    def __init__(self, name: str, args: KServeArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuform:platform:KServe", name, None, opts)
        before: list[pulumi.Resource] = []
        for release in args.releases:
            options = pulumi.ResourceOptions(parent=self, depends_on=list(before))
            before.append(helm_release(f"{name}-{release.name}", release, TIMEOUT_S, options))
            if release.name == kserve.CRDS:
                after = pulumi.ResourceOptions(parent=self, depends_on=list(before))
                before.append(_keep_crd(f"{name}-kept-crd", after))
        self.register_outputs({})


def _keep_crd(name: str, opts: pulumi.ResourceOptions) -> pulumi.Resource:
    """Let helm keep the CRD; the provider wants the spec, which is as it was, to know the kind."""
    patch = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kserve.KEPT_CRD, "annotations": {"helm.sh/resource-policy": "keep"}},
        "spec": {"group": kserve.API, "names": {"kind": kserve.KEPT_KIND}, "scope": "Cluster"},
    }
    return register(f"kubernetes:{patch['apiVersion']}:CustomResourceDefinitionPatch", name, patch, opts)
