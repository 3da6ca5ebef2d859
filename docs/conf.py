"""Sphinx configuration. Pages under `generated/` are written from the code before each build."""

import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

project = "federated-label-noise"
copyright = "the authors of federated-label-noise"
extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence", "dollarmath", "fieldlist"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = project
html_show_sphinx = False
html_show_copyright = False
exclude_patterns = ["_build"]
nitpicky = True


def setup(app: Any) -> None:
    import generate

    app.connect("builder-inited", lambda _: generate.main())
