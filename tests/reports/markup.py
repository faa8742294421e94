from __future__ import annotations

from html.parser import HTMLParser

from gpuform.reports.page import PAGES

VOID = ("meta", "br")


class Tags(HTMLParser):
    """Asserts that every tag is closed, in order; records what a page would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []
        self.classes: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.fetched += [str(found[key]) for key in ("src", "href") if key in found]
        self.classes.append(found.get("class") or "")
        if tag in ("script", "link", "iframe", "object"):
            self.fetched.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def macro(name: str, *values: object) -> str:
    return str(getattr(PAGES.get_template("parts.html").module, name)(*values))
