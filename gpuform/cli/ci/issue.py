"""Issues that follow a state: opened, updated, and closed when the cause is gone.

One for each stack that has drifted, and one for the nightly tests.
"""

from __future__ import annotations

from gpuform.checkout.errors import Failure
from gpuform.cli.ci.github import OURS, GitHub, begins_with
from gpuform.cli.ci.harmless import fenced

NONE, DRIFT = 0, 3  # exit codes of `gpuform drift`
_MOST = 60_000  # GitHub's limit is 65,536
_NIGHTLY = "<!-- gpuform nightly -->"


def marker(stack: str) -> str:
    """The line that identifies the issue of a stack."""
    return f"<!-- gpuform drift {stack} -->"


def report(github: GitHub, stack: str, code: int, text: str, url: str) -> str:
    """Update the issues with ``gpuform drift``'s result; returns what was done.

    ``code`` is its exit code, ``text`` its output, ``url`` the run. Raises Failure, and leaves the issues
    alone, if the drift is not known.
    """
    if code not in (NONE, DRIFT):
        raise Failure(stack, f"`gpuform drift` ended with {code}", f"see the run: {url}")
    if code == NONE:
        closed = _close(github, marker(stack), f"No drift any more, according to [this run]({url}).")
        return f"{stack}: no drift{closed}"
    return f"{stack}: drift, " + _keep(github, marker(stack), f"Drift: {stack}", _body(stack, text, url))


def nightly(github: GitHub, result: str, url: str) -> str:
    """Update the issue of the nightly tests with their result; returns what was done.

    ``result`` is that of the workflow's jobs (``success``, ``failure`` or ``cancelled``), ``url`` the run.
    """
    if result == "success":
        return "nightly tests: passed" + _close(github, _NIGHTLY, f"[This run]({url}) passed.")
    said = f"The newest run of `make test-all`: [{result}]({url}). A run that passes closes this issue."
    return f"nightly tests: {result}, " + _keep(
        github, _NIGHTLY, "Nightly tests failed", f"{_NIGHTLY}\n{said}\n"
    )


def _open(github: GitHub, first_line: str) -> list[int]:
    """Numbers of our open issues that begin with ``first_line``, oldest first."""
    return [
        int(one["number"])
        for one in github.each("issues", state="open", sort="created", direction="asc")
        if "pull_request" not in one and one["user"]["login"] == OURS and begins_with(one["body"], first_line)
    ]


def _close(github: GitHub, first_line: str, why: str) -> str:
    there = _open(github, first_line)
    for number in there:
        github.call("POST", f"issues/{number}/comments", body=why)
        github.call("PATCH", f"issues/{number}", state="closed", state_reason="completed")
    return f", closed {_numbers(there)}" if there else ""


def _keep(github: GitHub, first_line: str, title: str, body: str) -> str:
    if there := _open(github, first_line):
        github.call("PATCH", f"issues/{there[0]}", body=body)
        return f"updated {_numbers(there[:1])}"
    opened = github.call("POST", "issues", title=title, body=body)
    return f"opened {_numbers([int(opened['number'])])}"


def _body(stack: str, text: str, url: str) -> str:
    said = f"The live resources differ from `Pulumi.{stack}.yaml`, according to [the last check]({url})."
    then = "Merge the wanted change into the file, or run the workflow `up`. This issue closes automatically."
    return f"{marker(stack)}\n{said}\n\n{fenced(text, _MOST)}\n\n{then}\n"


def _numbers(numbers: list[int]) -> str:
    return ", ".join(f"#{number}" for number in numbers)
