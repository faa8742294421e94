"""EKS's Kubernetes versions: how long AWS supports each of them, in UTC.

The dates are those of AWS's release calendar (EKS user guide, "Understand the Kubernetes version lifecycle on
EKS"; endoflife.date, products/amazon-eks.md). With support STANDARD, EKS upgrades a cluster by itself when
the standard support of its version has ended; with EXTENDED it keeps the version for a surcharge, until that
support has ended, too (same page). Prices: infra/model/prices.py, ``control_plane``, ``extended_support``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from types import MappingProxyType

READ = date(2026, 11, 25)
"""The day on which the table was compared with its sources."""


@dataclass(frozen=True)
class Support:
    """The day on which each kind of support ends; extended support begins when standard support ends."""

    standard: date
    extended: date

    @property
    def began(self) -> date:
        """The day before which no node image of the version was published.

        Standard support lasts 14 months (same page); images came up to a month before it.
        """
        months = self.standard.year * 12 + self.standard.month - 1 - 15
        return date(months // 12, months % 12 + 1, 1)


EKS: Mapping[str, Support] = MappingProxyType(
    {
        "1.33": Support(date(2026, 7, 29), date(2027, 7, 29)),
        "1.34": Support(date(2026, 12, 2), date(2027, 12, 2)),
        "1.35": Support(date(2027, 3, 27), date(2028, 3, 27)),
        "1.36": Support(date(2027, 8, 2), date(2028, 8, 2)),
    }
)
