"""Command `python -m benchmarks.scenario`."""

import sys

from benchmarks.scenario.scenario import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
