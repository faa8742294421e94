"""Objects of a stack in which another field manager has set a declared field, as `kubectl edit` does.

The Kubernetes provider applies server-side and without force, so an update of such an object fails. An
environment variable makes it force a whole run [pulumi-kubernetes 4.34, pkg/await/await.go, patchForce and
handleSSAErr]. That would also overwrite objects of others that the stack is about to create, so it is set
for a run on the failed objects alone, and by `follow`: the SDK would copy it into the provider's inputs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from gpuform.engine.changes import resource_name
from gpuform.engine.follow import FORCE_VARIABLE
from gpuform.engine.result import EngineFailure, Result

FORCE: Mapping[str, str] = {FORCE_VARIABLE: "true"}
_CONFLICT = "field conflict detected"
_MANAGER = re.compile(r'conflicts? with "([^"]+)"')
_FIELD = re.compile(r"(?::|-) (\.\S+)$", re.MULTILINE)


def conflicts(result: Result) -> dict[str, str]:
    """A line of output for each object, by URN, that failed to update because another manager set a field."""
    failed = {step.urn: step for step in result.steps if step.phase == "failed" and step.op == "update"}
    return {
        message.urn: f"{resource_name(failed[message.urn])}: takes back {_describe(message.text)}"
        for message in result.messages
        if message.urn in failed and _CONFLICT in message.text
    }


def _describe(text: str) -> str:
    fields = ", ".join(dict.fromkeys(_FIELD.findall(text))) or "fields"
    return f"{fields} from {', '.join(dict.fromkeys(_MANAGER.findall(text))) or 'another manager'}"


def retry_with_force(run: Callable[[Sequence[str]], Result], say: Callable[[str], None]) -> Result:
    """Run an update; if objects of the stack have been changed by others, take their fields back and repeat.

    ``run`` gets the URNs to update with force, none for the whole stack. Each object is forced once. Raises
    EngineFailure for every other failure.
    """
    forced: set[str] = set()
    earlier: list[Result] = []
    while True:
        try:
            return run(()).after(earlier)
        except EngineFailure as failure:
            found = conflicts(failure.result)
            if not found or found.keys() <= forced:
                raise
            for text in found.values():
                say(text)
            forced |= found.keys()
            earlier += [failure.result, run(sorted(found))]
