"""Comments on a pull request: one per stack, updated in place.

Runs after the preview workflow, with a token that may write, and without the pull request's code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuform.checkout.errors import Failure, InputError
from gpuform.cli.ci.artifacts import Summary, list_summaries
from gpuform.cli.ci.github import BOT, GitHub, begins_with, safe_url, sanitize
from gpuform.reports.pull_request import marker


def comment_summaries(github: GitHub, event: Mapping[str, Any]) -> list[str]:
    """Comment the results of the event's workflow run; returns one line for each stack.

    Writes nothing if the pull request has newer commits. Raises Failure for an invalid summary, after writing
    the others.
    """
    run = event.get("workflow_run")
    if not isinstance(run, dict):
        raise InputError("GITHUB_EVENT_PATH", "is not a workflow_run event", "trigger this on workflow_run")
    numbers = _pull_requests(github, run)
    if len(numbers) != 1:
        return [f"{len(numbers)} open pull requests have this head commit: no comment is written"]
    live = run["head_repository"]["id"] == run["repository"]["id"]
    summaries = list_summaries(github, int(run["id"]), live)
    done = [_write_comment(github, numbers[0], summary, run) for summary in summaries if not summary.refused]
    refused = [f"{summary.stack} {summary.refused}" for summary in summaries if summary.refused]
    if refused:
        raise Failure("summary", "; ".join(refused), "see the artifacts of the preview workflow")
    return done or ["the run has no summary: no comment is written"]


def _pull_requests(github: GitHub, run: Mapping[str, Any]) -> list[int]:
    """Numbers of the open pull requests of the run.

    From GitHub's data on the run, never from what the run has left: that could name another pull request. The
    event itself names none if the branch is in a fork.
    """
    head_repository = run.get("head_repository")
    if not isinstance(head_repository, dict):  # the fork was deleted
        return []
    head = f"{head_repository['owner']['login']}:{run['head_branch']}"
    return [
        int(pull["number"])
        for pull in github.list_all("pulls", state="open", head=head)
        if pull["head"]["sha"] == run["head_sha"]
        and (pull["head"]["repo"] or {}).get("id") == head_repository["id"]
    ]


def _write_comment(github: GitHub, number: int, summary: Summary, run: Mapping[str, Any]) -> str:
    first, _, rest = summary.text.partition("\n")
    url = safe_url("workflow_run", str(run["html_url"]))
    origin = f"<sub>of commit {str(run['head_sha'])[:10]}, by [this run]({url})</sub>"
    body = f"{first}\n{sanitize(rest).rstrip()}\n\n{origin}\n"
    existing = next(
        (
            candidate
            for candidate in github.list_all(f"issues/{number}/comments")
            if candidate["user"]["login"] == BOT and begins_with(candidate["body"], marker(summary.stack))
        ),
        None,
    )
    if existing is None:
        github.call("POST", f"issues/{number}/comments", body=body)
        return f"{summary.stack}: commented"
    if existing["body"] != body:
        github.call("PATCH", f"issues/comments/{int(existing['id'])}", body=body)
        return f"{summary.stack}: comment updated"
    return f"{summary.stack}: comment is up to date"
