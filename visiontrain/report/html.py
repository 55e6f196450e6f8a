"""What every page is made of: its frame, pictures inside it, and how it gets onto the disk.

A page is one file that needs no network. Whoever makes one escapes what comes from the user.
"""

from __future__ import annotations

import base64
import os
from html import escape
from pathlib import Path

from visiontrain.report.style import CSS


def html_page(title: str, body: str, *, style: str = "", script: str = "") -> str:
    """A whole page.

    Args:
        title: Of the window; plain text.
        body: HTML.
        style: More rules than those of all pages.
        script: JavaScript that runs when the page is there; plain text without `</`.
    """
    assert "</" not in script, "it would end the script for the browser"
    behind = f"<script>\n{script}</script>\n" if script else ""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{CSS}{style}</style>\n</head>\n<body>\n"
        f"{body}\n{behind}</body>\n</html>\n"
    )


def write_page(path: Path, text: str) -> None:
    """Write a page in one step: whoever opens it sees all of it, or the one before."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        # The name of a file need not be valid Unicode; what is not stands there as an escape.
        unfinished.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def image_tag(jpeg: bytes, alt: str) -> str:
    """An `img` that holds its picture itself."""
    data = base64.b64encode(jpeg).decode("ascii")
    return f'<img src="data:image/jpeg;base64,{data}" alt="{escape(alt, quote=True)}" loading="lazy">'
