"""The rules as a CrossGuard policy pack."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from pulumi_policy import (
    EnforcementLevel,
    Policy,
    PolicyConfigSchema,
    PolicyPack,
    ResourceValidationArgs,
    ResourceValidationPolicy,
    Severity,
    StackValidationArgs,
    StackValidationPolicy,
)

from policies import (
    aws,
    contract,
    eks,
    exposure,
    guarded,
    health,
    iam,
    kubernetes,
    node_pools,
    openstack,
    operator,
    queues,
    scaling,
    sharing,
)
from policies.pods import namespace
from policies.rule import Resource, Rule

NAME = "gpuform"
EXEMPT = "namespaces"
"""Key of a rule's configuration: namespaces that are exempt from it."""
RULES: tuple[Rule, ...] = (
    *node_pools.RULES,
    *sharing.RULES,
    *operator.RULES,
    *guarded.RULES,
    *aws.RULES,
    *exposure.RULES,
    *iam.RULES,
    *eks.RULES,
    *openstack.RULES,
    *health.RULES,
    *kubernetes.RULES,
    *queues.RULES,
    *scaling.RULES,
)


def pack() -> PolicyPack:
    """Serve the rules to the engine; a violation fails the run, or only warns if its severity is low."""
    resources: dict[str, Resource] = {}
    of_nodes = bool(os.environ.get(contract.ONLY))
    judged = [rule for rule in RULES if not (of_nodes and rule.reads_platform)]
    return PolicyPack(NAME, policies=[_policy(rule, resources) for rule in judged])


def _policy(rule: Rule, resources: dict[str, Resource]) -> Policy:
    advisory = rule.severity == "low"
    arguments: dict[str, Any] = {
        "name": rule.id,
        "description": rule.title,
        "enforcement_level": EnforcementLevel.ADVISORY if advisory else EnforcementLevel.MANDATORY,
        "severity": Severity[rule.severity.upper()],
        "remediation_steps": rule.remedy,
    }
    if rule.exempts:
        names = {"type": "array", "items": {"type": "string"}}
        arguments["config_schema"] = PolicyConfigSchema({EXEMPT: names})
    if rule.whole_stack:
        return StackValidationPolicy(validate=_stack(rule, resources), **arguments)
    return ResourceValidationPolicy(validate=validated(rule, resources), **arguments)


def validated(rule: Rule, inputs: dict[str, Resource]) -> Callable[[ResourceValidationArgs, Any], None]:
    """What CrossGuard calls for each resource; ``inputs`` keeps those of all, by URN."""

    def validate(args: ResourceValidationArgs, report: Any) -> None:
        ignores = tuple(args.opts.ignore_changes)
        resource = Resource(args.resource_type, args.name, args.props, ignores)
        inputs[args.urn] = resource
        exempt = args.get_config().get(EXEMPT, ()) if rule.exempts else ()
        if rule.concerns(resource) and namespace(resource) not in exempt:
            for fact in rule.check(resource, ()):
                report(f"{fact}; {rule.remedy}")

    return validate


def _stack(rule: Rule, inputs: dict[str, Resource]) -> Callable[[StackValidationArgs, Any], None]:
    """Check the inputs in ``inputs``, not the outputs that the engine passes.

    The outputs are empty in a preview on a cluster that does not exist yet.
    """

    def validate(args: StackValidationArgs, report: Any) -> None:
        resources = [
            inputs.get(arg.urn) or Resource(arg.resource_type, arg.name, arg.props) for arg in args.resources
        ]
        for resource, arg in zip(resources, args.resources, strict=True):
            if rule.concerns(resource):
                for fact in rule.check(resource, resources):
                    report(f"{fact}; {rule.remedy}", arg.urn)

    return validate
