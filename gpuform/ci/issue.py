"""One issue for each stack that has drifted: opened, kept up to date, closed when the drift is gone."""

from __future__ import annotations

from gpuform.ci.github import OURS, GitHub
from gpuform.ci.harmless import fenced
from gpuform.errors import Failure

NONE, DRIFT = 0, 3  # exit codes of `gpuform drift`
_MOST = 60_000  # GitHub takes 65,536


def marker(stack: str) -> str:
    """The line by which the issue of a stack is found again."""
    return f"<!-- gpuform drift {stack} -->"


def report(github: GitHub, stack: str, code: int, text: str, url: str) -> str:
    """Make the issues say what ``gpuform drift`` found; returns what was done.

    ``code`` is how it ended, ``text`` what it printed, ``url`` the run. Raises Failure, and leaves the issues
    alone, where it could not find out.
    """
    if code not in (NONE, DRIFT):
        raise Failure(stack, f"`gpuform drift` ended with {code}", f"see its run: {url}")
    there = [
        int(one["number"])
        for one in github.each("issues", state="open", sort="created", direction="asc")
        if "pull_request" not in one
        and one["user"]["login"] == OURS
        and str(one["body"] or "").replace("\r\n", "\n").split("\n", 1)[0] == marker(stack)
    ]
    if code == NONE:
        for number in there:
            github.call(
                "POST", f"issues/{number}/comments", body=f"No drift any more, says [this run]({url})."
            )
            github.call("PATCH", f"issues/{number}", state="closed", state_reason="completed")
        return f"{stack}: no drift" + (f", closed {_numbers(there)}" if there else "")
    body = _body(stack, text, url)
    if there:
        github.call("PATCH", f"issues/{there[0]}", body=body)
        return f"{stack}: drift, brought {_numbers(there[:1])} up to date"
    opened = github.call("POST", "issues", title=f"Drift: {stack}", body=body)
    return f"{stack}: drift, opened {_numbers([int(opened['number'])])}"


def _body(stack: str, text: str, url: str) -> str:
    said = f"What runs is not what `Pulumi.{stack}.yaml` declares, says [the last look at it]({url})."
    then = "Merge a file that declares what is wanted, or run the workflow `up`. This issue closes by itself."
    return f"{marker(stack)}\n{said}\n\n{fenced(text, _MOST)}\n\n{then}\n"


def _numbers(numbers: list[int]) -> str:
    return ", ".join(f"#{number}" for number in numbers)
