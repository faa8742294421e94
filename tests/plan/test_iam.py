"""IAM documents, statement by statement against upstream's CloudFormation file; and the plan's templates."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from infra.plan import health, iam, notebooks, pool_keeper, readiness_gate
from infra.plan.program import SOURCE
from infra.plan.templates import fill, with_let
from tests.external import reference

pytestmark = pytest.mark.unit


Statement = dict[str, Any]

LEFT_OUT = {
    "AllowZonalShiftStatusReadOnly": "settings.enableZonalShift is off, so the controller asks for no shift"
}
"""Upstream's statements that ours lack, and why."""

# One more difference, in the queue's policy: upstream's first statement has no Sid, ours is AllowEvents.

PLACES = {
    "AWS::Partition": "{partition}",
    "AWS::Region": "{region}",
    "AWS::AccountId": "{account}",
    "AWS::URLSuffix": "amazonaws.com",
    "ClusterName": "{cluster}",
    "KarpenterNodeRole.Arn": "{node_role_arn}",
    "KarpenterInterruptionQueue.Arn": "{queue_arn}",
}


class Loader(yaml.SafeLoader):
    """CloudFormation's short forms: !Sub with our places filled in, !GetAtt and !Ref as the place itself."""


def _sub(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> str:
    text = str(loader.construct_scalar(node))
    for name, place in PLACES.items():
        text = text.replace("${" + name + "}", place)
    assert "${" not in text
    return text


def _get_att(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> str:
    return PLACES[str(loader.construct_scalar(node))]


Loader.add_constructor("!Sub", _sub)
Loader.add_constructor("!GetAtt", _get_att)
Loader.add_constructor("!Ref", lambda loader, node: loader.construct_scalar(node))


@pytest.fixture(scope="module")
def template() -> dict[str, Any]:
    text = reference("karpenter/cloudformation.yaml").read_text()
    resources: dict[str, Any] = yaml.load(text, Loader)["Resources"]  # a SafeLoader
    return resources


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def compared(statement: Statement) -> Statement:
    """A statement for comparison: IAM ignores order and one-element lists; booleans become text."""
    found = {}
    for key, value in statement.items():
        if key in ("Action", "Resource"):
            found[key] = sorted(as_list(value))
        elif key == "Condition":
            found[key] = {
                operator: {name: sorted(json.dumps(item).strip('"') for item in as_list(values))
                           for name, values in block.items()}
                for operator, block in value.items()
            }  # fmt: skip
        else:
            found[key] = value
    return found


def upstreams(template: dict[str, Any]) -> dict[str, Statement]:
    documents = [
        json.loads(resource["Properties"]["PolicyDocument"])
        for resource in template.values()
        if resource["Type"] == "AWS::IAM::ManagedPolicy"
    ]
    assert len(documents) == 6
    return {statement["Sid"]: statement for document in documents for statement in document["Statement"]}


def ours() -> dict[str, Statement]:
    documents = iam.controller_policies().values()
    statements = [statement for document in documents for statement in document["Statement"]]
    by_sid = {statement["Sid"]: statement for statement in statements}
    assert len(by_sid) == len(statements)
    return by_sid


def test_the_controllers_statements_are_upstreams(template: dict[str, Any]) -> None:
    theirs, found = upstreams(template), ours()
    assert set(theirs) - set(found) == set(LEFT_OUT)
    assert set(found) <= set(theirs)
    for sid, statement in found.items():
        assert compared(statement) == compared(theirs[sid]), sid


def test_the_comparison_bites(template: dict[str, Any]) -> None:
    theirs, sid = upstreams(template), "AllowScopedDeletion"
    statement = compared(ours()[sid])
    for key, wider in (("Action", ["ec2:*"]), ("Resource", ["*"]), ("Condition", {}), ("Effect", "Deny")):
        assert {**statement, key: wider} != compared(theirs[sid])


def test_the_queue_is_upstreams(template: dict[str, Any]) -> None:
    document = template["KarpenterInterruptionQueuePolicy"]["Properties"]["PolicyDocument"]
    allow, deny = iam.queue_policy()["Statement"]
    assert allow.pop("Sid") == "AllowEvents"
    assert [compared(allow), compared(deny)] == [compared(item) for item in document["Statement"]]
    properties = template["KarpenterInterruptionQueue"]["Properties"]
    assert properties["MessageRetentionPeriod"] == iam.QUEUE_RETENTION_S


def test_the_queue_hears_what_upstreams_does(template: dict[str, Any]) -> None:
    theirs = [
        resource["Properties"]["EventPattern"]
        for resource in template.values()
        if resource["Type"] == "AWS::Events::Rule"
    ]
    assert sorted(map(str, iam.INTERRUPTION_EVENTS.values())) == sorted(map(str, theirs))
    assert len(theirs) == 5


def test_a_node_may_do_what_upstreams_may(template: dict[str, Any]) -> None:
    theirs = template["KarpenterNodeRole"]["Properties"]["ManagedPolicyArns"]
    assert sorted(iam.node_role_policies()) == sorted(theirs)
    assert iam.node_role_policies("aws-cn")[0] == "arn:aws-cn:iam::aws:policy/AmazonEKSWorkerNodePolicy"


def test_no_wildcard_action_and_none_on_everything_but_reads() -> None:
    for statement in ours().values():
        actions = as_list(statement["Action"])
        assert not [action for action in actions if "*" in action]
        if "*" in as_list(statement["Resource"]):
            verbs = {action.partition(":")[2] for action in actions}
            assert all(verb.startswith(("Describe", "Get", "List")) for verb in verbs)


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)
    else:
        yield value


def test_every_place_is_filled_in() -> None:
    scope = iam.Scope(
        cluster="labs",
        partition="aws",
        region="us-west-2",
        account="123456789012",
        queue_arn="arn:aws:sqs:us-west-2:123456789012:labs",
        node_role_arn="arn:aws:iam::123456789012:role/labs-karpenter-node",
    )
    documents = [*iam.controller_policies(scope).values(), iam.queue_policy(scope)]
    assert not [text for document in documents for text in texts(document) if "{" in text]
    passing = iam.controller_policies(scope)["iam-integration"]["Statement"][0]
    assert passing["Resource"] == scope.node_role_arn
    owned = iam.controller_policies(scope)["node-lifecycle"]["Statement"][5]["Condition"]["StringEquals"]
    assert owned == {"aws:ResourceTag/kubernetes.io/cluster/labs": "owned"}


def test_each_document_is_under_iams_limit() -> None:
    # 6144 characters without white space (IAM quotas), with the longest names that EKS and IAM accept.
    long = {"region": "ap-southeast-1", "queue_arn": "q" * 130, "node_role_arn": "r" * 120}
    scope = iam.Scope(cluster="c" * 100, partition="aws-us-gov", account="1" * 12, **long)
    for name, document in iam.controller_policies(scope).items():
        assert len(json.dumps(document, separators=(",", ":"))) <= 6144, name


VALUES = {"pool": "a", "gpus": 2, "empty": [], "pools": [{"pool": "b"}, {"pool": "c"}]}


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("'x{@pool, y} @{pool}_z {{pool}} $pool'", "x{a, y} a_z {{pool}} $pool"),
        ("'@gpus'", 2),
        ("'@gpus of @pool'", "2 of a"),
        ("[{when: empty, a: 1}, {when: gpus, b: 1}, 3]", [{"b": 1}, 3]),
        ("{one: {when: empty, a: 1}, 0.9: red}", {0.9: "red"}),
        ("[{each: '@pools', of: '@pool'}, '@pool']", [{"of": "b"}, {"of": "c"}, "a"]),
        ("{'@n': {each: [{n: 1}, {n: '@gpus'}], of: '@n'}}", {1: {"of": 1}, 2: {"of": 2}}),
    ],
)
def test_names_conditions_and_repetitions(given: str, made: Any) -> None:
    assert fill(yaml.safe_load(given), VALUES) == made


