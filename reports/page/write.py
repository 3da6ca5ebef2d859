"""The page as one file: data, scripts and styles put into the template, nothing to be fetched."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.records.files import atomic_write

HERE = Path(__file__).parent
STYLES = ("vendor/uPlot.min.css", "assets/page.css", "assets/detail.css")
PARTS = (
    "data",
    "state",
    "looks",
    "chart",
    "board",
    "curves",
    "scene",
    "detail",
    "tables",
    "main",
)  # in this order
SCRIPTS = ("vendor/uPlot.iife.min.js", *(f"assets/{name}.js" for name in PARTS))


def document(data: dict[str, Any]) -> str:
    """The whole file."""
    template = _text("assets/page.html")
    for mark, text in (
        ("/*STYLES*/", "\n".join(map(_text, STYLES))),
        ("/*SCRIPTS*/", "\n".join(map(_text, SCRIPTS))),
        ("/*DATA*/", embedded(data)),  # last: the data may hold anything
    ):
        before, _, after = template.partition(mark)
        template = before + text + after
    return template


def embedded(data: Any) -> str:
    """JSON that may stand inside a script element: no text can end the element or begin a comment."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def write(path: Path, data: dict[str, Any]) -> int:
    """Whole or not at all, so that a browser never loads half a page. Returns the size in bytes."""
    content = document(data).encode()
    atomic_write(path, content)
    return len(content)


@cache
def _text(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")
