"""Benchmark runner: datasets, models, scenarios, the round loop and run records."""
