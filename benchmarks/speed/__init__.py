"""Speed of the runner, compared with hand-written loops: `python -m benchmarks.speed`."""
