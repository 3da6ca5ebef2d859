"""Rendering of the page: data, scripts and styles in one HTML file."""

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from benchmarks.records.files import atomic_write

HERE = Path(__file__).parent
STYLES = ("vendor/uPlot.min.css", "assets/page.css", "assets/detail.css")
# Scripts share one scope and run in this order.
SCRIPTS = (
    "vendor/uPlot.iife.min.js",
    *(
        f"assets/{name}.js"
        for name in (
            "data", "state", "styles", "chart", "leaderboard", "curves", "scenario", "detail",
            "tables", "main",
        )
    ),
)  # fmt: skip


def render_html(data: dict[str, Any]) -> str:
    """The whole file."""
    sources = {
        name: "\n".join((HERE / path).read_text(encoding="utf-8") for path in paths)
        for name, paths in (("styles", STYLES), ("scripts", SCRIPTS))
    }
    return _template().render(data=data, **sources)


def write_page(path: Path, data: dict[str, Any]) -> int:
    """Replace the file atomically: a browser never loads part of a page. Returns its size."""
    content = render_html(data).encode()
    atomic_write(path, content)
    return len(content)


@cache
def _template() -> Template:
    environment = Environment(loader=FileSystemLoader(HERE / "assets"), undefined=StrictUndefined)
    # The filter `tojson` escapes <, > and &, so that no string can end the script element.
    environment.policies["json.dumps_kwargs"] = {
        "ensure_ascii": False, "separators": (",", ":"), "allow_nan": False
    }  # fmt: skip
    return environment.get_template("page.html")
