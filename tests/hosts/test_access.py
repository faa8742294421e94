"""Whether a host answers at all; the first of the checks."""

from __future__ import annotations

from tests.hosts import places
from tests.hosts.expected import Expected
from tests.hosts.findings import expect


def test_reachable(place: places.Place, expected: Expected) -> None:
    """The host answers; every other check of one that does not is left out."""
    address = expected.connection.get("ansible_host", expected.host)
    expect(
        not place.trouble,
        place.trouble,
        f"check that {address} is up and that ssh takes its key and yours: `ssh {address} true`",
    )
