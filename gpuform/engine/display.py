"""Prints what an engine run does: a line for each change, and all errors at the end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from gpuform.engine.events import (
    Event,
    Message,
    Step,
    Violation,
    change_line,
    change_lines,
    is_change,
    is_grouped,
    resource_name,
)


@dataclass
class Display:
    """``say`` takes the lines; ``show_work`` a text about what has just begun, for a line that is replaced.

    Created and deleted Kubernetes objects are held back until the end, where many of them become one line.
    """

    say: Callable[[str], None]
    show_work: Callable[[str], None] = lambda text: None
    _objects: list[Step] = field(default_factory=list)
    _errors: dict[str, None] = field(default_factory=dict)
    _said: set[str] = field(default_factory=set)

    def take(self, event: Event) -> None:
        match event:
            case Step(op, _, "failed"):
                self._errors[f"failed to {op} {resource_name(event)}"] = None
            case Step() if not is_change(event):
                pass
            case Step(op, _, "started"):
                self.show_work(f"{op} {resource_name(event)}")
            case Step() if is_grouped(event):
                self._objects.append(event)
            case Step():
                self._say_once(change_line(event))
            case Message("error", text):
                self._errors[f"error: {text}"] = None
            case Message(severity, text):
                self._say_once(text if severity == "info" else f"{severity}: {text}")
            case Violation(policy, True, text):
                self._errors[f"error: policy {policy}: {text}"] = None
            case Violation(policy, _, text):
                self._say_once(f"warning: policy {policy}: {text}")

    def end(self, show_errors: bool = True) -> None:
        """Print the objects and, unless the caller handles them, the errors."""
        lines = [*change_lines(self._objects), *(self._errors if show_errors else ())]
        self._objects.clear()
        self._errors.clear()
        for line in lines:
            self.say(line)

    def _say_once(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            self.say(line)
