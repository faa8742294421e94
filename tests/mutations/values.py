"""Values and texts that break parsers, or programs that trust what was parsed."""

from __future__ import annotations

import datetime
import math
from typing import Any

# fmt: off
_WIDE = zip("abcdefg", "bcdefgh", strict=True)
_LAUGHS = tuple((new, ", ".join([f"*{old}"] * 9)) for old, new in _WIDE)
"""Each anchor has nine times the one before: 4.7 million values in 300 characters."""

VALUES: tuple[Any, ...] = (
    *(None, True, False, "", " ", "~", "no", "null", [], {}, [[]], [{}], {"": ""}, {"a": {}}, [None]),
    *(0, 1, -1, 2, 5000, 5001, 2**31 - 1, 2**31, 2**63 - 1, 2**63, 10**18, -(10**18), 10**400, -(2**70)),
    *(0.5, -0.0, 1e-320, 1e300, 1.7e308, math.inf, -math.inf, math.nan),
    *("9" * 309, "9" * 400 + "m", "9" * 5000, "9" * 5000 + "Gi"),
    *("9" * 19 + "Ti", "0x10", "1e9", "1_000", "0Gi"),
    *("\u0663", "\uff11\uff12", "\u00b2", "\u00bd", "\u096bGi", "\x00", "a\x00b", "\ud800", "\U0010ffff"),
    *("\u202e", "a\nb", "a\r\n", "\ufeff", "x" * 64, "x" * 254),
    *("x" * 100_000, "1." * 5000, "-" * 1000, "/" * 1000),
    *("../../etc/passwd", "a..b", "::1"),
    *("{{ lookup('pipe', 'id') }}", "${HOME}", "$(id)", "%s%n", "http://["),
    *("https://a:99999/", "1.2.3.4/33", "9" * 4000 + "d"),
    *("9" * 4000 + "GB", "99999999y", "0d", "100%", "-5%"),
    *("9" * 4500 + "%", "1.34", "99.99.99", datetime.date(1, 1, 1), datetime.date(9999, 12, 31), b"\xff\x00"),
    *(list(range(300)), ["a"] * 300, {str(number): number for number in range(300)}),
)
"""Replacements for any value of an environment."""

TEXTS: tuple[str, ...] = (
    *("2026-02-30", "2026-13-01T99:99:99Z", "0000-00-00", "9" * 5000, "-" + "9" * 5000, "0x" + "f" * 6000),
    *("0b" + "1" * 20_000, "0" + "7" * 9000, "1" + ":59" * 3000),
    *("1" + ":59" * 900 + ".5", ".inf", "-.inf", ".nan"),
    *("!!int foo", '!!int ""', "!!float x", "!!float ''", "!!bool maybe", "!!timestamp x", "!!binary '*'"),
    *("!!null x", "!!str 5", "!!set {a, b}", "!!omap [a: 1]"),
    *("!!omap {a: 1}", "!!pairs [a: 1, a: 2]", "!!pairs x"),
    *("!!seq {}", "!!python/object/apply:os.system [id]", "!mine x"),
    *("!<> x", "!!", "!!map []", "!!map x", "!!int [1]"),
    *("!!set [a]", "&a [*a]", "&a {a: *a}", "&a {<<: *a}", "*none", "&a", "*", "{<<: 5}", "{<<: [5]}", "<<"),
    *("{<<: {name: x}}", "[" * 5000, "{a: " * 2000),
    *("[" * 90 + "]" * 90, "[" * 1500 + "]" * 1500, "- " * 3000),
    *("? " * 500, "{[a]: b}", '"\\ud800"', '"\\U00110000"'),
    *('"\\UFFFFFFFF"', '"\\x00"', '"\\xzz"', "'", '"', "|"),
    *(">-", "|9", "%YAML 1.1", "---", "...", "--- x", "\t", "@", "`"),
    *("? a", ": b", "- - -", "#", "{1: 2}", "{null: 1}"),
    *("{true: 1, 1: 2}", "{2026-01-01: 1}", "{1.5: 2}"),
    *("{!!binary aGk=: 1}", "=", "{=: 1}", "[" + "," * 50 + "]"),
    *("{" + "a, " * 900 + "}", "[" + "x, " * 900 + "]"),
    f"[&a [x, x], {', '.join(f'&{name} [{nine}]' for name, nine in _LAUGHS)}]",
    f"[&a {{x: 1}}, {', '.join(f'&{name} {{<<: [{nine}]}}' for name, nine in _LAUGHS)}]",
)
"""YAML in place of any node of a file."""

WORDS = (
    *("gpu", "cpu", "a100-mig", "t4", "1g.5gb", "3g.20gb", "g5.xlarge"),
    *("A100", "eu-west-1", "10.0.0.0/16", "30d"),
    *("8Gi", "1.34", "x.example/y", "1.34.4", "https://x.example"),
    *("2026-12-01", "50%", "nodes", "memory_gib"),
    *("570", "8.0"),
)
"""Texts that are valid somewhere."""
# fmt: on
