"""Common parts of the HTML pages: one file, no scripts, no requests, light or dark as the reader's system."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from pathlib import Path

COLOURS = 8
"""Classes w0 to w7 of the style."""
LETTER = 6.4
"""Width of a letter at 11 px, rounded up: a name must not run into its neighbour."""
SMALL_LETTER = 5.8
"""The same at 10 px."""
STYLE = Path(__file__).with_name("page.css")


def page(title: str, body: Iterable[str]) -> str:
    """A whole page; ``body`` is HTML already."""
    lines = "\n".join(body)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>\n{STYLE.read_text(encoding='utf-8')}</style></head><body>\n{lines}\n</body></html>\n"
    )


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of plain text; if wider than the window, it scrolls on its own, also by keyboard."""
    top = "".join(f"<th>{escape(one)}</th>" for one in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(one)}</td>" for one in row) + "</tr>" for row in rows)
    return f'<div class="scroll" tabindex="0"><table><tr>{top}</tr>{body}</table></div>'


def paragraphs(lines: Iterable[str], kind: str = "") -> str:
    opened = f'<p class="{kind}">' if kind else "<p>"
    return "".join(f"{opened}{escape(line)}</p>" for line in lines)


def cut(text: str, width: float, letter: float = LETTER) -> str:
    """The text, cut with an ellipsis to ``width`` pixels; empty if only three letters of it would fit."""
    letters = int(width / letter)
    return text if len(text) <= letters else f"{text[: letters - 1]}\u2026" if letters > 3 else ""
