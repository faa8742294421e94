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
from lab.offline.aws.row import Row

_PARTS = re.compile(r"([A-Za-z0-9]+)(\[0\])?")
_SAID = re.compile(
    r'(?P<text>.*?) (?:in (?P<inside>\S+): "(?P<missing>\w+)"|for parameter (?P<path>[^\s,]+), )'
)
_WELL_KNOWN = ({"Key", "Value"}, {"TagKey", "TagValue"})

Failures = list[tuple[str, str]]


@functools.cache
def service(name: str) -> Service:
    return Service(Loader().load_service_model(name, "service-2"), name)


def failures(row: Row, inputs: Mapping[str, Any]) -> Failures:
    """Errors in ``inputs`` (plain values), as pairs of the input's path and the reason."""
    requests = Requests(row)
    for name, value in inputs.items():
        if value is not None:
            requests.take(name, value)
    return requests.finish()


class Requests:
    """The API calls of one resource, filled input by input."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.calls: dict[str, dict[str, Any]] = {row.operation: {}}
        self.wrong: Failures = []
        self._origin: dict[str, str] = {}  # API path -> input's path

    def take(self, name: str, value: Any) -> None:
        if not self.row.sent(name):
            return
        if (place := self.place(name)) is None:
            fact = f"has no place in the table of offline runs, and {self.row.call} no parameter of this name"
            self.wrong.append((name, fact))
            return
        operation, path = place
        shape = self._shape(operation, path)
        converted = self._convert(value, shape, name, path)
        _put(self.calls.setdefault(operation, {}), path, converted)

    def place(self, name: str) -> tuple[str, str] | None:
        """Operation and API path of an input; None if neither the table nor the call has a place for it."""
        operation, path = self.row.operation, self.row.places.get(name)
        if path is None:
            shape: Any = self._shape(operation, self.row.under)
            member = _member(shape, name)
            return (operation, f"{self.row.under}.{member}".lstrip(".")) if member else None
        if ":" in path:
            operation, path = path.split(":")
        return operation, path

    def finish(self) -> Failures:
        for operation, parameters in self.calls.items():
            shape = self._input(operation)
            if operation != self.row.operation:  # such as the id, which the create returns
                for member in shape.required_members:
                    parameters.setdefault(member, scalars.stand_in(shape.members[member]))
            report = ParamValidator().validate(parameters, shape).generate_report()
            self.wrong += [self._translated(operation, line) for line in report.splitlines()]
        return self.wrong

    def _convert(self, value: Any, shape: Shape, here: str, there: str) -> Any:
        """Convert a value for the API; what the model forbids is recorded under the input's path."""
        self._origin[there] = here
        if value is UNKNOWN:
            return scalars.stand_in(shape)
        if isinstance(shape, StructureShape):
            return self._structure(value, shape, here, there) if isinstance(value, Mapping) else value
        if isinstance(shape, ListShape):
            return self._list(value, shape, here, there)
        if isinstance(shape, MapShape):
            if not isinstance(value, Mapping):
                return value
            return {
                key: self._convert(item, shape.value, f"{here}.{key}", f"{there}.{key}")
                for key, item in value.items()
                if item is not None
            }
        if there.startswith("Attributes.") and isinstance(value, bool | int):
            value = str(value).lower()  # the API takes all attributes of a queue as text
        if here in self.row.documents:
            value, reason = scalars.document(value)
        else:
            value, reason = scalars.checked(value, shape, here)
        if reason:
            self.wrong.append((here, reason))
        return value

    def _structure(self, value: Mapping[str, Any], shape: StructureShape, here: str, there: str) -> Any:
        result: dict[str, Any] = {}
        for key, item in value.items():
            rename = self.row.places.get(re.sub(r"\[\d+\]", "", f"{here}.{key}"), key)
            if item is None or rename is None:
                continue
            member = _member(shape, rename)
            if member is None:
                known = ", ".join(shape.members)
                self.wrong.append((f"{here}.{key}", f"{self.row.operation} has no such parameter ({known})"))
                continue
            result[member] = self._convert(item, shape.members[member], f"{here}.{key}", f"{there}.{member}")
        return result

    def _list(self, value: Any, shape: ListShape, here: str, there: str) -> Any:
        if isinstance(value, Mapping):
            members = set(shape.member.members) if isinstance(shape.member, StructureShape) else set()
            if members in _WELL_KNOWN:
                key, text = sorted(members)
                value = [{key: name, text: item} for name, item in value.items()]
            else:  # the SDK has a single block where the API takes a list
                return [self._convert(value, shape.member, here, f"{there}[0]")]
        if not isinstance(value, list):
            return value
        return [
            self._convert(item, shape.member, f"{here}[{index}]", f"{there}[{index}]")
            for index, item in enumerate(value)
        ]

    def _input(self, operation: str) -> StructureShape:
        return service(self.row.service).operation_model(operation).input_shape

    def _shape(self, operation: str, path: str) -> Shape:
        shape: Any = self._input(operation)
        for name, index in _PARTS.findall(path):
            shape = shape.value if isinstance(shape, MapShape) else shape.members[name]
            shape = shape.member if index else shape
        found: Shape = shape
        return found

    def _translated(self, operation: str, line: str) -> tuple[str, str]:
        """A line of botocore's report with the input's path in place of the API path."""
        match = _SAID.match(line)
        if match is None:
            return "", line
        if match["path"]:
            rest = line[match.end() :]
            return self._named(match["path"]), f"{match['text']} for {self.row.service}:{operation}: {rest}"
        inside = "" if match["inside"] == "input" else match["inside"]
        missing = f"{inside}.{match['missing']}".lstrip(".")
        return self._named(missing), f"missing; {self.row.service}:{operation} requires {missing}"

    def _named(self, path: str) -> str:
        """Path of the input that has, or would have, this API path; else that of its parent."""
        if path in self._origin:
            return self._origin[path]
        for name, place in self.row.places.items():
            if place is not None and "." not in name and place.split(":")[-1].removesuffix("[0]") == path:
                return name
        parent, _, last = path.rpartition(".")
        if not parent or parent.removesuffix("[0]") == self.row.under.removesuffix("[0]"):
            return f"{last[0].lower()}{last[1:]}"
        around = self._named(parent.removesuffix("[0]") if parent not in self._origin else parent)
        return f"{around}.{last[0].lower()}{last[1:]}"


def _member(shape: Any, name: str) -> str | None:
    return next((member for member in shape.members if member.lower() == name.lower()), None)


def _put(call: dict[str, Any], path: str, value: Any) -> None:
    here: Any = call
    *parents, (last, last_index) = _PARTS.findall(path)
    for name, index in parents:
        here = here.setdefault(name, [{}])[0] if index else here.setdefault(name, {})
    here[last] = [value] if last_index else value
