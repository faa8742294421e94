"""The Magnum cluster, and its template if the stack makes its own."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi_openstack import containerinfra

from infra.model.environment import Environment
from infra.plan import magnum, magnum_guards

KUBECONFIG = "raw_config"
"""Key in the provider's output ``kubeconfig``, a map (documentation of its cluster resource)."""


@dataclass(frozen=True, kw_only=True)
class MagnumClusterArgs:
    """The environment; ``template`` is the id of the template, None if the stack makes its own.

    ``protect``: the engine refuses to delete or replace the cluster.
    """

    environment: Environment
    template: pulumi.Output[str] | None
    protect: bool


class MagnumCluster(pulumi.ComponentResource):
    """A control plane and the default workers; see NodeGroups for its node groups.

    Its kubeconfig holds an administrator's client certificate, signed by Magnum, so it is a secret. Magnum's
    clusters may share a name, and then lookup by name fails: a replacement deletes the old cluster first.
    """

    cluster_id: pulumi.Output[str]
    kubeconfig: pulumi.Output[str]
    provider: kubernetes.Provider

    def __init__(
        self, name: str, args: MagnumClusterArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpuform:openstack:MagnumCluster", name, None, opts)
        self._name, self._env, self._args = name, args.environment, args
        self._child = pulumi.ResourceOptions(parent=self)
        self._cluster = self._made(self._template() if args.template is None else args.template)
        self.cluster_id = self._cluster.id
        self.kubeconfig = pulumi.Output.secret(self._cluster.kubeconfig[KUBECONFIG])
        self.provider = kubernetes.Provider(
            f"{name}-kubernetes",
            kubeconfig=self.kubeconfig,
            enable_config_map_mutable=True,
            # The same cluster may get a new kubeconfig; only another cluster replaces the objects in it.
            cluster_identifier=self.cluster_id,
            opts=self._child,
        )
        self.register_outputs({"cluster_id": self.cluster_id, "kubeconfig": self.kubeconfig})

    def _template(self) -> pulumi.Output[str]:
        own = magnum.template(self._env)
        assert own is not None  # else its id was given
        # Its name depends on its content: a change creates another one, and deletes this one at the end,
        # when no cluster uses it any more.
        opts = pulumi.ResourceOptions(parent=self, replace_on_changes=["name"])
        return containerinfra.ClusterTemplate(f"{self._name}-template", **own, opts=opts).id

    def _made(self, template: pulumi.Output[str]) -> containerinfra.Cluster:
        """The cluster.

        Changes of labels are ignored, because Magnum and its template add theirs to ours, and the provider
        would replace the cluster for each; changes of the timeout, because it applies to creation only.
        Declared changes that need a replacement change the trigger, once the guard allows them; a replacement
        has the labels as declared.
        """
        minutes = f"{magnum.wait_minutes(self._env)}m"
        return containerinfra.Cluster(
            f"{self._name}-cluster",
            cluster_template_id=template,
            # The provider compares it with the cluster's region: declaring its own one is not a change.
            region=magnum.cluster_of(self._env).region,
            **magnum.cluster(self._env),
            opts=pulumi.ResourceOptions(
                parent=self,
                ignore_changes=["labels", "createTimeout"],
                replacement_trigger=magnum_guards.of_cluster(self._env).trigger,
                replace_on_changes=[] if magnum.upgrades(self._env) else ["clusterTemplateId"],
                delete_before_replace=True,
                protect=self._args.protect,
                custom_timeouts=pulumi.CustomTimeouts(create=minutes, update=minutes, delete=minutes),
            ),
        )
