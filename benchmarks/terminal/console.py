"""Console for tables."""

import sys

from rich.console import Console

REDIRECTED_WIDTH = 140  # characters, if the output is a file or a pipe


def make_console() -> Console:
    return Console() if sys.stdout.isatty() else Console(width=REDIRECTED_WIDTH)
