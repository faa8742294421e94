"""Builds the API calls that would create a resource, and validates them with botocore.

botocore's own validator checks missing members, unknown ones, types and lower bounds; it leaves enums,
patterns and upper bounds to the service, so these are checked here against the same model. Nothing is sent.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

from botocore.loaders import Loader
from botocore.model import ListShape, MapShape, Shape, StructureShape
from botocore.model import ServiceModel as Service
from botocore.validate import ParamValidator

from gpuform.provider.properties import UNKNOWN
from lab.offline.aws import scalars
from lab.offline.aws.row import ResourceRow

_PARTS = re.compile(r"([A-Za-z0-9]+)(\[0\])?")
_REPORT_LINE = re.compile(
    r'(?P<text>.*?) (?:in (?P<inside>\S+): "(?P<missing>\w+)"|for parameter (?P<path>[^\s,]+), )'
)
_WELL_KNOWN = ({"Key", "Value"}, {"TagKey", "TagValue"})

Failures = list[tuple[str, str]]


@functools.cache
def service(name: str) -> Service:
    return Service(Loader().load_service_model(name, "service-2"), name)


def find_failures(row: ResourceRow, inputs: Mapping[str, Any]) -> Failures:
    """Errors in ``inputs`` (plain values), as pairs of the input's path and the reason."""
    requests = Requests(row)
    for name, value in inputs.items():
        if value is not None:
            requests.add_input(name, value)
    return requests.validate()


