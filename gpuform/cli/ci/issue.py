"""Issues that follow a state: opened, updated, and closed when the cause is gone.

One for each stack that has drifted, one for the nightly tests, and one for facts and pins that are due.
"""

from __future__ import annotations

from gpuform.checkout.errors import Failure
from gpuform.cli.ci.github import BOT, GitHub, begins_with, code_block

NONE, DRIFT = 0, 3  # exit codes of `gpuform drift`, and of `make facts`
_MOST = 60_000  # GitHub's limit is 65,536
_NIGHTLY = "<!-- gpuform nightly -->"
_FACTS = "<!-- gpuform facts -->"


def drift_marker(stack: str) -> str:
    """The line that identifies the issue of a stack."""
    return f"<!-- gpuform drift {stack} -->"


def update_drift_issue(github: GitHub, stack: str, code: int, text: str, url: str) -> str:
    """Update the issues with ``gpuform drift``'s result; returns what was done.

    ``code`` is its exit code, ``text`` its output, ``url`` the run. Raises Failure, and leaves the issues
    alone, if the drift is not known.
    """
    if code not in (NONE, DRIFT):
        raise Failure(stack, f"`gpuform drift` ended with {code}", f"see the run: {url}")
    if code == NONE:
        closed = _close_issues(
            github, drift_marker(stack), f"No drift any more, according to [this run]({url})."
        )
        return f"{stack}: no drift{closed}"
    finding = f"The live resources differ from `Pulumi.{stack}.yaml`, according to [the last check]({url})."
    fix = "Merge the wanted change into the file, or run the workflow `up`. This issue closes automatically."
    body = _body(drift_marker(stack), finding, text, fix)
    return f"{stack}: drift, " + _open_or_update(github, drift_marker(stack), f"Drift: {stack}", body)


def update_nightly_issue(github: GitHub, result: str, url: str) -> str:
    """Update the issue of the nightly tests with their result; returns what was done.

    ``result`` is that of the workflow's jobs (``success``, ``failure`` or ``cancelled``), ``url`` the run.
    """
    if result == "success":
        return "nightly tests: passed" + _close_issues(github, _NIGHTLY, f"[This run]({url}) passed.")
    summary = f"The newest run of `make test-all`: [{result}]({url}). A run that passes closes this issue."
    return f"nightly tests: {result}, " + _open_or_update(
        github, _NIGHTLY, "Nightly tests failed", f"{_NIGHTLY}\n{summary}\n"
    )


def update_facts_issue(github: GitHub, code: int, text: str, url: str) -> str:
    """Update the issue with what ``python -m docs.facts`` printed; returns what was done."""
    if code not in (NONE, DRIFT):
        raise Failure("facts", f"`python -m docs.facts` ended with {code}", f"see the run: {url}")
    if code == NONE:
        return "facts: nothing is due" + _close_issues(
            github, _FACTS, f"[This run]({url}) found nothing due."
        )
    fix = "Compare each with its source; correct the row and its date, or the pin. `make facts` prints this."
    body = _body(_FACTS, f"According to [the newest run]({url}):", text, fix)
    return "facts: due, " + _open_or_update(github, _FACTS, "Facts and pins to check", body)


def _list_open(github: GitHub, first_line: str) -> list[int]:
    """Numbers of our open issues that begin with ``first_line``, oldest first."""
    return [
        int(item["number"])
        for item in github.list_all("issues", state="open", sort="created", direction="asc")
        if "pull_request" not in item
        and item["user"]["login"] == BOT
        and begins_with(item["body"], first_line)
    ]


def _close_issues(github: GitHub, first_line: str, why: str) -> str:
    numbers = _list_open(github, first_line)
    for number in numbers:
        github.call("POST", f"issues/{number}/comments", body=why)
        github.call("PATCH", f"issues/{number}", state="closed", state_reason="completed")
    return f", closed {_numbers(numbers)}" if numbers else ""


def _open_or_update(github: GitHub, first_line: str, title: str, body: str) -> str:
    if numbers := _list_open(github, first_line):
        github.call("PATCH", f"issues/{numbers[0]}", body=body)
        return f"updated {_numbers(numbers[:1])}"
    opened = github.call("POST", "issues", title=title, body=body)
    return f"opened {_numbers([int(opened['number'])])}"


def _body(first_line: str, finding: str, text: str, fix: str) -> str:
    return f"{first_line}\n{finding}\n\n{code_block(text, _MOST)}\n\n{fix}\n"


def _numbers(numbers: list[int]) -> str:
    return ", ".join(f"#{number}" for number in numbers)
