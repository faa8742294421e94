"""The Magnum cluster, and its template where the stack has one of its own."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi_openstack import containerinfra

from infra.model.environment import Environment
from infra.plan import magnum, magnum_guards

KUBECONFIG = "raw_config"
"""The kubeconfig in the provider's map of that name (its documentation of the cluster resource)."""


@dataclass(frozen=True, kw_only=True)
class MagnumClusterArgs:
    """Whose cluster; ``template`` is the id of the template, None where the stack makes its own."""

    environment: Environment
    template: pulumi.Output[str] | None


class MagnumCluster(pulumi.ComponentResource):
    """A control plane and the default workers; its node groups are components of their own.

    Its kubeconfig holds a client certificate of an administrator, which Magnum signed, so it is a secret.
    Magnum's clusters may share a name, and then nothing finds one by it: a replacement deletes the old first.
    """

    cluster_id: pulumi.Output[str]
    kubeconfig: pulumi.Output[str]
    provider: kubernetes.Provider

    def __init__(
        self, name: str, args: MagnumClusterArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Register the template, if it is ours, and the cluster."""
        super().__init__("gpuform:openstack:MagnumCluster", name, None, opts)
        self._name, self._env = name, args.environment
        self._child = pulumi.ResourceOptions(parent=self)
        self._cluster = self._made(self._template() if args.template is None else args.template)
        self.cluster_id = self._cluster.id
        self.kubeconfig = pulumi.Output.secret(self._cluster.kubeconfig[KUBECONFIG])
        self.provider = kubernetes.Provider(
            f"{name}-kubernetes",
            kubeconfig=self.kubeconfig,
            enable_config_map_mutable=True,
            # A kubeconfig may come anew to the same cluster; with the cluster, everything in it is another.
            cluster_identifier=self.cluster_id,
            opts=self._child,
        )
        self.register_outputs({"cluster_id": self.cluster_id, "kubeconfig": self.kubeconfig})

    def _template(self) -> pulumi.Output[str]:
        """Id of our own template."""
        own = magnum.template(self._env)
        assert own is not None  # else its id was given
        # Its name follows from its content: a change makes another one, and deletes this one at the end, when
        # no cluster has it any more.
        opts = pulumi.ResourceOptions(parent=self, replace_on_changes=["name"])
        return containerinfra.ClusterTemplate(f"{self._name}-template", **own, opts=opts).id

    def _made(self, template: pulumi.Output[str]) -> containerinfra.Cluster:
        """The cluster.

        Labels are ignored, for Magnum and its template write theirs beside ours, and the provider would
        replace the cluster for each; the timeout, for it is the creation's. What we want to replace a cluster
        for, once its guard lets it, triggers that itself, and a replacement has the labels as declared.
        """
        minutes = f"{magnum.wait_minutes(self._env)}m"
        return containerinfra.Cluster(
            f"{self._name}-cluster",
            cluster_template_id=template,
            # The provider compares it with where the cluster is, so that its own region may be written down.
            region=magnum.cluster_of(self._env).region,
            **magnum.cluster(self._env),
            opts=pulumi.ResourceOptions(
                parent=self,
                ignore_changes=["labels", "createTimeout"],
                replacement_trigger=magnum_guards.of_cluster(self._env).trigger,
                replace_on_changes=[] if magnum.upgrades(self._env) else ["clusterTemplateId"],
                delete_before_replace=True,
                custom_timeouts=pulumi.CustomTimeouts(create=minutes, update=minutes, delete=minutes),
            ),
        )
