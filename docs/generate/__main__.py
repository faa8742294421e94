"""Writes every generated page."""

from docs.generate import PAGES, REFERENCE, page

for name in PAGES:
    (REFERENCE / name).write_text(page(name), encoding="utf-8")