class Requests:
    """The API calls of one resource, filled input by input."""

    def __init__(self, row: ResourceRow) -> None:
        self.row = row
        self.calls: dict[str, dict[str, Any]] = {row.operation: {}}
        self.failures: Failures = []
        self._origin: dict[str, str] = {}  # API path -> input's path

    def add_input(self, name: str, value: Any) -> None:
        if not self.row.is_sent(name):
            return
        if (parameter := self.find_parameter(name)) is None:
            fact = f"has no place in the table of offline runs, and {self.row.call} no parameter of this name"
            self.failures.append((name, fact))
            return
        operation, path = parameter
        shape = self._shape(operation, path)
        converted = self._convert(value, shape, name, path)
        _set_value(self.calls.setdefault(operation, {}), path, converted)

    def find_parameter(self, name: str) -> tuple[str, str] | None:
        """Operation and API path of an input; None if neither the table nor the call has a place for it."""
        operation, path = self.row.operation, self.row.parameters.get(name)
        if path is None:
            shape: Any = self._shape(operation, self.row.parent)
            member = _member(shape, name)
            return (operation, f"{self.row.parent}.{member}".lstrip(".")) if member else None
        if ":" in path:
            operation, path = path.split(":")
        return operation, path

    def validate(self) -> Failures:
        for operation, parameters in self.calls.items():
            shape = self._input(operation)
            if operation != self.row.operation:  # such as the id, which the create returns
                for member in shape.required_members:
                    parameters.setdefault(member, scalars.placeholder(shape.members[member]))
            report = ParamValidator().validate(parameters, shape).generate_report()
            self.failures += [self._translate(operation, line) for line in report.splitlines()]
        return self.failures

    def _convert(self, value: Any, shape: Shape, input_path: str, api_path: str) -> Any:
        """Convert a value for the API; what the model forbids is recorded under the input's path."""
        self._origin[api_path] = input_path
        if value is UNKNOWN:
            return scalars.placeholder(shape)
        if isinstance(shape, StructureShape | MapShape) and not isinstance(value, Mapping):
            return value
        if isinstance(shape, StructureShape):
            return self._structure(value, shape, input_path, api_path)
        if isinstance(shape, ListShape):
            return self._list(value, shape, input_path, api_path)
        if isinstance(shape, MapShape):
            return {
                key: self._convert(item, shape.value, f"{input_path}.{key}", f"{api_path}.{key}")
                for key, item in value.items()
                if item is not None
            }
        if api_path.startswith("Attributes.") and isinstance(value, bool | int):
            value = str(value).lower()  # the API takes all attributes of a queue as text
        if input_path in self.row.documents:
            value, reason = scalars.check_document(value)
        else:
            value, reason = scalars.check_scalar(value, shape, input_path)
        if reason:
            self.failures.append((input_path, reason))
        return value

    def _structure(
        self, value: Mapping[str, Any], shape: StructureShape, input_path: str, api_path: str
    ) -> Any:
        result: dict[str, Any] = {}
        for key, item in value.items():
            path = f"{input_path}.{key}"
            rename = self.row.parameters.get(re.sub(r"\[\d+\]", "", path), key)
            if item is None or rename is None:
                continue
            member = _member(shape, rename)
            if member is None:
                fact = f"{self.row.operation} has no such parameter ({', '.join(shape.members)})"
                self.failures.append((path, fact))
                continue
            result[member] = self._convert(item, shape.members[member], path, f"{api_path}.{member}")
        return result

    def _list(self, value: Any, shape: ListShape, input_path: str, api_path: str) -> Any:
        if isinstance(value, Mapping):
            members = set(shape.member.members) if isinstance(shape.member, StructureShape) else set()
            if members in _WELL_KNOWN:
                key, text = sorted(members)
                value = [{key: name, text: item} for name, item in value.items()]
            else:  # the SDK has a single block where the API takes a list
                return [self._convert(value, shape.member, input_path, f"{api_path}[0]")]
        if not isinstance(value, list):
            return value
        return [
            self._convert(item, shape.member, f"{input_path}[{index}]", f"{api_path}[{index}]")
            for index, item in enumerate(value)
        ]

    def _input(self, operation: str) -> StructureShape:
        return service(self.row.service).operation_model(operation).input_shape

    def _shape(self, operation: str, path: str) -> Shape:
        shape: Any = self._input(operation)
        for name, index in _PARTS.findall(path):
            shape = shape.value if isinstance(shape, MapShape) else shape.members[name]
            shape = shape.member if index else shape
        result: Shape = shape
        return result

    def _translate(self, operation: str, line: str) -> tuple[str, str]:
        """A line of botocore's report with the input's path in place of the API path."""
        match = _REPORT_LINE.match(line)
        if match is None:
            return "", line
        if match["path"]:
            reason = f"{match['text']} for {self.row.service}:{operation}: {line[match.end() :]}"
            return self._input_path(match["path"]), reason
        parent = "" if match["inside"] == "input" else match["inside"]
        missing = f"{parent}.{match['missing']}".lstrip(".")
        return self._input_path(missing), f"missing; {self.row.service}:{operation} requires {missing}"

    def _input_path(self, path: str) -> str:
        """Path of the input that has, or would have, this API path; else that of its parent."""
        if path in self._origin:
            return self._origin[path]
        for name, parameter in self.row.parameters.items():
            place = None if parameter is None or "." in name else parameter.split(":")[-1]
            if place is not None and place.removesuffix("[0]") == path:
                return name
        parent, _, last = path.rpartition(".")
        if not parent or parent.removesuffix("[0]") == self.row.parent.removesuffix("[0]"):
            return f"{last[0].lower()}{last[1:]}"
        parent_input = self._input_path(parent.removesuffix("[0]") if parent not in self._origin else parent)
        return f"{parent_input}.{last[0].lower()}{last[1:]}"


def _member(shape: Any, name: str) -> str | None:
    return next((member for member in shape.members if member.lower() == name.lower()), None)


def _set_value(call: dict[str, Any], path: str, value: Any) -> None:
    target: Any = call
    *parents, (last, last_index) = _PARTS.findall(path)
    for name, index in parents:
        target = target.setdefault(name, [{}])[0] if index else target.setdefault(name, {})
    target[last] = [value] if last_index else value
