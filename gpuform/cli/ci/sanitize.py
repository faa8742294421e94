"""Makes untrusted text safe to publish under the repository's own name."""

from __future__ import annotations

import re

_ZERO = "\u200b"
_ALLOWED = ("details>", "/details>", "summary>", "/summary>", "sub>", "/sub>")
_HTML = re.compile(rf"<(?!{'|'.join(map(re.escape, _ALLOWED))})(?=[A-Za-z/!?])")
_MENTION = re.compile(r"@(?=[A-Za-z0-9])")
_REFERENCE = re.compile(r"#(?=\d)")  # it would create a reference in that issue, of any repository
_ISSUE = re.compile(r"(?i)(?<![0-9a-z])gh(?=\\?-\d)")
_COMMIT = re.compile(r"(?i)(?<![0-9a-z])[0-9a-f]{7,40}(?![0-9a-z])")
"""Both become links (docs.github.com, Autolinked references and URLs); a part of six digits is no commit."""
_PART = re.compile(r"[0-9A-Fa-f]{6}(?=[0-9A-Fa-f])")
_ENTITY = re.compile(r"&(?!lt;|amp;)(?=[#A-Za-z])")  # it may encode a character that is searched here
_LINK = re.compile(r"\](?=[(:])")
_ADDRESS = re.compile(r"(?i)\b(https?|ftp|mailto)(?=:)|\b(www)(?=\.)")


def sanitize(text: str) -> str:
    """The same text without mentions, links, references to issues and commits, images and foreign HTML."""
    text = _ENTITY.sub("&amp;", text.replace("\r", ""))
    text = _HTML.sub("&lt;", text)
    text = _MENTION.sub(f"@{_ZERO}", text)
    text = _REFERENCE.sub(f"#{_ZERO}", text)
    text = _ISSUE.sub(lambda match: f"{match[0]}{_ZERO}", text)
    text = _COMMIT.sub(lambda match: _PART.sub(lambda part: f"{part[0]}{_ZERO}", match[0]), text)
    text = _LINK.sub(f"]{_ZERO}", text)
    return _ADDRESS.sub(lambda match: f"{match[0]}{_ZERO}", text)


def code_block(text: str, limit: int) -> str:
    """Plain text as a code block that it cannot close; cut to ``limit`` characters, with a note."""
    shown = text if len(text) <= limit else text[:limit] + "\n... truncated: the run has the full output"
    shown = shown.replace("```", "'''").strip("\n")
    return f"```text\n{shown}\n```"
