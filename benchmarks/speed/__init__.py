"""How fast the suite is, against the least that the same work can cost: `python -m benchmarks.speed`."""
