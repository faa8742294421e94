from __future__ import annotations

import json
import re
import types
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

import jsonschema
import pytest
import yaml
from annotated_types import Ge, Le, Len, MaxLen, MinLen
from pydantic import AfterValidator
from pydantic.fields import FieldInfo

from infra import schema
from infra.program import package_schema
from infra.program.package import provider
from tests.plan.fields import every_model

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]


@cache
def validator() -> jsonschema.Draft202012Validator:
    """Of stack files; the schema itself is checked once."""
    jsonschema.Draft202012Validator.check_schema(schema.stack_schema())
    return jsonschema.Draft202012Validator(schema.stack_schema())


@pytest.mark.parametrize("stack", ["local", "aws-dev", "aws-prod", "onprem-dev", "openstack-dev"])
def test_a_stack_points_to_the_schema_and_obeys_it(stack: str) -> None:
    text = (ROOT / f"Pulumi.{stack}.yaml").read_text(encoding="utf-8")
    assert text.splitlines()[0] == "# yaml-language-server: $schema=docs/reference/environment.schema.json"
    validator().validate(yaml.safe_load(text))


@pytest.mark.parametrize("kind", ["aws", "hosts", "openstack"])
def test_what_the_parser_takes_an_editor_takes(kind: str) -> None:
    text = (Path(__file__).parent / f"good_{kind}.yaml").read_text(encoding="utf-8")
    document = {"config": {"gpuform:environment": yaml.safe_load(text)}}
    validator().validate(document)


@pytest.mark.parametrize("kind", ["aws", "hosts", "openstack"])
def test_what_the_parser_takes_another_language_takes(kind: str) -> None:
    """The types of the package, read as JSON Schema."""
    environment = yaml.safe_load((Path(__file__).parent / f"good_{kind}.yaml").read_text(encoding="utf-8"))
    types = json.loads(provider().schema or "")["types"]
    text = json.dumps(types).replace(package_schema.ANY["$ref"], "#/any").replace('"oneOf"', '"anyOf"')
    typed = {"types": json.loads(text), "any": {}, "$ref": "#/types/gpuform:index:Environment"}
    of_package = jsonschema.Draft202012Validator(typed)
    of_package.validate(environment)
    with pytest.raises(jsonschema.ValidationError, match="is not of type 'string'"):
        of_package.validate({**environment, "name": 1})
    with pytest.raises(jsonschema.ValidationError, match="is not valid under any of the given schemas"):
        of_package.validate({**environment, "cluster": {"kind": "unknown"}})


def test_only_a_union_of_more_than_scalars_has_no_type_in_another_language() -> None:
    def untyped(path: str, part: Any) -> list[str]:
        if isinstance(part, dict) and part.get("$ref") == package_schema.ANY["$ref"]:
            return [path]
        items = part.items() if isinstance(part, dict) else enumerate(part if isinstance(part, list) else ())
        return [found for key, value in items for found in untyped(f"{path}.{key}", value)]

    types = json.loads(provider().schema or "")["types"]
    found = {name.rpartition(":")[2]: untyped("", declared) for name, declared in types.items()}
    keys = {f"{name}.{path.split('.')[2]}" for name, paths in found.items() for path in paths}
    assert {key for key in keys if not key.endswith("Workload.pod")} == {
        "AwsCluster.network", "DeviceLayout.layout", "Dra.layout", "ExistingNetwork.subnets",
        "GpuChoice.count", "GpuOperatorSpec.gpu_taint",
        "HostsCluster.control_plane", "Mig.layout", "Monitoring.counters", "Namespace.quota",
        "Pool.hosts", "Team.borrow", "Team.lend", "Team.quota",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("replicas: 4}", "replicas: 1}", "1 is less than the minimum of 2"),
        ("kind: embedded", "kind: aws", "is not valid under any of the given schemas"),
        ("gpu_taint: ", "gpu_tant: ", "'gpu_tant' was unexpected"),
    ],
)
def test_an_editor_sees_what_is_wrong(old: str, new: str, message: str) -> None:
    text = (ROOT / "Pulumi.local.yaml").read_text(encoding="utf-8")
    assert old in text
    document = yaml.safe_load(text.replace(old, new))
    errors = list(validator().iter_errors(document))
    wording = json.dumps([leaf.message for error in errors for leaf in leaves(error)])
    assert message in wording


def leaves(error: jsonschema.ValidationError) -> list[jsonschema.ValidationError]:
    return [error, *(leaf for inner in error.context or [] for leaf in leaves(inner))]


def test_an_editor_knows_every_keyword_of_a_bound() -> None:
    assert not {"ge", "gt", "le", "lt"} & {*re.findall(r'"([a-z]+)":', schema.schema_text())}


LOOKED_UP = {
    "Mig.layout": "layouts.check knows the profiles of the pool's GPUs",
    "DeviceLayout.layout": "layouts.check knows the profiles of the pool's GPUs",
    "Dra.layout": "layouts.check knows the profiles of the pool's GPUs",
    "Namespace.quota": "room.hard knows the slices of the pool",
    **dict.fromkeys(("Team.quota", "Team.borrow", "Team.lend"), "room.amounts knows the slices of the pool"),
    "PodWorkload.slice": "checks and claims know the slices of the pools",
    "DeploymentWorkload.slice": "checks and claims know the slices of the pools",
    "InferenceWorkload.slice": "checks and claims know the slices of the pools",
    "JobWorkload.slice": "checks and claims know the slices of the pools",
    "NotebookWorkload.slice": "checks and claims know the slices of the pools",
    **{
        f"{kind}Workload.pod": "pod_fragment knows the fields, and the API server their values"
        for kind in ("Pod", "Deployment", "Inference", "Job", "Notebook")
    },
    "Pool.zones": "aws_pools knows the zones of the network",
    "Cost.prices": "environment_checks knows the pools and machines",
    "OwnMig.profiles": "own_mig compares each name with the profile's slices",
    "OwnMachine.gpu": "OwnMachine knows the GPUs of the environment",
}
"""Fields that hold any text, with the check that compares it with what is declared elsewhere."""


def plain(of: Any, constrained: bool = False) -> bool:
    """Whether a type takes any text, or any whole number; ``constrained``: metadata around it is seen."""
    if get_origin(of) is Annotated:
        inner, *metadata = get_args(of)
        return plain(inner, constrained or any(map(constrains, metadata)))
    if of in (str, int):
        return not constrained
    inner = get_args(of) if get_origin(of) in (tuple, list, dict, Union, types.UnionType) else ()
    own = get_origin(of) in (Union, types.UnionType) and constrained  # a field's metadata is about each part
    return any(plain(item, own) for item in inner if item is not ...)


def constrains(metadata: Any) -> bool:
    if isinstance(metadata, FieldInfo):
        return any(map(constrains, metadata.metadata))
    return isinstance(metadata, AfterValidator | Ge | Le | MinLen | MaxLen | Len)


def test_no_field_holds_any_text_or_number() -> None:
    found = {
        f"{model.__name__}.{name}"
        for model in every_model()
        for name, field in model.model_fields.items()
        if plain(Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation)
    }
    assert found == set(LOOKED_UP)
