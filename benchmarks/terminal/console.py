"""Console for tables."""

import sys

from rich.console import Console

REDIRECTED_WIDTH = 140  # characters, if the output is a file or a pipe


def make_console() -> Console:
    """A console that prints all text literally, such as the heading `time [s]`."""
    width = None if sys.stdout.isatty() else REDIRECTED_WIDTH
    return Console(width=width, markup=False, highlight=False)
