"""The rules as a CrossGuard policy pack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pulumi_policy import (
    EnforcementLevel,
    Policy,
    PolicyPack,
    ResourceValidationArgs,
    ResourceValidationPolicy,
    Severity,
    StackValidationArgs,
    StackValidationPolicy,
)

from policies import (
    aws,
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
from policies.rule import Resource, Rule

NAME = "gpuform"
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
    """Serve every rule to the engine; a violation fails the run, or only warns if its severity is low."""
    seen: dict[str, Resource] = {}
    return PolicyPack(NAME, policies=[_policy(rule, seen) for rule in RULES])


def _policy(rule: Rule, seen: dict[str, Resource]) -> Policy:
    advisory = rule.severity == "low"
    said: dict[str, Any] = {
        "name": rule.id,
        "description": rule.title,
        "enforcement_level": EnforcementLevel.ADVISORY if advisory else EnforcementLevel.MANDATORY,
        "severity": Severity[rule.severity.upper()],
        "remediation_steps": rule.remedy,
    }
    if rule.whole:
        return StackValidationPolicy(validate=_stack(rule, seen), **said)
    return ResourceValidationPolicy(validate=_resource(rule, seen), **said)


def _resource(rule: Rule, seen: dict[str, Resource]) -> Callable[[ResourceValidationArgs, Any], None]:
    def validate(args: ResourceValidationArgs, report: Any) -> None:
        ignores = tuple(args.opts.ignore_changes)
        resource = Resource(args.resource_type, args.name, args.props, ignores)
        seen[args.urn] = resource
        if rule.concerns(resource):
            for fact in rule.check(resource, ()):
                report(f"{fact}; {rule.remedy}")

    return validate


def _stack(rule: Rule, seen: dict[str, Resource]) -> Callable[[StackValidationArgs, Any], None]:
    """Check the inputs in ``seen``, not the outputs that the engine passes.

    The outputs are empty in a preview on a cluster that does not exist yet.
    """

    def validate(args: StackValidationArgs, report: Any) -> None:
        resources = [
            seen.get(one.urn) or Resource(one.resource_type, one.name, one.props) for one in args.resources
        ]
        for resource, one in zip(resources, args.resources, strict=True):
            if rule.concerns(resource):
                for fact in rule.check(resource, resources):
                    report(f"{fact}; {rule.remedy}", one.urn)

    return validate
