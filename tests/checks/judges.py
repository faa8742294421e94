from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

Answer = dict[str, Any]


class JsonLines:
    """A program that answers each line of JSON with another; one run for many questions."""

    def __init__(self, binary: Path) -> None:
        self._process = subprocess.Popen(
            [str(binary)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: Any, where: TracebackType | None) -> None:
        self._process.communicate(timeout=10)

    def ask(self, **question: Any) -> Answer:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"id": 1, **question}) + "\n")
        self._process.stdin.flush()
        answer: Answer = json.loads(self._process.stdout.readline())
        return answer


def ask_all(binary: Path, questions: Iterable[Answer]) -> list[Answer]:
    text = "".join(json.dumps({"id": index, **item}) + "\n" for index, item in enumerate(questions))
    done = subprocess.run([str(binary)], input=text, capture_output=True, text=True, timeout=120, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def check_config(mig_parted: Path, text: str, name: str) -> subprocess.CompletedProcess[str]:
    """Check one named configuration by NVIDIA's MIG manager, without applying it."""
    command = [str(mig_parted), "assert", "--valid-config", "-f", "-", "-c", name]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=30)
