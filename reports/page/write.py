"""Rendering of the page: data, scripts and styles in one HTML file."""

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from benchmarks.records.files import atomic_write

HERE = Path(__file__).parent


def render_html(data: dict[str, Any]) -> str:
    """The whole file."""
    return _template().render(data=data)


def write_page(path: Path, data: dict[str, Any]) -> int:
    """Replace the file atomically: a browser never loads part of a page. Returns its size."""
    content = render_html(data).encode()
    atomic_write(path, content)
    return len(content)


@cache
def _template() -> Template:
    environment = Environment(loader=FileSystemLoader(HERE / "assets"), undefined=StrictUndefined)
    environment.globals["source"] = lambda path: (HERE / path).read_text(encoding="utf-8")
    # The filter `tojson` escapes <, > and &, so that no string can end the script element.
    environment.policies["json.dumps_kwargs"] = {
        "ensure_ascii": False, "separators": (",", ":"), "allow_nan": False
    }  # fmt: skip
    return environment.get_template("page.html")
