"""Rules over namespaces, pods and secrets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from policies import contract
from policies.pods import containers, namespace, template
from policies.rule import Resource, Rule, get, items, mapping, text

CONFIG = "policy-config.json"
"""Configuration of the pack, in the project's folder."""
_ENFORCE = "pod-security.kubernetes.io/enforce"
_VISIBLE = "NVIDIA_VISIBLE_DEVICES"
_SECRET_WORDS = ("password", "passwd", "secret", "token", "apikey", "api_key", "private_key", "credential")


def _pod_security(resource: Resource, _: Sequence[Resource]) -> Iterator[str]:
    name = get(resource.props, "metadata", "name")
    level = get(resource.props, "metadata", "labels", _ENFORCE)
    if name in contract.OPERATOR_NAMESPACES:
        if level != "privileged":
            yield f"{_ENFORCE} is {level or 'missing'}: the operator's pods need privileged"
    elif level not in ("baseline", "restricted"):
        yield f"{_ENFORCE} is {level or 'missing'}: tenants' pods may be privileged"


def _privileged(resource: Resource, _: Sequence[Resource]) -> Iterator[str]:
    if namespace(resource) in contract.SYSTEM_NAMESPACES:
        return
    spec = mapping(template(resource), "spec")
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(key):
            yield f"has {key}"
    for volume in items(spec, "volumes"):
        path = get(volume, "hostPath", "path")
        if path is not None:
            yield f"mounts {path} of the host"
    for container in containers(resource):
        if get(container, "securityContext", "privileged"):
            yield f"container {get(container, 'name')} is privileged: it sees every GPU of the node"


def _visible_devices(resource: Resource, _: Sequence[Resource]) -> Iterator[str]:
    if namespace(resource) in contract.SYSTEM_NAMESPACES:
        return
    for container in containers(resource):
        for variable in items(container, "env"):
            if get(variable, "name") == _VISIBLE and get(variable, "value") not in ("void", "none", ""):
                yield f"container {get(container, 'name')} sets {_VISIBLE} and bypasses the scheduler"


def _plain_secrets(resource: Resource, _: Sequence[Resource]) -> Iterator[str]:
    if resource.type == contract.RELEASE:
        for path in _secrets(mapping(resource.props, "values"), ()):
            yield f"values.{'.'.join(path)} is a secret in plain text, in the state and in the release"
        return
    for key in sorted(mapping(resource.props, "data")):
        if _secret_word(key):
            yield f"data.{key} of a ConfigMap is a secret in plain text"
    for container in containers(resource):
        for variable in items(container, "env"):
            if _secret_word(text(variable, "name")) and get(variable, "value"):
                yield f"container {get(container, 'name')} has {get(variable, 'name')} in plain text"


def _secrets(values: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for key in sorted(values):
        value = values[key]
        if isinstance(value, str) and value and _secret_word(key):
            yield (*path, key)
        elif isinstance(value, Mapping):
            yield from _secrets(value, (*path, key))


def _secret_word(key: str) -> bool:
    """Whether a key has a secret as its value, not a reference (``existingSecret``, ``configSecret``)."""
    word = key.lower().replace("-", "_")
    return word.endswith(_SECRET_WORDS) and not word.startswith(("existing", "use", "create", "configsecret"))


RULES = (
    Rule(
        "namespace-security",
        "Every namespace sets a Pod Security level, and only an operator's allows privileged pods.",
        "high",
        f"label it {_ENFORCE}: baseline or restricted (gpu-operator: privileged), or exempt it in {CONFIG}",
        (contract.NAMESPACE,),
        _pod_security,
        exempts=True,
    ),
    Rule(
        "tenant-not-privileged",
        "No tenant's pod is privileged or in the host's namespaces.",
        "critical",
        "request the GPU as a resource; what needs the host belongs in gpu-operator",
        contract.PODS,
        _privileged,
        exempts=True,
    ),
    Rule(
        "tenant-visible-devices",
        f"No tenant's pod sets {_VISIBLE}.",
        "critical",
        "request the resource that the pool offers, and leave the variable to the runtime",
        contract.PODS,
        _visible_devices,
    ),
    Rule(
        "secrets-not-plain",
        "No secret is in plain text in a pod, a ConfigMap or a release's values.",
        "critical",
        "use a Secret and a reference to it; a stack file has references only for notebooks, models and "
        "monitoring, so create any other pod with a secret by a manifest of your own",
        (*contract.PODS, contract.CONFIG_MAP, contract.RELEASE),
        _plain_secrets,
    ),
)
