"""Whether a host answers at all; the first of the checks."""

from __future__ import annotations

from tests.hosts import connections
from tests.hosts.expected import Expected
from tests.hosts.findings import expect


def test_reachable(place: connections.Connection, expected: Expected) -> None:
    """The host answers; all other checks of an unreachable host are skipped."""
    way = expected.connection
    user = f"{way['ansible_user']}@" if way.get("ansible_user") else ""
    command = f"ssh -p {way.get('ansible_port') or 22} {user}{way.get('ansible_host') or expected.host} true"
    address = way.get("ansible_host") or expected.host
    remedy = (
        f"check that {address} is up and that ssh takes its key and yours: `{command}`"
        if place.by_ssh
        else "see `kubectl -n gpu-operator get pods -o wide`"
    )
    expect(not place.problem, place.problem, remedy)
