"""EC2's vCPU quotas, and the families of instance types that each of them counts.

Names and codes are those of AWS's page "Amazon EC2 instance type quotas" (EC2 instance types guide; each name
there links to its code), read on 2026-11-21. A family is listed if the quota's name covers it: by its letter
(G and VT, P, Standard: A, C, D, H, I, M, R, T, Z) or by its series (P2, P3, P4, P5). ``UNKNOWN`` has the
families of our machines that no quota name clearly covers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Market = Literal["on-demand", "spot"]

_STANDARD = frozenset("acdhimrtz")
_G_AND_VT = frozenset(("g3", "g3s", "g4ad", "g4dn", "g5", "g5g", "g6", "g6e", "g6f", "g7", "g7e", "vt1"))
_P2_TO_P4 = frozenset(("p2", "p3", "p3dn", "p4d", "p4de"))
_P5 = frozenset(("p5",))
_P5_AND_LATER = frozenset(("p5", "p5e", "p5en", "p6-b200", "p6-b300"))


@dataclass(frozen=True)
class Quota:
    """One quota.

    ``families`` are the parts of instance types before the dot; ``letters`` stand for all families that begin
    with just this letter and a digit; ``label`` is all of them in AWS's words.
    """

    code: str
    name: str
    label: str
    market: Market
    families: frozenset[str] = frozenset()
    letters: frozenset[str] = frozenset()

    def counts(self, instance_type: str) -> bool:
        family = instance_type.partition(".")[0]
        letters = re.match(r"[a-z]+", family)
        return family in self.families or (letters is not None and letters[0] in self.letters)


QUOTAS = (
    Quota("L-DB2E81BA", "Running On-Demand G and VT instances", "G and VT", "on-demand", _G_AND_VT),
    Quota("L-417A185B", "Running On-Demand P instances", "P", "on-demand", _P2_TO_P4 | _P5_AND_LATER),
    Quota(
        "L-1216C47A",
        "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances",
        "Standard",
        "on-demand",
        letters=_STANDARD,
    ),
    Quota("L-3819A6DF", "All G and VT Spot Instance Requests", "G and VT", "spot", _G_AND_VT),
    Quota("L-7212CCBC", "All P4, P3 and P2 Spot Instance Requests", "P4, P3 and P2", "spot", _P2_TO_P4),
    Quota("L-C4BD4855", "All P5 Spot Instance Requests", "P5", "spot", _P5),
    Quota(
        "L-34B43A08",
        "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests",
        "Standard",
        "spot",
        letters=_STANDARD,
    ),
)

_BESIDE_P5 = "AWS has a quota for P5 but none for this family; it counts capacity blocks separately"
_GR = "AWS's quotas name G and VT, but not Gr"
_NO_P6 = "AWS has spot quotas for P2 to P5, but none for P6"

UNKNOWN_FAMILIES: Mapping[tuple[Market, str], str] = {
    ("on-demand", "gr6"): _GR,
    ("spot", "gr6"): _GR,
    ("spot", "p5e"): _BESIDE_P5,
    ("spot", "p5en"): _BESIDE_P5,
    ("spot", "p6-b200"): _NO_P6,
    ("spot", "p6-b300"): _NO_P6,
}
"""Why the quota of a family is not known, by market."""


def quota_of(market: Market, instance_type: str) -> Quota | None:
    """The quota that counts this type; None if not known."""
    return next((quota for quota in QUOTAS if quota.market == market and quota.counts(instance_type)), None)
