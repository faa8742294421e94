"""``python -m tests.mutations --seed 1 --count 20000``: parses and renders random changes of all stack files.

Prints a report. Exit code 1 if a file ended in another error than InputError, or took more than ``--limit``
seconds of CPU (default 2). ``--keep FOLDER`` writes those files there.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from infra.config import load, price_list
from infra.inventory import read_keys
from infra.model.base.errors import InputError
from infra.model.checks.environment import warnings
from infra.plan.render import render
from tests.mutations.change import mutated, seeds

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 2.0
"""Seconds of CPU in which each file must be parsed and rendered."""


@dataclass
class Report:
    """Counts of a run, and the files that ended wrongly or too late."""

    seed: int
    outcomes: Counter[str] = field(default_factory=Counter)
    wrong: list[tuple[str, bytes]] = field(default_factory=list)
    """What happened, and the file."""
    slowest: float = 0.0
    seconds: float = 0.0

    @property
    def text(self) -> str:
        total = sum(self.outcomes.values())
        result = ", ".join(f"{count} {name}" for name, count in sorted(self.outcomes.items()))
        kinds = Counter(what for what, _ in self.wrong)
        lines = [f"seed {self.seed}: {total} in {self.seconds:.0f} s: {result}; slowest {self.slowest:.2f} s"]
        return "\n".join([*lines, *(f"{count} x {what}" for what, count in kinds.most_common())])


def run(seed: int, count: int, limit: float = LIMIT, files: list[Path] | None = None) -> Report:
    """Parse and render ``count`` mutations of the files, each in turn; all stack files if left out."""
    rng, report = random.Random(seed), Report(seed)
    sources = seeds(files or sorted(ROOT.glob("Pulumi.*.yaml")))
    begun = time.perf_counter()
    with TemporaryDirectory(prefix="gpuform-mutations-") as folder:
        path = Path(folder) / "Pulumi.mutated.yaml"
        for number in range(count):
            data = mutated(sources[number % len(sources)], rng)
            path.write_bytes(data)
            start = time.process_time()
            outcome, wrong = _outcome(path, 2 * limit)
            took = time.process_time() - start
            report.outcomes[outcome] += 1
            report.slowest = max(report.slowest, took)
            if wrong or took > limit:
                report.wrong.append((wrong or f"slow: {outcome}, {took:.1f} s", data))
    report.seconds = time.perf_counter() - begun
    return report


class _TooLong(BaseException):
    pass


def _stop(*_: object) -> None:
    raise _TooLong


def _outcome(path: Path, longest: float) -> tuple[str, str]:
    """How the file ended, and the place of an error that is none of ours; empty if it ended well."""
    signal.signal(signal.SIGPROF, _stop)
    signal.setitimer(signal.ITIMER_PROF, longest)
    try:
        env = load(path)
        list(warnings(env))
        for text in render(env, read_keys(env, ROOT), price_list(env)).values():
            text.encode()
    except InputError as error:
        return (
            ("refused", "")
            if all(map(_printable, error.errors))
            else ("refused", f"no single line: {str(error)[:200]!r}")
        )
    except (Exception, _TooLong) as error:
        last = traceback.extract_tb(error.__traceback__)
        ours = next((item for item in reversed(last) if "/infra/" in item.filename), last[-1])
        place = f"{Path(ours.filename).name}:{ours.lineno}"
        return "failed", f"{type(error).__name__}: {str(error)[:100]!r} at {place}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return "rendered", ""


def _printable(error: InputError) -> bool:
    """Whether the error can be printed as one line of bearable length."""
    text = str(error)
    return (
        "\n" not in text
        and len(text) < 5000
        and text.encode("utf-8", "replace") == text.encode("utf-8", "surrogatepass")
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--limit", type=float, default=LIMIT)
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    report = run(given.seed, given.count, given.limit)
    print(report.text)
    if given.keep:
        given.keep.mkdir(parents=True, exist_ok=True)
        for number, (what, data) in enumerate(report.wrong):
            (given.keep / f"{number}.yaml").write_bytes(data)
            (given.keep / f"{number}.json").write_text(json.dumps(what))
    return 1 if report.wrong else 0
