"""What is wrong with an object of a manifest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from gpuform.manifests.documents import Document, Keys
from gpuform.manifests.edit import Addition


@dataclass(frozen=True)
class Finding:
    """What is wrong with one object: at ``keys``, ``fact`` and ``remedy``; ``additions`` would correct it.

    ``level``: with an error no pod starts, or none gets what was meant; a warning is about all else.
    """

    document: Document
    keys: Keys
    level: Literal["error", "warning"]
    fact: str
    remedy: str
    additions: tuple[Addition, ...] = ()

    @property
    def path(self) -> str:
        text = ""
        for key in self.keys:
            text += f"[{key}]" if isinstance(key, int) or "." in key or "/" in key else f".{key}"
        return text.removeprefix(".")

    def to_json(self) -> dict[str, Any]:
        line, column = self.document.place(self.keys)
        return {
            "level": self.level,
            **{"file": self.document.file, "line": line, "column": column, "document": self.document.index},
            **{"kind": self.document.kind, "name": self.document.name, "path": self.path},
            **{"fact": self.fact, "remedy": self.remedy, "fixable": bool(self.additions)},
        }
