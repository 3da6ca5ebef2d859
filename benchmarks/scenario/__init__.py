"""Federated scenarios: data partition and label noise of a run."""
