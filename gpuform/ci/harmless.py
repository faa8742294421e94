"""Makes untrusted text safe to publish under the repository's own name."""

from __future__ import annotations

import re

_ZERO = "\u200b"
_ALLOWED = ("details>", "/details>", "summary>", "/summary>", "sub>", "/sub>")
_HTML = re.compile(rf"<(?!{'|'.join(map(re.escape, _ALLOWED))})(?=[A-Za-z/!?])")
_MENTION = re.compile(r"@(?=[A-Za-z0-9])")
_REFERENCE = re.compile(r"#(?=\d)")  # it would create a reference in that issue, of any repository
_ENTITY = re.compile(r"&(?!lt;|amp;)(?=[#A-Za-z])")  # it may encode a character that is searched here
_LINK = re.compile(r"\](?=[(:])")
_ADDRESS = re.compile(r"(?i)\b(https?|ftp|mailto)(?=:)|\b(www)(?=\.)")


def harmless(text: str) -> str:
    """The same text without mentions, links, images and foreign HTML."""
    text = _ENTITY.sub("&amp;", text.replace("\r", ""))
    text = _HTML.sub("&lt;", text)
    text = _MENTION.sub(f"@{_ZERO}", text)
    text = _REFERENCE.sub(f"#{_ZERO}", text)
    text = _LINK.sub(f"]{_ZERO}", text)
    return _ADDRESS.sub(lambda found: f"{found[0]}{_ZERO}", text)


def fenced(text: str, most: int) -> str:
    """Plain text as a code block that it cannot close; cut to ``most`` characters, with a note."""
    kept = text if len(text) <= most else text[:most] + "\n... truncated: the run has the full output"
    kept = kept.replace("```", "'''").strip("\n")
    return f"```text\n{kept}\n```"