@pytest.mark.parametrize("given", ["'@other'", "{when: other}", "a @ b", "{help: one, two}"])
def test_what_is_wrong_is_found(given: str) -> None:
    with pytest.raises((KeyError, ValueError)):
        fill([yaml.safe_load(given)], VALUES)


def test_a_name_may_use_those_before_it() -> None:
    let = yaml.safe_load("{x: '@pool/@gpus', y: '(@x)'}")
    assert with_let(let, VALUES)["y"] == "(a/2)"


@pytest.mark.parametrize(
    ("files", "file"),
    [(item.FILES, file) for item in (health, notebooks, pool_keeper, readiness_gate) for file in item.FILES],
)
def test_a_program_imports_the_standard_library_and_the_files_beside_it(
    files: tuple[str, ...], file: str
) -> None:
    names = set()
    for statement in ast.walk(ast.parse((SOURCE / file).read_text(encoding="utf-8"))):
        if isinstance(statement, ast.Import):
            names |= {item.name.partition(".")[0] for item in statement.names}
        elif isinstance(statement, ast.ImportFrom) and statement.module == "infra.incluster":
            names |= {entry.name for entry in statement.names}
        elif isinstance(statement, ast.ImportFrom):
            names.add((statement.module or "").removeprefix("infra.incluster.").partition(".")[0])
    assert names <= sys.stdlib_module_names | {name.removesuffix(".py") for name in files}
