"""Hydra finds configuration inside packages only."""
